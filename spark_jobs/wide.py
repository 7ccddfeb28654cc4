"""Broadcasts to a fleet: which flows are *wide*, and what is told apart in them.

The messages of one source and sink are wide if more than `MANY` streamers see some of them. Their streamers are not told
apart then, only the kinds of networks that these connect. What has to be decided about such a message is therefore no more
than for a chain, however many gateways it goes to; who lacks it is another question (`fan_out`).
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_jobs.clocks import Sightings
from spark_jobs.session import broadcast

MANY = 8
"""No chain is longer than that."""
WIDE = "is_wide"
"""The column that says whether a record is of a wide flow."""
KIND = ("ingress_transport", "egress_transport", "outcome", "ucode")
"""What is told apart of a wide message's records."""

_PAIR = ("date", "src_authority", "sink_authority", "is_publish")
_DDL = "date DATE, src_authority STRING, sink_authority STRING, is_publish BOOLEAN"


def marked(records: DataFrame, seen: Mapping[dt.date, Iterable[Sightings]]) -> tuple[DataFrame, bool]:
    """Records that are told apart, with `WIDE`, and whether there can be any for which it is true.

    `seen`: what was seen of the messages of each date. If some of it is crowded, the records themselves are counted.
    """
    streamers: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for date, of_date in seen.items():
        for each in of_date:
            streamers[date, each.src_authority, each.sink_authority, each.is_publish].add(each.streamer)
    is_publish = sf.col("msg_type") == "publish"
    if any(pair[1] is None for pair in streamers):
        rows = records.withColumn("is_publish", is_publish)
        wide = rows.groupBy(*_PAIR).agg(sf.count_distinct("streamer").alias("many")).where(sf.col("many") > MANY)
        wide = wide.select(*_PAIR)
    elif found := sorted((pair for pair, names in streamers.items() if len(names) > MANY), key=str):
        wide = broadcast(records.sparkSession, found, _DDL)
    else:
        return records.withColumn(WIDE, sf.lit(False)), False
    renamed = wide.select(*(sf.col(name).alias(f"wide_{name}") for name in _PAIR))
    here = [records[name] for name in _PAIR[:-1]] + [is_publish]
    same = [column.eqNullSafe(renamed[f"wide_{name}"]) for name, column in zip(_PAIR, here, strict=True)]
    joined = records.join(renamed, same, "left").withColumn(WIDE, sf.col("wide_date").isNotNull())
    return joined.drop(*renamed.columns), True


class Shown(NamedTuple):
    """Records of one message that are alike, which stands for those of its signature. `times`: how many there were. `at_us`:
    the first, by its corrected clock.

    `places`: of a wide flow, at how many streamers, or over how many ways of these; None for others.
    `streamer` stands for several then; `seen_at` is the one with the most records that has these.
    """

    date: dt.date
    flow: int
    id: int
    signature: int
    messages: int
    streamer: str
    route: str
    egress: str | None
    address: str | None
    outcome: str
    ucode: str
    ingress_transport: str | None
    egress_transport: str | None
    src_authority: str | None
    sink_authority: str | None
    msg_type: str
    times: int
    at_us: int
    places: int | None = None
    seen_at: str | None = None

    @property
    def is_repeated(self) -> bool:
        """Whether it was there more than once over the same way."""
        return self.times > (self.places or 1)


def shown(
    records: DataFrame, skews_us: Mapping[dt.date, Mapping[str, int]], totals: Mapping[dt.date, Mapping[str, int]]
) -> list[Shown]:
    """The wide ones of these records, which have `flow` and `id`, by their kinds. Runs a query.

    One streamer stands for all that are of a kind in a flow: the one with the most records of the date, by `totals`.
    """
    about = [
        (date, name, skews_us[date].get(name, 0), records_)
        for date, each in totals.items()
        for name, records_ in each.items()
    ]
    known = broadcast(records.sparkSession, about, "date DATE, streamer STRING, skew_us BIGINT, total BIGINT")
    of_flow = ("date", "flow", "id", "signature", "messages", *KIND, "src_authority", "sink_authority", "msg_type")
    rows = (
        records.where(WIDE)
        .join(known, ["date", "streamer"], "left")
        .groupBy(*of_flow)
        .agg(
            sf.max_by("streamer", sf.struct("total", "streamer")).alias("streamer"),
            sf.min("route").alias("route"),
            sf.count("*").alias("times"),
            sf.count_distinct(place()).alias("places"),
            sf.min(sf.unix_micros("ts") - sf.coalesce("skew_us", sf.lit(0))).alias("at_us"),
        )
        .collect()
    )
    stands: dict[tuple[Any, ...], str] = {}
    for row in sorted(rows, key=lambda row: (totals[row.date].get(row.streamer, 0), row.streamer)):
        stands[row.flow, row.ingress_transport, row.egress_transport] = row.streamer
    found = []
    for row in sorted(rows, key=lambda row: int(row.flow)):
        streamer = stands[row.flow, row.ingress_transport, row.egress_transport]
        if row.egress_transport is None:  # it passed nothing on: it is one of those that did, if these are of one kind
            alike = [
                name
                for (flow, came, left), name in stands.items()
                if (flow, came) == (row.flow, row.ingress_transport) and left
            ]
            streamer = alike[0] if len(alike) == 1 else streamer
        about_ = {name: row[name] for name in (*of_flow, "route", "times", "at_us", "places")}
        found.append(Shown(**about_, streamer=streamer, egress=row.egress_transport, address=None, seen_at=row.streamer))
    return found


def place() -> Column:
    """The hash of a record's streamer and way: a wide message is delivered at each of them once."""
    return sf.xxhash64("streamer", "route", "egress", "address", "ucode")
