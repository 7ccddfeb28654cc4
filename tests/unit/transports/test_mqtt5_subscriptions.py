"""Which MQTT topic filters are needed: each as long as it has a user, and unneeded until the broker has removed it."""

from mqtt5 import QoS, RetainHandling

from streamer.transports.mqtt5.subscriptions import BATCH, Subscriptions, batches, subscribe_to


def test_the_first_user_opens_a_filter_and_the_last_one_closes_it() -> None:
    subscriptions = Subscriptions()
    assert [subscriptions.open("a/#") for _ in range(2)] == [True, False]
    assert subscriptions.is_needed("a/#")
    assert [subscriptions.close("a/#") for _ in range(2)] == [False, True]
    assert not subscriptions.is_needed("a/#")


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


def test_a_subscription_is_at_least_once_without_echo_and_without_retained_messages() -> None:
    wanted = subscribe_to("a/+")
    assert (wanted.pattern, wanted.max_qos, wanted.no_local) == ("a/+", QoS.AT_LEAST_ONCE, True)
    assert (wanted.retain_as_published, wanted.retain_handling) == (True, RetainHandling.SEND_NEVER)
