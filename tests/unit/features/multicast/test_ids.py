"""Multicast ids: the grammar, the examples of the document, the catalogue against a simple matcher, and the section."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.config.load import ConfigError, load
from streamer.features.every import FILE
from streamer.features.multicast.config import MulticastConfig
from streamer.features.multicast.config import catalogue as catalogue_of
from streamer.features.multicast.ids import MAX_ID_LENGTH, Catalogue, MulticastId, Partition
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from tests.configurations import config_of, endpoint_of
from tests.unit.uprotocol.strategies import uentities

PROVIDER = UUri("veh1", 0xA8000, 2, 0)
DOORS = "//veh1/A8000/2/0/doorOpened"


def knows_all(pattern: UUri) -> bool:
    return True


def catalogue(*partitions: str, broadcast: str = "doorOpened") -> Catalogue:
    ids = [MulticastId(PROVIDER, broadcast, tuple(filter(None, text.split("/")))) for text in partitions]
    return Catalogue({multicast_id: 0x8000 + number for number, multicast_id in enumerate(ids)})


def heard(pattern: str, *fired: str) -> set[str]:
    """The partitions that match ``pattern``."""
    known = catalogue(*fired)
    found = known.expand(MulticastId.parse(f"{DOORS}/{pattern}"))
    ids = [known.id_of(topic) for topic in found]
    return {"/".join(multicast_id.partition) for multicast_id in ids if multicast_id is not None}


def code_of(text: str) -> UCode:
    with pytest.raises(UStatusError) as caught:
        MulticastId.parse(text)
    return caught.value.code


# The examples of the document.


def test_subscribing_to_a_one_segment_wildcard_is_notified_as_in_the_document() -> None:
    assert heard("a/+/c", "a/b/c", "a/a/c", "a/b/d", "a/b/c/d") == {"a/b/c", "a/a/c"}


def test_subscribing_to_a_multi_level_wildcard_is_notified_as_in_the_document() -> None:
    assert heard("a/b/*", "a/b/c", "a/b/d", "a/b/c/d", "a/c/d") == {"a/b/c", "a/b/d", "a/b/c/d"}


# Where the document has no example.


def test_a_multi_level_wildcard_matches_its_own_level_as_joynr_does() -> None:
    assert heard("a/b/*", "a/b", "a", "a/bc") == {"a/b"}


def test_a_multi_level_wildcard_alone_is_notified_of_every_partition_and_of_none() -> None:
    assert heard("*", "", "a", "a/b") == {"", "a", "a/b"}


def test_both_wildcards_together() -> None:
    assert heard("+/b/*", "a/b", "x/b/c/d", "b", "a/c/b") == {"a/b", "x/b/c/d"}


def test_a_one_segment_wildcard_needs_a_segment() -> None:
    assert heard("a/+", "a", "a/b", "a/b/c") == {"a/b"}


def test_case_matters() -> None:
    assert heard("Front", "front", "Front", "FRONT") == {"Front"}


def test_other_broadcasts_and_providers_do_not_match() -> None:
    ids = [f"{DOORS}/a", "//veh1/A8000/2/0/doorClosed/a", "//veh2/A8000/2/0/doorOpened/a", "//veh1/A8000/3/0/doorOpened/a"]
    known = Catalogue({MulticastId.parse(text): 0x8000 + number for number, text in enumerate(ids)})
    assert known.expand(MulticastId.parse(f"{DOORS}/*")) == {UUri("veh1", 0xA8000, 2, 0x8000)}


@pytest.mark.parametrize("text", ["a", "0", "Z9z", "a/B/3"])
def test_a_segment_is_letters_and_digits(text: str) -> None:
    assert MulticastId.parse(f"{DOORS}/{text}").partition == tuple(text.split("/"))


@pytest.mark.parametrize(
    "partition",
    [
        "",
        "a/",
        "a//b",
        "a-b",
        "a_b",
        "a b",
        "ä",
        "²",
        "a.b",
        "#",
        "a+",
        "+a",
        "**",
        "a*",
        "*/a",
        "a/*/b",
        "a/*/*",
        "a\n",
        "$a",
    ],
)
def test_other_segments_are_refused(partition: str) -> None:
    assert code_of(f"{DOORS}/{partition}") is UCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "doorOpened",
        "//veh1/A8000/2/0",
        "//veh1/A8000/2/8001/doorOpened",
        "//*/A8000/2/0/doorOpened",
        "//veh1/FFFF/2/0/doorOpened",
        "//veh1/A8000/FF/0/doorOpened",
        "//VEH1/A8000/2/0/doorOpened",
        "///A8000/2/0/doorOpened",
        "/A8000/2/0/doorOpened",
        "http://veh1/A8000/2/0/doorOpened",
        "//veh1/A8000/2/0/+",
        "//veh1/A8000/2/0/*",
        "//veh1/A8000/2/0/3doors",
        "//veh1/A8000/2/0/door-opened",
        "//veh1/A8000/2/0/",
    ],
)
def test_text_that_is_not_a_broadcast_of_a_provider_is_refused(text: str) -> None:
    assert code_of(text) is UCode.INVALID_ARGUMENT


def test_an_id_that_is_too_long_is_refused_and_not_repeated() -> None:
    longest = f"{DOORS}/{'a' * (MAX_ID_LENGTH - len(DOORS) - 1)}"
    assert str(MulticastId.parse(longest)) == longest
    with pytest.raises(UStatusError) as caught:
        MulticastId.parse(longest + "a")
    assert len(caught.value.message) < 100


def test_the_provider_may_have_its_scheme() -> None:
    assert MulticastId.parse(f"up:{DOORS}/a") == MulticastId(PROVIDER, "doorOpened", ("a",))


# Firing.


def test_a_sender_gets_the_one_topic_of_the_partition() -> None:
    known = catalogue("", "front/left")
    assert known.resolve(MulticastId.parse(DOORS), knows_all) == UUri("veh1", 0xA8000, 2, 0x8000)
    assert known.resolve(MulticastId.parse(f"{DOORS}/front/left"), knows_all) == UUri("veh1", 0xA8000, 2, 0x8001)


@pytest.mark.parametrize("partition", ["+", "*", "front/*", "front/+", "+/left"])
def test_a_sender_cannot_use_wildcards(partition: str) -> None:
    with pytest.raises(UStatusError, match="expected one partition, without wildcards") as caught:
        catalogue("front/left").resolve(MulticastId.parse(f"{DOORS}/{partition}"), knows_all)
    assert caught.value.code is UCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        (f"{DOORS}/front/lift", "'front/left'"),
        (f"{DOORS}/front", "'front/left'"),
        (f"{DOORS}/Rear", "'rear'"),
        ("//veh1/A8000/2/0/doorOpen/rear", "'doorOpened'"),
        ("//veh1/A8000/3/0/doorOpened/rear", "'//veh1/A8000/2/0'"),
    ],
)
def test_an_id_that_is_not_in_the_catalogue_is_not_found_and_the_nearest_is_named(text: str, nearest: str) -> None:
    known, wanted = catalogue("front/left", "rear"), MulticastId.parse(text)
    for look_up in (known.resolve, known.expand_known):
        with pytest.raises(UStatusError, match=f"the nearest is {nearest}") as caught:
            look_up(wanted, knows_all)
        assert caught.value.code is UCode.NOT_FOUND


@pytest.mark.parametrize(
    ("text", "known_pattern"),
    [
        (f"{DOORS}/front/lift", "//veh1/A8000/2/8001"),
        ("//veh1/A8000/2/0/doorOpen/rear", "//*/A8000/2/FFFF"),
        ("//veh1/A8000/3/0/doorOpened/rear", "//veh1/A8000/3/FFFF"),
        ("//evil/A8000/2/0/doorOpened/rear", "//evil/FFFFFFFF/FF/FFFF"),
    ],
)
def test_whoever_may_not_know_all_that_is_compared_is_told_no_name_of_it(text: str, known_pattern: str) -> None:
    known, wanted, own = catalogue("front/left", "rear"), MulticastId.parse(text), UUri.parse(known_pattern)
    for look_up in (known.resolve, known.expand_known):
        with pytest.raises(UStatusError) as caught:
            look_up(wanted, lambda pattern: pattern == own)
        assert (caught.value.code, caught.value.message) == (UCode.NOT_FOUND, f"{text}: the catalogue does not have it")


def test_the_nearest_is_found_in_a_large_catalogue() -> None:
    known = catalogue(*(f"a{number}/left" for number in range(5000)))
    with pytest.raises(UStatusError, match="the nearest is 'a4321/left'"):
        known.resolve(MulticastId.parse(f"{DOORS}/a4321/lift"), knows_all)


def test_an_empty_catalogue_finds_nothing() -> None:
    with pytest.raises(UStatusError, match="no provider") as caught:
        Catalogue().resolve(MulticastId.parse(DOORS), knows_all)
    assert caught.value.code is UCode.NOT_FOUND
    assert Catalogue().topics == frozenset()


# The catalogue itself.


def test_one_topic_cannot_have_two_ids() -> None:
    entries = {MulticastId(PROVIDER, "opened"): 0x8001, MulticastId(PROVIDER, "closed"): 0x8001}
    with pytest.raises(ValueError, match=r"//veh1/A8000/2/8001 is the topic of //veh1/A8000/2/0/opened already"):
        Catalogue(entries)


@pytest.mark.parametrize("resource", [0, 1, 0x7FFF, 0xFFFF])
def test_the_resource_has_to_be_a_topic(resource: int) -> None:
    with pytest.raises(ValueError, match="expected the resource of a topic"):
        Catalogue({MulticastId(PROVIDER, "opened"): resource})


@pytest.mark.parametrize("partition", [("+",), ("a", "*"), ("",), ("a-b",)])
def test_the_catalogue_has_no_wildcards(partition: Partition) -> None:
    with pytest.raises(ValueError, match="no wildcards"):
        Catalogue({MulticastId(PROVIDER, "opened", partition): 0x8001})


segments = st.sampled_from(["a", "b", "c", "A", "1"])
partitions = st.lists(segments, max_size=4).map(tuple)
patterns = st.builds(
    lambda front, end: (*front, *end), st.lists(segments | st.just("+"), max_size=4), st.sampled_from([(), ("*",)])
)
broadcasts = st.sampled_from(["opened", "closed"])


def naively_matches(pattern: Partition, partition: Partition) -> bool:
    """The rule of the document, segment by segment."""
    if pattern and pattern[-1] == "*":
        pattern, partition = pattern[:-1], partition[: len(pattern) - 1]
    return len(pattern) == len(partition) and all(map(lambda one, two: one in ("+", two), pattern, partition))


@given(st.sets(st.tuples(broadcasts, partitions), max_size=20), broadcasts, patterns)
def test_the_catalogue_finds_what_a_plain_matcher_finds(
    fired: set[tuple[str, Partition]], broadcast: str, pattern: Partition
) -> None:
    entries = {MulticastId(PROVIDER, *each): 0x8000 + number for number, each in enumerate(sorted(fired))}
    expected = {
        PROVIDER._replace(resource=resource)
        for known, resource in entries.items()
        if known.broadcast == broadcast and naively_matches(pattern, known.partition)
    }
    assert Catalogue(entries).expand(MulticastId(PROVIDER, broadcast, pattern)) == expected


@given(st.dictionaries(st.builds(MulticastId, uentities, broadcasts, partitions), st.integers(0x8000, 0xFFFE), max_size=20))
def test_an_id_gives_its_topic_and_the_topic_its_id(entries: dict[MulticastId, int]) -> None:
    topics = {multicast_id.provider._replace(resource=resource) for multicast_id, resource in entries.items()}
    if len(topics) < len(entries):
        with pytest.raises(ValueError, match="needs one of its own"):
            Catalogue(entries)
        return
    known = Catalogue(entries)
    assert known.topics == topics
    for multicast_id, resource in entries.items():
        topic = known.resolve(multicast_id, knows_all)
        assert topic == multicast_id.provider._replace(resource=resource)
        assert known.id_of(topic) == multicast_id
        assert known.expand(multicast_id) == {topic}


@given(st.builds(MulticastId, uentities, broadcasts, patterns))
def test_the_text_of_an_id_is_read_back(multicast_id: MulticastId) -> None:
    assert MulticastId.parse(str(multicast_id)) == multicast_id


ENTRY = {"provider": "//veh1/A8000/2/0", "broadcast": "doorOpened", "partitions": {"": 0x8001, "Front/left": 0xFFFE}}


def loaded(*entries: dict[str, Any]) -> Any:
    return FILE.model_validate(config_of({"e": endpoint_of("memory", "veh1")}, routes=[], multicast=list(entries)))


def test_the_catalogue_has_every_partition() -> None:
    found = catalogue_of(loaded(ENTRY, ENTRY | {"broadcast": "closed", "partitions": {"front": 0x8003}}))
    assert {str(topic): str(found.id_of(topic)) for topic in found.topics} == {
        "//veh1/A8000/2/8001": "//veh1/A8000/2/0/doorOpened",
        "//veh1/A8000/2/FFFE": "//veh1/A8000/2/0/doorOpened/Front/left",
        "//veh1/A8000/2/8003": "//veh1/A8000/2/0/closed/front",
    }


def test_a_broken_file_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(ConfigError) as caught:
        load(Path("broken.yaml"), {}, kind=FILE)
    assert f"{caught.value}\n" == Path("broken.expected").read_text()


@pytest.mark.parametrize("entries", [7, [{"provider": 7}, {"provider": "//", "broadcast": "doors"}, None]])
def test_values_that_are_wrong_in_themselves_are_left_to_their_models(entries: Any) -> None:
    assert list(MulticastConfig.mistakes({"multicast": entries})) == []
