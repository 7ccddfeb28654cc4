"""Which MQTT topic filters are needed: each as long as it has a user, and unneeded until the broker has removed it."""

import pytest
from mqtt5 import QoS, RetainHandling, SubscribePacket

from streamer.transports.mqtt5.subscriptions import BATCH, Subscriptions, batches, filters_for, is_too_long, subscribe_to
from streamer.transports.mqtt5.wire import Structure
from streamer.uprotocol.uri import UUri


def test_the_first_user_opens_a_filter_and_the_last_one_closes_it() -> None:
    subscriptions = Subscriptions()
    assert [subscriptions.open("a/#") for _ in range(2)] == [True, False]
    assert subscriptions.needed() == ["a/#"]
    assert [subscriptions.close("a/#") for _ in range(2)] == [False, True]
    assert subscriptions.needed() == []


def test_a_filter_without_a_user_is_unneeded_until_the_broker_has_removed_it() -> None:
    subscriptions = Subscriptions()
    for pattern in ("a", "b"):
        subscriptions.open(pattern)
        subscriptions.close(pattern)
    assert (subscriptions.needed(), subscriptions.unneeded()) == ([], ["a", "b"])
    subscriptions.removed(["a", "never there"])
    assert subscriptions.unneeded() == ["b"]


def test_a_filter_that_is_needed_again_is_not_removed() -> None:
    subscriptions = Subscriptions()
    subscriptions.open("a")
    subscriptions.close("a")
    assert subscriptions.open("a")
    assert (subscriptions.needed(), subscriptions.unneeded()) == (["a"], [])


def test_every_pattern_is_in_one_packet_and_no_packet_has_too_many() -> None:
    patterns = [str(number) for number in range(2 * BATCH + 1)]
    assert list(map(len, batches(patterns))) == [BATCH, BATCH, 1]
    assert [pattern for batch in batches(patterns) for pattern in batch] == patterns
    assert list(batches([])) == []


@pytest.mark.parametrize("most", [15, 16, 64, 200, 100_000])
def test_no_packet_is_larger_than_the_broker_takes(most: int) -> None:
    patterns = [f"{number}/ä" for number in range(2 * BATCH)]
    packets = [SubscribePacket(1, [subscribe_to(pattern) for pattern in batch]).write() for batch in batches(patterns, most)]
    assert max(map(len, packets)) <= most
    fitting = [pattern for pattern in patterns if not is_too_long(pattern, most)]
    assert [pattern for batch in batches(patterns, most) for pattern in batch] == fitting
    assert (fitting == patterns) is (most > 15)


def test_a_subscription_is_at_least_once_without_echo_and_without_retained_messages() -> None:
    wanted = subscribe_to("a/+")
    assert (wanted.pattern, wanted.max_qos, wanted.no_local) == ("a/+", QoS.AT_LEAST_ONCE, True)
    assert (wanted.retain_as_published, wanted.retain_handling) == (True, RetainHandling.SEND_NEVER)


def test_a_refused_filter_is_a_problem_until_it_is_granted_or_closed() -> None:
    subscriptions = Subscriptions()
    for pattern in ("a", "b"):
        subscriptions.open(pattern)
        subscriptions.refused(pattern, "NOT_AUTHORIZED (0x87)")
    subscriptions.granted("a")
    assert subscriptions.problems() == ["the broker refused the subscription 'b': NOT_AUTHORIZED (0x87)"]
    subscriptions.close("b")
    subscriptions.refused("b", "NOT_AUTHORIZED (0x87)")  # the answer comes late
    assert subscriptions.problems() == []


# shared subscriptions

ANYTHING = "//*/FFFFFFFF/FF/FFFF"


@pytest.mark.parametrize(
    ("source", "sink", "structure", "plain"),
    [
        (ANYTHING, "//cloud/FFFFFFFF/FF/FFFF", "off-vehicle", "+/cloud"),
        (ANYTHING, "//cloud/FFFFFFFF/FF/FFFF", "in-vehicle", "+/+/+/+/+/cloud/+/+/+/+"),
        ("//veh1/A8000/2/8A50", None, "in-vehicle", "veh1/8000/A/2/8A50"),
        ("//veh1/FFFFFFFF/FF/FFFF", None, "in-vehicle", "veh1/+/+/+/+"),
        ("//veh1/0/3/8000", "//cloud/0/3/0", "in-vehicle", "veh1/0/0/3/8000/cloud/0/0/3/0"),
    ],
)
def test_what_is_meant_for_others_is_divided(source: str, sink: str | None, structure: Structure, plain: str) -> None:
    filters = UUri.parse(source), None if sink is None else UUri.parse(sink)
    assert filters_for(*filters, structure, "gw1", "fleet") == (f"$share/fleet/{plain}",)
    assert filters_for(*filters, structure, "gw1", None) == (plain,)


@pytest.mark.parametrize(
    ("source", "sink", "structure", "plain"),
    [
        (ANYTHING, "//gw1/FFFFFFFF/FF/FFFF", "off-vehicle", "+/gw1"),
        (ANYTHING, "//gw1/FFFFFFFF/FF/FFFF", "in-vehicle", "+/+/+/+/+/gw1/+/+/+/+"),
        (ANYTHING, "/0/3/1", "in-vehicle", "+/+/+/+/+/gw1/0/0/3/1"),
    ],
)
def test_what_is_meant_for_this_streamer_is_not(source: str, sink: str | None, structure: Structure, plain: str) -> None:
    filters = UUri.parse(source), None if sink is None else UUri.parse(sink)
    assert filters_for(*filters, structure, "gw1", "fleet") == (plain,)


@pytest.mark.parametrize("source", ["//veh1/A8000/2/8A50", ANYTHING])
@pytest.mark.parametrize("share", [None, "fleet"])
def test_where_every_message_has_a_sink_nothing_is_subscribed_to_without_one(source: str, share: str | None) -> None:
    assert filters_for(UUri.parse(source), None, "off-vehicle", "gw1", share) == ()


@pytest.mark.parametrize(
    ("structure", "shared", "ours"),
    [
        ("off-vehicle", "$share/fleet/veh1/+", "veh1/gw1"),
        ("in-vehicle", "$share/fleet/veh1/+/+/+/+/+/+/+/+/+", "veh1/+/+/+/+/gw1/+/+/+/+"),
    ],
)
def test_where_everything_is_divided_what_is_meant_for_this_streamer_comes_besides(
    structure: Structure, shared: str, ours: str
) -> None:
    filters = UUri.parse("//veh1/FFFFFFFF/FF/FFFF"), UUri.parse(ANYTHING)
    assert filters_for(*filters, structure, "gw1", "fleet") == (shared, ours)
    assert len(filters_for(*filters, structure, "gw1", None)) == 1


def test_a_shared_subscription_never_has_no_local() -> None:
    wanted = subscribe_to("$share/fleet/+/cloud")
    assert (wanted.no_local, wanted.max_qos) == (False, QoS.AT_LEAST_ONCE)
    assert (wanted.retain_as_published, wanted.retain_handling) == (True, RetainHandling.SEND_NEVER)


def test_the_plain_filter_of_a_shared_one_is_known_unless_it_is_needed_itself() -> None:
    subscriptions = Subscriptions()
    for pattern in ("$share/fleet/+/cloud", "+/gw1", "$share/fleet/veh1/gw1", "veh1/gw1"):
        subscriptions.open(pattern)
    assert subscriptions.unshared() == ["+/cloud"]
