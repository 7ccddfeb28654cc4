"""What a configuration costs: each bound as `docs/bounds.md` sums it up, before and after, and beside last week's peaks."""

import re
from typing import Any

import pytest

from streamer.config.cost import Cost
from streamer.config.costs import DISK, MEMORY, bounds, cost_lines, costs, sum_line
from streamer.config.models import Config
from streamer.config.peaks import HOUR_S, MINUTE_S, Peaks, Place
from streamer.config.types import MIB
from streamer.pair import mirror, shadows
from streamer.pair.link import MOST_WAITING_BYTES

UP = Place("vehicle-cloud", "vehicle", "cloud")


def config(has_journal: bool = True, **changes: Any) -> Config:
    """A bridge between Zenoh and MQTT. ``changes``: whole sections; of an endpoint or a route with dots."""
    raw: dict[str, Any] = {
        "authority": "gateway",
        "endpoints": {
            "vehicle": {"transport": "zenoh", "authorities": ["veh1"]},
            "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": {"broker": "mqtt://127.0.0.1"}},
        },
        "routes": [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}],
        "journal": {"path": "/var/lib/streamer/journal.db"} if has_journal else None,
    }
    for name, value in changes.items():
        if name in raw["endpoints"]:
            raw["endpoints"][name] |= {"options": raw["endpoints"][name].get("options", {}) | value}
        elif name in ("up", "down"):
            raw["routes"][name == "down"] |= value
        else:
            raw[name] = value
    return Config.model_validate(raw)


def found(before: Config, after: Config, peaks: Peaks | None = None) -> dict[str, Cost]:
    return {cost.what: cost for cost in costs(before, after, peaks)}


def the_texts(before: Config, after: Config, peaks: Peaks | None = None) -> list[str]:
    return list(cost_lines(costs(before, after, peaks)))


def peaks(
    hour_messages: float = 0, hour_bytes: float = 0, minute_messages: float = 0, minute_bytes: float = 0, **of: Any
) -> Peaks:
    """Peaks of the way from the vehicle to the cloud, each per second."""
    known = Peaks()
    known.add(HOUR_S, 0, {UP: (round(hour_messages * HOUR_S), round(hour_bytes * HOUR_S))})
    known.add(MINUTE_S, 0, {UP: (round(minute_messages * MINUTE_S), round(minute_bytes * MINUTE_S))})
    known.add_extremes(UP, of.get("largest", 0), 0.0, of.get("delivered", 0), of.get("confirmed_after_s", 0.0))
    return known


# what there is


def test_the_sums_are_those_of_the_document() -> None:
    plain = {bound.what: bound.value for bound in bounds(config())}
    queue = 64 * MIB
    routes = 2 * (2 * queue + 600 * 10_000 * 10)
    endpoints = 2 * (16 * MIB + 30 * MIB + 2 * 64 * MIB)
    received = 16 * MIB + (256 + 1000) * 1024 + 2 * 1000 * 16 * MIB + 64 * MIB
    assert plain[MEMORY] == routes + 64 * MIB + endpoints + received + 128 * MIB + 200_000 * 100
    assert plain[DISK] == 2 * 1024 * MIB + 32 * MIB


def test_without_a_journal_unconfirmed_messages_are_in_memory_and_stalled_ones_have_no_room_of_their_own() -> None:
    changes = found(config(), config(has_journal=False))
    assert changes["memory of the queue of route vehicle-cloud"].after == 128 * MIB
    vehicle = changes["memory for what endpoint vehicle has received"]
    assert vehicle.after is not None
    assert vehicle.before == vehicle.after - 64 * MIB
    assert "memory for what endpoint cloud has received" not in changes
    assert changes[DISK].after == 0


def test_a_pair_costs_what_its_modules_allow_and_nothing_else_does() -> None:
    pair = {"listen": "127.0.0.1:7448", "key_file": "/key"}
    changes = found(config(), config(pair=pair))
    waiting = MOST_WAITING_BYTES + mirror._MOST_UNSENT_BYTES
    overheard = shadows._MAX_BYTES + 100 * shadows._MAX_SETTLED
    memory = changes.pop(MEMORY)
    assert memory.before is not None
    assert memory.after == memory.before + waiting + overheard
    assert {(cost.key, what, cost.before, cost.after) for what, cost in changes.items()} == {
        ("pair", "memory for what the other one of the pair has not taken yet", None, waiting),
        ("pair", "memory for what is overheard on standby", None, overheard),
    }
    assert found(config(pair=pair), config(pair={**pair, "wait_s": 20})) == {}


def test_of_a_first_file_everything_is_new() -> None:
    every = costs(None, config())
    assert len(every) == len(list(bounds(config())))
    assert {cost.before for cost in every} == {None}


