import datetime as dt
import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from spark_jobs import anomalies
from spark_jobs.batch import seen_from
from spark_jobs.session import small_frame
from spark_jobs.tables import TREND_DAYS
from tests.spark.traces import DATE

pytestmark = pytest.mark.long

HOURS_DDL = "date DATE, hour INT, streamer STRING, route STRING, messages BIGINT, delivered BIGINT, expired BIGINT, " \
    "rejected BIGINT, dead_lettered BIGINT"  # fmt: skip
LATENCY_DDL = "date DATE, hour INT, streamer STRING, route STRING, messages BIGINT, latency_p99_us BIGINT"

Value = tuple[int, int, int, int]
"""Of one hour: days before `DATE`, hour, messages, how many of them failed."""


class Series(NamedTuple):
    """What one streamer of its own wrote, and the anomalies that this is to give: (hour, metric, value)."""

    hours: list[Value]
    expected: list[tuple[int, str, float]]
    latency: list[tuple[int, int, int, int]] = []
    """Days before, hour, messages, p99 in µs."""
    unheard: list[tuple[int, int, int]] = []
    """Days before, hour, messages that nobody listened to."""


def steady(days: int = 14, messages: int = 1000, hours: Iterable[int] = (7,)) -> list[Value]:
    return [(ago, hour, messages, 0) for ago in range(1, days + 1) for hour in hours]


def noisy(seed: int, days: int, *, planted: bool) -> Series:
    drawn = random.Random(seed)
    hours: list[Value] = []
    latency = []
    for ago in range(days + 1):
        for hour in range(24):
            n = int((300 + 2000 * (6 < hour < 20)) * drawn.lognormvariate(0, 0.25))
            if planted and (ago, hour) == (0, 9):
                n = 9200
            hours.append((ago, hour, n, sum(drawn.random() < 0.01 for _ in range(n))))
            latency.append((ago, hour, n, int(20_000 * drawn.lognormvariate(0, 0.2))))
    return Series(hours, [(9, "messages", 9200.0)] if planted else [], latency)


VARIED = [(ago, 7, 200 * ago, 0) for ago in range(1, 15)]
OTHER = [(0, 8, 100, 0), *steady(messages=100, hours=[8])]
SEVEN = [(ago + 1, 7, n, 0) for ago, n in enumerate((700, 800, 900, 1000, 1100, 1200, 1300))]
P99 = [(ago, 7, 1000, 10_000) for ago in range(1, 15)]

