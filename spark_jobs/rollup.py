"""The rollup: one pass over the records with the sums that views and many tables are made of.

It keeps the uEntity of the sink for failures only. No table needs it for delivered messages, and without it there are few
enough groups to be summed up before the shuffle.
"""

from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs import clocks
from spark_jobs.schema import FAILURES
from spark_jobs.tables import MARGINS, ROLLUP, Table

KEYS = (
    *(
        "date",
        "hour",
        "streamer",
        "route",
        "ingress",
        "egress",
        "src_authority",
        "src_ue_id",
        "sink_authority",
        "sink_ue_id",
    ),
    *("outcome", "ucode", "is_publish", "hour_of_message"),
)

_BOUNDS = (0, 10, 25, 50)

_TTL_MS_MAX = 2**32 - 1
"""The maximum of uProtocol's field. An id can hold any time up to the year 10889, so an age can be 3e17 µs; 100 times that
would overflow a bigint, which stops the job. With a bounded TTL, the products here stay far below."""


def transform(records: DataFrame) -> DataFrame:
    """Trace records → one row per `KEYS`, with sums that `total` adds up further, and with what `clocks.alike_in` needs.

    What is counted comes from columns that are made before: the generated method takes each column that it needs as an
    argument, and with some more of them Java's optimizing compiler leaves it out, which doubles the time.
    """
    # Not `least`: it would return the bound where there is no TTL.
    # A message whose TTL is 0 never expires: null, as without one.
    ttl_ms = sf.when(sf.col("ttl_ms") > _TTL_MS_MAX, sf.lit(_TTL_MS_MAX)).when(sf.col("ttl_ms") > 0, sf.col("ttl_ms"))
    # The TTL runs from the creation of the message, so its age at ingress counts too. Null without TTL or age.
    margin_us = ttl_ms * 1000 - sf.col("age_us") - sf.col("latency_us")
    below = [sf.col("margin_us") < sf.col("ttl_ms") * (1000 // 100 * share) for share in _BOUNDS]
    below[0] = sf.col("margin_us") <= 0
    counted = [below[0], *(here & ~lower for lower, here in pairwise(below)), ~below[-1]]
    return (
        clocks.with_sightings(records)
        .withColumns(
            {
                "sink_ue_id": sf.when(sf.col("outcome").isin(*FAILURES), sf.col("sink_ue_id")),
                "ttl_ms": ttl_ms,
                "margin_us": margin_us,
            }
        )
        .groupBy(*KEYS)
        .agg(
            sf.count("*").alias("messages"),
            sf.sum("payload_bytes").alias("bytes"),
            sf.sum("retries").alias("retries"),
            sf.count_if(sf.col("retries") > 0).alias("retried"),
            sf.max("retries").alias("max_retries"),
            sf.count_if("redelivered").alias("redelivered"),
            sf.min("ts").alias("first_ts"),
            sf.max("ts").alias("last_ts"),
            sf.min("margin_us").alias("least_margin_us"),
            sf.count(clocks.TELLING).alias("telling"),
            sf.min(clocks.TELLING).alias("least_age_us"),
            sf.min(clocks.OUT).alias("least_out_us"),
            *(sf.count_if(rule).alias(name) for rule, name in zip(counted, MARGINS, strict=True)),
        )
    )


def published(rollup: DataFrame) -> DataFrame:
    """`transform` → `tables.ROLLUP`: without what only clocks need."""
    keys = [name for name in KEYS if name in ROLLUP.columns]
    largest, least = ("max_retries", "last_ts"), ("first_ts", "least_margin_us")
    sums = [name for name in ROLLUP.columns if name not in (*keys, *largest, *least)]
    return rollup.groupBy(*keys).agg(
        *(sf.sum(name).alias(name) for name in sums),
        *(sf.max(name).alias(name) for name in largest),
        *(sf.min(name).alias(name) for name in least),
    )


def view(table: Table, rollup: DataFrame) -> DataFrame:
    """`tables.ROLLUP` → a view of it."""
    return rollup.sparkSession.sql(table.query, rollup=rollup)