# what differs


def test_equivalent_files_cost_the_same() -> None:
    spelled_out = config(up={"name": "vehicle-cloud", "window": 1000, "queue": {"bytes": "65536KiB"}})
    assert costs(config(), spelled_out, peaks(9, 9e9, 9, 9e9, largest=1 << 40)) == []


CHANGES: list[tuple[dict[str, Any], str, str]] = [
    ({"up": {"queue": {"bytes": "1MiB"}}}, "routes.vehicle-cloud.queue.bytes", "64 MiB → 1 MiB"),
    ({"up": {"queue": {"messages": 50}}}, "routes.vehicle-cloud.queue.messages", "10000 messages → 50 messages"),
    ({"up": {"queue": {"per_authority": 0.25}}}, "routes.vehicle-cloud.queue.per_authority", "none → 0.25 of it"),
    ({"up": {"queue": {"strangers": 0.5}}}, "routes.vehicle-cloud.queue.strangers", "0.8 of it → 0.5 of it"),
    ({"up": {"queue": {"stalled_factor": 0}}}, "routes.vehicle-cloud.queue", "→ 128 MiB"),
    ({"up": {"rate": {"bytes": "20kB"}}}, "routes.vehicle-cloud.rate.bytes", "none → 20 kB/s"),
    ({"up": {"rate": {"messages": 2.5}}}, "routes.vehicle-cloud.rate.messages", "none → 2.5 messages/s"),
    ({"up": {"rate_per_authority": {"bytes": 2}}}, "routes.vehicle-cloud.rate_per_authority.bytes", "none → 2 B/s"),
    ({"up": {"window": 8}}, "endpoints.cloud", "messages in flight to cloud: 1000 messages → 8 messages"),
    ({"cloud": {"window": 8}}, "endpoints.cloud", "messages in flight to cloud: 1000 messages → 8 messages"),
    ({"up": {"flow_window": 1}}, "routes.vehicle-cloud.flow_window", "1000 messages → 1 messages"),
    ({"cloud": {"max_packet_bytes": 1_000_000}}, "endpoints.cloud.options", "16 MiB → 1 MB"),
    ({"cloud": {"receive_maximum": 10}}, "endpoints.cloud", "memory for what endpoint cloud has received"),
    ({"vehicle": {"receive_buffer": 10}}, "endpoints.vehicle", "memory for what endpoint vehicle has received"),
    ({"vehicle": {"max_message_bytes": 1024}}, "endpoints.vehicle.options", "64 MiB → 1 KiB"),
    ({"journal": {"path": "/j.db", "max_bytes": "2GiB"}}, "journal.max_bytes", "disk for the journal"),
    ({"journal": {"path": "/j.db", "memory": "1MiB"}}, "journal.memory", "64 MiB → 1 MiB"),
    ({"remember": {"ids": 10}}, "remember.ids", "200000 messages → 10 messages"),
    ({"utwin": {"max_topics": 5}}, "utwin.max_topics", "none → 5 topics"),
    ({"dead_letter": {"queue": {"bytes": "1MiB"}}}, "endpoints.cloud", "memory for what endpoint cloud has received"),
    ({"dead_letter": {"store": {"messages": 5}}}, "dead_letter.store.messages", "10000 messages → 5 messages"),
    ({"control": {"max_rules": 5}}, "control.max_rules", "100 rules → 5 rules"),
    ({"usubscription": {"max_observers": 5}}, "usubscription.max_observers", "10000 → 5"),
    ({"usubscription": None}, "usubscription", "128 MiB → none"),
    ({"trace": {"path": "/t", "max_bytes": "1GiB"}}, "trace.max_bytes", "none → 1 GiB"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "key", "text"), CHANGES, ids=lambda value: str(value)[:40])
def test_a_changed_bound_is_named_with_both_values(changes: dict[str, Any], key: str, text: str) -> None:
    about = [cost for cost in costs(config(), config(**changes)) if cost.key == key]
    assert any(text in cost.text for cost in about), about
    assert all(cost.before != cost.after for cost in costs(config(), config(**changes)))


def test_a_rule_s_rate_is_named() -> None:
    rules = {"endpoints": {"vehicle": {"rules": [{"allow": {"rate": {"messages": 3}}}]}}}
    (cost,) = costs(config(permissions={"endpoints": {"vehicle": {"rules": [{"allow": {}}]}}}), config(permissions=rules))
    assert cost.key == "permissions.endpoints.vehicle.rules[0].allow.rate.messages"
    assert cost.text == "the rate of each source authority under rule 0 of vehicle: none → 3 messages/s"


