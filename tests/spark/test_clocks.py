"""The streamers' clocks from the ages of messages: X ⇄ Y ⇄ Z, with transits of 2 ms down and 6 ms up."""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from spark_jobs import rollup
from spark_jobs.clocks import Sightings, _compared, alike, alike_in, estimate, number_of, sightings
from tests.spark.traces import DATE, at, frame, record

DOWN_US, UP_US = 2_000, 6_000


class Row(NamedTuple):
    streamer: str
    src_authority: str
    sink_authority: str | None
    ingress: str | None
    egress: str | None
    hour_of_message: int
    messages: int
    age_us: int
    out_us: int | None = None


def rows(skew_us: dict[str, int], flows: Iterable[tuple[str, str | None, bool]], chain: Sequence[str] = "XYZ") -> list[Row]:
    """Each flow in three hours, one of which waited between the streamers."""
    made = []
    for source, sink, down in flows:
        for hour, wait_us in ((1, 0), (2, 3_000_000), (3, 0)):
            for hop, name in enumerate(chain if down else reversed(chain)):
                age_us = hop * ((DOWN_US if down else UP_US) + wait_us) + skew_us.get(name, 0)
                ends = ("up", "down") if down else ("down", "up")
                made.append(Row(name, source, sink, *ends, hour, 100, age_us))
    return made


@pytest.mark.parametrize("skew_us", [90_000_000, -45_000_000, 3_000, 0])
def test_both_directions_give_the_skew_to_half_the_difference_of_the_transits(skew_us: int) -> None:
    clocks = estimate(rows({"Y": skew_us}, [("cloud", "car", True), ("car", "cloud", False)]))
    assert clocks["Y"].skew_us == skew_us + (DOWN_US - UP_US) / 2
    assert clocks["Z"].skew_us == DOWN_US - UP_US
    assert (clocks["X"].skew_us, clocks["X"].against) == (0, None)
    assert {each.group for each in clocks.values()} == {"X"}


def test_publishes_without_a_sink_are_enough() -> None:
    clocks = estimate(rows({"Y": 7_000_000}, [("cloud", None, True), ("car", None, False)]))
    assert clocks["Y"].skew_us == 7_000_000 + (DOWN_US - UP_US) / 2


def test_one_direction_shows_only_what_no_transit_explains() -> None:
    near, far = (estimate(rows({"Y": skew_us}, [("cloud", "car", True)], "XY"))["Y"] for skew_us in (400_000, 90_000_000))
    assert near.skew_us is None
    assert far.skew_us == 90_000_000 + DOWN_US
    assert near.group == far.group == "Y"


@pytest.mark.parametrize("ahead", ["Y", "Z", "YZ", "XY", "XZ"])
@pytest.mark.parametrize("down", [True, False])
def test_one_direction_shows_a_far_skew_whatever_lies_between(ahead: str, down: bool) -> None:
    """X is what the others are compared with, so if it is ahead, those that are not are behind."""
    skew_us = dict.fromkeys(ahead, 90_000_000)
    clocks = estimate(rows(skew_us, [("cloud", "car", down)]))
    for name in "YZ":
        true_us, found_us = skew_us.get(name, 0) - skew_us.get("X", 0), clocks[name].skew_us
        assert found_us is None if true_us == 0 else found_us == pytest.approx(true_us, abs=2 * UP_US)


TRIP_US = 9 * 3_600_000_000


