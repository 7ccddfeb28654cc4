"""Compares the sums of hubs with those of all other streamers, by class and minute of the ids. Pure.

The law is that of a streamer that compares: equal; *open* if one side has not reported yet; *lost* if more was sent than
came; *twice* if more came; *unknown* if they differ and rows of one side are missing. What ended in order where it came
(expired, rejected, a copy) explains a difference that is exactly that. Several hubs are one side. Of several others,
which share a class or stand in a row, all together are compared if that is equal or each has sent less than came, else each.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_jobs.live_audit.rows import AWAY, KEY

WAIT_MS = 60_000
"""From the last row about a minute until it is judged: batches need not come in order."""
UNREPORTED_MS = 600_000
DAY_MS = 86_400_000
_TAKEN_IN, _DELIVERED, _ENDED = 0, 1, range(2, 7)
_SUM = "struct<messages: bigint, high: bigint, low: bigint>"


def judged(sums: DataFrame, streamers: DataFrame, hubs: list[str], now_ms: int) -> DataFrame:
    """Return each minute of a class with its verdict, and the streamer, messages and ids of each difference."""
    own = sf.col("kind") % AWAY
    is_hub = sf.col("streamer").isin(hubs)
    is_sure = streamers.select("streamer", sf.when(sf.size("later") == 0, sf.col("sure_ms")).alias("sure_ms"))
    of_streamer = (
        sums.join(is_sure, "streamer", "left")
        .groupBy(*KEY, "streamer")
        .agg(
            _sum(own == _TAKEN_IN).alias("all_in"),
            _sum(own == _DELIVERED).alias("all_out"),
            _sum(sf.col("kind") == _TAKEN_IN).alias("came"),
            _sum(sf.col("kind") == _DELIVERED).alias("sent"),
            *(_sum(own == kind).alias(f"ended_{kind}") for kind in _ENDED),
            *(sf.min("began_ms").alias("began_ms"), sf.max("changed_ms").alias("changed_ms"), sf.max("told").alias("told")),
            sf.coalesce(sf.max("sure_ms") > sf.min("began_ms"), sf.lit(True)).alias("is_unsure"),
        )
    )
    others = sf.collect_list(sf.when(~is_hub, sf.struct("streamer", "sent", "came")))
    heard = streamers.agg(sf.min(sf.when(is_hub, sf.col("heard_ms"))).alias("heard_ms"))
    entries = (
        of_streamer.groupBy(*KEY)
        .agg(
            _sum(is_hub, "all_in.").alias("hub_in"),
            _sum(is_hub, "all_out.").alias("hub_out"),
            sf.array(*(_sum(sf.lit(True), f"ended_{kind}.") for kind in _ENDED)).alias("ended"),
            sf.max(is_hub).alias("has_hub"),
            others.alias("others"),
            *(sf.min("began_ms").alias("began_ms"), sf.max("changed_ms").alias("changed_ms"), sf.max("told").alias("told")),
            sf.max("is_unsure").alias("is_unsure"),
        )
        .crossJoin(heard)
    )
    ups = sf.filter("others", lambda each: each["sent"]["messages"] > 0)
    downs = sf.filter("others", lambda each: each["came"]["messages"] > 0)
    is_up = sf.size(ups) > 0
    pairs = sf.when(
        is_up, sf.transform(ups, lambda each: _pair(each["streamer"], _plus(each["sent"], sf.col("hub_in"), -1)))
    ).otherwise(sf.transform(downs, lambda each: _pair(each["streamer"], _plus(sf.col("hub_out"), each["came"], -1))))
    total = sf.aggregate(
        sf.when(is_up, ups).otherwise(downs),
        sf.expr(_NOTHING),
        lambda all_, each: _plus(all_, sf.when(is_up, each["sent"]).otherwise(each["came"])),
    )
    both = sf.when(is_up, _plus(total, sf.col("hub_in"), -1)).otherwise(_plus(sf.col("hub_out"), total, -1))
    wider = entries.withColumn("choices", _choices()).withColumn("pairs", pairs).withColumn("together", both)
    sign = sf.when(is_up, 1).otherwise(-1)
    is_shared = (sf.size("pairs") > 1) & (
        _is_explained(sf.col("together")) | sf.forall("pairs", lambda each: each["difference"]["messages"] * sign < 0)
    )
    names = sf.array_join(sf.array_sort(sf.transform("pairs", lambda each: each["streamer"])), " ")
    shared = sf.array(_pair(names, sf.col("together")))
    chosen = sf.when(is_shared, shared).otherwise(sf.col("pairs"))
    wrong = sf.filter(chosen, lambda each: ~_is_explained(each["difference"]))
    found = wider.withColumn("wrong", wrong).withColumn("is_up", is_up)
    is_over = (sf.col("verdict") == "equal") | (now_ms - sf.col("began_ms") >= DAY_MS)
    shown = *KEY, "verdict", "told", "changed_ms", "wrong", "ended", is_over.alias("is_over")
    return found.withColumn("verdict", _verdict(now_ms)).select(*shown)


def findings(entries: DataFrame) -> DataFrame:
    """Return what is new: the entries whose verdict is another one than was told, one row for each difference."""
    is_new = (sf.col("verdict") != sf.col("told")) & ~((sf.col("verdict") == "equal") & (sf.col("told") == ""))
    missing = sf.col("wrong.difference.messages")
    is_one = (sf.abs(missing) == 1) & sf.col("verdict").isin("lost", "twice")
    halves = {each: sf.col(f"wrong.difference.{each}") for each in ("high", "low")}
    messages = sf.when(sf.col("verdict") == "lost", missing - sf.col("excused")).otherwise(sf.abs(missing))
    return (
        entries.filter(is_new & (sf.col("verdict") != "open"))
        .withColumn("excused", _excused())
        .withColumn("wrong", sf.explode_outer("wrong"))
        .select(
            *KEY,
            sf.coalesce("wrong.streamer", sf.lit("")).alias("streamer"),
            "verdict",
            sf.col("told").alias("was"),
            sf.greatest(messages, sf.when(sf.col("verdict") == "equal", 0).otherwise(1)).alias("messages"),
            *(sf.when(is_one, sf.lpad(sf.hex(halves[each]), 16, "0")).alias(each) for each in halves),
            sf.col("changed_ms").alias("heard_ms"),
        )
    )


def _verdict(now_ms: int) -> Column:
    is_waiting = now_ms - sf.col("changed_ms") < WAIT_MS
    has_both = sf.col("has_hub") & (sf.size("pairs") > 0)
    hubs_are_silent = sf.coalesce(sf.col("heard_ms") < sf.col("changed_ms") + WAIT_MS, sf.lit(True))
    age_ms = now_ms - sf.col("began_ms")
    most = sf.array_max(sf.transform("wrong", lambda each: each["difference"]["messages"]))
    return (
        sf.when(is_waiting & (age_ms < DAY_MS), sf.col("told"))
        .when(has_both & (sf.size("wrong") == 0), sf.lit("equal"))
        .when(age_ms >= DAY_MS, sf.lit("unknown"))
        .when(
            ~has_both & (~sf.col("is_up") | hubs_are_silent), sf.when(age_ms >= UNREPORTED_MS, "unknown").otherwise("open")
        )
        .when(sf.col("is_unsure"), sf.lit("unknown"))
        .when((most > _excused()) | ((most == 0) & (_excused() == 0)), sf.lit("lost"))
        .when(-most > _excused(), sf.lit("twice"))
        .otherwise(sf.lit("equal"))
    )


def _sum(condition: Column, of: str = "") -> Column:
    """Return the total of the sums of a group, which are in a struct ``of`` or in columns."""
    parts = (sf.sum, "messages"), (sf.bit_xor, "high"), (sf.bit_xor, "low")
    return _struct(*(sf.coalesce(add(sf.when(condition, sf.col(f"{of}{name}"))), sf.lit(0)) for add, name in parts))


def _struct(messages: Column, high: Column, low: Column) -> Column:
    return sf.struct(messages.alias("messages"), high.alias("high"), low.alias("low")).cast(_SUM)


_NOTHING = "named_struct('messages', 0L, 'high', 0L, 'low', 0L)"


def _plus(a: Column, b: Column, sign: int = 1) -> Column:
    return _struct(a["messages"] + sign * b["messages"], a["high"].bitwiseXOR(b["high"]), a["low"].bitwiseXOR(b["low"]))


def _pair(streamer: Column, difference: Column) -> Column:
    return sf.struct(streamer.alias("streamer"), difference.alias("difference"))


def _choices() -> Column:
    """Return the total of each choice among what ended in order, none of it first."""
    several = sf.filter("ended", lambda each: each["messages"] > 0)
    none = sf.array(sf.expr(_NOTHING))
    return sf.aggregate(several, none, lambda all_, each: sf.concat(all_, sf.transform(all_, lambda one: _plus(one, each))))


def _excused() -> Column:
    return sf.aggregate("ended", sf.lit(0).cast("bigint"), lambda all_, each: all_ + each["messages"])


def _is_explained(difference: Column) -> Column:
    return sf.exists("choices", lambda each: each == difference)
