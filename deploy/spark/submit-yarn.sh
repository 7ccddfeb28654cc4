#!/usr/bin/env bash
# The nightly jobs over a fleet's traces, on YARN. Run this in the top folder, after `make spark-zip`:
#
#   deploy/spark/submit-yarn.sh s3a://bucket/traces s3a://bucket/tables                    # all stale dates
#   deploy/spark/submit-yarn.sh s3a://bucket/traces s3a://bucket/tables --date 2026-11-20  # one date
#
# The driver's Python needs duckdb, jinja2, pyarrow and pyyaml (PYSPARK_PYTHON, or --archives with a packed environment).
set -euo pipefail

if (($# < 2)); then
    echo "usage: ${0##*/} TRACES TABLES [--date D | --from D --to D]" >&2
    exit 2
fi
traces=$1 tables=$2
shift 2

settings=(
    # The driver plans, lists files and collects the results of small tables. One gigabyte is enough for a gateway; listing a
    # fleet's files takes more.
    --driver-memory 4g
    # Few big executors have long garbage collections; many small ones shuffle more over the network.
    --num-executors 4 --executor-cores 4 --executor-memory 8g
    # Python runs only in the driver, and the JVM does the work: no extra memory for Python workers.
    --conf spark.executor.memoryOverheadFactor=0.1
    # Adaptive execution merges small shuffle partitions once their sizes are known, and splits very large ones. The number
    # of partitions only has to be large enough: about three per core.
    --conf spark.sql.adaptive.enabled=true
    --conf spark.sql.adaptive.skewJoin.enabled=true
    --conf spark.sql.shuffle.partitions=48
    # Traces are many files of a few megabytes. Opening a file counts as reading 1 MB, not 4, so more files share a task.
    --conf spark.sql.files.maxPartitionBytes=128m
    --conf spark.sql.files.openCostInBytes=1m
    # Only the columns that a job names are decoded, in batches. The default, set because so much depends on it.
    --conf spark.sql.parquet.enableVectorizedReader=true
    # Dates and hours are UTC everywhere: in SQL, and in the JVMs and Python, whatever the time zone of the machines.
    --conf spark.sql.session.timeZone=UTC
    --conf spark.driver.extraJavaOptions=-Duser.timezone=UTC
    --conf spark.executor.extraJavaOptions=-Duser.timezone=UTC
    --conf spark.yarn.appMasterEnv.TZ=UTC
    --conf spark.executorEnv.TZ=UTC
    # The next run repeats a failed one; a second attempt would only hide the reason.
    --conf spark.yarn.maxAppAttempts=1
)

exec "${SPARK_HOME:?where Spark is, 4.1 to 4.3}/bin/spark-submit" \
    --master yarn --deploy-mode cluster --name ustreamer-nightly \
    "${settings[@]}" \
    --py-files dist/spark_jobs.zip \
    --files config/slo.yaml \
    deploy/spark/nightly_main.py --input "$traces" --output "$tables" --slo slo.yaml "$@"
