"""The tap: which messages a filter lets through, and which are shown if not all can be."""

from collections import Counter
from dataclasses import replace

import pytest

from streamer.features.api.payloads import PAYLOAD_BYTES
from streamer.features.tap.tap import MAX_BYTES, Tap, TapFilter
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import Options, UMessage, UMessageType, notification, publish, request
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.harness import CLIMATE, CLOUD_APP, SPEED
from tests.unit.delivery.messages import route_queue

NOW_MS = 1_700_000_000_000
NAMES = ("up", "vehicle", "cloud")
FULL = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "full")
EVERYTHING = TapFilter()


def offer(tap: Tap, *messages: UMessage, names: tuple[str, str, str] = NAMES, failure: Failure = FULL) -> None:
    for message in messages:
        tap.never_queued(message, names, failure, 0.0, NOW_MS)


def tap_of(wanted: TapFilter = EVERYTHING, most: int = 100, with_payload: bool = True) -> Tap:
    return Tap(wanted, most, with_payload)


def speed(payload: bytes = b"x", source: UUri = SPEED, **options: object) -> UMessage:
    return publish(NOW_MS, source, payload, Options(**options))  # type: ignore[arg-type]


def resource(number: int) -> UUri:
    return SPEED._replace(resource=0x8000 + number)


def test_messages_that_ended_after_they_were_sent_are_counted_by_those_who_want_their_route() -> None:
    tap, other = tap_of(), tap_of(TapFilter(route="down"))
    for each in (tap, other):
        each.never_confirmed(route_queue().lane((SPEED, None)), b"", 2, FULL, 0.0, NOW_MS)
    assert (tap.left_out, other.left_out) == (2, 0)


@pytest.mark.parametrize(
    ("wanted", "is_shown"),
    [
        (TapFilter(route="up"), True),
        (TapFilter(route="down"), False),
        (TapFilter(endpoint="vehicle"), True),
        (TapFilter(endpoint="cloud"), True),
        (TapFilter(endpoint="garage"), False),
        (TapFilter(source=everything_at("veh1")), True),
        (TapFilter(source=everything_at("veh2")), False),
        (TapFilter(sink=everything_at("*")), True),
        (TapFilter(sink=everything_at("veh1")), False),
        (TapFilter(types=(UMessageType.NOTIFICATION, UMessageType.REQUEST)), True),
        (TapFilter(types=(UMessageType.PUBLISH,)), False),
        (TapFilter(outcomes=("delivered", "rejected")), True),
        (TapFilter(outcomes=("delivered",)), False),
        (TapFilter("up", "cloud", SPEED, CLOUD_APP, (UMessageType.NOTIFICATION,), ("rejected",)), True),
    ],
)
def test_a_filter_lets_through_what_all_its_parts_match(wanted: TapFilter, is_shown: bool) -> None:
    tap = tap_of(wanted)
    offer(tap, notification(NOW_MS, SPEED, CLOUD_APP, b"x"))
    assert (len(tap.take()), tap.left_out) == (int(is_shown), 0)  # what nobody wants to see is not left out


@pytest.mark.parametrize(("authority", "is_shown"), [("cloud", True), ("*", True), ("other", False)])
def test_of_an_addressed_publish_only_the_authority_of_the_sink_is_compared(authority: str, is_shown: bool) -> None:
    message = speed()
    message = replace(message, attributes=message.attributes.__class__(UMessageType.PUBLISH, SPEED, everything_at("cloud")))
    tap = tap_of(TapFilter(sink=UUri(authority, 0xC0, 1, 0)))
    offer(tap, message)
    assert bool(tap.take()) is is_shown


def test_a_publish_without_sink_is_not_shown_to_who_asks_for_one() -> None:
    tap = tap_of(TapFilter(sink=everything_at("*")))
    offer(tap, speed())
    assert not tap.take()


