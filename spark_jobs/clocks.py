"""Estimates how far the streamers' clocks are apart, from the ages of messages that several of them saw.

For two streamers X and Y, the age of a message at Y minus its age at X is transit + skew if it went from X to Y, and skew −
transit if it went the other way. The sender's clock cancels out. Half the sum of both directions is the skew; its error is
half the difference between the two transits. The direction of a message is not read from the clocks: what leaves X by the
endpoint through which other messages come in from Y goes to Y. With traffic in one direction only, a skew can be seen only
if it is far above any transit. What X recorded until its delivery was confirmed, offline or on a slow link, explains as much
of the difference as it took: that is no skew.
"""

import datetime as dt
import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from statistics import median
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs.arrow import tuples
from spark_jobs.flows import crowded_pairs

ONE_WAY_MIN_US = 1_000_000
"""With traffic in one direction only, a smaller difference may just as well be the transit."""
MAX_SIGHTINGS = 500_000
"""Of more rows, days instead of hours come to the driver, with only a few pairs of authorities for each streamer."""
_PAIRS = 2
"""For each streamer: what tells its clock is where messages go both ways."""
_HUBS = 8
"""Of a flow that many streamers see, each is compared with so many of the busiest: not all of them with each other."""
_ENOUGH_MESSAGES = 10
_HOUR_US = 3_600_000_000
TELLING = "telling_age_us"
"""The age of a record that says something about clocks; null for all others."""
OUT = "telling_out_us"
"""The same when its delivery was confirmed; null for what was not delivered."""


class ClockEstimate(NamedTuple):
    """One streamer's clock minus that of `against`, the reference: the streamer that saw most messages.

    `skew_us` None: unknown, but less than `ONE_WAY_MIN_US` if there is an `against`. Clocks of one `group` are known well
    enough, from both directions, to tell which of two streamers saw a message first.
    """

    skew_us: float | None
    against: str | None
    messages: int
    group: str


class _Side(NamedTuple):
    """Messages of one source and sink at one streamer: per hour the least age, on arrival and when a delivery was confirmed,
    and their number; and the ways through the streamer."""

    ages_us: dict[int, int]
    outs_us: dict[int, int]
    messages: dict[int, int]
    ways: dict[tuple[str | None, str | None], int]


class _Difference(NamedTuple):
    """Age at Y minus age at X, of one source and sink. `way`: through X. `sign`: 1 or -1 if X or Y made the messages.

    `low_us`, `high_us`: the same from when X, and until when Y, had its delivery confirmed.
    """

    low_us: float
    age_us: float
    high_us: float
    messages: int
    way: tuple[str | None, str | None]
    sign: int

    def there_us(self) -> float:
        """The skew plus the transit from X to Y."""
        return self.low_us if self.age_us - self.low_us >= ONE_WAY_MIN_US else self.age_us

    def back_us(self) -> float:
        """The skew minus the transit from Y to X."""
        return self.high_us if self.high_us - self.age_us >= ONE_WAY_MIN_US else self.age_us

    def one_way_us(self) -> float:
        """The skew and a transit; of both directions the least if it is not known which one it is."""
        if self.sign:
            return self.there_us() if self.sign > 0 else self.back_us()
        return min(self.there_us(), self.back_us(), key=abs)


class _Link(NamedTuple):
    skew_us: float | None
    messages: int
    both_ways: bool


class Sightings(NamedTuple):
    """Records that are alike in all but their times. `date` is theirs; `hour_of_message`, since 1970, is that of `msg_ts`.

    It is None if the message was made on another date than theirs and its neighbours. Crowded ones (`flows`) have no
    authorities.

    `messages` and `age_us`, the least, leave out what says nothing about clocks: duplicates, and records without an age.
    `out_us`: the least age when a delivery was confirmed.
    """

    date: dt.date
    streamer: str
    src_authority: str | None
    sink_authority: str | None
    is_publish: bool
    ingress: str | None
    egress: str | None
    hour_of_message: int | None
    messages: int
    age_us: int | None
    first_us: int
    last_us: int
    out_us: int | None = None

    def is_made_on(self, date: dt.date) -> bool:
        hour = self.hour_of_message
        return hour is not None and hour // 24 == number_of(date)


