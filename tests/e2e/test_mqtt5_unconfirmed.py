"""Brokers that never confirm a message, and brokers that confirm nothing for a while."""

import mqtt5
import pytest

from streamer.transports.errors import LinkLostError, PermanentError
from streamer.uprotocol.message import Options, UMessage, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.e2e.forgetful_broker import ForgetfulBroker
from tests.e2e.mqtt_connection import connected
from tests.e2e.mqtt_messages import NOW_MS, TOPIC, message
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint, FakeBroker
from tests.waiting import until

OTHER = UUri.parse("//veh1/A8000/2/8A51")
QUICK_S = 0.2
BEHIND = 20


def other(text: str) -> UMessage:
    """A message of another flow."""
    return publish(NOW_MS, OTHER, text.encode())


def failed(endpoint: Endpoint) -> list[bytes | None]:
    return [payload for payload, error in endpoint.refused if isinstance(error, PermanentError)]


@pytest.mark.parametrize("first", [0, 3], ids=["at once", "behind others"])
async def test_the_message_fails_and_those_behind_it_are_confirmed_once(fake: FakeBroker, first: int) -> None:
    endpoint, broker = Endpoint(fake.url, ack_timeout_s=QUICK_S), ForgetfulBroker(fake, b"bad")
    others = [str(number).encode() for number in range(BEHIND)]
    async with broker.serving(), endpoint.running():
        await endpoint.up()
        endpoint.submit([message(text.decode()) for text in [*others[:first], b"bad", *others[first:]]])
        await until(lambda: failed(endpoint) == [b"bad"], "its outcome")
        await endpoint.up()
        endpoint.submit([message("later")])
        await until(lambda: endpoint.confirmed == [*others, b"later"], "what comes later")
        assert broker.connections == 4
    ((_, error),) = endpoint.refused
    assert error.code is UCode.INTERNAL
    assert "never confirms" in error.message


@pytest.mark.parametrize("keeps_session", [True, False])
async def test_a_broker_that_confirms_in_order_is_asked_for_others_first(fake: FakeBroker, keeps_session: bool) -> None:
    """Nothing behind the message can be confirmed: other flows are sent before it, each in its order."""
    broker = ForgetfulBroker(fake, b"bad", keeps_session=keeps_session, in_order=True)
    endpoint = Endpoint(fake.url, ack_timeout_s=QUICK_S)
    async with broker.serving(), endpoint.running():
        await endpoint.up()
        endpoint.submit([message("bad"), other("a"), message("c"), other("b"), message("d")])
        await until(lambda: failed(endpoint) == [b"bad"], "its outcome")
        await until(lambda: len(endpoint.told) > 2, "the others")
    behind = endpoint.confirmed[2:] if keeps_session else [payload for payload, _ in endpoint.refused[1:]]
    assert endpoint.confirmed[:2] == [b"a", b"b"]
    assert behind == [b"c", b"d"]
    assert broker.sent[1] == [b"a", b"b", b"bad", b"c", b"d"]


async def test_two_such_messages_of_two_flows_fail_both(fake: FakeBroker) -> None:
    endpoint, broker = Endpoint(fake.url, ack_timeout_s=QUICK_S), ForgetfulBroker(fake, b"bad", b"worse")
    async with broker.serving(), endpoint.running():
        await endpoint.up()
        endpoint.submit([message("bad"), other("worse"), message("a"), other("b")])
        await until(lambda: set(failed(endpoint)) == {b"bad", b"worse"}, "both outcomes")
    assert endpoint.confirmed == [b"a", b"b"]


async def test_a_broker_that_confirms_nothing_for_a_while_costs_no_message(fake: FakeBroker) -> None:
    endpoint, broker = Endpoint(fake.url, ack_timeout_s=QUICK_S), ForgetfulBroker(fake)
    async with broker.serving(), endpoint.running():
        await endpoint.up()
        endpoint.submit([message("before")])
        await until(lambda: endpoint.confirmed == [b"before"], "the first one")
        broker.hangs = True
        endpoint.submit([message("a"), other("x"), message("b"), other("y")])
        await until(lambda: broker.connections == 9, "many connections")
        broker.hangs = False
        await until(lambda: len(endpoint.confirmed) == 5, "all of them")
    assert endpoint.refused == []
    assert [each for each in endpoint.confirmed if each in (b"a", b"b")] == [b"a", b"b"]
    assert [each for each in endpoint.confirmed if each in (b"x", b"y")] == [b"x", b"y"]


@pytest.mark.parametrize("keeps_session", [True, False])
async def test_one_that_has_expired_is_given_back_and_not_sent_again(fake: FakeBroker, keeps_session: bool) -> None:
    """Alone, so that nothing else can be confirmed. The router settles what has expired."""
    now_ms = NOW_MS
    endpoint, broker = Endpoint(fake.url, ack_timeout_s=QUICK_S), ForgetfulBroker(fake, b"bad", keeps_session=keeps_session)
    object.__setattr__(endpoint.transport.context, "now_ms", lambda: now_ms)
    async with broker.serving(), endpoint.running():
        await endpoint.up()
        endpoint.submit([publish(NOW_MS, TOPIC, b"bad", Options(ttl=1000))])
        await until(lambda: bool(broker.sent[0]), "the message")
        now_ms += 1001
        await until(lambda: bool(endpoint.refused), "its return")
        await until(lambda: broker.connections == 2, "the next connection")
        await endpoint.up()
    ((payload, error),) = endpoint.refused
    assert payload == b"bad"
    assert isinstance(error, LinkLostError)
    assert broker.sent == [[b"bad"], []]


async def test_one_that_lacks_its_confirmation_after_a_lost_link_is_sent_again_whatever_its_ttl(fake: FakeBroker) -> None:
    now_ms = NOW_MS
    endpoint = Endpoint(fake.url)
    object.__setattr__(endpoint.transport.context, "now_ms", lambda: now_ms)
    async with endpoint.running():
        peer = await connected(fake, endpoint, receive_max=1)
        endpoint.submit([publish(NOW_MS, TOPIC, text, Options(ttl=1000)) for text in (b"sent", b"waits")])
        await peer.next(mqtt5.PublishPacket)
        now_ms += 1001
        peer.drop()
        peer = await connected(fake, endpoint, session_present=True, receive_max=1)
        assert (await peer.next(mqtt5.PublishPacket)).payload == b"sent"
        ((payload, error),) = endpoint.refused  # nothing is sent for the first time after its TTL
        assert payload == b"waits"
        assert isinstance(error, LinkLostError)


@pytest.mark.parametrize("keeps_session", [True, False])
async def test_a_broker_that_never_answers_a_subscribe_is_sent_to(fake: FakeBroker, keeps_session: bool) -> None:
    endpoint = Endpoint(fake.url, connect_timeout_s=QUICK_S)
    broker = ForgetfulBroker(fake, keeps_session=keeps_session)  # it answers no SUBSCRIBE
    await endpoint.transport.authenticate(everything_at("gateway"))
    await endpoint.transport.register_listener(TOPIC, None, RecordingListener())
    async with broker.serving(), endpoint.running():
        await until(lambda: bool(endpoint.transport.report().problems), "the problem")
        await endpoint.up()
        endpoint.submit([message("a")])
        await until(lambda: endpoint.confirmed == [b"a"], "the confirmation")
        await until(lambda: broker.subscribes >= 4, "more questions")
        assert broker.connections == 2
        (problem,) = endpoint.transport.report().problems
        assert "does not answer the SUBSCRIBE" in problem
        broker.grants = True
        await until(lambda: not endpoint.transport.report().problems, "the end of the problem")
        assert broker.connections == 2