def test_what_is_shown_has_the_names_and_the_reason_and_no_token() -> None:
    tap = tap_of()
    message = request(NOW_MS, CLOUD_APP, CLIMATE, 1000, b"hot", Options(token="secret-token"))
    offer(tap, message)
    (shown,) = tap.take()
    assert (shown.route, shown.ingress, shown.egress) == NAMES
    assert (shown.outcome, shown.code, shown.text) == ("rejected", UCode.RESOURCE_EXHAUSTED, "full")
    assert (shown.id, shown.payload, shown.payload_bytes) == (message.id, b"hot", 3)
    assert "secret-token" not in repr(shown)
    assert shown.attributes.token is None


def test_a_long_payload_is_cut_and_its_length_is_told() -> None:
    tap = tap_of()
    offer(tap, speed(b"x" * 1_000_000), speed(b""))
    long, empty = tap.take()
    assert (len(long.payload or b""), long.payload_bytes) == (PAYLOAD_BYTES, 1_000_000)
    assert (empty.payload, empty.payload_bytes) == (b"", 0)


def test_payloads_are_not_kept_for_who_does_not_want_them() -> None:
    tap = tap_of(with_payload=False)
    offer(tap, speed(b"hot"))
    assert [(each.payload, each.payload_bytes) for each in tap.take()] == [(None, 3)]


def test_what_does_not_fit_is_counted_and_the_order_is_kept() -> None:
    tap = tap_of(most=10)
    messages = [speed(str(number).encode()) for number in range(1000)]
    offer(tap, *messages)
    shown = [int(each.payload or b"") for each in tap.take()]
    assert shown == sorted(shown)
    assert (len(shown), tap.left_out) == (10, 990)


def test_nothing_stays_after_it_was_taken() -> None:
    tap = tap_of(most=1)
    offer(tap, speed(b"1"))
    assert [each.payload for each in tap.take()] == [b"1"]
    assert tap.take() == []
    offer(tap, speed(b"2"))
    assert [each.payload for each in tap.take()] == [b"2"]
    assert tap.left_out == 0


def test_nobody_takes_and_the_bytes_stay_bounded() -> None:
    tap = tap_of(most=100_000)
    offer(tap, *[speed(b"x" * PAYLOAD_BYTES)] * 5000)
    shown = tap.take()
    assert sum(len(each.payload or b"") for each in shown) < MAX_BYTES
    assert len(shown) > MAX_BYTES // (2 * (1000 + PAYLOAD_BYTES))
    assert len(shown) + tap.left_out == 5000


def test_the_last_messages_of_a_flow_are_as_likely_as_the_first() -> None:
    found: Counter[int] = Counter()
    for _ in range(200):
        tap = tap_of(most=10)
        offer(tap, *(speed(str(number).encode()) for number in range(100)))
        found.update(int(each.payload or b"") // 50 for each in tap.take())
    assert min(found[0], found[1]) > 500  # of 2000, if all were alike a thousand


def test_flows_that_have_little_are_seen_beside_one_that_has_much() -> None:
    seen: Counter[UUri] = Counter()
    for _ in range(50):
        tap = tap_of(most=10)
        offer(tap, *[speed()] * 1000, *(speed(source=resource(number)) for number in range(5)), *[speed()] * 1000)
        seen.update(each.attributes.source for each in tap.take())
    assert all(seen[resource(number)] > 40 for number in range(5))


def test_more_flows_than_room_are_all_as_likely() -> None:
    found: Counter[bool] = Counter()
    for _ in range(200):
        tap = tap_of(most=10)
        offer(tap, *(speed(source=resource(number)) for number in range(100)))
        shown = tap.take()
        assert (len(shown), tap.left_out) == (10, 90)
        found.update(each.attributes.source.resource < resource(50).resource for each in shown)
    assert min(found.values()) > 500  # of 2000, if all were alike a thousand


def test_a_reason_is_cut() -> None:
    tap = tap_of()
    offer(tap, speed(), failure=Failure(Outcome.REJECTED, UCode.INTERNAL, "x" * 10_000))
    assert len(tap.take()[0].text) == 500
