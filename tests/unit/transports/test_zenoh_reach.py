"""Reach of flows: what Zenoh says of a key (>>), and what its watchers are told (<<)."""

from streamer.transports.base import Presence
from streamer.transports.zenoh.reach import GRACE_S, Presences

UNKNOWN, ABSENT, PRESENT = Presence.UNKNOWN, Presence.ABSENT, Presence.PRESENT


class PresenceHarness:
    """One key in surroundings with one node, unless a test says otherwise."""

    def __init__(self, are_there: bool = True) -> None:
        self.reaches = Presences()
        self.reaches.nodes(are_there)
        self.told: list[Presence] = []
        key, self.is_new = self.reaches.add("key", self.told.append)
        self.first = key.reach

    def heard(self) -> list[Presence]:
        heard, self.told[:] = list(self.told), []
        return heard


def test_key_is_unknown_for_the_grace_then_nobody() -> None:
    d = PresenceHarness()
    assert d.first is UNKNOWN
    d.reaches.matched("key", False, 10.0)
    assert d.reaches.next_s() == 10.0 + GRACE_S
    d.reaches.tick(10.0 + GRACE_S - 0.001)
    assert d.heard() == []
    d.reaches.tick(10.0 + GRACE_S)
    assert d.heard() == [ABSENT]
    assert d.reaches.next_s() is None


def test_match_ends_the_grace() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", False, 10.0)
    d.reaches.matched("key", True, 10.1)
    d.reaches.tick(20.0)
    assert d.heard() == [PRESENT]
    assert d.reaches.next_s() is None


def test_match_that_ends_is_nobody_at_once_even_in_the_grace_of_a_node() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", True, 10.0)
    d.reaches.node_came(10.1)
    d.reaches.matched("key", False, 10.2)
    assert d.heard() == [PRESENT, ABSENT]


def test_new_node_makes_a_key_without_match_unknown_again() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", False, 10.0)
    d.reaches.tick(11.0)
    d.reaches.node_came(20.0)
    d.reaches.tick(20.0 + GRACE_S)
    assert d.heard() == [ABSENT, UNKNOWN, ABSENT]


def test_new_node_changes_nothing_for_a_key_with_a_match() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", True, 10.0)
    d.reaches.node_came(20.0)
    assert d.heard() == [PRESENT]


def test_without_any_node_there_is_nobody_whatever_zenoh_still_says() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", True, 10.0)
    d.reaches.nodes(False)
    d.reaches.matched("key", False, 10.1)
    d.reaches.matched("key", True, 10.2)
    assert d.heard() == [PRESENT, ABSENT]
    d.reaches.nodes(True)
    assert d.heard() == [PRESENT]


def test_key_that_is_watched_while_nobody_is_there_is_nobody_and_learns_with_the_first_node() -> None:
    d = PresenceHarness(are_there=False)
    assert d.first is ABSENT
    d.reaches.matched("key", False, 10.0)
    d.reaches.tick(11.0)
    d.reaches.node_came(20.0)
    d.reaches.nodes(True)
    assert d.heard() == [UNKNOWN]
    d.reaches.tick(20.0 + GRACE_S)
    assert d.heard() == [ABSENT]


def test_watchers_of_one_key_are_counted() -> None:
    d = PresenceHarness()
    other: list[Presence] = []
    key, is_new = d.reaches.add("key", other.append)
    assert (d.is_new, is_new) == (True, False)
    d.reaches.matched("key", True, 10.0)
    assert (d.heard(), other, key.reach) == ([PRESENT], [PRESENT], PRESENT)
    assert not d.reaches.remove("key", d.told.append)
    assert not d.reaches.remove("key", d.told.append)  # it is not there any more
    assert d.reaches.remove("key", other.append)
    d.reaches.matched("key", False, 10.0)
    assert (d.heard(), other) == ([], [PRESENT])
    assert not d.reaches.keys


def test_key_that_is_forgotten_in_its_grace_leaves_nothing_behind() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", False, 10.0)
    assert d.reaches.remove("key", d.told.append)
    assert d.reaches.next_s() is None
    d.reaches.tick(20.0)
    assert d.heard() == []


def test_lost_node_is_a_question_and_who_still_listens_answers_it() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", True, 10.0)
    d.reaches.node_lost()
    d.reaches.answer(False, 10.1)
    assert d.heard() == [PRESENT, UNKNOWN, PRESENT]


def test_match_that_ends_during_the_question_is_nobody_after_it() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", True, 10.0)
    d.reaches.node_lost()
    d.reaches.matched("key", False, 10.05)
    assert d.heard() == [PRESENT, UNKNOWN]
    d.reaches.answer(False, 10.1)
    assert d.heard() == [ABSENT]


def test_node_that_is_back_at_once_is_a_doubt_and_is_waited_for() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", True, 10.0)
    d.reaches.node_lost()
    d.reaches.node_came(10.01)
    d.reaches.answer(True, 10.1)
    assert d.heard() == [PRESENT, UNKNOWN, ABSENT, UNKNOWN]
    d.reaches.tick(10.1 + GRACE_S)
    assert d.heard() == [PRESENT]


def test_last_node_that_is_back_at_once_is_a_doubt_too() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", True, 10.0)
    d.reaches.node_lost()
    d.reaches.nodes(False)
    d.reaches.node_came(10.01)
    d.reaches.nodes(True)
    d.reaches.answer(True, 10.1)
    d.reaches.matched("key", True, 10.2)
    assert d.heard() == [PRESENT, UNKNOWN, ABSENT, UNKNOWN, ABSENT, UNKNOWN, PRESENT]


def test_question_is_not_asked_of_who_reached_nobody() -> None:
    d = PresenceHarness()
    d.reaches.matched("key", False, 10.0)
    d.reaches.tick(11.0)
    d.reaches.node_lost()
    d.reaches.answer(True, 11.1)
    assert d.heard() == [ABSENT]
