"""How long did messages take: in each hour, as sketches that can be merged, and over the day, exactly?

Both are of delivered messages, in µs. The sketches need a pass of their own: one for each group of the rollup would be
thousands, while there are only a few routes. While records are grouped, a route is a number, which takes a quarter less than
its texts; its name comes from the roll-up.
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
_DAILY = ("date", "streamer", "route")
_HOURLY = (*_DAILY, "hour")
_SHARES = {"p50_us": 0.5, "p90_us": 0.9, "p95_us": 0.95, "p99_us": 0.99, "p999_us": 0.999}


def transform(records: DataFrame, rollup: DataFrame) -> DataFrame:
    """Trace records, and their `rollup.transform` → `tables.LATENCY`. Its sketches merge by ``kll_merge_agg_bigint``."""
    sketched = (
        _delivered(records)
        .groupBy(_number(_HOURLY))
        .agg(
            sf.count("*").alias("messages"),
            *(sf.kll_sketch_agg_bigint(column, SKETCH_K).alias(f"{name}_sketch") for name, column in MEASURES.items()),
        )
    )
    percentiles = {
        f"{name}_p{share:.0f}_us": quantile(f"{name}_sketch", share / 100) for name in MEASURES for share in (50, 99)
    }
    return _named(sketched.withColumns(percentiles), _HOURLY, rollup)


def transform_daily(records: DataFrame, rollup: DataFrame) -> DataFrame:
    """Trace records, and their `rollup.transform` → `tables.LATENCY_DAILY`, exact.

    Equal values are counted first: in whole µs, a day has far fewer values than messages, whatever its volume.
    """
    # Two passes over few columns: to explode each record into its measures takes twice as long.
    counted = reduce(DataFrame.unionByName, (_counted(records, *each) for each in MEASURES.items()))
    of_route = Window.partitionBy("number", "measure")
    running = counted.withColumn("up_to", sf.sum("messages").over(of_route.orderBy("us"))).withColumn(
        "all", sf.sum("messages").over(of_route)
    )
    # Integers only: 0.999 × all is not exact in floating point.
    smallest = {
        name: sf.min(sf.when(sf.col("up_to") * 1000 >= sf.col("all") * round(share * 1000), sf.col("us")))
        for name, share in _SHARES.items()
    }
    found = running.groupBy("number", "measure").agg(
        sf.sum("messages").alias("messages"),
        sf.min("us").alias("min_us"),
        *(value.alias(name) for name, value in smallest.items()),
        sf.max("us").alias("max_us"),
    )
    return _named(found, _DAILY, rollup)


def _delivered(records: DataFrame) -> DataFrame:
    return records.where((sf.col("outcome") == "delivered") & sf.coalesce(sf.col("latency_us") >= 0, sf.lit(True)))


def _counted(records: DataFrame, measure: str, column: str) -> DataFrame:
    """How often each value of a measure occurred on each route."""
    measured = _delivered(records).where(sf.col(column).isNotNull())
    counted = measured.groupBy(_number(_DAILY), sf.col(column).alias("us")).agg(sf.count("*").alias("messages"))
    return counted.withColumn("measure", sf.lit(measure))


def _number(names: Sequence[str]) -> Column:
    return sf.xxhash64(*names).alias("number")


def _named(rows: DataFrame, names: Sequence[str], rollup: DataFrame) -> DataFrame:
    """Rows that have the `_number` of some columns, with these columns."""
    return rows.join(sf.broadcast(rollup.select(*names).distinct().select("*", _number(names))), "number")


def quantile(sketch: str, rank: float) -> Column:
    """A quantile; null for an empty sketch, for which Spark raises an error."""
    filled = sf.kll_sketch_get_n_bigint(sketch) > 0
    return sf.when(filled, sf.kll_sketch_get_quantile_bigint(sketch, sf.lit(rank)))


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    records, rollup = batch.records(), batch.rollup
    return transform(records, rollup), transform_daily(records, rollup)


JOB = job.Job("latency", (LATENCY, LATENCY_DAILY), compute)
