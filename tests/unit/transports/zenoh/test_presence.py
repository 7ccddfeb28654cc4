"""Presence: what Zenoh says about a flow, and what its watchers are told."""

import pytest

from streamer.transports.base import Presence
from streamer.transports.zenoh.presence import GRACE_S, WatchedFlows

UNKNOWN, ABSENT, PRESENT = Presence.UNKNOWN, Presence.ABSENT, Presence.PRESENT
INTERRUPTED = Presence.INTERRUPTED

FLOW = "up/veh1/1/0/1/8000/cloud/1/0/1/0"


class PresenceHarness:
    """One flow in surroundings with one node, unless a test says otherwise."""

    def __init__(self, are_there: bool = True) -> None:
        self.flows = WatchedFlows()
        self.flows.set_nodes_present(are_there)
        self.told: list[Presence] = []
        flow, self.is_new = self.flows.add(FLOW, self.told.append)
        self.first = flow.presence

    def tick(self, now_s: float) -> None:
        """What Zenoh has said last is what it says when a grace has ended."""
        for key in self.flows.take_ended_graces(now_s):
            self.flows.poll_answered(key, self.flows.by_key[key].matched is True)

    def told_since(self) -> list[Presence]:
        heard, self.told[:] = list(self.told), []
        return heard


def test_flow_is_unknown_for_the_grace_then_absent() -> None:
    d = PresenceHarness()
    assert d.first is UNKNOWN
    d.flows.matched(FLOW, False, 10.0)
    assert d.flows.next_s() == 10.0 + GRACE_S
    d.tick(10.0 + GRACE_S - 0.001)
    assert d.told_since() == []
    d.tick(10.0 + GRACE_S)
    assert d.told_since() == [ABSENT]
    assert d.flows.next_s() is None


def test_match_ends_the_grace() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, False, 10.0)
    d.flows.matched(FLOW, True, 10.1)
    d.tick(20.0)
    assert d.told_since() == [PRESENT]
    assert d.flows.next_s() is None


def test_what_zenoh_says_after_the_grace_holds_not_what_has_been_heard_of_it() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, False, 10.0)
    assert d.flows.take_ended_graces(10.0 + GRACE_S) == [FLOW]
    assert (d.told_since(), d.flows.next_s()) == ([], None)
    d.flows.poll_answered(FLOW, True)
    assert d.told_since() == [PRESENT]


def test_an_answer_after_the_grace_is_void_if_a_node_or_a_match_has_come_since() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, False, 10.0)
    d.flows.take_ended_graces(11.0)
    d.flows.node_came(11.0)
    d.flows.poll_answered(FLOW, False)
    assert d.told_since() == []
    d.flows.take_ended_graces(12.0)
    d.flows.matched(FLOW, True, 12.0)
    d.flows.poll_answered(FLOW, False)
    assert d.told_since() == [PRESENT]
    d.flows.poll_answered("up/veh9/1/0/1/8000/cloud/1/0/1/0", False)
    assert list(d.flows.by_key) == [FLOW]


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_node_that_is_lost_before_a_flow_was_ever_known_has_interrupted_it(is_declared: bool) -> None:
    d = PresenceHarness()
    if is_declared:
        d.flows.matched(FLOW, False, 10.0)
    d.flows.node_lost()
    d.flows.end_recheck(False, 10.1)
    assert d.told_since() == [INTERRUPTED, UNKNOWN]
    d.flows.matched(FLOW, False, 10.2)
    d.tick(10.2 + GRACE_S)
    assert d.told_since() == [ABSENT]


def test_a_node_that_comes_and_goes_interrupts_no_flow_that_nobody_listened_to_before() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, False, 10.0)
    d.tick(11.0)
    d.flows.node_came(20.0)
    d.flows.node_lost()
    d.flows.end_recheck(True, 20.1)
    d.tick(20.0 + GRACE_S)
    assert d.told_since() == [ABSENT, UNKNOWN, ABSENT]


def test_a_flow_is_not_known_because_there_was_no_node() -> None:
    d = PresenceHarness(are_there=False)
    d.flows.matched(FLOW, False, 10.0)
    d.flows.set_nodes_present(True)
    d.flows.node_lost()
    assert d.told_since() == [UNKNOWN, INTERRUPTED, UNKNOWN]


def test_match_that_ends_is_absent_at_once_even_in_the_grace_of_a_node() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.node_came(10.1)
    d.flows.matched(FLOW, False, 10.2)
    assert d.told_since() == [PRESENT, ABSENT]


def test_new_node_makes_a_flow_without_match_unknown_again() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, False, 10.0)
    d.tick(11.0)
    d.flows.node_came(20.0)
    d.tick(20.0 + GRACE_S)
    assert d.told_since() == [ABSENT, UNKNOWN, ABSENT]


def test_new_node_changes_nothing_for_a_flow_with_a_match() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.node_came(20.0)
    assert d.told_since() == [PRESENT]