_ALIKE = Sightings._fields[: Sightings._fields.index("messages")]


def number_of(date: dt.date) -> int:
    """The days since 1970."""
    return (date - dt.date(1970, 1, 1)).days


def sightings(alike: DataFrame, most: int = MAX_SIGHTINGS) -> list[Sightings]:
    """Who saw messages of whom, from records that are `alike`. Runs a query, and another one if that is too many.

    The least age excludes time in queues; the median over the hours excludes single events.
    """
    found = alike.select(*Sightings._fields).limit(most + 1).toArrow()
    if found.num_rows > most:
        hour = sf.col("hour_of_message")
        of_days = alike.withColumn("hour_of_message", hour - sf.pmod(hour, sf.lit(24)))
        found = _together(crowded_pairs(of_days, _PAIRS)).select(*Sightings._fields).toArrow()
    return list(map(Sightings._make, tuples(found)))


def alike(records: DataFrame) -> DataFrame:
    """Trace records → the rows of `Sightings`, with the number of `records` of each."""
    each = {
        "records": sf.lit(1),
        "messages": sf.when(sf.col(TELLING).isNotNull(), 1).otherwise(0),
        "age_us": sf.col(TELLING),
        "out_us": sf.col(OUT),
        "first_us": sf.unix_micros("ts"),
        "last_us": sf.unix_micros("ts"),
    }
    return _together(with_sightings(records).withColumns(each))


def alike_in(rollup: DataFrame) -> DataFrame:
    """`rollup.transform` → the same, of the records that are in it."""
    each = {
        "records": sf.col("messages"),
        "messages": sf.col("telling"),
        "age_us": sf.col("least_age_us"),
        "out_us": sf.col("least_out_us"),
        "first_us": sf.unix_micros("first_ts"),
        "last_us": sf.unix_micros("last_ts"),
    }
    return _together(rollup.withColumns(each))


def with_sightings(records: DataFrame) -> DataFrame:
    """With the keys of `Sightings` that are no columns yet, and with `TELLING`."""
    hour = sf.expr(f"unix_micros(msg_ts) div {_HOUR_US}")
    first_hour = sf.unix_date("date") * 24
    tells = sf.expr("msg_ts IS NOT NULL AND age_us IS NOT NULL AND outcome != 'duplicate'")
    return records.withColumns(
        {
            "is_publish": sf.expr("msg_type = 'publish'"),
            "hour_of_message": sf.when(hour.between(first_hour - 24, first_hour + 47), hour),
            TELLING: sf.when(tells, sf.col("age_us")),
            OUT: sf.when(tells & (sf.col("outcome") == "delivered"), sf.col("age_us") + sf.col("latency_us")),
        }
    )


def _together(rows: DataFrame) -> DataFrame:
    sums = (sf.sum(name).alias(name) for name in ("messages", "records"))
    least = (sf.min(name).alias(name) for name in ("age_us", "out_us", "first_us"))
    return rows.groupBy(*_ALIKE).agg(*sums, *least, sf.max("last_us").alias("last_us"))


def estimate(rows: Iterable[Any]) -> dict[str, ClockEstimate]:
    """The clock of each streamer, from `Sightings`; those without messages do not count."""
    flows: dict[tuple[str, str | None], dict[str, _Side]] = defaultdict(lambda: defaultdict(lambda: _Side({}, {}, {}, {})))
    total: dict[str, int] = defaultdict(int)
    for row in rows:
        if not row.messages:
            continue
        total[row.streamer] += row.messages
        if row.src_authority is None or row.hour_of_message is None:
            continue
        side = flows[row.src_authority, row.sink_authority][row.streamer]
        hour = row.hour_of_message
        side.ages_us[hour] = min(row.age_us, side.ages_us.get(hour, row.age_us))
        if row.out_us is not None:
            side.outs_us[hour] = min(row.out_us, side.outs_us.get(hour, row.out_us))
        side.messages[hour] = side.messages.get(hour, 0) + row.messages
        side.ways[row.ingress, row.egress] = side.ways.get((row.ingress, row.egress), 0) + row.messages
    pairs: dict[tuple[str, str], list[_Difference]] = defaultdict(list)
    for (source, _), sides in flows.items():
        for x, y in _compared(sides, total):
            x_us, y_us = sides[x].ages_us, sides[y].ages_us
            if common := x_us.keys() & y_us.keys():
                low_us = median(y_us[hour] - max(sides[x].outs_us.get(hour, x_us[hour]), x_us[hour]) for hour in common)
                age_us = median(y_us[hour] - x_us[hour] for hour in common)
                high_us = median(max(sides[y].outs_us.get(hour, y_us[hour]), y_us[hour]) - x_us[hour] for hour in common)
                messages = sum(min(sides[x].messages[hour], sides[y].messages[hour]) for hour in common)
                way = max(sides[x].ways, key=lambda each, ways=sides[x].ways: ways[each])  # type: ignore[misc]
                pairs[x, y].append(_Difference(low_us, age_us, high_us, messages, way, (source == x) - (source == y)))
    return _spread(total, {pair: _link(differences) for pair, differences in pairs.items()})


