"""Groups messages into flows, and bounds how many flows are told apart, because strangers choose how many there are.

A *flow* is messages of one type, source and sink authority, and for a Publish of one topic. Beyond a bound, only the flows
that the caller chooses are told apart. All others are *crowded*, and count as one flow per type: none of their messages is
left out.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
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
    marked = _marked(apart.withColumn("way", flow_hash()), {"way": "BIGINT"}, [(each,) for each in flows])
    return marked.withColumn("address", sf.when(~sf.col(CROWDED), sf.col("address"))).drop("way")


def crowded_pairs(rows: DataFrame, most: int) -> DataFrame:
    """Sums of `records`, with the authorities of source and sink for only so many pairs of them: the others have neither.

    Runs a query, and collects the pairs.
    """
    counted = rows.groupBy(*_ENDS).agg(sf.sum("records").alias("of_pair"))
    largest = counted.orderBy(sf.desc("of_pair"), *_ENDS).limit(most).select(*_ENDS).collect()
    return without_crowded_ends(_marked(rows, dict.fromkeys(_ENDS, "STRING"), largest)).drop(CROWDED)


def without_crowded_ends(marked: DataFrame) -> DataFrame:
    """Records that have `CROWDED`, with authorities only where it is false."""
    return marked.withColumns({name: sf.when(~sf.col(CROWDED), sf.col(name)) for name in _ENDS})


def _marked(records: DataFrame, keys: Mapping[str, str], known: Sequence[tuple[Any, ...]]) -> DataFrame:
    """With `CROWDED`: whether the keys of a record (names and types) are none of the known ones."""
    ddl = ", ".join(f"known_{name} {type_}" for name, type_ in keys.items())
    few = broadcast(records.sparkSession, known, ddl).withColumn("is_known", sf.lit(True))
    same = [sf.col(name).eqNullSafe(sf.col(f"known_{name}")) for name in keys]
    joined = records.join(few, same, "left").withColumn(CROWDED, sf.col("is_known").isNull())
    return joined.drop("is_known", *(f"known_{name}" for name in keys))
