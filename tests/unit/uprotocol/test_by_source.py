"""The cache by source, against a plain dict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.uprotocol import cache
from streamer.uprotocol.by_source import BySource
from streamer.uprotocol.uri import UUri

SOURCES = [UUri("veh1", 0xA, 1, 0x8000 + n) for n in range(3)]

Key = tuple[UUri, int]

keys = st.tuples(st.sampled_from(SOURCES), st.integers(0, 3))


@given(st.lists(st.tuples(st.sampled_from(["remember", "forget", "clear"]), keys, st.integers()), max_size=40))
def test_entries_stay_until_their_source_is_forgotten(steps: list[tuple[str, Key, int]]) -> None:
    known: BySource[Key, int] = BySource()
    model: dict[Key, int] = {}
    for step, key, value in steps:
        source = key[0]
        if step == "remember":
            known.remember(source, key, value)
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
    known: BySource[Key, int] = BySource()
    for n in range(1000):
        source = SOURCES[n % 3]
        known.remember(source, (source, n), n)
        assert len(known) + len(known._old) <= 20
        assert sum(len(each) for each in known._keys.values()) <= 20
        assert known[source, n] == n
    for source in SOURCES:
        known.forget(source)
    assert (known, known._old, known._keys) == ({}, {}, {})


def test_what_is_used_again_can_be_forgotten_after_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 10)
    known: BySource[Key, int] = BySource()
    used, other = SOURCES[:2]
    known.remember(used, (used, 0), 1)
    for n in range(1000):
        known.remember(other, (other, n), n)
        assert known[used, 0] == 1
    known.forget(used)
    with pytest.raises(KeyError):
        known[used, 0]