def _link(differences: list[_Difference]) -> _Link:
    """The skew of Y relative to X. Flows of few messages count only if the others do not tell it from both directions.

    Otherwise broadcasts, all in one direction, would hide the few messages in the other one.
    """
    enough = [each for each in differences if each.messages >= _ENOUGH_MESSAGES]
    for used in (enough, differences):
        if found := _both_ways(used):
            return found
    used = enough or differences
    nearest = min((each.one_way_us() for each in used), key=abs)
    return _Link(nearest if abs(nearest) >= ONE_WAY_MIN_US else None, sum(each.messages for each in used), False)


def _both_ways(used: list[_Difference]) -> _Link | None:
    """The skew of Y relative to X, from flows in both directions. Tries each endpoint of X as the one towards Y."""
    found: list[tuple[int, float, float]] = []
    for endpoint in {end for each in used for end in each.way if end is not None}:
        there = [each for each in used if (each.sign or (each.way[1] == endpoint)) > 0]
        back = [each for each in used if each.sign < 0 or (not each.sign and each.way[0] == endpoint)]
        if there and back:
            least, most = min(each.age_us for each in there), max(each.age_us for each in back)
            if least > most:  # otherwise this endpoint leads away from Y: no transit is negative
                skew_us = (min(each.there_us() for each in there) + max(each.back_us() for each in back)) / 2
                found.append((sum(each.messages for each in there + back), least - most, skew_us))
    if not found:
        return None
    messages, _, skew_us = max(found)
    return _Link(skew_us, messages, True)


def _compared(names: Collection[str], total: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs of the streamers of a flow whose clocks are compared, each in alphabetical order."""
    if len(names) <= _HUBS:
        return list(combinations(sorted(names), 2))
    hubs = heapq.nsmallest(_HUBS, names, key=lambda name: (-total[name], name))
    return sorted({(min(hub, name), max(hub, name)) for hub in hubs for name in names if name != hub})


def _spread(total: Mapping[str, int], links: Mapping[tuple[str, str], _Link]) -> dict[str, ClockEstimate]:
    """The clocks from the reference outwards, over the best known links first."""
    ordered = sorted(links, key=lambda pair: (links[pair].both_ways, links[pair].messages, pair), reverse=True)
    beside: dict[str, list[int]] = defaultdict(list)
    for place, pair in enumerate(ordered):
        for name in pair:
            beside[name].append(place)
    clocks: dict[str, ClockEstimate] = {}
    for reference in sorted(total, key=lambda name: (-total[name], name)):
        if reference in clocks:
            continue
        clocks[reference] = ClockEstimate(0.0, None, 0, reference)
        edges = list(beside[reference])  # by their places in `ordered`, and in ascending order: a heap
        while edges:
            x, y = ordered[heapq.heappop(edges)]
            if x in clocks and y in clocks:
                continue
            link = links[x, y]
            known, new, sign = (x, y, 1) if x in clocks else (y, x, -1)
            skew_us = (clocks[known].skew_us or 0) + sign * (link.skew_us or 0)
            is_known = link.both_ways or abs(skew_us) >= ONE_WAY_MIN_US
            group = clocks[known].group if link.both_ways else new
            clocks[new] = ClockEstimate(skew_us if is_known else None, reference, link.messages, group)
            for place in beside[new]:
                heapq.heappush(edges, place)
    return clocks
