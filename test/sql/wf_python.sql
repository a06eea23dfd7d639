-- workflows: a body and a step in PL/Python, where it is installed
\set VERBOSITY terse
SELECT count(*) = 0 AS missing FROM pg_available_extensions WHERE name = 'plpython3u' \gset
\if :missing
\quit
\endif
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE EXTENSION plpython3u;
CREATE SCHEMA wf_test;
RESET client_min_messages;
SET search_path = wf_test;

CREATE TABLE effect (run text, step text);
CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpython3u AS $$
import json
v = json.loads(i)
plpy.execute(plpy.prepare("INSERT INTO wf_test.effect VALUES (durable.run_id(), $1)", ["text"]), [v["step"]])
if v.get("fail"):
    plpy.error("python says no", sqlstate="22012", detail="d")
return json.dumps(v["n"] + 1)
$$;
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpython3u AS $$
import json
step = plpy.prepare("SELECT durable.local_step('wf_test.act', $1, $2) AS r", ["jsonb", "text"])
def act(name, n, **more):
    return json.loads(plpy.execute(step, [json.dumps(dict(step=name, n=n, **more)), name])[0]["r"])
n = act("one", 1)
plpy.execute("SELECT durable.sleep('1 hour')")
try:
    act("two", n, fail=True)
except plpy.spiexceptions.DivisionByZero as e:
    n = act("three", n + 10)
got = plpy.execute("SELECT durable.wait_for_signal('python') AS r")[0]["r"]
return json.dumps([n, json.loads(got)])
$$;
-- Exception is a wide net in Python: it catches the end of the turn, too
CREATE FUNCTION careless(i jsonb) RETURNS jsonb LANGUAGE plpython3u AS $$
try:
    plpy.execute("SELECT durable.sleep('1 hour')")
except Exception:
    pass
return '"went on"'
$$;
CREATE FUNCTION bad_json(i jsonb) RETURNS jsonb LANGUAGE plpython3u AS $$
return "{'no': json}"
$$;
CREATE FUNCTION cyclic(i jsonb) RETURNS jsonb LANGUAGE plpython3u AS $$
import json
a = []
a.append(a)
return json.dumps(a)
$$;
CREATE FUNCTION no_json(i jsonb) RETURNS jsonb LANGUAGE plpython3u AS $$
import json
return json.dumps({"n": float("nan"), "t": "\ud800"})
$$;
CREATE FUNCTION bad_steps(i jsonb) RETURNS jsonb LANGUAGE plpython3u AS $$
import json
said = []
for f in ("bad_json", "cyclic", "no_json"):
    try:
        plpy.execute("SELECT durable.local_step('wf_test." + f + "')")
    except plpy.SPIError as e:
        if e.sqlstate == "57014":
            raise
        said.append(e.sqlstate)
return json.dumps(said)
$$;
SELECT durable.register_workflow(w, 'wf_test.' || w) FROM unnest('{body,careless,bad_json,cyclic,no_json,bad_steps}'::text[]) w \g /dev/null
SELECT durable.start(w, NULL, w) FROM unnest('{body,careless,bad_json,cyclic,no_json,bad_steps}'::text[]) w;
CALL durable.work(duration => '0');
SET durable.clock_offset = 3700;
CALL durable.work(duration => '0');
SELECT durable.signal('python', '{"s": 1}');
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT run_id, status, output, error ->> 'code' AS code, error ->> 'message' AS message FROM durable.run ORDER BY run_id;
SELECT * FROM effect;

SET client_min_messages = warning;
DROP SCHEMA wf_test CASCADE;
DROP EXTENSION durable;
DROP EXTENSION plpython3u;
