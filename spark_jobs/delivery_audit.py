"""Of the messages made that day, seen from all streamers together: what became of each? And which are behind each finding?

A message belongs to the date of its own time, `msg_ts`, whatever the date of its records. The records of `REACH_DAYS` days
before and after are therefore read, too. A message that waits longer than that looks lost at first.

1. One shuffle by message id gives, for each message, a *signature* (hashes of its flow and its records, summed up) and the
   time to its last confirmation. The records of one message for each signature are looked at: its *example*.
2. `verdict.judge` decides on the signatures, in the driver, once for each kind of flow (`kinds`).
3. Both tables are the verdicts, joined to the result of 1.

Unknown is what became of a message that none of the streamers behind its hand-over has, if the hour of one that wrote then
is not complete (`completeness`), or none of them wrote then. A Publish that was handed over before the first or after the
last one of its topic there counts as delivered, without a latency: that streamer may not have been subscribed.

The flow decides the way: type, source and sink authority, and for a Publish the topic. If no message of a flow came through
that day, nothing is expected, and its losses cannot be seen. Neither can the loss of one branch if several streamers listen
at one endpoint.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import accumulate, chain, starmap

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from spark_jobs import clocks, job, kinds, streamer_health, wide
from spark_jobs.arrow import tuples
from spark_jobs.batch import Batch
from spark_jobs.clocks import Sightings, number_of
from spark_jobs.flows import CROWDED, crowded, flow_hash, told_apart, without_crowded_ends
from spark_jobs.session import broadcast
from spark_jobs.spans import ALWAYS, DAY_MS, HOURS, REACH_DAYS, Holes, SkewsUs, Spans, topic_spans
from spark_jobs.tables import COMPLETENESS, DELIVERY_AUDIT, DELIVERY_AUDIT_DETAIL
from spark_jobs.wide import WIDE, Shown

GRACE_US = 600_000_000
"""A message is lost only if the next streamer's records reach so far beyond the time of the hand-over."""
MAX_SIGNATURES = 1_000_000
"""Ten for each of 100 000 gateways. Beyond that, only the flows with the most messages are judged each on its own."""

_ID_BITS = 36
"""Bits of a hash, behind the 27 bits of the ms of the day: one long, in which only messages of the same ms can collide."""
_HALF_BITS = 32
"""Of each half of a hash, 2 to the power of 31 fit into a sum."""
_KIND = ("streamer", "route", "egress", "address", "outcome", "ucode")
_SHOWN = (
    *_KIND, "ingress_transport", "egress_transport", "src_authority", "sink_authority", "msg_type",
)  # fmt: skip
_ABOUT = (
    "msg_id", "msg_ts", "msg_type", "src_authority", "src_ue_id", "src_resource_id", "sink_authority", "sink_ue_id",
    "sink_resource_id",
)  # fmt: skip
_GROUP = ("date", "src_authority", "sink_authority", "msg_type", "status", "missing_at", "hour")
_HOUR_US = 3_600_000_000

_JUDGED = "hours STRING, from_us BIGINT, until_us BIGINT, topic_from_us BIGINT, topic_until_us BIGINT"
_SIGNATURES = (
    "date DATE, signature BIGINT, copies BIGINT, src_authority STRING, sink_authority STRING, msg_type STRING, "
    "status STRING, missing_at STRING, " + _JUDGED
)
_FINDINGS = (
    "date DATE, signature BIGINT, copies BIGINT, finding STRING, streamers STRING, last_streamer STRING, last_route STRING, "
    "missing_at STRING, ucode STRING, " + _JUDGED
)

Keep = Callable[[DataFrame], DataFrame]