def test_a_removed_route_frees_its_memory() -> None:
    one = config(routes=[{"from": "vehicle", "to": "cloud"}])
    changes = found(config(), one)
    assert changes["memory of the queue of route cloud-vehicle"].after is None
    total = changes[MEMORY]
    assert total.before is not None
    assert total.after is not None
    assert total.before - total.after == 128 * MIB + 600 * 100_000


def test_sums_come_first() -> None:
    assert [cost.what for cost in costs(config(), config(has_journal=False))][:2] == [MEMORY, DISK]


# beside the peaks


def test_a_rate_below_the_busiest_hour_is_said_first() -> None:
    before, after = config(), config(up={"rate": {"bytes": "20kB"}, "queue": {"messages": 9000}})
    told = the_texts(before, after, peaks(hour_bytes=31_000, minute_bytes=50_000))
    assert told[0] == "the rate of route vehicle-cloud (20 kB/s) is below last week's busiest hour (31 kB/s); before: none"


def test_a_rate_above_the_busiest_hour_may_be_below_the_busiest_minute() -> None:
    changes = costs(config(), config(up={"rate": {"messages": 40}}), peaks(hour_messages=31, minute_messages=50))
    (short,) = [cost for cost in changes if cost.is_short]
    assert "(40 messages/s) is below last week's busiest minute (50 messages/s)" in short.text


def test_a_rate_above_both_is_not_short() -> None:
    changes = costs(config(), config(up={"rate": {"messages": 60}}), peaks(hour_messages=31, minute_messages=50))
    assert [cost for cost in changes if cost.is_short] == []
    assert any("last week's busiest minute: 50 messages/s" in cost.text for cost in changes)


def test_the_peak_of_another_route_does_not_count() -> None:
    changes = costs(config(), config(down={"rate": {"messages": 1}}), peaks(hour_messages=31))
    assert [cost for cost in changes if cost.is_short] == []


def test_what_the_journal_lets_through_to_zenoh_is_set_beside_what_was_sent_there() -> None:
    known = Peaks()
    known.add(HOUR_S, 0, {Place("cloud-vehicle", "cloud", "vehicle"): (3600, 3600 * 5_000_000)})
    smaller = config(journal={"path": "/j.db", "max_bytes": "100MiB"})
    short = [cost for cost in costs(config(), smaller, known) if cost.is_short]
    assert [cost.key for cost in short] == ["journal.max_bytes"]
    assert "what the journal lets through to vehicle while nothing confirms it (3.5 MB/s) is below" in short[0].text


def test_a_window_is_set_beside_the_rate_at_last_week_s_time_until_confirmation() -> None:
    known = peaks(hour_messages=100, minute_messages=150, delivered=10, confirmed_after_s=1.0)
    (short,) = [cost for cost in costs(config(), config(up={"window": 8}), known) if cost.is_short]
    assert short.after == 80
    assert "at last week's 100 ms until confirmed (80 messages/s) is below last week's busiest hour" in short.text


def test_a_network_that_confirms_nothing_has_no_rate_of_its_window() -> None:
    known = Peaks()
    place = Place("cloud-vehicle", "cloud", "vehicle")
    known.add(HOUR_S, 0, {place: (10**9, 1)})
    known.add_extremes(place, 0, 0.0, 10, 1.0)
    assert [cost for cost in costs(config(), config(down={"window": 8}), known) if cost.is_short] == []


@pytest.mark.parametrize(("largest", "is_short"), [(2000, True), (1024, False), (900, False)])
def test_the_largest_message_of_the_week_has_to_fit(largest: int, is_short: bool) -> None:
    changes = costs(config(), config(vehicle={"max_message_bytes": 1024}), peaks(largest=largest))
    assert any(cost.is_short and "largest message" in cost.text for cost in changes) is is_short


@pytest.mark.parametrize(
    ("hours", "whose"),
    [(168, "last week's"), (24, "the last day's"), (72, "the last 3 days'"), (12, "the last 12 hours'")],
)  # fmt: skip
def test_the_period_of_the_peaks_is_said(hours: float, whose: str) -> None:
    known = Peaks(hours)
    known.add(HOUR_S, 0, {UP: (31 * HOUR_S, 1)})
    (short,) = [cost for cost in costs(config(), config(up={"rate": {"messages": 2}}), known) if cost.is_short]
    assert f"is below {whose} busiest hour" in short.text


def test_check_says_one_sum_and_no_capacity() -> None:
    """Messages per second were a promise that nobody had measured."""
    text = sum_line(config())
    assert re.fullmatch(r"its bounds add up to [\d.]+ [kMGT]?B of memory and [\d.]+ [kMGT]?B of disk", text)
