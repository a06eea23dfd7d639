--
-- What the planner makes of a step: on a replay its arguments are not evaluated.
--

CREATE FUNCTION durable.is_recorded(kind int) RETURNS boolean
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_is_recorded';
COMMENT ON FUNCTION durable.is_recorded(int) IS
'for plans: whether the result of the step that comes next is in the history';

CREATE FUNCTION durable.recorded(name text) RETURNS jsonb
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_recorded';
COMMENT ON FUNCTION durable.recorded(text) IS
'for plans: the result of the step that comes next, from the history';

CREATE FUNCTION durable.local_step_support(internal) RETURNS internal
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_local_step_support';
COMMENT ON FUNCTION durable.local_step_support(internal) IS 'internal: planner support of local_step';

CREATE FUNCTION durable.step_support(internal) RETURNS internal
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_step_support';
COMMENT ON FUNCTION durable.step_support(internal) IS 'internal: planner support of step';

ALTER FUNCTION durable.local_step SUPPORT durable.local_step_support;
ALTER FUNCTION durable.step SUPPORT durable.step_support;
