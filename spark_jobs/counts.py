"""The counts behind the trend tables, kept in the hidden folder ``_counts``.

They depend on records only. A trend can therefore be computed again when an earlier date has changed, even if the records
are gone by then, and a run that is killed while it replaces a trend table never destroys the only copy of its figures.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs import job
from spark_jobs.batch import Batch
from spark_jobs.rollup import failed, total
from spark_jobs.tables import DEAD_LETTERS, OUTCOMES_TABLE, Table
from spark_jobs.trend import COLUMNS as TREND


def _without_trend(table: Table) -> Table:
    columns = {name: kind for name, kind in table.columns.items() if name not in TREND}
    return Table(f"_counts/{table.name}", table.question, columns)


OUTCOME_COUNTS = _without_trend(OUTCOMES_TABLE)
DEAD_LETTER_COUNTS = _without_trend(DEAD_LETTERS)

OUTCOME_KEYS = ("streamer", "route", "src_authority", "sink_authority", "outcome", "ucode")
DEAD_LETTER_KEYS = (*OUTCOME_KEYS, "src_ue_id", "sink_ue_id")


def transform_outcomes(rollup: DataFrame) -> DataFrame:
    """`rollup.transform` → `OUTCOME_COUNTS`."""
    return rollup.groupBy("date", *OUTCOME_KEYS).agg(total("messages"), total("bytes"))


def transform_dead_letters(rollup: DataFrame) -> DataFrame:
    """`rollup.transform` → `DEAD_LETTER_COUNTS`: failures only."""
    times = (sf.min("first_ts").alias("first_ts"), sf.max("last_ts").alias("last_ts"))
    return rollup.where(failed()).groupBy("date", *DEAD_LETTER_KEYS).agg(total("messages"), total("bytes"), *times)


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    return transform_outcomes(batch.rollup), transform_dead_letters(batch.rollup)


JOB = job.Job("counts", (OUTCOME_COUNTS, DEAD_LETTER_COUNTS), compute)
