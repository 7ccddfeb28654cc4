"""What became of the messages between whom, and is that usual?"""

from pyspark.sql import DataFrame

from spark_jobs import counts, job, route_hourly
from spark_jobs.batch import Batch
from spark_jobs.tables import OUTCOMES_TABLE, ROUTE_HOURLY
from spark_jobs.trend import with_trend


def transform(today: DataFrame, past: DataFrame, past_hours: DataFrame) -> DataFrame:
    """`counts.OUTCOME_COUNTS` of some dates and of the days before, `ROUTE_HOURLY` of these → `tables.OUTCOMES_TABLE`."""
    return with_trend(today, past, past_hours, counts.OUTCOME_KEYS)


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    table = counts.OUTCOME_COUNTS
    return (transform(batch.table(table), batch.past(table), batch.past(ROUTE_HOURLY)),)


JOB = job.Job("outcomes", (OUTCOMES_TABLE,), compute, needs=(route_hourly.JOB, counts.JOB), is_trend=True)
