"""The nightly jobs as an Airflow DAG (2.10 or newer, or 3), for a fleet that has Airflow instead of `cronjob.yaml`.

Copy it into the folder of the DAGs, and change the values below. The worker needs `spark-submit` and what README.md in this
folder lists; `nightly_main.py`, `compact_main.py`, `slo.yaml` and `spark_jobs.zip` (`make spark-zip`) lie in `HOME`. Put
together every hour, the small files of the day are few when the night begins.

The DAG names no date on purpose: each run computes every date that is not up to date, so a missed night is caught up by the
next one, and a run that is tried again changes nothing.
"""

from datetime import UTC, datetime, timedelta

from airflow import DAG

try:
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:  # Airflow 2
    from airflow.operators.bash import BashOperator

HOME = "/opt/ustreamer"
INPUT = "s3a://bucket/traces"
OUTPUT = "s3a://bucket/tables"
SUBMIT = (
    "spark-submit --master yarn --deploy-mode client --driver-memory 8g --num-executors 4 --executor-cores 4 "
    "--executor-memory 8g --conf spark.sql.adaptive.enabled=true --conf spark.sql.shuffle.partitions=48 "
    "--conf spark.sql.session.timeZone=UTC --conf spark.driver.extraJavaOptions=-Duser.timezone=UTC "
    f"--conf spark.executor.extraJavaOptions=-Duser.timezone=UTC --py-files {HOME}/spark_jobs.zip"
)
FOLDERS = f"--input {INPUT} --output {OUTPUT}"
ALWAYS = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,  # the jobs catch up by themselves
    "max_active_runs": 1,  # two runs must not write the same tables
    "tags": ["ustreamer"],
}
TASK = {"append_env": True, "env": {"TZ": "UTC"}}

with DAG("ustreamer_compact", schedule="15 * * * *", **ALWAYS):
    BashOperator(
        task_id="compact",
        bash_command=f"{SUBMIT} {HOME}/compact_main.py {FOLDERS}",
        execution_timeout=timedelta(minutes=50),
        **TASK,
    )

with DAG("ustreamer_nightly", schedule="30 1 * * *", **ALWAYS):
    BashOperator(
        task_id="nightly",
        bash_command=f"{SUBMIT} {HOME}/nightly_main.py {FOLDERS} --slo {HOME}/slo.yaml --keep-days 400",
        retries=1,
        retry_delay=timedelta(minutes=5),
        execution_timeout=timedelta(hours=4),
        **TASK,
    )