def transform(
    records: DataFrame,
    sightings: Sequence[Sightings],
    dates: Sequence[dt.date],
    keep: Keep,
    grace_us: int = GRACE_US,
    most: int = MAX_SIGNATURES,
    hours: DataFrame | None = None,
) -> tuple[DataFrame, DataFrame]:
    """Records (`schema.PARTITIONED`) around some dates, their `clocks.sightings`, and `tables.COMPLETENESS` →
    `tables.DELIVERY_AUDIT` and `tables.DELIVERY_AUDIT_DETAIL` of these dates.

    Collects the records of one message for each signature, the spans of topics and hours of which something is missing. Of
    more than `most` signatures, some flows are crowded (`flows`): which ones is another query.
    """
    spark = records.sparkSession
    seen = {date: _clocked(sightings, date) for date in dates}
    clock = {date: clocks.estimate(seen[date]) for date in dates}
    skews_us = {date: {name: round(each.skew_us or 0) for name, each in clock[date].items()} for date in dates}
    of_dates, has_wide = wide.marked(_of_dates(records, dates), seen)
    messages = keep(fates(of_dates, skews_us, has_wide))
    counted = keep(_counted(messages))
    if counted.count() > most:
        of_dates = crowded(of_dates, _flows_apart(of_dates, most, has_wide))
        messages = keep(fates(of_dates, skews_us, has_wide, is_crowded=True))
        counted = keep(_counted(messages))
    seen_of = without_crowded_ends(_of_messages(of_dates, counted.withColumnRenamed("example", "id")))
    shown: Iterable[Shown] = _shown(seen_of.where(~sf.col(WIDE)) if has_wide else seen_of, skews_us)
    if has_wide:
        totals = {date: _totals(each) for date, each in seen.items()}
        shown = chain(shown, wide.shown(seen_of, skews_us, totals))
    verdicts = list(kinds.judged(shown, clock))
    topics = {each.flow ^ number_of(each.date) for each in verdicts if each.verdict.missing_at and each.sink is None}
    names = {name for each in verdicts for way in each.verdict.missing_at for name in way}
    spans = Spans(sightings, topic_spans(records, topics), skews_us, _holes(hours, names))
    signatures, findings = [], []
    for date, flow, source, sink, kind, extra, aside, each in verdicts:
        judged = spans.judged(date, each, flow ^ number_of(date), grace_us) if each.missing_at else ALWAYS
        at = ",".join(dict.fromkeys(name for way in each.missing_at for name in way)) or None
        signatures.append((date, each.key, extra + aside, source, sink, kind, each.status, at, *judged))
        copies = {"delivered_twice": extra, "duplicate": aside}
        for finding in each.findings:
            until = judged if finding.finding == "lost" else ALWAYS
            findings.append((date, each.key, copies.get(finding.finding, 0), *finding, *until))
    return (
        _audit(messages, broadcast(spark, signatures, _SIGNATURES)),
        _detail(of_dates, messages, broadcast(spark, findings, _FINDINGS), keep),
    )


def fates(of_dates: DataFrame, skews_us: SkewsUs, has_wide: bool = False, is_crowded: bool = False) -> DataFrame:
    """One row per message: id, signature, `last_us` from msg_ts to the last confirmation, by corrected clocks.

    `has_wide`: some records are of wide flows (`wide`). `is_crowded`: some are of crowded flows. Of these, only two records
    of a message count for its signature.
    """
    confirmed_us = sf.col("age_us") + sf.coalesce("latency_us", sf.lit(0)) - sf.coalesce("skew_us", sf.lit(0))
    confirmed_us = sf.when(sf.col("outcome") == "delivered", confirmed_us)
    rows = _hashed(_with_skew(_numbered(of_dates), skews_us), has_wide).withColumn("confirmed_us", confirmed_us)
    kept = ["id", "confirmed_us", *_HASHED[: None if has_wide else 1]]
    last_us = sf.max("confirmed_us").alias("last_us")
    if not is_crowded:
        return _summed(rows.select(*kept), has_wide, last_us).select("id", "signature", "last_us")
    two = sf.xxhash64(sf.min("record"), sf.max("record")).alias("two")
    summed = _summed(rows.select(*kept, CROWDED), has_wide, last_us, two, sf.bool_or(CROWDED).alias(CROWDED))
    return summed.select(
        "id", sf.when(sf.col(CROWDED), sf.col("two")).otherwise(sf.col("signature")).alias("signature"), "last_us"
    )


_HASHED = ("record", WIDE, "place", "aside")


