"""How long did messages take: in each hour, as sketches that can be merged, and over the day, exactly?

Both are of delivered messages, in µs. The sketches need a pass of their own: one for each group of the rollup would be
thousands, while there are only a few routes.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from spark_jobs import job
from spark_jobs.batch import Batch
from spark_jobs.tables import LATENCY, LATENCY_DAILY

SKETCH_K = 800
"""Size of the KLL sketches: ranks are accurate to about 0.3 %."""

MEASURES = {"latency": "latency_us", "queue_wait": "queue_wait_us"}
_WAY = ("date", "streamer", "route")
_SHARES = {"p50_us": 0.5, "p90_us": 0.9, "p95_us": 0.95, "p99_us": 0.99, "p999_us": 0.999}


def transform(records: DataFrame) -> DataFrame:
    """Trace records → `tables.LATENCY`. Merge sketches with Spark's ``kll_merge_agg_bigint``."""
    sketched = (
        _delivered(records)
        .groupBy("date", "hour", "streamer", "route")
        .agg(
            sf.count("*").alias("messages"),
            *(sf.kll_sketch_agg_bigint(column, SKETCH_K).alias(f"{name}_sketch") for name, column in MEASURES.items()),
        )
    )
    percentiles = {
        f"{name}_p{share:.0f}_us": _quantile(f"{name}_sketch", share / 100) for name in MEASURES for share in (50, 99)
    }
    return sketched.withColumns(percentiles)


def transform_daily(records: DataFrame, rollup: DataFrame) -> DataFrame:
    """Trace records, and their `rollup.transform` → `tables.LATENCY_DAILY`, exact.

    Equal values are counted first: in whole µs, a day has far fewer values than messages, whatever its volume. Until then, a
    route is a number; its name comes from the roll-up.
    """
    # Two passes over few columns: to explode each record into its measures takes twice as long.
    counted = reduce(DataFrame.unionByName, (_counted(records, *each) for each in MEASURES.items()))
    of_route = Window.partitionBy("way", "measure")
    running = counted.withColumn("up_to", sf.sum("messages").over(of_route.orderBy("us"))).withColumn(
        "all", sf.sum("messages").over(of_route)
    )
    # Integers only: 0.999 × all is not exact in floating point.
    smallest = {
        name: sf.min(sf.when(sf.col("up_to") * 1000 >= sf.col("all") * round(share * 1000), sf.col("us")))
        for name, share in _SHARES.items()
    }
    found = running.groupBy("way", "measure").agg(
        sf.sum("messages").alias("messages"),
        sf.min("us").alias("min_us"),
        *(value.alias(name) for name, value in smallest.items()),
        sf.max("us").alias("max_us"),
    )
    return found.join(sf.broadcast(rollup.select(*_WAY).distinct().withColumn("way", _way())), "way")


def _delivered(records: DataFrame) -> DataFrame:
    return records.where(sf.col("outcome") == "delivered")


def _counted(records: DataFrame, measure: str, column: str) -> DataFrame:
    """How often each value of a measure occurred on each route."""
    measured = _delivered(records).where(sf.col(column).isNotNull())
    counted = measured.groupBy(_way().alias("way"), sf.col(column).alias("us")).agg(sf.count("*").alias("messages"))
    return counted.withColumn("measure", sf.lit(measure))


def _way() -> Column:
    """The hash of a date's route: to group by texts would take a quarter longer."""
    return sf.xxhash64(*_WAY)


def _quantile(sketch: str, rank: float) -> Column:
    """A quantile; null for an empty sketch, for which Spark raises an error."""
    filled = sf.kll_sketch_get_n_bigint(sketch) > 0
    return sf.when(filled, sf.kll_sketch_get_quantile_bigint(sketch, sf.lit(rank)))


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    records = batch.records()
    return transform(records), transform_daily(records, batch.rollup)


JOB = job.Job("latency", (LATENCY, LATENCY_DAILY), compute)


def main(argv: Sequence[str] | None = None) -> int:
    return job.main(JOB, argv)


if __name__ == "__main__":
    raise SystemExit(main())
