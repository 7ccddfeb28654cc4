"""Presence: what Zenoh says about a watched key and what the watchers of its flows are told."""

from streamer.transports.base import Presence
from streamer.transports.zenoh.presence import GRACE_S, OVERVIEW, Watches, is_topic, watch_for

UNKNOWN, ABSENT, PRESENT = Presence.UNKNOWN, Presence.ABSENT, Presence.PRESENT


TOPIC = "up/veh1/1/0/1/8000/{}/{}/{}/{}/{}"
FLOW = "up/veh1/1/0/1/8000/cloud/1/0/1/0"
SINK = "up/*/*/*/*/*/cloud/1/0/1/0"


class PresenceHarness:
    """One flow in surroundings with one node, unless a test says otherwise. It has a watch of its own."""

    def __init__(self, are_there: bool = True, flow: str = TOPIC) -> None:
        self.keys = Watches()
        self.keys.nodes(are_there)
        self.told: list[Presence] = []
        self.first = self.keys.add(flow, watch_for(flow), self.told.append).presence

    def told_since(self) -> list[Presence]:
        heard, self.told[:] = list(self.told), []
        return heard


def test_key_is_unknown_for_the_grace_then_absent() -> None:
    d = PresenceHarness()
    assert d.first is UNKNOWN
    d.keys.matched(TOPIC, False, 10.0)
    assert d.keys.next_s() == 10.0 + GRACE_S
    d.keys.tick(10.0 + GRACE_S - 0.001)
    assert d.told_since() == []
    d.keys.tick(10.0 + GRACE_S)
    assert d.told_since() == [ABSENT]
    assert d.keys.next_s() is None


def test_match_ends_the_grace() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, False, 10.0)
    d.keys.matched(TOPIC, True, 10.1)
    d.keys.tick(20.0)
    assert d.told_since() == [PRESENT]
    assert d.keys.next_s() is None


def test_match_that_ends_is_absent_at_once_even_in_the_grace_of_a_node() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, True, 10.0)
    d.keys.node_came(10.1)
    d.keys.matched(TOPIC, False, 10.2)
    assert d.told_since() == [PRESENT, ABSENT]


def test_new_node_makes_a_key_without_match_unknown_again() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, False, 10.0)
    d.keys.tick(11.0)
    d.keys.node_came(20.0)
    d.keys.tick(20.0 + GRACE_S)
    assert d.told_since() == [ABSENT, UNKNOWN, ABSENT]


def test_new_node_changes_nothing_for_a_key_with_a_match() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, True, 10.0)
    d.keys.node_came(20.0)
    assert d.told_since() == [PRESENT]


def test_without_any_node_every_key_is_absent_whatever_zenoh_says() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, True, 10.0)
    d.keys.nodes(False)
    d.keys.matched(TOPIC, False, 10.1)
    d.keys.matched(TOPIC, True, 10.2)
    assert d.told_since() == [PRESENT, ABSENT]
    d.keys.nodes(True)
    assert d.told_since() == [PRESENT]


def test_key_without_any_node_is_absent_until_the_first_node() -> None:
    d = PresenceHarness(are_there=False)
    assert d.first is ABSENT
    d.keys.matched(TOPIC, False, 10.0)
    d.keys.tick(11.0)
    d.keys.node_came(20.0)
    d.keys.nodes(True)
    assert d.told_since() == [UNKNOWN]
    d.keys.tick(20.0 + GRACE_S)
    assert d.told_since() == [ABSENT]


def test_watchers_of_one_flow_are_counted() -> None:
    d = PresenceHarness()
    other: list[Presence] = []
    flow = d.keys.add(TOPIC, None, other.append)
    d.keys.matched(TOPIC, True, 10.0)
    assert (d.told_since(), other, flow.presence) == ([PRESENT], [PRESENT], PRESENT)
    assert d.keys.remove(TOPIC, d.told.append) is None
    assert d.keys.remove(TOPIC, d.told.append) is None  # it is not there any more
    assert d.keys.remove(TOPIC, other.append) == TOPIC
    d.keys.matched(TOPIC, False, 10.0)
    assert (d.told_since(), other) == ([], [PRESENT])
    assert not d.keys.flows
    assert not d.keys.watches