def _hashed(rows: DataFrame, has_wide: bool) -> DataFrame:
    """With `record`, the hash of what counts of a record that is `_numbered`; and of a wide one, what is counted."""
    record = sf.xxhash64("flow", *_KIND)
    if not has_wide:
        return rows.withColumn("record", record)
    is_wide = sf.col(WIDE)
    return rows.withColumns(
        {
            "record": sf.when(is_wide, sf.xxhash64("flow", *wide.KIND)).otherwise(record),
            "place": sf.when(is_wide & (sf.col("outcome") == "delivered"), wide.place()),
            "aside": is_wide & (sf.col("outcome") == "duplicate"),
        }
    )


def _summed(rows: DataFrame, has_wide: bool, *more: Column) -> DataFrame:
    """Rows that are `_hashed` and have an id → id, signature and more for each message.

    The halves of the hashes are summed up apart: a message may have been repeated a million times, and nothing may overflow.
    The shuffle comes before that: a message has few records at one streamer, so a sum before the shuffle would not pay.
    Of a wide message count which records there are, and how many copies, but not how many streamers.
    """
    upper = sf.sum(sf.shiftright("record", _HALF_BITS)).alias("upper")
    lower = sf.sum(sf.col("record").bitwiseAND((1 << _HALF_BITS) - 1)).alias("lower")
    signature = sf.xxhash64("upper", "lower")
    if has_wide:
        extra = sf.count("place") - sf.count_distinct("place")
        kinds = sf.sort_array(sf.collect_set(sf.when(sf.col(WIDE), sf.col("record"))))
        more = (*more, kinds.alias("kinds"), extra.alias("extra"), sf.count_if("aside").alias("asides"))
        of_wide = sf.xxhash64("kinds", "extra", "asides")
        signature = sf.when(sf.size("kinds") > 0, of_wide).otherwise(signature)
    summed = rows.repartition("id").groupBy("id").agg(upper, lower, *more)
    return summed.withColumn("signature", signature)


