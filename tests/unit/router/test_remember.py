"""Remembered ids: how long, how many, and what must not be forgotten."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from streamer.router.remember import RememberedIds, key_of
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.uri import everything_at
from tests.unit.router.actors import message


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def known(ids: RememberedIds, name: bytes) -> bool:
    return name in ids.young or name in ids.old


@given(st.integers(2, 50), st.integers(1, 300))
def test_number_is_bounded_and_the_newest_half_is_always_known(max_ids: int, count: int):
    ids = RememberedIds(max_ids, 1e9, 0.0)
    for n in range(count):
        ids.turn(0.0)
        ids.young[key(n)] = None
        assert len(ids) <= max_ids
        assert all(known(ids, key(recent)) for recent in range(max(0, n - max_ids // 2 + 1), n + 1))


def test_id_is_known_for_at_least_half_of_the_time_and_at_most_all_of_it():
    ids = RememberedIds(10**6, 100.0, 0.0)
    ids.young[key(1)] = None
    for now_s in (0.0, 49.0, 50.0, 99.0):
        ids.turn(now_s)
        assert known(ids, key(1))
    ids.turn(100.0)
    assert not known(ids, key(1))


def test_nothing_is_turned_before_its_time():
    ids = RememberedIds(10**6, 100.0, 0.0)
    ids.young[key(1)] = None
    for _ in range(1000):
        ids.turn(49.9)
    assert key(1) in ids.young


def test_message_on_its_way_is_never_forgotten_and_a_settled_one_is():
    ids = RememberedIds(4, 10.0, 0.0)
    on_its_way, settled = MemoryReceived(message()), MemoryReceived(message())
    ids.young[key(1)], ids.young[key(2)] = on_its_way, settled
    ids.settled(key(2))
    for turn in range(1, 20):
        ids.turn(turn * 10.0)
    assert known(ids, key(1))
    assert not known(ids, key(2))
    ids.settled(key(1))
    for turn in range(20, 23):
        ids.turn(turn * 10.0)
    assert len(ids) == 0


def test_message_that_another_listener_released_last_is_forgotten_too():
    ids = RememberedIds(4, 10.0, 0.0)
    shared = MemoryReceived(message())
    shared.holders = 2
    ids.young[key(1)] = shared
    shared.release()
    shared.release()
    for turn in range(1, 4):
        ids.turn(turn * 10.0)
    assert len(ids) == 0


def test_settling_finds_both_generations_and_ignores_strangers():
    ids = RememberedIds(4, 10.0, 0.0)
    ids.young[key(1)] = MemoryReceived(message())
    ids.turn(10.0)
    assert key(1) in ids.old
    ids.settled(key(1))
    ids.settled(key(99))
    assert ids.old == {key(1): None}
    assert ids.young == {}


def test_copies_of_a_publish_for_different_authorities_are_different_messages():
    bare = message()
    copies = [bare._replace(attributes=replace(bare.attributes, sink=everything_at(name))) for name in ("a", "b")]
    assert len({key_of(m) for m in (bare, *copies)}) == 3
    assert key_of(bare) == bare.id
