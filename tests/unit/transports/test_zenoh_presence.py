"""Presence: what Zenoh says about a key, and what its watchers are told."""

from streamer.transports.base import Presence
from streamer.transports.zenoh.presence import GRACE_S, WatchedKeys

UNKNOWN, ABSENT, PRESENT = Presence.UNKNOWN, Presence.ABSENT, Presence.PRESENT


class PresenceHarness:
    """One key in surroundings with one node, unless a test says otherwise."""

    def __init__(self, are_there: bool = True) -> None:
        self.keys = WatchedKeys()
        self.keys.nodes(are_there)
        self.told: list[Presence] = []
        key, self.is_new = self.keys.add("key", self.told.append)
        self.first = key.presence

    def told_since(self) -> list[Presence]:
        heard, self.told[:] = list(self.told), []
        return heard


def test_key_is_unknown_for_the_grace_then_absent() -> None:
    d = PresenceHarness()
    assert d.first is UNKNOWN
    d.keys.matched("key", False, 10.0)
    assert d.keys.next_s() == 10.0 + GRACE_S
    d.keys.tick(10.0 + GRACE_S - 0.001)
    assert d.told_since() == []
    d.keys.tick(10.0 + GRACE_S)
    assert d.told_since() == [ABSENT]
    assert d.keys.next_s() is None


def test_match_ends_the_grace() -> None:
    d = PresenceHarness()
    d.keys.matched("key", False, 10.0)
    d.keys.matched("key", True, 10.1)
    d.keys.tick(20.0)
    assert d.told_since() == [PRESENT]
    assert d.keys.next_s() is None


def test_match_that_ends_is_absent_at_once_even_in_the_grace_of_a_node() -> None:
    d = PresenceHarness()
    d.keys.matched("key", True, 10.0)
    d.keys.node_came(10.1)
    d.keys.matched("key", False, 10.2)
    assert d.told_since() == [PRESENT, ABSENT]


def test_new_node_makes_a_key_without_match_unknown_again() -> None:
    d = PresenceHarness()
    d.keys.matched("key", False, 10.0)
    d.keys.tick(11.0)
    d.keys.node_came(20.0)
    d.keys.tick(20.0 + GRACE_S)
    assert d.told_since() == [ABSENT, UNKNOWN, ABSENT]


def test_new_node_changes_nothing_for_a_key_with_a_match() -> None:
    d = PresenceHarness()
    d.keys.matched("key", True, 10.0)
    d.keys.node_came(20.0)
    assert d.told_since() == [PRESENT]


def test_without_any_node_every_key_is_absent_whatever_zenoh_says() -> None:
    d = PresenceHarness()
    d.keys.matched("key", True, 10.0)
    d.keys.nodes(False)
    d.keys.matched("key", False, 10.1)
    d.keys.matched("key", True, 10.2)
    assert d.told_since() == [PRESENT, ABSENT]
    d.keys.nodes(True)
    assert d.told_since() == [PRESENT]


def test_key_without_any_node_is_absent_until_the_first_node() -> None:
    d = PresenceHarness(are_there=False)
    assert d.first is ABSENT
    d.keys.matched("key", False, 10.0)
    d.keys.tick(11.0)
    d.keys.node_came(20.0)
    d.keys.nodes(True)
    assert d.told_since() == [UNKNOWN]
    d.keys.tick(20.0 + GRACE_S)
    assert d.told_since() == [ABSENT]


def test_watchers_of_one_key_are_counted() -> None:
    d = PresenceHarness()
    other: list[Presence] = []
    key, is_new = d.keys.add("key", other.append)
    assert (d.is_new, is_new) == (True, False)
    d.keys.matched("key", True, 10.0)
    assert (d.told_since(), other, key.presence) == ([PRESENT], [PRESENT], PRESENT)
    assert not d.keys.remove("key", d.told.append)
    assert not d.keys.remove("key", d.told.append)  # it is not there any more
    assert d.keys.remove("key", other.append)
    d.keys.matched("key", False, 10.0)
    assert (d.told_since(), other) == ([], [PRESENT])
    assert not d.keys.keys


def test_key_that_is_forgotten_in_its_grace_leaves_nothing_behind() -> None:
    d = PresenceHarness()
    d.keys.matched("key", False, 10.0)
    assert d.keys.remove("key", d.told.append)
    assert d.keys.next_s() is None
    d.keys.tick(20.0)
    assert d.told_since() == []


def test_lost_node_makes_keys_unknown_until_the_end_of_the_recheck() -> None:
    d = PresenceHarness()
    d.keys.matched("key", True, 10.0)
    d.keys.node_lost()
    d.keys.end_recheck(False, 10.1)
    assert d.told_since() == [PRESENT, UNKNOWN, PRESENT]


def test_match_that_ends_during_the_recheck_is_absent_after_it() -> None:
    d = PresenceHarness()
    d.keys.matched("key", True, 10.0)
    d.keys.node_lost()
    d.keys.matched("key", False, 10.05)
    assert d.told_since() == [PRESENT, UNKNOWN]
    d.keys.end_recheck(False, 10.1)
    assert d.told_since() == [ABSENT]


def test_node_that_is_back_at_once_makes_its_keys_absent_and_is_waited_for() -> None:
    d = PresenceHarness()
    d.keys.matched("key", True, 10.0)
    d.keys.node_lost()
    d.keys.node_came(10.01)
    d.keys.end_recheck(True, 10.1)
    assert d.told_since() == [PRESENT, UNKNOWN, ABSENT, UNKNOWN]
    d.keys.tick(10.1 + GRACE_S)
    assert d.told_since() == [PRESENT]


def test_last_node_that_is_back_at_once_makes_its_keys_absent_too() -> None:
    d = PresenceHarness()
    d.keys.matched("key", True, 10.0)
    d.keys.node_lost()
    d.keys.nodes(False)
    d.keys.node_came(10.01)
    d.keys.nodes(True)
    d.keys.end_recheck(True, 10.1)
    d.keys.matched("key", True, 10.2)
    assert d.told_since() == [PRESENT, UNKNOWN, ABSENT, UNKNOWN, ABSENT, UNKNOWN, PRESENT]


def test_key_that_nobody_listens_to_is_not_rechecked() -> None:
    d = PresenceHarness()
    d.keys.matched("key", False, 10.0)
    d.keys.tick(11.0)
    d.keys.node_lost()
    d.keys.end_recheck(True, 11.1)
    assert d.told_since() == [ABSENT]