def _flows_apart(of_dates: DataFrame, most: int, has_wide: bool) -> list[int]:
    """The flows with the most messages, by their hashes, as many as have `most` signatures together.

    None that has more than a hundredth of them alone: its sender makes them up.
    """
    rows = _hashed(_numbered(of_dates), has_wide).withColumn("way", flow_hash())
    rows = rows.select("id", "way", *_HASHED[: None if has_wide else 1])
    alike = _summed(rows, has_wide, sf.first("way").alias("way")).groupBy("way", "signature")
    signatures = alike.agg(sf.count("*").alias("alike"))
    flows = signatures.groupBy("way").agg(sf.sum("alike").alias("messages"), sf.count("*").alias("signatures"))
    few = flows.where(sf.col("signatures") <= max(1, most // 100)).orderBy(sf.desc("messages"), "way").limit(most).collect()
    together = accumulate(row.signatures for row in few)
    return [row.way for row, up_to in zip(few, together, strict=True) if up_to <= most]


def _of_dates(records: DataFrame, dates: Sequence[dt.date]) -> DataFrame:
    """The records of messages that were made on these dates, told apart. `date` is that of the message."""
    first, end = (dt.datetime.combine(date, dt.time(), dt.UTC) for date in (dates[0], dates[-1] + dt.timedelta(days=1)))
    made = records.where((sf.col("msg_ts") >= sf.lit(first)) & (sf.col("msg_ts") < sf.lit(end)))
    made_on = sf.lit(dates[0])  # a large date comes alone, and to ask Java's calendar takes long for each of its records
    if len(dates) > 1:
        made_on = sf.to_date("msg_ts")
        made = made.where(made_on.isin(list(dates)) & sf.abs(sf.datediff("date", made_on)).between(0, REACH_DAYS))
    return told_apart(made.withColumn("date", made_on))


def _numbered(of_dates: DataFrame) -> DataFrame:
    """With the hash of the flow, and an id half as long as msg_id that tells the messages of all flows and dates apart."""
    in_flow = sf.xxhash64("msg_id", "flow").bitwiseAND((1 << _ID_BITS) - 1)
    flow = flow_hash().bitwiseXOR(sf.unix_date("date").cast("long"))
    return of_dates.withColumn("flow", flow).withColumn("id", sf.shiftleft(_ms(), _ID_BITS).bitwiseOR(in_flow))


def _ms() -> Column:
    """The ms of the day in which the message was made, of records whose `msg_ts` is not null.

    By its form, the result cannot be null either: Spark would ask each record whether its id is, before it looks whether the
    record is wanted at all.
    """
    return sf.coalesce(sf.pmod(sf.unix_millis("msg_ts"), sf.lit(DAY_MS)), sf.lit(0))


def _of_messages(of_dates: DataFrame, wanted: DataFrame) -> DataFrame:
    """The records of some messages, by their ids, with the columns of `wanted`.

    Most records are left out by the time of the message, before their hashes are computed.
    """
    times = wanted.select(sf.shiftright("id", _ID_BITS).alias("ms"))
    near = of_dates.withColumn("ms", _ms()).join(sf.broadcast(times), "ms", "left_semi")
    return _numbered(near).join(sf.broadcast(wanted), "id")


def _with_skew(records: DataFrame, skews_us: SkewsUs) -> DataFrame:
    """With `skew_us`, of the streamer on the date; null if it is 0. A join: an expression would grow with the streamers."""
    rows = [(date, name, skew_us) for date, each in skews_us.items() for name, skew_us in each.items() if skew_us]
    if not rows:
        return records.withColumn("skew_us", sf.lit(None).cast("long"))
    return records.join(
        broadcast(records.sparkSession, rows, "date DATE, streamer STRING, skew_us BIGINT"), ["date", "streamer"], "left"
    )


def _clocked(sightings: Iterable[Sightings], date: dt.date) -> list[Sightings]:
    """Those of messages that were made on the date. As in `told_apart`, a Publish has no sink."""
    found = [each for each in sightings if each.is_made_on(date) and abs((each.date - date).days) <= REACH_DAYS]
    return [each._replace(sink_authority=None) if each.is_publish else each for each in found]


def _counted(messages: DataFrame) -> DataFrame:
    """For each signature the number of messages and the id of one."""
    return messages.groupBy("signature").agg(sf.count("*").alias("messages"), sf.min("id").alias("example"))


def _shown(records: DataFrame, skews_us: SkewsUs) -> Iterator[Shown]:
    """The records of examples, those that are alike together; each flow's follow each other. Runs a query."""
    rows = records.groupBy("date", "flow", "id", *_SHOWN, "signature", "messages").agg(
        sf.count("*").alias("times"), sf.unix_micros(sf.min("ts")).alias("at_us")
    )
    fields = Shown._fields[: len(rows.columns)]
    for row in starmap(Shown, tuples(rows.select(*fields).toArrow().sort_by("flow"))):
        yield row._replace(at_us=row.at_us - skews_us[row.date].get(row.streamer, 0))


def _totals(seen: Iterable[Sightings]) -> dict[str, int]:
    """The records that say something about clocks, by streamer."""
    totals: dict[str, int] = defaultdict(int)
    for each in seen:
        totals[each.streamer] += each.messages
    return totals


def _holes(hours: DataFrame | None, names: Set[str]) -> Holes:
    """The hours that are not complete of streamers that lack something. Runs a query if there are any."""
    if hours is None or not names:
        return {}
    wanted = broadcast(hours.sparkSession, [(name,) for name in sorted(names)], "streamer STRING")
    ends_us = (sf.unix_date("date") * 24 + sf.col("hour") + 1).cast("long") * _HOUR_US
    until_us = sf.coalesce(sf.unix_micros("complete_until"), ends_us - _HOUR_US).alias("until_us")
    open_ = hours.join(wanted, "streamer").select("date", "streamer", "hour", until_us).where(sf.col("until_us") < ends_us)
    holes: dict[tuple[dt.date, str], dict[int, int]] = defaultdict(dict)
    for row in open_.collect():
        holes[row.date, row.streamer][row.hour] = row.until_us
    return holes


def _handed_us() -> Column:
    """The time of the hand-over, in µs of the day."""
    return sf.shiftright("id", _ID_BITS) * 1000 + sf.coalesce("last_us", sf.lit(0))


def _outside(first: str, last: str) -> Column:
    return sf.coalesce((_handed_us() < sf.col(first)) | (_handed_us() > sf.col(last)), sf.lit(False))


def _hour() -> Column:
    """The hour of the hand-over, in the span of `Judged.hours`."""
    hour = sf.floor(_handed_us() / _HOUR_US)
    return sf.least(sf.greatest(hour, sf.lit(0)), sf.lit(HOURS - 1)).cast("int")


def _unknown() -> Column:
    """Whether records that would tell whether it is lost are not there."""
    mark = sf.substring(sf.col("hours"), _hour() + 1, sf.lit(1))
    return sf.coalesce(mark == "0", sf.lit(False)) | _outside("from_us", "until_us")


def _unjudged() -> Column:
    return _unknown() | _outside("topic_from_us", "topic_until_us")


def _lost() -> Column:
    """The status of a message that none of the streamers behind its hand-over has."""
    return sf.when(_unknown(), "unknown").when(sf.col("unjudged"), "delivered").otherwise("lost")


def _audit(messages: DataFrame, signatures: DataFrame) -> DataFrame:
    """Percentiles come from a histogram with classes of at most 1/128 of the value, so they are at most 0.8 % too high."""
    last_us = sf.when((sf.col("status") == "delivered") & ~sf.col("unjudged"), sf.col("last_us"))
    width = sf.expr("shiftleft(1L, greatest(0, int(log2(greatest(1, abs(last_us)))) - 7))")
    histogram = (
        messages.join(signatures, "signature")
        .withColumn("hour", _hour())
        .withColumn("unjudged", _unjudged())
        .withColumn("status", sf.when(sf.col("status") == "lost", _lost()).otherwise(sf.col("status")))
        .withColumn("missing_at", sf.when(sf.col("status").isin("lost", "unknown"), sf.col("missing_at")))
        .withColumn("hour", sf.when(sf.col("status") == "unknown", sf.col("hour")))
        .withColumn("last_us", last_us)
        .groupBy(*_GROUP, (sf.col("last_us") - sf.pmod("last_us", width)).alias("class"))
        .agg(
            sf.count("*").alias("messages"),
            sf.sum("copies").alias("copies"),
            sf.max("last_us").alias("most_us"),
        )
    )
    group = Window.partitionBy(*_GROUP)
    timed = sf.when(sf.col("class").isNotNull(), sf.col("messages")).otherwise(0)
    ranked = histogram.withColumn("timed", sf.sum(timed).over(group)).withColumn(
        "up_to", sf.sum(timed).over(group.orderBy("class"))
    )

    def percentile(percent: int) -> Column:
        enough = sf.col("class").isNotNull() & (sf.col("up_to") * 100 >= sf.col("timed") * percent)
        return sf.min(sf.when(enough, sf.col("most_us"))).alias(f"latency_p{percent}_us")

    return ranked.groupBy(*_GROUP).agg(
        sf.sum("messages").alias("messages"),
        sf.sum("copies").alias("copies"),
        percentile(50),
        percentile(99),
        sf.max("most_us").alias("latency_max_us"),
    )


def _detail(of_dates: DataFrame, messages: DataFrame, findings: DataFrame, keep: Keep) -> DataFrame:
    # The columns about the message itself come from its first record: few rows, found by reading the records once more.
    # Broadcast, or Spark would shuffle and sort all records again: a third of the job's work. What was found comes back only
    # afterwards, so that a row of the broadcast is small.
    found = messages.join(findings, "signature").where(~_unjudged())
    kept = ("id", "signature", "last_us")
    about = (
        _of_messages(of_dates, keep(found.select(*kept)))
        .groupBy(*kept)
        .agg(*(sf.first(name).alias(name) for name in _ABOUT))
    )
    return about.join(findings, "signature").where(~_unjudged())


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    records = batch.records(REACH_DAYS, REACH_DAYS)
    return transform(records, batch.sightings, batch.dates, batch.keep, hours=batch.table(COMPLETENESS))


JOB = job.Job(
    "delivery_audit",
    (DELIVERY_AUDIT, DELIVERY_AUDIT_DETAIL),
    compute,
    before=REACH_DAYS,
    after=REACH_DAYS,
    needs=(streamer_health.JOB,),
)