def test_without_any_node_every_flow_is_absent_whatever_zenoh_says() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.set_nodes_present(False)
    d.flows.matched(FLOW, False, 10.1)
    d.flows.matched(FLOW, True, 10.2)
    assert d.told_since() == [PRESENT, ABSENT]
    d.flows.set_nodes_present(True)
    assert d.told_since() == [PRESENT]


def test_flow_without_any_node_is_absent_until_the_first_node() -> None:
    d = PresenceHarness(are_there=False)
    assert d.first is ABSENT
    d.flows.matched(FLOW, False, 10.0)
    d.tick(11.0)
    d.flows.node_came(20.0)
    d.flows.set_nodes_present(True)
    assert d.told_since() == [UNKNOWN]
    d.tick(20.0 + GRACE_S)
    assert d.told_since() == [ABSENT]


def test_watchers_of_one_flow_are_counted() -> None:
    d = PresenceHarness()
    other: list[Presence] = []
    flow, is_new = d.flows.add(FLOW, other.append)
    assert (d.is_new, is_new) == (True, False)
    d.flows.matched(FLOW, True, 10.0)
    assert (d.told_since(), other, flow.presence) == ([PRESENT], [PRESENT], PRESENT)
    assert not d.flows.remove(FLOW, d.told.append)
    assert not d.flows.remove(FLOW, d.told.append)  # it is not there any more
    assert d.flows.remove(FLOW, other.append)
    d.flows.matched(FLOW, False, 10.0)
    assert (d.told_since(), other) == ([], [PRESENT])
    assert not d.flows.by_key


def test_flow_that_is_forgotten_in_its_grace_leaves_nothing_behind() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, False, 10.0)
    assert d.flows.remove(FLOW, d.told.append)
    assert d.flows.next_s() is None
    d.tick(20.0)
    assert d.told_since() == []


def test_lost_node_makes_flows_unknown_until_the_end_of_the_recheck() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.node_lost()
    d.flows.end_recheck(False, 10.1)
    assert d.told_since() == [PRESENT, UNKNOWN, PRESENT]


def test_match_that_ends_during_the_recheck_is_absent_after_it() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.node_lost()
    d.flows.matched(FLOW, False, 10.05)
    assert d.told_since() == [PRESENT, UNKNOWN]
    d.flows.end_recheck(False, 10.1)
    assert d.told_since() == [ABSENT]


def test_node_that_is_back_at_once_has_interrupted_its_flows_and_is_waited_for() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.node_lost()
    d.flows.node_came(10.01)
    d.flows.end_recheck(True, 10.1)
    assert d.told_since() == [PRESENT, UNKNOWN, INTERRUPTED, UNKNOWN]
    d.tick(10.1 + GRACE_S)
    assert d.told_since() == [PRESENT]


def test_last_node_that_is_back_at_once_has_interrupted_its_flows_too() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.node_lost()
    d.flows.set_nodes_present(False)
    d.flows.node_came(10.01)
    d.flows.set_nodes_present(True)
    d.flows.end_recheck(True, 10.1)
    d.flows.matched(FLOW, True, 10.2)
    assert d.told_since() == [PRESENT, UNKNOWN, ABSENT, UNKNOWN, INTERRUPTED, UNKNOWN, PRESENT]


def test_flow_that_nobody_listens_to_is_not_rechecked() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, False, 10.0)
    d.tick(11.0)
    d.flows.node_lost()
    d.flows.end_recheck(True, 11.1)
    assert d.told_since() == [ABSENT]


def test_a_flow_whose_streamer_is_away_is_absent_whoever_listens() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.set_away(frozenset({"cloud", "elsewhere"}))
    d.flows.matched(FLOW, False, 11.0)
    d.flows.matched(FLOW, True, 12.0)  # a recorder that comes
    assert d.told_since() == [PRESENT, ABSENT]
    assert d.flows.add("up/veh1/1/0/1/8001/cloud/1/0/1/0", lambda presence: None)[0].presence is ABSENT
    assert d.flows.add("up/veh1/1/0/1/8001/other/1/0/1/0", lambda presence: None)[0].presence is UNKNOWN
    d.flows.set_away(frozenset({"elsewhere"}))
    assert d.told_since() == [PRESENT]


# -- what Zenoh does not say by itself


def test_flow_in_doubt_is_unknown_until_zenoh_has_said_something() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.invalidate(FLOW)
    d.flows.matched(FLOW, True, 10.1)
    assert d.told_since() == [PRESENT, UNKNOWN, PRESENT]


def test_flow_in_doubt_whose_listener_is_gone_is_absent_after_the_grace() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, True, 10.0)
    d.flows.invalidate(FLOW)
    d.flows.matched(FLOW, False, 10.1)
    d.tick(10.1 + GRACE_S)
    assert d.told_since() == [PRESENT, UNKNOWN, ABSENT]


def test_doubt_ends_the_grace_and_an_unknown_flow_is_ignored() -> None:
    d = PresenceHarness()
    d.flows.matched(FLOW, False, 10.0)
    d.flows.invalidate(FLOW)
    d.flows.invalidate(FLOW.replace("veh1", "veh2"))
    assert d.flows.next_s() is None
    d.tick(20.0)
    assert d.told_since() == []
