"""Remembered ids: how long, how many, and what must not be forgotten."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from streamer.delivery.seen import SeenIds, key_of, scope
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.uri import everything_at
from tests.unit.delivery.messages import message


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def known(ids: SeenIds, name: bytes) -> bool:
    return name in ids.young or name in ids.old


@given(st.integers(2, 50), st.integers(1, 300))
def test_number_is_bounded_and_the_newest_half_is_always_known(max_ids: int, count: int) -> None:
    ids = SeenIds(max_ids, 1e9, 0.0)
    for n in range(count):
        ids.rotate(0.0)
        ids.young[key(n)] = None
        assert len(ids) <= max_ids
        assert all(known(ids, key(recent)) for recent in range(max(0, n - max_ids // 2 + 1), n + 1))


def test_id_is_known_for_at_least_half_of_the_time_and_at_most_all_of_it() -> None:
    ids = SeenIds(10**6, 100.0, 0.0)
    ids.young[key(1)] = None
    for now_s in (0.0, 49.0, 50.0, 99.0):
        ids.rotate(now_s)
        assert known(ids, key(1))
    ids.rotate(100.0)
    assert not known(ids, key(1))


def test_nothing_is_rotated_before_its_time() -> None:
    ids = SeenIds(10**6, 100.0, 0.0)
    ids.young[key(1)] = None
    for _ in range(1000):
        ids.rotate(49.9)
    assert key(1) in ids.young


def test_message_on_its_way_is_never_forgotten_and_a_settled_one_is() -> None:
    ids = SeenIds(4, 10.0, 0.0)
    on_its_way, settled = MemoryReceived(message()), MemoryReceived(message())
    ids.young[key(1)], ids.young[key(2)] = on_its_way, settled
    ids.keep_id_only(key(2))
    for turn in range(1, 20):
        ids.rotate(turn * 10.0)
    assert known(ids, key(1))
    assert not known(ids, key(2))
    ids.keep_id_only(key(1))
    for turn in range(20, 23):
        ids.rotate(turn * 10.0)
    assert len(ids) == 0


def test_message_that_another_listener_released_last_is_forgotten_too() -> None:
    ids = SeenIds(4, 10.0, 0.0)
    shared = MemoryReceived(message())
    shared.holders = 2
    ids.young[key(1)] = shared
    shared.release()
    shared.release()
    for turn in range(1, 4):
        ids.rotate(turn * 10.0)
    assert len(ids) == 0


def test_a_message_is_on_its_way_until_its_last_holder_is_done_with_it() -> None:
    ids = SeenIds(4, 10.0, 0.0)
    shared, copy = MemoryReceived(message()), MemoryReceived(message())
    shared.holders = 2
    ids.remember_pending(key(1), shared)
    ids.release(shared)
    assert ids.young == {key(1): shared}  # a copy that arrives now is attached to it
    shared.attach(copy)
    ids.release(shared)
    assert ids.young == {key(1): None}
    assert (shared.acknowledged, copy.acknowledged) == (True, True)


def test_authorities_that_one_message_has_for_itself_count_in_their_generation_only() -> None:
    ids = SeenIds(20, 1e9, 0.0)
    for number in range(3):
        ids.remember_copies(key(number), frozenset("abcd"), is_shared=False)
    ids.rotate(0.0)
    assert len(ids.old_copies) == 3
    for number in range(3, 5):
        ids.rotate(0.0)
        ids.remember_copies(key(number), frozenset("abcd"), is_shared=False)
    assert (len(ids.old_copies), len(ids.young_copies)) == (3, 2)


def test_a_set_that_many_messages_share_counts_for_nothing() -> None:
    ids = SeenIds(20, 1e9, 0.0)
    shared = frozenset(str(number) for number in range(1000))
    for number in range(100):
        ids.remember_copies(key(number), shared)
        ids.rotate(0.0)
    assert len(ids.young_copies) == 100


def test_only_a_publish_is_a_copy_of_a_publish() -> None:
    ids = SeenIds(20, 1e9, 0.0)
    bare = message()
    ids.remember_copies(bare.id + bare.attributes.origin, frozenset(["fleet"]))
    addressed = replace(bare.attributes, sink=everything_at("fleet"))
    assert ids.is_copy(replace(bare, attributes=addressed))
    for kind in (UMessageType.REQUEST, UMessageType.RESPONSE, UMessageType.NOTIFICATION):
        assert not ids.is_copy(replace(bare, attributes=replace(addressed, type=kind)))
    assert not ids.is_copy(replace(bare, attributes=replace(addressed, sink=everything_at("other"))))


def test_settling_finds_both_generations_and_ignores_unknown_ids() -> None:
    ids = SeenIds(4, 10.0, 0.0)
    ids.young[key(1)] = MemoryReceived(message())
    ids.rotate(10.0)
    assert key(1) in ids.old
    ids.keep_id_only(key(1))
    ids.keep_id_only(key(99))
    assert ids.old == {key(1): None}
    assert ids.young == {}


def test_copies_of_a_publish_for_different_authorities_are_different_messages() -> None:
    bare = message()
    copies = [replace(bare, attributes=replace(bare.attributes, sink=everything_at(name))) for name in ("a", "b")]
    assert len({key_of(m) for m in (bare, *copies)}) == 3
    assert key_of(bare).startswith(bare.id)


def test_the_same_id_from_another_source_is_another_message() -> None:
    honest = message()
    strangers = [
        replace(honest, attributes=replace(honest.attributes, source=honest.attributes.source._replace(**change)))
        for change in ({"authority": "evil"}, {"ue_id": 0x99}, {"version": 7}, {"resource": 0x9999})
    ]
    assert len({key_of(each) for each in (honest, *strangers)}) == 5
    same = replace(honest, attributes=replace(honest.attributes, ttl=5, token="other"))
    assert key_of(same) == key_of(honest)


def test_whoever_must_look_before_ids_are_forgotten_is_asked_each_time() -> None:
    ids = SeenIds(4, 10.0, 0.0)
    seen: list[int] = []
    ids.before_forgetting.append(lambda: seen.append(len(ids.old)))
    for turn in range(1, 4):
        ids.young[key(turn)] = None
        ids.rotate(turn * 10.0)
        ids.rotate(turn * 10.0 + 1)
    assert seen == [0, 1, 1]


def test_heard_is_what_came_with_any_sink_and_nothing_that_was_turned_away() -> None:
    bare = message()
    ids = SeenIds(100, 10.0, 0.0)
    addressed = replace(bare, attributes=replace(bare.attributes, sink=everything_at("a")))
    for turned_away in (bare, addressed):
        ids.young[key_of(turned_away) + scope("endpoint", "cloud")] = None
    assert not ids.has_arrived_at_home(bare)
    assert not ids.has_arrived_at_home(addressed)
    ids.young[key_of(addressed)] = None
    assert ids.has_arrived_at_home(addressed)
    assert not ids.has_arrived_at_home(bare)
    ids.remember_arrival(bare)
    assert ids.has_arrived_at_home(bare)
    assert ids.has_arrived_at_home(replace(bare, attributes=replace(bare.attributes, sink=everything_at("b"))))
