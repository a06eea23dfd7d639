--
-- Dead letters: what is started for a run that is dead.
--

-- One row per namespace; a workflow may name another one for its own runs.
CREATE TABLE durable.dead_letter (
	set_at		timestamptz NOT NULL,
	owner		regrole NOT NULL,					-- in whose name it is started
	namespace	text COLLATE "C" NOT NULL,
	workflow	text COLLATE "C" NOT NULL,
	CONSTRAINT dead_letter_pkey PRIMARY KEY (namespace)
);
COMMENT ON TABLE durable.dead_letter IS
'which workflow is started for a dead run in each namespace, unless the run''s own workflow names another';
SELECT pg_catalog.pg_extension_config_dump('durable.dead_letter', '');

CREATE FUNCTION durable.set_dead_letter_workflow(workflow text, namespace text DEFAULT NULL)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'durable_set_dead_letter_workflow';
COMMENT ON FUNCTION durable.set_dead_letter_workflow(text, text) IS
'which workflow is started when a run of the namespace is dead; NULL = none';
