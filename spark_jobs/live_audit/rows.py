"""The rows of streamers as a stream of files, and what is kept of them between two batches.

A file has the sums of messages `AuditRows`, each with the streamer that sent it and the time when it was heard. Kept are:

- per streamer its run, up to which number everything has come, and the later numbers that have: a copy counts once, and
  a number that is missing is known until it comes
- of minutes that are not equal, the sums of each streamer
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

CLASS = ("source", "sink", "ue_id", "ue_version", "resource")
KEY = (*CLASS, "minute")
ROWS = """
    streamer STRING, heard_ms BIGINT, run BIGINT, number BIGINT,
    source STRING, sink STRING, ue_id BIGINT, ue_version INT, resource INT,
    minute BIGINT, what ARRAY<INT>, messages BIGINT, ids BINARY
"""
"""The columns of the files: those of `AuditRows`. An empty `sink`: the messages of a topic have no address."""

STREAMERS = "streamer STRING, run BIGINT, upto BIGINT, later ARRAY<BIGINT>, sure_ms BIGINT, heard_ms BIGINT"
"""`sure_ms`: differences in minutes that began earlier are unknown."""
OPEN = """
    source STRING, sink STRING, ue_id BIGINT, ue_version INT, resource INT, minute BIGINT,
    streamer STRING, kind INT, messages BIGINT, high BIGINT, low BIGINT, began_ms BIGINT, changed_ms BIGINT, told STRING
"""
"""`high` and `low`: the XOR of the encrypted ids; `told`: the verdict so far, empty if there is none."""

SETTLE_MS = 150_000
AWAY = 8
MOST_LATER = 1000  # numbers of one streamer beyond one that is missing; then the missing ones count as lost


def taken(rows: DataFrame, streamers: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the rows that are no copies, and the streamers with them: the rows of one batch."""
    newest = rows.groupBy("streamer").agg(
        sf.max("run").alias("new_run"),
        *(sf.min("heard_ms").alias("first_heard_ms"), sf.max("heard_ms").alias("new_heard_ms")),
        sf.collect_set(sf.struct("run", "number")).alias("several"),
    )
    both = streamers.join(newest, "streamer", "full_outer")
    run = sf.greatest("run", "new_run")
    of_run = sf.filter(sf.coalesce("several", sf.array()), lambda each: each["run"] == run)
    numbers = sf.transform(of_run, lambda each: each["number"])
    is_same = sf.col("run").eqNullSafe(run)
    before = sf.when(is_same, sf.col("later")).otherwise(sf.array().cast("array<bigint>"))
    first = sf.coalesce(sf.when(is_same, sf.col("upto")), sf.array_min(numbers) - 1)
    later = sf.array_sort(sf.filter(sf.array_union(before, numbers), lambda each: each > first))
    joined = both.select(
        "streamer",
        run.alias("run"),
        first.alias("first"),
        later.alias("later"),
        sf.coalesce(sf.when(is_same, sf.col("sure_ms")), sf.col("first_heard_ms") + SETTLE_MS).alias("sure_ms"),
        sf.greatest("heard_ms", "new_heard_ms").alias("heard_ms"),
    )
    is_full = sf.size("later") > MOST_LATER
    upto = sf.when(is_full, sf.array_max("later")).otherwise(
        sf.aggregate("later", sf.col("first"), lambda most, each: most + (each == most + 1).cast("int"))
    )
    following = joined.select(
        "streamer",
        "run",
        upto.alias("upto"),
        sf.filter("later", lambda each: each > upto).alias("later"),
        sf.when(is_full, sf.col("heard_ms") + SETTLE_MS).otherwise(sf.col("sure_ms")).alias("sure_ms"),
        "heard_ms",
    )
    known = streamers.select("streamer", sf.col("run").alias("old_run"), "upto", "later")
    is_copy = (sf.col("run") < sf.col("old_run")) | (
        (sf.col("run") == sf.col("old_run"))
        & ((sf.col("number") <= sf.col("upto")) | sf.array_contains("later", sf.col("number")))
    )
    once = rows.withColumn("ids", sf.hex("ids")).dropDuplicates(["streamer", "run", "number", *KEY, "what"])
    new = once.join(known, "streamer", "left").filter(~sf.coalesce(is_copy, sf.lit(False)))
    return new.drop("old_run", "upto", "later"), following


def added(rows: DataFrame, kept: DataFrame) -> DataFrame:
    """Return the sums of open minutes, with those of new rows, by streamer and kind; ``ids`` are in hexadecimal digits."""
    new = rows.select(
        *KEY,
        "streamer",
        sf.explode("what").alias("kind"),
        "messages",
        _half(1).alias("high"),
        _half(17).alias("low"),
        sf.col("heard_ms").alias("began_ms"),
        sf.col("heard_ms").alias("changed_ms"),
        sf.lit("").alias("told"),
    )
    return (
        kept.unionByName(new.filter("messages > 0"))
        .groupBy(*KEY, "streamer", "kind")
        .agg(
            *(sf.sum("messages").alias("messages"), sf.bit_xor("high").alias("high"), sf.bit_xor("low").alias("low")),
            *(sf.min("began_ms").alias("began_ms"), sf.max("changed_ms").alias("changed_ms"), sf.max("told").alias("told")),
        )
        .withColumn("began_ms", sf.min("began_ms").over(Window.partitionBy(*KEY)))
    )


def _half(start: int) -> Column:
    return sf.conv(sf.substring("ids", start, 16), 16, -10).cast("bigint")
