"""Last values: which topics are forgotten beyond the bounds, and which are not the last ones on disk. No event loop."""

import pytest

from streamer.features.utwin.last_values import LastValues
from streamer.uprotocol.message import OVERHEAD_BYTES, UMessage, publish
from streamer.uprotocol.uri import UUri

NOW_MS = 1_700_000_000_000
LISTED = frozenset(("veh1", "veh2"))


class FakeSignal:
    """Counts how often it was set."""

    count = 0

    def set(self) -> None:
        self.count += 1

    def clear(self) -> None: ...

    async def wait(self) -> object: ...


def values(max_topics: int = 100, max_bytes: int = 1 << 30) -> LastValues:
    return LastValues(max_topics, max_bytes, LISTED, FakeSignal())


def topic(authority: str, number: int) -> UUri:
    return UUri(authority, 0xA, 1, 0x8000 + number % 0x7FFF)._replace(ue_id=0xA + number // 0x7FFF)


def put(kept: LastValues, authority: str, *numbers: int, size: int = 0) -> None:
    for number in numbers:
        kept.put(message(authority, number, size), NOW_MS, 100.0)


def message(authority: str, number: int, size: int = 0) -> UMessage:
    return publish(NOW_MS, topic(authority, number), bytes(size))


def count_of(kept: LastValues, authority: str) -> int:
    return sum(each.authority == authority for each, _ in kept.listed())


@pytest.mark.parametrize("many", ["veh1", "stranger"])
@pytest.mark.parametrize("few", ["veh2", "other"])
def test_an_authority_with_very_many_topics_costs_no_other_its_own(many: str, few: str) -> None:
    kept = values(max_topics=10_000)
    put(kept, few, *range(50))
    put(kept, many, *range(10_500))
    assert count_of(kept, few) == 50
    assert 9800 <= count_of(kept, many) <= 9950
    assert kept.get(topic(many, 10_499)) is not None
    assert kept.get(topic(many, 0)) is None


@pytest.mark.parametrize("few", ["veh2", "other"])
def test_an_authority_with_large_messages_costs_no_other_its_own(few: str) -> None:
    kept = values(max_bytes=100_000)
    put(kept, few, *range(3), size=1000)
    put(kept, "veh1", *range(20), size=20_000)
    assert count_of(kept, few) == 3
    assert 0 < kept.bytes <= 100_000


def test_authorities_that_anybody_can_invent_cost_those_that_are_listed_nothing() -> None:
    kept = values(max_topics=100)
    put(kept, "veh1", *range(40))
    for number in range(1000):
        put(kept, f"invented{number}", 1)
    assert count_of(kept, "veh1") == 40
    assert kept.get(topic("invented999", 1)) is not None


def test_of_authorities_with_as_much_that_one_forgets_which_has_the_oldest() -> None:
    kept = values(max_topics=3)
    for authority in ("veh2", "veh1", "veh2", "veh1"):
        put(kept, authority, 1 if count_of(kept, authority) == 0 else 2)
    assert [(each.authority, each.resource) for each, _ in kept.listed()] == [
        ("veh1", 0x8001),
        ("veh2", 0x8002),
        ("veh1", 0x8002),
    ]


def test_what_is_on_disk_and_was_published_again_is_outdated_until_it_is_deleted_there() -> None:
    kept = values()
    put(kept, "veh1", 1)
    one = topic("veh1", 1)
    assert list(kept.outdated) == []
    kept.was_saved(one, kept.get(one))
    put(kept, "veh1", 1)
    put(kept, "veh1", 1)
    assert list(kept.outdated) == [one]
    assert kept.has_outdated.count == 1  # type: ignore[attr-defined]  # a fake
    kept.was_deleted(one)
    put(kept, "veh1", 1)
    assert list(kept.outdated) == []


def test_what_was_published_again_while_it_was_being_saved_is_outdated() -> None:
    kept = values()
    put(kept, "veh1", 1)
    one = topic("veh1", 1)
    saving = kept.get(one)
    put(kept, "veh1", 1)
    kept.was_saved(one, saving)
    assert list(kept.outdated) == [one]


def test_a_message_that_is_too_large_makes_the_one_on_disk_outdated_too() -> None:
    kept = values(max_bytes=OVERHEAD_BYTES + 10)
    put(kept, "veh1", 1)
    one = topic("veh1", 1)
    kept.was_saved(one, kept.get(one))
    put(kept, "veh1", 1, size=100)
    assert list(kept.outdated) == [one]
    assert kept.get(one) is None