@pytest.mark.parametrize("skew_us", [0, TRIP_US, -TRIP_US])
@pytest.mark.parametrize("wait_us", [TRIP_US, 3_200_000], ids=["offline", "slow link"])
@pytest.mark.parametrize("answered", [False, True], ids=["one way", "answered on upload"])
def test_what_the_sender_waited_by_its_own_record_is_no_skew(skew_us: int, wait_us: int, answered: bool) -> None:
    """The car uploads in the evening, or its link takes 3 s until a delivery is confirmed; commands do not wait."""
    made = [
        Row("car", "car", "cloud", "can", "up", 1, 100, skew_us, skew_us + wait_us + UP_US),
        Row("cloud", "car", "cloud", "up", "app", 1, 101, wait_us + UP_US // 2, wait_us + UP_US),
    ]
    if answered:
        made += [
            Row("cloud", "cloud", "car", "app", "up", 1, 101, 0, DOWN_US),
            Row("car", "cloud", "car", "up", "can", 1, 100, skew_us + DOWN_US, skew_us + DOWN_US),
        ]
    found_us = estimate(made)["car"].skew_us
    assert (found_us or 0) == pytest.approx(skew_us, abs=UP_US)
    assert found_us is not None or (skew_us == 0 and not answered)


@pytest.mark.parametrize("skew_us", [45_000_000, 300_000])
def test_beyond_a_one_way_stretch_two_clocks_are_still_known_against_each_other(skew_us: int) -> None:
    flows = [*rows({"Z": skew_us}, [("cloud", "car", True)]), *rows({"Z": skew_us}, [("car", "edge", False)], "YZ")]
    clocks = estimate([*flows, Row("X", "site", None, "site", "down", 1, 10_000, 0)])
    assert {name: (each.against, each.group) for name, each in clocks.items() if name != "X"} == {
        "Y": ("X", "Z"),
        "Z": ("X", "Z"),
    }
    assert (clocks["Z"].skew_us or 0) - (clocks["Y"].skew_us or 0) == pytest.approx(skew_us, abs=2 * UP_US)


def test_messages_of_a_streamer_itself_tell_their_direction() -> None:
    """Y's dead letters go up to X, and all else comes down: no endpoint is used both ways."""
    letters = [Row("Y", "Y", None, None, "side", 1, 50, 90_000_000), Row("X", "Y", None, "side", None, 1, 50, UP_US)]
    clocks = estimate([*rows({"Y": 90_000_000}, [("cloud", "car", True)], "XY"), *letters])
    assert clocks["Y"].skew_us == 90_000_000 + (DOWN_US - UP_US) / 2


def test_the_reference_is_the_streamer_with_most_messages() -> None:
    more = rows({"Y": 5_000_000}, [("cloud", "car", True), ("car", "cloud", False)])
    clocks = estimate([*more, Row("Y", "site", None, "site", "down", 1, 10, 0)])
    assert (clocks["Y"].against, clocks["X"].against) == (None, "Y")
    assert clocks["X"].skew_us == -5_000_000 - (DOWN_US - UP_US) / 2


def test_streamers_without_a_message_in_common_stand_alone() -> None:
    clocks = estimate([Row("X", "a", None, "in", "out", 1, 9, 5), Row("Y", "b", None, "in", "out", 1, 8, 5)])
    assert [(each.skew_us, each.against, each.messages) for each in clocks.values()] == [(0, None, 0)] * 2


def test_the_most_used_way_and_the_least_age_of_an_hour_count() -> None:
    """Some messages go another way, and wait before Y; Y has half as many of all."""
    flows = rows({"Y": 7_000_000}, [("cloud", "car", True), ("car", "cloud", False)], "XY")
    usual = [row._replace(messages=row.messages // (1 + (row.streamer == "Y"))) for row in flows]
    aside = [row._replace(egress="spare", messages=8) for row in usual]
    aside = [row._replace(age_us=row.age_us + 50_000_000) if row.streamer == "Y" else row for row in aside]
    for mixed in ([*usual, *aside], [*aside, *usual]):
        clock = estimate(mixed)["Y"]
        assert (clock.skew_us, clock.against) == (7_000_000 + (DOWN_US - UP_US) / 2, "X")
        assert clock.messages == 2 * 3 * (50 + 8)


def test_the_shortest_transit_of_each_direction_counts() -> None:
    flows = rows({"Y": 7_000_000}, [("cloud", "car", True), ("car", "cloud", False)], "XY")
    late = [row._replace(src_authority="late") for row in flows]
    late = [row._replace(age_us=row.age_us + 1_500) if row.egress == ("down" if row.streamer == "Y" else "up") else row
            for row in late]  # fmt: skip
    for mixed in ([*flows, *late], [*late, *flows]):
        assert estimate(mixed)["Y"].skew_us == 7_000_000 + (DOWN_US - UP_US) / 2


@pytest.mark.parametrize(("messages", "counts"), [(9, False), (10, True)])
def test_a_flow_of_few_messages_counts_only_without_others(messages: int, counts: bool) -> None:
    """A transit that is 1 ms shorter than all others."""
    flows = rows({"Y": 7_000_000}, [("cloud", "car", True), ("car", "cloud", False)], "XY")
    rare = [
        row._replace(src_authority="rare", messages=messages // 3 + (row.hour_of_message == 1) * (messages % 3))
        for row in flows
        if row.src_authority == "cloud"
    ]
    rare = [row._replace(age_us=row.age_us - 1_000) if row.streamer == "Y" else row for row in rare]
    assert estimate([*flows, *rare])["Y"].skew_us == 7_000_000 + (DOWN_US - UP_US - 1_000 * counts) / 2
    assert estimate(rare)["Y"].skew_us == 7_000_000 + DOWN_US - 1_000


@pytest.mark.long
def test_a_busy_fleet_has_its_clocks_although_its_hours_are_too_many(spark: SparkSession) -> None:
    """Twelve gateways are busy for a day: with a row for each hour, more than may come to the driver."""
    skews_us = {f"gateway{number:02}": 1_000_000 * number for number in range(12)}
    records = [
        record(f"{hour:02}:30", streamer=name, age_us=age_us, src_authority=source, ingress=ingress, egress=egress)
        for number, (gateway, skew_us) in enumerate(skews_us.items())
        for hour in range(24)
        for name, age_us, source, ingress, egress in (
            (gateway, 1_000 + skew_us, f"veh{number}", "vehicle", "cloud"),
            ("cloud", 4_000, f"veh{number}", "fleet", "out"),
            ("cloud", 1_000, f"to{number}", "out", "fleet"),
            (gateway, 4_000 + skew_us, f"to{number}", "cloud", "vehicle"),
        )
    ]
    rows = alike(frame(spark, records).coalesce(1)).cache()
    every_hour = sightings(rows)
    assert len(every_hour) == len(records) == 48 * 24
    busy = [record("12:00", streamer=name, src_authority=f"{name}-{n % 3}", seq=n) for name in skews_us for n in range(300)]
    for most, given in ((48 * 24 - 1, rows), (47, rows), (47, alike(frame(spark, [*records, *busy])))):
        found = sightings(given, most)
        named = [each for each in found if each.src_authority is not None]
        assert len(named) == 48
        assert sum(each.messages for each in named) == len(records)
        assert sum(each.messages for each in found) in (len(records), len(records) + len(busy))
        assert all(each.is_made_on(DATE) for each in found)
        assert estimate(named) == estimate(every_hour)
    rows.unpersist()


def test_sightings_sum_up_records_that_are_alike(spark: SparkSession) -> None:
    first_hour = number_of(DATE) * 24
    made = {
        first_hour + 7: at("07:00"),
        first_hour - 24: at("00:00", DATE - dt.timedelta(days=1)),
        first_hour + 47: at("23:59:59.999", DATE + dt.timedelta(days=1)),
    }
    records = [record("07:10", msg_ts=msg_ts, src_ue_id=n) for n, msg_ts in enumerate(made.values())]
    records += [
        record("07:40", msg_ts=at("07:00"), age_us=-3_000, src_ue_id=9, latency_us=9_000),
        record("07:20", msg_ts=at("07:00"), age_us=5_000, outcome="expired"),
        record("07:05", msg_ts=at("07:00"), age_us=-9_000, outcome="duplicate"),
        record("07:30", msg_ts=at("23:59:59.999", DATE - dt.timedelta(days=2))),
        record("07:31", msg_ts=at("00:00", DATE + dt.timedelta(days=2))),
        record("07:32", msg_ts=None, age_us=None),
    ]

    def seen(hour: int | None, messages: int, age_us: int, first: str, last: str) -> Sightings:
        first_us, last_us = (int(at(clock).timestamp()) * 1_000_000 for clock in (first, last))
        about = (DATE, "gateway", "veh1", None, True, "vehicle", "cloud", hour, messages, age_us)
        return Sightings(*about, first_us, last_us, 1_000)

    expected: set[Any] = {seen(hour, 1, 0, "07:10", "07:10") for hour in list(made)[1:]}
    expected |= {seen(first_hour + 7, 3, -3_000, "07:05", "07:40"), seen(None, 2, 0, "07:30", "07:32")}
    rows_ = frame(spark, records)
    assert set(sightings(alike(rows_))) == set(sightings(alike_in(rollup.transform(rows_)))) == expected
    made_on = {each.hour_of_message for each in expected if each.is_made_on(DATE)}
    assert made_on == {first_hour + 7}


def fleet(vehicles: int, skew_us: dict[str, int], messages: int, broadcasts: int) -> list[Row]:
    """The cloud and so many vehicles: a few messages each way, and what the cloud publishes to all of them."""
    made = []
    for number in range(vehicles):
        name = f"V{number:04}"
        both = rows(skew_us, [("cloud", f"car{number}", True), (f"car{number}", "cloud", False)], ["cloud-gw", name])
        made += [row._replace(messages=messages) for row in both]
        told = rows(skew_us, [("cloud", None, True)], ["cloud-gw", name])
        made += [row._replace(messages=broadcasts) for row in told if number == 0 or row.streamer == name]
    return made


def test_each_streamer_of_a_broadcast_is_compared_with_few_others() -> None:
    names = [f"V{number:04}" for number in range(500)]
    total = {name: number % 50 for number, name in enumerate(names)}
    pairs = _compared(names, total)
    hubs = {f"V{number:04}" for number in range(49, 400, 50)}
    assert len(pairs) < len(names) * len(hubs)
    assert len(hubs) == 8
    assert all(x < y and {x, y} & hubs for x, y in pairs)
    assert {name for pair in pairs for name in pair} == set(names)
    assert _compared("CAB", {}) == [("A", "B"), ("A", "C"), ("B", "C")]


@pytest.mark.parametrize("messages", [2, 20])
def test_broadcasts_do_not_hide_the_few_messages_in_the_other_direction(messages: int) -> None:
    skew_us = {f"V{number:04}": (number % 7 - 3) * 20_000 for number in range(40)}
    clocks = estimate(fleet(40, skew_us, messages, 500))
    assert {name: each.skew_us for name, each in clocks.items() if name != "cloud-gw"} == {
        name: us + (DOWN_US - UP_US) / 2 for name, us in skew_us.items()
    }