SERIES = {
    "seven days": Series([*SEVEN, (0, 7, 4000, 0)], [(7, "messages", 4000.0)]),
    # A MAD of 0 counts as 5 %, 50 of 1000: six of 50 / 0.6745 are 445 messages.
    "alike, 444 more": Series([*steady(), (0, 7, 1444, 0)], []),
    "alike, 446 more": Series([*steady(), (0, 7, 1446, 0)], [(7, "messages", 1446.0)]),
    "alike, 444 less": Series([*steady(), (0, 7, 556, 0)], []),
    "alike, 446 less": Series([*steady(), (0, 7, 554, 0)], [(7, "messages", 554.0)]),
    # Four messages an hour: chance makes √4 of it, and six times that are 12.
    "few, 11 more": Series([*steady(messages=4), (0, 7, 15, 0)], []),
    "few, 13 more": Series([*steady(messages=4), (0, 7, 17, 0)], [(7, "messages", 17.0)]),
    "silent though varied": Series([*VARIED, *OTHER], [(7, "messages", 0.0)]),
    "silent, never below 10": Series([*((ago, 7, 10 * ago, 0) for ago in range(1, 15)), *OTHER], [(7, "messages", 0.0)]),
    "silent, once 9": Series([*((ago, 7, 10 * ago - 1, 0) for ago in range(1, 15)), *OTHER], []),
    "silent as once before": Series([*VARIED[:-1], *OTHER], []),
    "gone": Series(steady(hours=[3, 4]), [(3, "messages", 0.0), (4, "messages", 0.0)]),
    "gone at the ends": Series(steady(hours=[0, 23]), [(0, "messages", 0.0), (23, "messages", 0.0)]),
    "a new hour": Series([*steady(), (0, 7, 1000, 0), (0, 3, 500, 0)], [(3, "messages", 500.0)]),
    "four days": Series([*steady(4), (0, 7, 10**6, 10**5)], []),
    "five days": Series([*steady(5), (0, 7, 10**6, 0)], [(7, "messages", 1e6)]),
    # Nothing ever failed. Of 20, 5 are within six times 1 / 20; of 1000, 10 are above six times 1 / 1000.
    "few failed of few": Series([*steady(messages=20), (0, 7, 20, 5)], []),
    "few failed of many": Series([*steady(), (0, 7, 1000, 10)], [(7, "failed_share", 0.01)]),
    # Of today's 20, 5 are still within it, however many messages there were before.
    "few failed of few today": Series([*steady(), (0, 7, 20, 5)], [(7, "messages", 20.0)]),
    "two ways": Series([*steady(), *[(0, 7, 500, 10)] * 2], [(7, "failed_share", 0.02)]),
    "nobody listens": Series([], [], unheard=[(ago, 7, 1000) for ago in range(15)]),
    "slow": Series([*steady(), (0, 7, 1000, 0)], [(7, "latency_p99_us", 30_000.0)], [*P99, (0, 7, 1000, 30_000)]),
    "a little slow": Series([*steady(), (0, 7, 1000, 0)], [], [*P99, (0, 7, 1000, 18_000)]),
    "slow, just enough": Series(
        [*steady(), (0, 7, 1000, 0)], [(7, "latency_p99_us", 30_000.0)], [*P99, (0, 7, anomalies.LEAST_DELIVERED, 30_000)]
    ),
    "slow, too few": Series([*steady(), (0, 7, 1000, 0)], [], [*P99, (0, 7, anomalies.LEAST_DELIVERED - 1, 30_000)]),
    **{f"noisy {seed} {days}": noisy(seed, days, planted=False) for seed in (1, 2, 3) for days in (5, 14)},
    **{f"planted {seed} {days}": noisy(seed, days, planted=True) for seed in (1, 2, 3) for days in (5, 14)},
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> list[Any]:
    """The anomalies of all series, in one run."""
    return listed(spark, SERIES, [DATE])


def listed(spark: SparkSession, of: Mapping[str, Series], dates: list[dt.date]) -> list[Any]:
    """The anomalies of these dates."""
    rows, latency = [], []
    for streamer, series in of.items():
        for ago, hour, n, bad in series.hours:
            rows.append((DATE - dt.timedelta(ago), hour, streamer, "up", n, n - bad, bad, 0, 0))
        for ago, hour, n in series.unheard:
            rows.append((DATE - dt.timedelta(ago), hour, streamer, "up", n, 0, 0, 0, 0))
        for ago, hour, n, p99_us in series.latency:
            latency.append((DATE - dt.timedelta(ago), hour, streamer, "up", n, p99_us))
    table, latencies = small_frame(spark, rows, HOURS_DDL), small_frame(spark, latency, LATENCY_DDL)
    today = sf.col("date").isin(dates)
    past = [seen_from(rows, dates, -TREND_DAYS, -1) for rows in (table, latencies)]
    made = anomalies.transform(table.where(today), latencies.where(today), *past)
    return sorted(made.collect(), key=lambda row: (row.date, row.hour, row.metric))


@pytest.mark.parametrize("name", SERIES)
def test_exactly_the_anomalies_are_found(found: list[Any], name: str) -> None:
    assert [(row.hour, row.metric, row.value) for row in found if row.streamer == name] == SERIES[name].expected


def test_score_median_and_mad_by_hand(found: list[Any]) -> None:
    # Median 1000, deviations 0 100 100 200 200 300 300: MAD 200, above every floor
    (row,) = [row for row in found if row.streamer == "seven days"]
    assert (row.route, row.median, row.mad, row.days) == ("up", 1000.0, 200.0, 7)
    assert row.score == pytest.approx(0.6745 * 3000 / 200)


def test_a_silence_is_listed_although_its_score_is_low(found: list[Any]) -> None:
    (row,) = [row for row in found if row.streamer == "silent though varied"]
    assert (row.median, row.days) == (1500.0, 14)
    assert abs(row.score) < anomalies.THRESHOLD


def test_an_even_hour_of_an_uneven_route_has_the_usual_spread_of_the_route(spark: SparkSession) -> None:
    """Hour 7 is alike every day. The other hours vary, each by a share of its own: the median of all four counts."""
    hours: list[Value] = [(0, 7, 1_000_000, 500_000), *((0, hour, 100_000, 30_000) for hour in (8, 9, 10))]
    latency = [(0, 7, 1_000, 900_000)]
    for hour, volume, slowness, failing in ((7, 0, 0, 0), (8, 20, 30, 1), (9, 20, 30, 1), (10, 40, 60, 2)):
        for ago in range(1, 15):
            sign = -1 if ago % 2 else 1
            n = 1_000 * (100 + sign * volume)
            hours.append((ago, hour, n, n * (30 + sign * failing) // 100))
            latency.append((ago, hour, 1_000, 100 * (100 + sign * slowness)))
    found = {
        row.metric: (row.hour, row.median, row.mad) for row in listed(spark, {"gw": Series(hours, [], latency)}, [DATE])
    }
    assert found == {
        "messages": (7, 100_000.0, pytest.approx(20_000)),
        "failed_share": (7, pytest.approx(0.3), pytest.approx(0.01)),
        "latency_p99_us": (7, 10_000.0, pytest.approx(3_000)),
    }


def test_a_share_of_few_messages_has_the_spread_of_chance(spark: SparkSession) -> None:
    hours = [(ago, 7, 100, 20) for ago in range(1, 15)]
    (row,) = listed(spark, {"gw": Series([*hours, (0, 7, 100, 60)], [])}, [DATE])
    assert (row.metric, row.value, row.median) == ("failed_share", 0.6, 0.2)
    assert row.mad == pytest.approx(0.6745 * (0.2 * 0.8 / 100) ** 0.5)


def test_dates_together_give_what_each_gives_alone(spark: SparkSession) -> None:
    dates = [DATE - dt.timedelta(days=1), DATE]
    hours: list[Value] = []
    for ago in range(16):
        hours += [(ago, 7, 50_000 if ago < 2 else 1_000, 0), (ago, 8, 1_000 + 53 * ago, 0), (ago, 9, 2_000 - 97 * ago, 0)]
    series = {"gw": Series(hours, [])}
    together = listed(spark, series, dates)
    assert together == [row for date in dates for row in listed(spark, series, [date])]
    assert len({row.mad for row in together}) == len(dates), "each date has a usual spread of its own"
