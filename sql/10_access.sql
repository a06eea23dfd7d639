--
-- Who may do what in which namespace, and which database this is.
--

CREATE TABLE durable.namespace_access (
	namespace	text COLLATE "C" NOT NULL,
	role		regrole NOT NULL,
	privileges	text[] NOT NULL,
	PRIMARY KEY (namespace, role)
);
COMMENT ON TABLE durable.namespace_access IS
'what each role may do in each namespace; written by grant_usage and revoke_usage';
SELECT pg_catalog.pg_extension_config_dump('durable.namespace_access', '');

-- One row, written when the extension is created. A copy made by CREATE DATABASE
-- ... TEMPLATE holds a row that names another place; a restored dump holds two,
-- its own and the dumped one. Either hands out no work until activate().
CREATE TABLE durable.identity (
	installation		uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid() PRIMARY KEY,
	system_identifier	bigint NOT NULL,
	database			oid NOT NULL,
	created_at			timestamptz NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE durable.identity IS
'the cluster and database this data belongs to; any other or second row marks a restored or cloned copy';
SELECT pg_catalog.pg_extension_config_dump('durable.identity', '');

-- Sessions cache access and identity; any change tells them at commit.
CREATE FUNCTION durable.settings_changed() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_settings_changed';
COMMENT ON FUNCTION durable.settings_changed() IS
'trigger: makes every session forget what it cached of the table';

CREATE TRIGGER settings_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
	ON durable.namespace_access
	FOR EACH STATEMENT EXECUTE FUNCTION durable.settings_changed();
CREATE TRIGGER settings_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
	ON durable.identity
	FOR EACH STATEMENT EXECUTE FUNCTION durable.settings_changed();

-- The trigger also tells the launcher of the background workers.
INSERT INTO durable.identity (system_identifier, database)
SELECT s.system_identifier, d.oid
  FROM pg_catalog.pg_control_system() s, pg_catalog.pg_database d
 WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database();

CREATE FUNCTION durable.has_access(namespace text, privilege text) RETURNS boolean
LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'durable_has_access';
COMMENT ON FUNCTION durable.has_access(text, text) IS
'whether the current role holds the privilege (start, signal, work, read, manage) in the namespace';

CREATE FUNCTION durable.require_access(namespace text, privilege text) RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'durable_require_access';
COMMENT ON FUNCTION durable.require_access(text, text) IS
'the namespace''s full name (NULL is the session''s own), or error 42501 when the current role lacks the privilege';

CREATE FUNCTION durable.activate() RETURNS bigint
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_activate';
COMMENT ON FUNCTION durable.activate() IS
'lets a restored or cloned copy of the database hand out work again; returns how many claimed tasks went back to their queues';
