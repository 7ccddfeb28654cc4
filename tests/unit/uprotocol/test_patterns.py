"""The index finds exactly the values whose patterns match, as a comparison one by one does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.uprotocol.patterns import PatternIndex
from streamer.uprotocol.uri import ANY_INSTANCE, ANY_RESOURCE, ANY_TYPE, ANY_VERSION, UUri


def _uris(*, with_wildcards: bool) -> st.SearchStrategy[UUri]:
    def part(names: tuple[int, int], wildcard: int) -> st.SearchStrategy[int]:
        return st.sampled_from([*names, wildcard] if with_wildcards else list(names))

    return st.builds(
        lambda authority, instance, kind, version, resource: UUri(authority, instance << 16 | kind, version, resource),
        st.sampled_from(["veh1", "cloud", *(["*"] if with_wildcards else [])]),
        part((0, 1), ANY_INSTANCE),
        part((0xA, 0xB), ANY_TYPE),
        part((1, 2), ANY_VERSION),
        part((0x10, 0x8000), ANY_RESOURCE),
    )


PATTERNS, ADDRESSES = _uris(with_wildcards=True), _uris(with_wildcards=False)


@given(st.lists(st.tuples(PATTERNS, PATTERNS), unique=True), st.data(), ADDRESSES, ADDRESSES)
def test_exactly_the_values_whose_patterns_all_match_are_found(
    entries: list[tuple[UUri, UUri]], data: st.DataObject, first: UUri, second: UUri
) -> None:
    index: PatternIndex[int] = PatternIndex()
    for number, patterns in enumerate(entries):
        assert index.setdefault(number, *patterns) == number
        assert index.setdefault(-1, *patterns) == number
    removed = data.draw(st.sets(st.sampled_from(range(len(entries))))) if entries else set()
    for number in removed:
        index.remove(*entries[number])
    expected = [
        number
        for number, (one, other) in enumerate(entries)
        if number not in removed and one.matches(first) and other.matches(second)
    ]
    assert sorted(index.matching(first, second)) == expected


def test_a_pattern_that_is_not_there_cannot_be_removed_and_nothing_is_kept_of_those_that_were() -> None:
    index: PatternIndex[int] = PatternIndex()
    index.setdefault(1, UUri("veh1", 0xA, 1, ANY_RESOURCE))
    with pytest.raises(KeyError):
        index.remove(UUri("veh1", 0xB, 1, ANY_RESOURCE))
    index.remove(UUri("veh1", 0xA, 1, ANY_RESOURCE))
    assert not index._by_shape
