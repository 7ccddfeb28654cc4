"""Caches that peers try to make large or useless."""

from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.uprotocol import cache
from streamer.uprotocol.cache import BySource, Cache
from streamer.uprotocol.uri import UUri


def held(known: Cache[str, int]) -> int:
    return len(known) + len(known._old)


def test_what_was_remembered_is_found_until_two_generations_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 3)
    known: Cache[str, int] = Cache()
    for n in range(6):
        known.remember(str(n), n)
    assert known["0"] == 0
    known.remember("6", 6)
    with pytest.raises(KeyError):
        known["1"]


def test_what_is_used_stays_whatever_others_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 100)
    known: Cache[str, int] = Cache()
    honest = [f"honest{n}" for n in range(10)]
    computed = 0
    for n in range(10_000):
        known.remember(f"new{n}", n)
        try:
            known[honest[n % 10]]
        except KeyError:
            computed += 1
            known.remember(honest[n % 10], n)
    assert computed == 10
    assert held(known) <= 200


@given(st.lists(st.integers(0, 100), max_size=200))
def test_the_bytes_of_each_generation_are_bounded(sizes: list[int]) -> None:
    known: Cache[str, int] = Cache(len)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_BYTES", 200)
        for n, size in enumerate(sizes):
            known.remember(f"{n:03}".ljust(size), n)
            assert sum(map(len, known)) <= 200
            assert sum(map(len, known._old)) <= 200


def test_keys_of_8_kib_take_no_more_than_their_bytes() -> None:
    known: Cache[str, int] = Cache(len)
    for n in range(5000):
        known.remember(f"{n}".ljust(8192), n)
    assert sum(map(len, (*known, *known._old))) <= 2 * 4 * 1024 * 1024


def test_the_value_of_a_known_key_can_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 2)
    known: Cache[str, int] = Cache()
    for n in range(5):
        known.remember("a", n)
        known.remember("b", n)
        assert (known["a"], known["b"]) == (n, n)
    assert held(known) == 2


def test_nothing_is_left_after_clearing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 2)
    known: Cache[str, int] = Cache()
    for n in range(5):
        known.remember(str(n), n)
    known.clear()
    assert held(known) == 0


# by source

SOURCES = [UUri("veh1", 0xA, 1, 0x8000 + n) for n in range(3)]

Key = tuple[UUri, int]

KEYS = st.tuples(st.sampled_from(SOURCES), st.integers(0, 3))


@given(st.lists(st.tuples(st.sampled_from(["remember", "forget", "clear"]), KEYS, st.integers()), max_size=40))
def test_entries_stay_until_their_source_is_forgotten(steps: list[tuple[str, Key, int]]) -> None:
    known: BySource[Key, int] = BySource(itemgetter(0))
    model: dict[Key, int] = {}
    for step, key, value in steps:
        source = key[0]
        if step == "remember":
            known.remember(key, value)
            model[key] = value
        elif step == "forget":
            known.forget(source)
            model = {other: kept for other, kept in model.items() if other[0] != source}
        else:
            known.clear()
            model = {}
        assert known == model


def test_it_is_bounded_and_knows_where_each_entry_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 10)
    known: BySource[Key, int] = BySource(itemgetter(0))
    for n in range(1000):
        source = SOURCES[n % 3]
        known.remember((source, n), n)
        assert len(known) + len(known._old) <= 20
        assert sum(len(each) for each in known._keys.values()) <= 20
        assert known[source, n] == n
    for source in SOURCES:
        known.forget(source)
    assert (known, known._old, known._keys) == ({}, {}, {})


def test_what_is_used_again_can_be_forgotten_after_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 10)
    known: BySource[Key, int] = BySource(itemgetter(0))
    used, other = SOURCES[:2]
    known.remember((used, 0), 1)
    for n in range(1000):
        known.remember((other, n), n)
        assert known[used, 0] == 1
    known.forget(used)
    with pytest.raises(KeyError):
        known[used, 0]
