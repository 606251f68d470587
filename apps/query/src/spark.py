"""Asks Spark what `plimsoll query --cluster` wants to know: run by spark-submit, with the name of a JSON file.

The file says which files the tables are of, and what to run. Answers go to files of a JSON object a row, which have
whole numbers, floats, texts and booleans alone. Lines of standard output that begin with `plimsoll-query` say the rest.
"""

import functools
import json
import math
import os
import sys
import threading
import time

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

# Seconds without a worker after which the question is given up.
PATIENCE_S = 60


def say(kind, text):
    print(f"plimsoll-query {kind} {json.dumps(text)}", flush=True)


def end(code):
    # The session's own end waits for workers that may be gone.
    sys.stdout.flush()
    os._exit(code)


def watch(context, asker_pid):
    """Names executors that are lost; ends the question where none is left, or the asker is gone."""
    tracker = context._jsc.sc().statusTracker()
    known, last_seen_s = set(), time.monotonic()
    while True:
        # An executor has no port until it is registered. The driver is listed too.
        executors = {f"{it.host()}:{it.port()}" for it in tracker.getExecutorInfos() if it.port()}
        for gone in sorted(known - executors):
            say("lost", gone)
        known = executors
        if len(executors) > 1:
            last_seen_s = time.monotonic()
        if time.monotonic() - last_seen_s > PATIENCE_S:
            say("error", f"no worker has taken the question for {PATIENCE_S} s: start workers, or free their cores and memory")
            end(3)
        try:
            os.kill(asker_pid, 0)
        except ProcessLookupError:
            end(3)
        time.sleep(0.5)


def reason(error):
    """The line of an error of Spark that says why, of a chain of causes the last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes[-1:] or lines[:1] or ["no reason given"])[0][:500]


def json_row(row):
    # JSON has no number that is not finite.
    return json.dumps({name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
                       for name, value in row.asDict().items()})


def main():
    with open(sys.argv[1]) as file:
        job = json.load(file)
    builder = SparkSession.builder.appName("plimsoll query")
    for key, value in job["settings"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    threading.Thread(target=watch, args=(spark.sparkContext, job["pid"]), daemon=True).start()
    for table in job["tables"]:
        parts = [spark.read.schema(table["schema"]).option("basePath", table["base"]).parquet(*files).select(*table["columns"])
                 for files in table["files"]]
        functools.reduce(lambda a, b: a.unionAll(b), parts).createOrReplaceTempView(table["name"])
    for step in job["steps"]:
        frame = spark.sql(step["sql"])
        if step["answer"] is None:
            continue
        names = [f"c{number}" for number in range(len(step["columns"]))]
        rows = frame.toDF(*names).selectExpr(*step["columns"])
        with open(step["answer"], "w") as file:
            file.writelines(json_row(row) + "\n" for row in rows.toLocalIterator())


try:
    main()
except AnalysisException as error:
    say("bad", reason(error))
    end(2)
except Exception as error:
    say("error", reason(error))
    end(3)
end(0)
