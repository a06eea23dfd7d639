--
-- Definitions: workflows and the handlers of steps.
--

CREATE TABLE durable.workflow (
	namespace		text COLLATE "C" NOT NULL,
	name			text COLLATE "C" NOT NULL,
	version			text COLLATE "C" NOT NULL,
	owner			regrole NOT NULL,
	registered_at	timestamptz NOT NULL,
	atomic			boolean NOT NULL,
	body			text,						-- NULL: turns go to external workers
	queue			text COLLATE "C" NOT NULL,
	tags			text[] NOT NULL,
	input_check		text,
	singleton_key			jsonpath,			-- of the input; NULL: no singleton
	singleton_limit			int,
	singleton_max_queued	int,
	concurrency_key			jsonpath,
	concurrency_limit		int,
	turn_silence			interval,
	on_error				jsonb,
	dead_letter_workflow	text COLLATE "C",
	requires				text[],
	CONSTRAINT workflow_pkey PRIMARY KEY (namespace, name, version)
);
COMMENT ON TABLE durable.workflow IS
'registered workflows; a body is stored as its function''s signature and runs as its owner';
SELECT pg_catalog.pg_extension_config_dump('durable.workflow', '');

CREATE TABLE durable.handler (
	namespace		text COLLATE "C" NOT NULL,
	name			text COLLATE "C" NOT NULL,
	owner			regrole NOT NULL,
	registered_at	timestamptz NOT NULL,
	handler			text NOT NULL,
	input_check		text,
	output_check	text,
	retries			int,
	backoff			interval,
	backoff_kind	text COLLATE "C",
	backoff_max		interval,
	jitter			boolean,
	timeout			interval,
	pickup_timeout	interval,
	CONSTRAINT handler_pkey PRIMARY KEY (namespace, name)
);
COMMENT ON TABLE durable.handler IS
'SQL functions that serve dispatched steps by name; each runs as its owner';
SELECT pg_catalog.pg_extension_config_dump('durable.handler', '');

-- Sessions that work know where their role has definitions.
CREATE TRIGGER settings_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
	ON durable.workflow
	FOR EACH STATEMENT EXECUTE FUNCTION durable.settings_changed();
CREATE TRIGGER settings_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
	ON durable.handler
	FOR EACH STATEMENT EXECUTE FUNCTION durable.settings_changed();

CREATE FUNCTION durable.register_workflow(
	name text, body text DEFAULT NULL, version text DEFAULT '1', namespace text DEFAULT NULL,
	tags text[] DEFAULT '{}', queue text DEFAULT NULL, input_check text DEFAULT NULL,
	singleton_key jsonpath DEFAULT NULL, singleton_limit int DEFAULT 1,
	singleton_max_queued int DEFAULT NULL, concurrency_key jsonpath DEFAULT NULL,
	concurrency_limit int DEFAULT NULL, turn_silence interval DEFAULT NULL,
	on_error jsonb DEFAULT NULL, dead_letter_workflow text DEFAULT NULL,
	requires text[] DEFAULT '{}', atomic boolean DEFAULT false)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'durable_register_workflow';
COMMENT ON FUNCTION durable.register_workflow(text, text, text, text, text[], text, text, jsonpath, int, int, jsonpath, int, interval, jsonb, text, text[], boolean) IS
'define a workflow, or replace the definition of this version; its body runs as the role that registers it; without a body its turns are for external workers';

CREATE FUNCTION durable.unregister_workflow(
	name text, version text DEFAULT NULL, namespace text DEFAULT NULL)
RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'durable_unregister_workflow';
COMMENT ON FUNCTION durable.unregister_workflow(text, text, text) IS
'forget a version of a workflow (NULL = all); how many; refused while it has live runs';

CREATE FUNCTION durable.register_handler(
	name text, handler text, namespace text DEFAULT NULL,
	input_check text DEFAULT NULL, output_check text DEFAULT NULL,
	retries int DEFAULT NULL, backoff interval DEFAULT NULL, backoff_kind text DEFAULT NULL,
	backoff_max interval DEFAULT NULL, jitter boolean DEFAULT NULL,
	timeout interval DEFAULT NULL, pickup_timeout interval DEFAULT NULL)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'durable_register_handler';
COMMENT ON FUNCTION durable.register_handler(text, text, text, text, text, int, interval, text, interval, boolean, interval, interval) IS
'let a SQL function serve the dispatched steps of this name; it runs as the role that registers it';

CREATE FUNCTION durable.unregister_handler(name text, namespace text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_unregister_handler';
COMMENT ON FUNCTION durable.unregister_handler(text, text) IS
'steps of this name go to external workers again; false = there was no handler';
