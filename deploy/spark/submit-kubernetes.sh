#!/usr/bin/env bash
# The nightly jobs over a fleet's traces, on Kubernetes, started from outside the cluster (from inside: cronjob.yaml). README.md
# in this folder describes the image.
#
#   IMAGE=registry.example/ustreamer-nightly:1.1.0 KUBERNETES=https://10.0.0.1:6443 \
#       deploy/spark/submit-kubernetes.sh s3a://bucket/traces s3a://bucket/tables
#
# submit-yarn.sh explains the settings of Spark SQL; here are those for Kubernetes.
set -euo pipefail

if (($# < 2)); then
    echo "usage: IMAGE=… KUBERNETES=https://… ${0##*/} TRACES TABLES [--date D | --from D --to D]" >&2
    exit 2
fi
traces=$1 tables=$2
shift 2

settings=(
    --driver-memory 4g
    --num-executors 4 --executor-cores 4 --executor-memory 8g
    # The default for Python is 0.4 here, for Python workers, which these jobs do not have.
    --conf spark.kubernetes.memoryOverheadFactor=0.1
    --conf spark.sql.adaptive.enabled=true
    --conf spark.sql.adaptive.skewJoin.enabled=true
    --conf spark.sql.shuffle.partitions=48
    --conf spark.sql.files.maxPartitionBytes=128m
    --conf spark.sql.files.openCostInBytes=1m
    --conf spark.sql.parquet.enableVectorizedReader=true
    --conf spark.sql.session.timeZone=UTC
    --conf spark.driver.extraJavaOptions=-Duser.timezone=UTC
    --conf spark.executor.extraJavaOptions=-Duser.timezone=UTC
    --conf spark.kubernetes.driverEnv.TZ=UTC
    --conf spark.executorEnv.TZ=UTC
    --conf "spark.kubernetes.namespace=${NAMESPACE:-ustreamer}"
    # An account that may create and delete the executors' pods and nothing else: see cronjob.yaml.
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=ustreamer-nightly
    --conf "spark.kubernetes.container.image=${IMAGE:?an image with Spark, Python and the jobs}"
    # Shuffles go to the node's disk: in memory, they would count against the pod's limit.
    --conf spark.kubernetes.local.dirs.tmpfs=false
    # Wait for the end, so that the exit code is that of the run.
    --conf spark.kubernetes.submission.waitAppCompletion=true
)

# local:// is a path inside the image: nothing has to be uploaded.
exec "${SPARK_HOME:?where Spark is, 4.1 to 4.3}/bin/spark-submit" \
    --master "k8s://${KUBERNETES:?the address of the API server, https://…}" --deploy-mode cluster --name ustreamer-nightly \
    "${settings[@]}" \
    --py-files local:///opt/ustreamer/spark_jobs.zip \
    local:///opt/ustreamer/nightly_main.py --input "$traces" --output "$tables" --slo /opt/ustreamer/slo.yaml "$@"
