"""Who lacks what is published to many, by hand-made records; a fleet of which a third never got a broadcast: test_fleet."""

import datetime as dt
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import clocks, fan_out
from spark_jobs.session import small_frame
from spark_jobs.tables import COMPLETENESS, FAN_OUT, FAN_OUT_MISSING
from tests.spark.sightings import seen
from tests.spark.traces import DATE, Record, at, frame

pytestmark = pytest.mark.long

BEFORE, AFTER = (DATE + dt.timedelta(days=days) for days in (-1, 1))
ALL = range(6)


def publish(
    number: int, made: dt.datetime, gateways: Iterable[int], source: str = "veh1", fleet: str = "g", **given: Any
) -> list[Record]:
    return [seen(f"{fleet}{each}", made, number, 1_000 + each, src_authority=source, **given) for each in gateways]


def alive(date: dt.date = DATE, gateways: Collection[int] = ALL, fleet: str = "g") -> list[Record]:
    """Records from the first to the last minute of a date."""
    kept = [publish(900 + each, at(clock, date), [each], f"own {fleet}{each}", fleet) for each in gateways
            for clock in ("00:00", "23:59")]  # fmt: skip
    return [record for each in kept for record in each]


def tables(
    spark: SparkSession, records: Iterable[Record], *dates: dt.date, hours: DataFrame | None = None
) -> tuple[list[Any], list[Any]]:
    rows = frame(spark, records).coalesce(1).cache()
    both = fan_out.transform(rows, clocks.sightings(clocks.alike(rows)), dates or [DATE], hours)
    whole, missing = (
        table.select(*kind.columns).collect() for table, kind in zip(both, (FAN_OUT, FAN_OUT_MISSING), strict=True)
    )
    return sorted(whole, key=str), sorted(missing, key=str)


@pytest.fixture(scope="module")
def day(spark: SparkSession) -> tuple[list[Any], list[Any]]:
    """Three sources, of which the last has a fleet of its own."""
    sometimes = {"source": "sometimes", "fleet": "s"}
    return tables(
        spark,
        [
            *alive(),
            *alive(gateways=[7]),
            *(each for number in range(5) for each in publish(number, at(f"08:0{number}"), ALL, "part")),
            *publish(10, at("09:00"), ALL[:4], "part"),
            *publish(11, at("09:10"), ALL[:5], "part"),
            *publish(11, at("09:10"), [2], "part"),  # a copy counts once
            *publish(12, at("09:20"), ALL, "part"),
            *(each for number in range(4) for each in publish(number, at(f"08:0{number}"), ALL, "nobody")),
            *publish(9, at("12:00"), [7], "nobody"),
            # gateway 4 is not subscribed; 5 has written nothing since 08:40, and 3 nothing before 08:30
            *alive(gateways=[0, 1, 2, 4], fleet="s"),
            *publish(800, at("08:30"), [3, 5], **sometimes),
            *publish(801, at("23:59"), [3], "own s3", "s"),
            *(each for number in range(4) for each in publish(number, at(f"08:3{number}"), [0, 1, 2, 3, 5], **sometimes)),
            *publish(20, at("08:40"), ALL, **sometimes),
            *publish(30, at("12:00"), [0, 1, 3], **sometimes),
            *publish(31, at("07:00"), [0, 1], **sometimes),
        ],
    )


def of(source: str, rows: list[Any]) -> list[Any]:
    return [row for row in rows if row.src_authority == source]


def test_each_hour_of_a_topic_has_the_share_and_the_gateways_that_lack_it(day: tuple[list[Any], list[Any]]) -> None:
    topic = ("part", 1, 0x8000)
    assert [tuple(row) for row in of("part", day[0])] == [
        (DATE, 8, *topic, 5, 6, 0, 30, 0, 1.0, 0),
        (DATE, 9, *topic, 3, 6, 0, 18, 3, pytest.approx(15 / 18), 2),
    ]
    assert [tuple(row) for row in of("part", day[1])] == [(DATE, 9, *topic, "g4", 3, 1), (DATE, 9, *topic, "g5", 3, 2)]


def test_a_publish_that_no_usual_gateway_has_is_lacked_by_all(day: tuple[list[Any], list[Any]]) -> None:
    found = {(row.hour, row.missing, row.share) for row in of("nobody", day[0])}
    assert found == {(12, 6, 0.0), (8, 0, 1.0)}
    assert [row.streamer for row in of("nobody", day[1])] == [f"g{number}" for number in ALL]


def test_who_gets_less_than_half_or_writes_nothing_then_lacks_nothing(day: tuple[list[Any], list[Any]]) -> None:
    found = {row.hour: (row.gateways, row.unknown, row.missing) for row in of("sometimes", day[0])}
    assert (found[12], found[7]) == ((4, 1, 1), (3, 2, 1))
    lacking = {(12, "s2"), (7, "s2"), (8, "s0"), (8, "s1"), (8, "s2")}
    assert {(row.hour, row.streamer) for row in of("sometimes", day[1])} == lacking


def test_the_publisher_is_no_gateway_and_what_falls_into_an_hour_without_records_is_unknown(spark: SparkSession) -> None:
    records = [each for n in range(3) for each in publish(n, at(f"08:0{n}"), ALL, "g5")]
    records += publish(3, at("09:00"), [0, 1, 5], "g5")
    until = {0: at("09:40"), 2: at("09:05"), 3: at("09:10"), 4: None}
    hours = [(DATE, 9, f"g{each}", 1, 1, 0, time) for each, time in until.items()]
    whole, missing = tables(spark, [*alive(), *records], hours=small_frame(spark, hours, COMPLETENESS.ddl))
    assert [(row.hour, row.gateways, row.unknown, row.missing) for row in of("g5", whole)] == [(8, 5, 0, 0), (9, 3, 2, 1)]
    assert [row.streamer for row in missing] == ["g3"]


def test_few_gateways_are_a_chain(spark: SparkSession) -> None:
    few = range(fan_out.LEAST - 1)
    assert tables(spark, [*alive(), *publish(1, at("08:00"), few), *publish(2, at("08:01"), few[:1])]) == ([], [])


def test_dates_together_give_what_each_gives_alone(spark: SparkSession) -> None:
    """What is usual comes from the days around, too: of the one Publish of the date, two gateways lack it."""
    dates = (BEFORE, DATE, AFTER)
    records = [each for date in dates for each in alive(date)]
    records += [each for n in range(3) for each in publish(n, at(f"08:0{n}", BEFORE), ALL)]
    records += [*publish(5, at("08:00"), ALL[:4]), *publish(6, at("23:59:59.9", AFTER), ALL[1:])]
    together = tables(spark, records, *dates)
    assert [row.streamer for row in together[1] if row.date == DATE] == ["g4", "g5"]

    alone = tables(spark, [each for each in records if each["ts"].date() != AFTER], BEFORE)
    for both, one in zip(together, alone, strict=True):
        assert [row for row in both if row.date == BEFORE] == one
