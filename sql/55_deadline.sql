--
-- Deadlines of dispatched steps that have a timeout; no other task has a row.
--
-- The list belongs to the queue of the run's turns, not to the step's own: a step
-- that nobody picks up has to be noticed by those who wait for it.
--

CREATE TABLE durable.task_deadline (
	id			bigint NOT NULL,
	due_at		timestamptz NOT NULL,
	lease		bigint,			-- NULL: not claimed when the row was written
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL,
	CONSTRAINT task_deadline_pkey PRIMARY KEY (id)
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.task_deadline IS
'when the steps that have a timeout have to be looked at';
CREATE INDEX task_deadline_due ON durable.task_deadline (namespace, queue, due_at, id);
SELECT pg_catalog.pg_extension_config_dump('durable.task_deadline', '');

CREATE TRIGGER list_changed AFTER INSERT OR UPDATE OR TRUNCATE ON durable.task_deadline
	FOR EACH STATEMENT EXECUTE FUNCTION durable.list_changed();
