#!/usr/bin/env bash
# The nightly jobs over a fleet's traces, on YARN. Run it from the top folder, after `make spark-zip`:
#
#   deploy/spark/submit-yarn.sh s3a://bucket/traces s3a://bucket/tables                    # every date that is not up to date
#   deploy/spark/submit-yarn.sh s3a://bucket/traces s3a://bucket/tables --date 2026-11-20  # one
#
# The driver needs jinja2 and pyyaml in its Python (PYSPARK_PYTHON, or --archives with a packed environment).
set -euo pipefail

if (($# < 2)); then
    echo "usage: ${0##*/} TRACES TABLES [--date D | --from D --to D]" >&2
    exit 2
fi
traces=$1 tables=$2
shift 2

settings=(
    # The driver plans, lists files and keeps the results of small tables: one gigabyte would do for a gateway, listing a
    # fleet's files takes more.
    --driver-memory 4g
    # Few big executors waste memory in long collections, many small ones shuffle more over the network.
    --num-executors 4 --executor-cores 4 --executor-memory 8g
    # Python runs in the driver only, the work is done by the JVM: no extra memory for Python workers.
    --conf spark.executor.memoryOverheadFactor=0.1
    # AQE merges small shuffle partitions after it has seen their size, and splits the ones that are far too big. So the
    # number of partitions need only be large enough: about three per core.
    --conf spark.sql.adaptive.enabled=true
    --conf spark.sql.adaptive.skewJoin.enabled=true
    --conf spark.sql.shuffle.partitions=48
    # Traces are many files of a few megabytes. Opening one counts as 1 MB of reading, not 4: more of them share a task.
    --conf spark.sql.files.maxPartitionBytes=128m
    --conf spark.sql.files.openCostInBytes=1m
    # Columns are decoded in batches, and only the ones that a job names. (The default; here because all depends on it.)
    --conf spark.sql.parquet.enableVectorizedReader=true
    # Dates and hours are UTC everywhere: in SQL, and in the JVMs and Pythons whatever their machines are set to.
    --conf spark.sql.session.timeZone=UTC
    --conf spark.driver.extraJavaOptions=-Duser.timezone=UTC
    --conf spark.executor.extraJavaOptions=-Duser.timezone=UTC
    --conf spark.yarn.appMasterEnv.TZ=UTC
    --conf spark.executorEnv.TZ=UTC
    # A night that failed is tried again by the next one; starting twice would only hide why.
    --conf spark.yarn.maxAppAttempts=1
)

exec "${SPARK_HOME:?where Spark 4.3 is}/bin/spark-submit" \
    --master yarn --deploy-mode cluster --name ustreamer-nightly \
    "${settings[@]}" \
    --py-files dist/spark_jobs.zip \
    --files config/slo.yaml \
    deploy/spark/nightly_main.py --input "$traces" --output "$tables" --slo slo.yaml "$@"
