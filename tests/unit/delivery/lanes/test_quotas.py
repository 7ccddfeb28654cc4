"""What source authorities may use of a route: quotas of its queue, and rates."""

import pytest

from streamer.config.models import QueueConfig
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.lanes.quotas import Quotas
from streamer.delivery.stats import RouteStats
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.uri import UUri
from tests.constants import with_constants
from tests.unit.delivery.messages import NOW_MS, FakeOwner, push, queue_policy

ONE = {"messages": 1}


def queue_of(named: set[str] | None = None, **keys: object) -> RouteQueue:
    return RouteQueue("up", "vehicle", "cloud", queue_policy(**keys), RouteStats(), FakeOwner(), named=named)


def sent_by(authority: str, size: int = 0) -> UMessage:
    return publish(NOW_MS, UUri(authority, 1, 1, 0x8000), bytes(size))


def test_by_default_nothing_is_bounded_and_nothing_counted() -> None:
    queue = queue_of()
    assert not queue.quotas.has_quotas
    assert not queue.quotas.has_rates
    assert push(queue, sent_by("veh1")).lane.group.messages == 0


def test_unlisted_authorities_are_bounded_only_beside_listed_ones() -> None:
    assert not queue_of(set()).quotas.has_quotas
    assert queue_of({"backend"}).quotas.has_quotas
    assert not queue_of({"backend"}, queue=with_constants(QueueConfig, strangers=1)).quotas.has_quotas


def test_the_queue_is_full_earlier_for_unlisted_authorities_in_messages_and_bytes() -> None:
    queue = queue_of({"backend"}, queue=with_constants(QueueConfig, messages=10, bytes=100_000, strangers=0.5))
    for _ in range(5):
        assert not queue.exceeds_quota("stranger", 600)
        push(queue, sent_by("backend"))
    assert queue.exceeds_quota("stranger", 600)
    assert not queue.exceeds_quota("backend", 600)
    queue = queue_of({"backend"}, queue=with_constants(QueueConfig, messages=10, bytes=10_000, strangers=0.5))
    push(queue, sent_by("backend", 4000))
    assert not queue.exceeds_quota("stranger", 400)
    assert queue.exceeds_quota("stranger", 401)


def test_an_empty_queue_takes_any_message_of_anybody() -> None:
    queue = queue_of({"backend"}, queue={"bytes": 1000, "per_authority": 0.1})
    assert not queue.exceeds_quota("stranger", 5000)


def test_the_quota_of_an_authority_is_used_up_by_what_it_has_in_the_queue() -> None:
    queue = queue_of(queue={"messages": 10, "per_authority": 0.2})
    first, _ = push(queue, sent_by("a")), push(queue, sent_by("a"))
    assert queue.exceeds_quota("a", 600)
    assert not queue.exceeds_quota("b", 600)
    first.lane.drop(first)
    queue.leave(first)
    assert not queue.exceeds_quota("a", 600)
    assert queue.exceeds_quota("a", 1200, 2)


def test_what_was_there_before_its_quota_was_set_counts_too() -> None:
    queue = queue_of()
    waiting, in_flight = push(queue, sent_by("a")), push(queue, sent_by("b"))
    in_flight.lane.take(1, NOW_MS, 0.0, [], [])
    queue.use(queue_policy(queue={"messages": 10, "per_authority": 0.1}))
    assert queue.exceeds_quota("a", 600)
    assert queue.exceeds_quota("b", 600)
    queue.leave(in_flight)
    assert (in_flight.lane.group.messages, in_flight.lane.group.bytes) == (0, 0)
    assert waiting.lane.group.bytes == waiting.size


def test_with_a_rate_an_authority_may_use_half_of_the_queue() -> None:
    queue = queue_of(queue={"messages": 4}, rate_per_authority=ONE)
    push(queue, sent_by("a"))
    push(queue, sent_by("a"))
    assert queue.exceeds_quota("a", 600)
    assert not queue_of(rate=ONE).quotas.has_quotas


def quotas(named: set[str] | None = None, **keys: object) -> Quotas:
    return Quotas(queue_policy(**keys), RouteStats(), named)


def test_unlisted_authorities_wait_for_the_rate_of_the_route_together() -> None:
    found = quotas({"backend"}, rate=ONE)
    backend, stranger = found.group("backend"), found.group("stranger")
    assert stranger.parent is not None
    assert backend.parent is None
    found.spend(stranger, 600, 0.0)
    assert found.wait_s(backend, 0.0) == found.wait_s(stranger.parent, 0.0) == pytest.approx(1.0)
    assert found.wait_s(stranger, 0.0) == 0


def test_each_authority_waits_for_its_own_rate() -> None:
    found = quotas(rate_per_authority=ONE)
    assert found.wait_s(found.group("a"), 0.0) == 0
    found.spend(found.group("a"), 600, 0.0)
    assert found.wait_s(found.group("a"), 0.5) == pytest.approx(0.5)
    assert found.wait_s(found.group("b"), 0.0) == 0


def test_a_stranger_that_is_named_later_takes_turns_by_itself() -> None:
    found = quotas({"backend"})
    group = found.group("fleet")
    found.use(queue_policy(), {"backend", "fleet"})
    assert group.parent is not None
    found.regroup()
    assert group.parent is None
    assert found.group("fleet") is group
