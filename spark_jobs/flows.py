"""Groups messages into flows, and bounds how many flows are told apart, because strangers choose how many there are.

A *flow* is messages of one type, source and sink authority, and for a Publish of one topic. Beyond a bound, only the flows
that the caller chooses are told apart. All others are *crowded*, and count as one flow per type: none of their messages is
left out.
"""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from spark_jobs.session import broadcast

CROWDED = "is_crowded"
"""The column that says whether a record is of a flow that is not told apart."""

_ENDS = ("src_authority", "sink_authority")
_TOPIC = "IF(sink_authority IS NULL, src_ue_id, NULL)", "IF(sink_authority IS NULL, src_resource_id, NULL)"


def told_apart(records: DataFrame) -> DataFrame:
    """Every flow on its own. The sink of a Publish is taken as an address: on some networks, it says which authority this
    copy is for."""
    is_publish = sf.col("msg_type") == "publish"
    sink = ("sink_authority", "sink_ue_id", "sink_resource_id")
    return records.withColumns(
        {
            "address": sf.when(is_publish, sf.col("sink_authority")),
            **{name: sf.when(~is_publish, sf.col(name)) for name in sink},
            CROWDED: sf.lit(False),
        }
    )


def flow_hash() -> Column:
    """The hash of a record's flow, of records that are `told_apart`."""
    whole = sf.xxhash64("msg_type", "src_authority", "sink_authority", *map(sf.expr, _TOPIC))
    return sf.when(sf.col(CROWDED), sf.xxhash64("msg_type")).otherwise(whole)


def crowded(apart: DataFrame, flows: Collection[int]) -> DataFrame:
    """Records that are `told_apart`, with only these flows, by their hashes, told apart from now on."""
    known = broadcast(apart.sparkSession, [(each, True) for each in flows], "way BIGINT, is_known BOOLEAN")
    joined = apart.withColumn("way", flow_hash()).join(known, "way", "left").withColumn(CROWDED, sf.col("is_known").isNull())
    return joined.withColumn("address", sf.when(~sf.col(CROWDED), sf.col("address"))).drop("way", "is_known")


def crowded_pairs(rows: DataFrame, each: int) -> DataFrame:
    """Sums of `records`, with authorities only where source and sink, in whatever order, are among the `each` that tell most
    of a streamer: those that others see, too, with messages both ways, and of these the ones with the most records."""
    pair = {"low": sf.least(*_ENDS), "high": sf.greatest(*_ENDS)}
    order = Window.partitionBy("streamer").orderBy(*map(sf.desc, ("is_shared", "is_both", "of_pair")), *pair)
    is_shared = sf.min("streamer").over(Window.partitionBy(*pair)) != sf.max("streamer").over(Window.partitionBy(*pair))
    best = (
        rows.withColumns(pair)
        .groupBy("streamer", *pair)
        .agg((sf.min(_ENDS[0]) != sf.max(_ENDS[0])).alias("is_both"), sf.sum("records").alias("of_pair"))
        .withColumn("is_shared", is_shared)
        .withColumn("place", sf.row_number().over(order))
        .where(sf.col("place") <= each)
        .select(*(sf.col(name).alias(f"known_{name}") for name in pair), sf.lit(True).alias("is_known"))
        .distinct()
    )
    same = [sf.col(name).eqNullSafe(sf.col(f"known_{name}")) for name in pair]
    joined = rows.withColumns(pair).join(sf.broadcast(best), same, "left").withColumn(CROWDED, sf.col("is_known").isNull())
    return without_crowded_ends(joined.select(*rows.columns, CROWDED)).drop(CROWDED)


def without_crowded_ends(marked: DataFrame) -> DataFrame:
    """Records that have `CROWDED`, with authorities only where it is false."""
    return marked.withColumns({name: sf.when(~sf.col(CROWDED), sf.col(name)) for name in _ENDS})
