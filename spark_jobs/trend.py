"""The trend against the days before: `usual`, `days` and `change`, as `tables.OUTCOMES_TABLE` defines them."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

COLUMNS = ("usual", "days", "change")


def with_trend(today: DataFrame, past: DataFrame, past_hours: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Add the trend to the counts of some dates.

    `today`, `past`: counts with `date`, `keys` and `messages`, of the dates and of the days before. `past_hours`:
    `ROUTE_HOURLY` of the days before, which shows on which of them a streamer wrote anything. The rows of the past are as
    `batch.seen_from` gives them.
    """
    keys = ("date", *keys)
    active = past_hours.groupBy("date", "streamer").agg(sf.count_distinct("day").cast("int").alias("days"))
    # Grouped, not joined: keys may be null, and only a grouping treats nulls as equal.
    before = past.groupBy(*keys).agg(sf.sum("messages").alias("before"))
    both = today.withColumn("before", sf.lit(0)).unionByName(before, allowMissingColumns=True)
    others = [name for name in today.columns if name not in keys]
    joined = (
        both.groupBy(*keys)
        .agg(sf.sum("before").alias("before"), *(sf.max(name).alias(name) for name in others))
        .where(sf.col("messages").isNotNull())  # not on this date
        .join(sf.broadcast(active), ["date", "streamer"], "left")
    )
    return (
        joined.withColumn("days", sf.coalesce("days", sf.lit(0)))
        .withColumn("usual", sf.try_divide(sf.col("before").cast("double"), "days"))
        .withColumn("change", sf.try_divide(sf.col("messages").cast("double"), "usual") - 1)
        .drop("before")
    )