def test_key_that_is_forgotten_in_its_grace_leaves_nothing_behind() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, False, 10.0)
    assert d.keys.remove(TOPIC, d.told.append) == TOPIC
    assert d.keys.next_s() is None
    d.keys.tick(20.0)
    assert d.told_since() == []


def test_lost_node_makes_keys_unknown_until_the_end_of_the_recheck() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, True, 10.0)
    d.keys.node_lost()
    d.keys.end_recheck(False, 10.1)
    assert d.told_since() == [PRESENT, UNKNOWN, PRESENT]


def test_match_that_ends_during_the_recheck_is_absent_after_it() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, True, 10.0)
    d.keys.node_lost()
    d.keys.matched(TOPIC, False, 10.05)
    assert d.told_since() == [PRESENT, UNKNOWN]
    d.keys.end_recheck(False, 10.1)
    assert d.told_since() == [ABSENT]


def test_node_that_is_back_at_once_makes_its_keys_absent_and_is_waited_for() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, True, 10.0)
    d.keys.node_lost()
    d.keys.node_came(10.01)
    d.keys.end_recheck(True, 10.1)
    assert d.told_since() == [PRESENT, UNKNOWN, ABSENT, UNKNOWN]
    d.keys.tick(10.1 + GRACE_S)
    assert d.told_since() == [PRESENT]


def test_last_node_that_is_back_at_once_makes_its_keys_absent_too() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, True, 10.0)
    d.keys.node_lost()
    d.keys.nodes(False)
    d.keys.node_came(10.01)
    d.keys.nodes(True)
    d.keys.end_recheck(True, 10.1)
    d.keys.matched(TOPIC, True, 10.2)
    assert d.told_since() == [PRESENT, UNKNOWN, ABSENT, UNKNOWN, ABSENT, UNKNOWN, PRESENT]


def test_key_that_nobody_listens_to_is_not_rechecked() -> None:
    d = PresenceHarness()
    d.keys.matched(TOPIC, False, 10.0)
    d.keys.tick(11.0)
    d.keys.node_lost()
    d.keys.end_recheck(True, 11.1)
    assert d.told_since() == [ABSENT]


# -- who the subscribers are


def test_flow_to_a_sink_is_served_by_the_watch_of_its_sink_and_a_publish_by_that_of_its_topic() -> None:
    assert watch_for(FLOW) == SINK
    assert watch_for(TOPIC) == TOPIC
    assert (is_topic(TOPIC), is_topic(FLOW)) == (True, False)


def test_match_of_a_sink_counts_for_all_its_flows() -> None:
    d = PresenceHarness(flow=FLOW)
    d.keys.matched(SINK, True, 10.0)
    assert d.told_since() == [PRESENT]
    assert d.keys.add(FLOW.replace("veh1", "veh2"), SINK, d.told.append).presence is PRESENT


# -- flows without a watch of their own


def test_overview_serves_many_sinks() -> None:
    d, other = PresenceHarness(flow=FLOW), FLOW.replace("cloud", "veh2")
    told: list[Presence] = []
    d.keys.add(other, OVERVIEW, told.append)
    d.keys.matched(OVERVIEW, True, 10.0)
    d.keys.matched(OVERVIEW, False, 10.1)
    assert told == [PRESENT, ABSENT]


def test_flow_that_moves_to_a_watch_of_its_own_is_unknown_until_that_is_declared() -> None:
    d = PresenceHarness()
    d.keys.add(FLOW, OVERVIEW, d.told.append)
    d.keys.matched(OVERVIEW, True, 10.0)
    d.told_since()
    assert d.keys.move(FLOW, SINK) == OVERVIEW
    d.keys.matched(SINK, True, 10.0)
    assert d.told_since() == [UNKNOWN, PRESENT]


def test_topic_without_a_watch_counts_as_listened_to() -> None:
    d = PresenceHarness(are_there=False)
    other = TOPIC.replace("veh1", "veh2")
    assert d.keys.add(other, None, d.told.append).presence is PRESENT
    assert d.keys.remove(other, d.told.append) is None
