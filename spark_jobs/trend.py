"""The trend against the days before: `usual`, `days` and `change`, as `tables.OUTCOMES_TABLE` defines them."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

COLUMNS = ("usual", "days", "change")


def with_trend(today: DataFrame, past: DataFrame, past_hours: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Add the trend to the counts of one date.

    `today`, `past`: counts with `keys` and `messages`, of the date and of the days before. `past_hours`: `ROUTE_HOURLY` of
    the days before, which shows on which of them a streamer wrote anything.
    """
    active = past_hours.groupBy("streamer").agg(sf.count_distinct("date").cast("int").alias("days"))
    # Grouped, not joined: keys may be null, and only a grouping treats nulls as equal.
    before = past.groupBy(*keys).agg(sf.sum("messages").alias("before"))
    both = today.withColumn("before", sf.lit(0)).unionByName(before, allowMissingColumns=True)
    others = [name for name in today.columns if name not in keys]
    joined = (
        both.groupBy(*keys)
        .agg(sf.sum("before").alias("before"), *(sf.max(name).alias(name) for name in others))
        .where(sf.col("messages").isNotNull())  # not on this date
        .join(sf.broadcast(active), "streamer", "left")
    )
    return (
        joined.withColumn("days", sf.coalesce("days", sf.lit(0)))
        .withColumn("usual", sf.try_divide(sf.col("before").cast("double"), "days"))
        .withColumn("change", sf.try_divide(sf.col("messages").cast("double"), "usual") - 1)
        .drop("before")
    )
