"""Every installed transport keeps the clauses of uP-L1 that need no network: its interface, authentication, listeners.

What a test of one transport shows for all of them, because they share the code, is here asked of each.
"""

import ast
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from streamer.transports import received
from streamer.transports.base import ListenerOptions, Received, TransportContext, TransportOptions, UListener, UTransport
from streamer.transports.errors import ConfigurationError
from streamer.transports.installed import load_transport
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.transport import Mqtt5Transport
from streamer.transports.zenoh.options import ZenohOptions, session_config
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.uprotocol.message import Options, UMessage, publish, response
from streamer.uprotocol.message import request as ask
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri, everything_at
from tests.constants import with_constants
from tests.listeners import RecordingListener

NOW_MS = 1_700_000_000_000
US = UUri("gateway", 4, 1, 0)
TOPIC = UUri("veh1", 0xA, 1, 0x8000)
OTHER_TOPIC = UUri("veh1", 0xA, 1, 0x8001)
METHOD = UUri("gateway", 0xB, 1, 7)
APP = UUri("veh1", 0xC, 1, 0)

Make = Callable[[ListenerOptions], UTransport]


def make(kind: str) -> Make:
    """A function that makes a transport of that kind, not connected, with limits on its listeners."""

    def made(limits: ListenerOptions) -> UTransport:
        context = TransportContext("here", "gateway", now_ms=lambda: NOW_MS)
        if kind == "mqtt5":
            return Mqtt5Transport(context, with_constants(Mqtt5Options, broker=("mqtt://127.0.0.1:1",), listeners=limits))
        if kind == "zenoh":
            return ZenohTransport(context, with_constants(ZenohOptions, listeners=limits))
        return MemoryTransport(context, with_constants(MemoryOptions, bus="up-l1", listeners=limits))

    return made


@pytest.fixture(params=["memory", "mqtt5", "zenoh"])
def transport(request: pytest.FixtureRequest) -> Make:
    return make(request.param)


def deliver(transport: UTransport, *messages: UMessage) -> None:
    """What each transport does with what it has read from its wire."""
    transport.registry.deliver([Received(message) for message in messages])  # type: ignore[attr-defined]


# 1. UListener


def test_listener_is_called_ulistener_and_has_on_receive() -> None:
    """uP-L1 1: the type name and the callback; the address, payload and attributes come as one message."""
    assert UListener.__name__ == "UListener"
    assert list(inspect.signature(UListener.on_receive).parameters) == ["self", "received"]
    # Compiled functions have no annotations: they stand in the source.
    source = ast.parse(Path(received.__file__).with_name("received.py").read_text())
    (on_receive,) = (each for each in ast.walk(source) if isinstance(each, ast.FunctionDef) and each.name == "on_receive")
    taken, returned = on_receive.args.args[1].annotation, on_receive.returns
    assert (taken and ast.unparse(taken), returned and ast.unparse(returned)) == (Received.__name__, "None")


async def test_on_receive_is_called_with_the_address_the_payload_and_the_attributes(transport: Make) -> None:
    listening, listener = transport(ListenerOptions()), RecordingListener()
    await listening.authenticate(US)
    question = ask(NOW_MS, UUri("gateway", 1, 1, 0), UUri("veh1", 0xB, 1, 7), 1000)
    sent = [publish(NOW_MS, TOPIC, b"1", Options(token="t", ttl=5)), response(NOW_MS, question, b"2", UCode.NOT_FOUND)]
    await listening.register_listener(TOPIC, None, listener)
    await listening.register_listener(UUri("veh1", 0xB, 1, 7), UUri("gateway", 1, 1, 0), listener)
    deliver(listening, *sent)
    assert listener.messages == sent


# 2. uTransport


@pytest.mark.parametrize("kind", ["memory", "mqtt5", "zenoh"])
def test_every_transport_has_all_operations_with_the_parameters_of_the_interface(kind: str) -> None:
    made = load_transport(kind)
    assert not inspect.isabstract(made)
    for operation, parameters in {
        "authenticate": ["entity"],
        "send": ["message"],
        "register_listener": ["source_filter", "sink_filter", "listener"],
        "unregister_listener": ["source_filter", "sink_filter", "listener"],
        "receive": ["source_filter", "sink_filter"],
    }.items():
        assert list(inspect.signature(getattr(made, operation)).parameters)[1:] == parameters, operation


def test_transport_that_leaves_an_operation_out_cannot_be_made() -> None:
    class Deaf(UTransport):
        async def start(self) -> None: ...

        async def stop(self) -> None: ...

    with pytest.raises(TypeError, match=r"receive.*register_listener.*submit.*unregister_listener"):
        Deaf(TransportContext("here", "gateway"), TransportOptions())  # type: ignore[abstract]


# 2.1 authenticate


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.send(publish(NOW_MS, TOPIC)),
        lambda t: t.receive(TOPIC),
        lambda t: t.register_listener(TOPIC, None, RecordingListener()),
        lambda t: t.unregister_listener(TOPIC, None, RecordingListener()),
    ],
    ids=["send", "receive", "register_listener", "unregister_listener"],
)
@pytest.mark.parametrize("tried", [None, UUri("veh1", 4, 1, 0)], ids=["nobody", "refused"])
async def test_without_authentication_every_operation_is_unauthenticated(
    transport: Make, tried: UUri | None, call: Callable[[UTransport], Awaitable[object]]
) -> None:
    unknown = transport(ListenerOptions())
    if tried is not None:
        with pytest.raises(UStatusError, match="UNAUTHENTICATED"):
            await unknown.authenticate(tried)
    with pytest.raises(UStatusError) as caught:
        await call(unknown)
    assert caught.value.code is UCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("entity", "code"), [(US, None), (UUri("veh1", 4, 1, 0), UCode.UNAUTHENTICATED)], ids=["us", "other"]
)
async def test_authenticate_says_the_same_each_time(transport: Make, entity: UUri, code: UCode | None) -> None:
    asked = transport(ListenerOptions())
    said: list[UCode | None] = []
    for call in (lambda: asked.authenticate(entity), lambda: asked.register_listener(TOPIC, None, RecordingListener())) * 3:
        try:
            await call()
            said.append(None)
        except UStatusError as error:
            said.append(error.code)
    assert said == [code] * 6


async def test_refusal_of_another_entity_does_not_undo_our_authentication(transport: Make) -> None:
    asked = transport(ListenerOptions())
    await asked.authenticate(US)
    with pytest.raises(UStatusError, match="UNAUTHENTICATED"):
        await asked.authenticate(UUri("veh1", 4, 1, 0))
    await asked.register_listener(TOPIC, None, RecordingListener())


# 2.2 send and 2.5 receive: by reference


async def test_message_is_handed_on_by_reference_and_never_copied() -> None:
    """The listener and `receive` get the very object that was sent, with its payload and attributes."""
    sender, receiver = (
        MemoryTransport(TransportContext(name, "gateway", now_ms=lambda: NOW_MS), MemoryOptions(bus="up-l1-reference"))
        for name in ("sender", "receiver")
    )
    for one in (sender, receiver):
        await one.authenticate(US)
        await one.start()
    listener = RecordingListener()
    await receiver.register_listener(TOPIC, None, listener)
    with pytest.raises(UStatusError, match="NOT_FOUND"):
        await receiver.receive(TOPIC)
    message = publish(NOW_MS, TOPIC, bytes(100_000), Options(token="t"))
    await sender.send(message)
    pulled = await receiver.receive(TOPIC)
    for got in (sender.sent[0], listener.messages[0], pulled):
        assert got.payload is message.payload
        assert got.attributes is message.attributes


@pytest.mark.parametrize(("source", "sink"), [(TOPIC, None), (everything_at("veh1"), everything_at("gateway"))])
async def test_receive_of_what_is_not_there_is_not_found(transport: Make, source: UUri, sink: UUri | None) -> None:
    pulling = transport(ListenerOptions())
    await pulling.authenticate(US)
    for _ in range(2):
        with pytest.raises(UStatusError) as caught:
            await pulling.receive(source, sink)
        assert caught.value.code is UCode.NOT_FOUND


async def test_pull_and_push_can_be_used_for_the_same_topic(transport: Make) -> None:
    """uP-L1 2.6.2: either method is required; all of ours offer both."""
    both, listener = transport(ListenerOptions()), RecordingListener()
    await both.authenticate(US)
    with pytest.raises(UStatusError, match="NOT_FOUND"):
        await both.receive(TOPIC)
    await both.register_listener(TOPIC, None, listener)
    message = publish(NOW_MS, TOPIC, b"news")
    deliver(both, message)
    assert listener.messages == [message]
    assert await both.receive(TOPIC) == message


# 2.3 registerListener, 2.4 unregisterListener


async def test_several_listeners_hear_one_topic_and_one_listener_hears_several(transport: Make) -> None:
    listening, first, second = transport(ListenerOptions()), RecordingListener(), RecordingListener()
    await listening.authenticate(US)
    for topic, listener in ((TOPIC, first), (TOPIC, second), (OTHER_TOPIC, second)):
        await listening.register_listener(topic, None, listener)
    one, other = publish(NOW_MS, TOPIC, b"1"), publish(NOW_MS, OTHER_TOPIC, b"2")
    deliver(listening, one, other)
    assert (first.messages, second.messages) == ([one], [one, other])
    await listening.unregister_listener(TOPIC, None, second)
    deliver(listening, one, other)
    assert (first.messages, second.messages) == ([one, one], [one, other, other])


async def test_number_of_listeners_per_topic_is_declared_and_kept(transport: Make) -> None:
    declared = 3
    listening = transport(ListenerOptions(max_listeners_per_filter=declared))
    await listening.authenticate(US)
    listeners = [RecordingListener() for _ in range(declared + 1)]
    for listener in listeners[:-1]:
        await listening.register_listener(TOPIC, None, listener)
    with pytest.raises(UStatusError) as caught:
        await listening.register_listener(TOPIC, None, listeners[-1])
    assert caught.value.code is UCode.RESOURCE_EXHAUSTED
    message = publish(NOW_MS, TOPIC)
    deliver(listening, message)
    assert [listener.messages for listener in listeners] == [[message]] * declared + [[]]


@pytest.mark.parametrize("kind", ["memory", "mqtt5", "zenoh"])
def test_limit_per_topic_is_declared_among_the_options_whatever_is_configured(kind: str) -> None:
    assert load_transport(kind).Options.listeners.max_listeners_per_filter >= 2  # more than one listener per topic is a MUST


async def test_unregistering_ends_delivery_and_is_not_found_the_second_time(transport: Make) -> None:
    listening, listener = transport(ListenerOptions()), RecordingListener()
    await listening.authenticate(US)
    await listening.register_listener(TOPIC, None, listener)
    await listening.unregister_listener(TOPIC, None, listener)
    deliver(listening, publish(NOW_MS, TOPIC))
    assert listener.messages == []
    with pytest.raises(UStatusError) as caught:
        await listening.unregister_listener(TOPIC, None, listener)
    assert caught.value.code is UCode.NOT_FOUND


@pytest.mark.parametrize(("source", "sink"), [(METHOD, None), (TOPIC, METHOD), (APP, APP)])
async def test_a_filter_outside_the_table_can_neither_be_registered_nor_unregistered(
    transport: Make, source: UUri, sink: UUri | None
) -> None:
    listening, listener = transport(ListenerOptions()), RecordingListener()
    await listening.authenticate(US)
    for call in (listening.register_listener, listening.unregister_listener):
        with pytest.raises(UStatusError) as caught:
            await call(source, sink, listener)
        assert caught.value.code is UCode.INVALID_ARGUMENT
    with pytest.raises(UStatusError) as caught:
        await listening.receive(source, sink)
    assert caught.value.code is UCode.INVALID_ARGUMENT


async def test_without_a_sink_filter_only_what_has_no_sink_is_heard(transport: Make) -> None:
    listening, listener = transport(ListenerOptions()), RecordingListener()
    await listening.authenticate(US)
    await listening.register_listener(TOPIC, None, listener)
    plain = publish(NOW_MS, TOPIC)
    deliver(listening, replace(plain, attributes=replace(plain.attributes, sink=everything_at("gateway"))), plain)
    assert listener.messages == [plain]


async def test_a_filter_without_authority_means_our_own(transport: Make) -> None:
    listening, listener = transport(ListenerOptions()), RecordingListener()
    await listening.authenticate(US)
    asked = ask(NOW_MS, APP, METHOD, 1000)
    local = METHOD._replace(authority="")
    await listening.register_listener(everything_at("*")._replace(resource=0), local, listener)
    with pytest.raises(UStatusError, match="NOT_FOUND"):
        await listening.receive(APP, local)
    deliver(listening, asked, ask(NOW_MS, APP, METHOD._replace(authority="veh1"), 1000))
    assert listener.messages == [asked]
    assert await listening.receive(APP, METHOD) == asked
    await listening.unregister_listener(everything_at("*")._replace(resource=0), METHOD, listener)
    deliver(listening, asked)
    assert listener.messages == [asked]


# 2.6.1: TCP, not UDP


@pytest.mark.parametrize("broker", ["udp://h:1883", "quic://h:1883", "mqtt-sn://h:1883"])
def test_mqtt_goes_over_tcp_only(broker: str) -> None:
    with pytest.raises(ValidationError, match="mqtt://"):
        Mqtt5Options(broker=(broker,))


@pytest.mark.parametrize("option", ["listen", "connect"])
@pytest.mark.parametrize("endpoint", ["udp/127.0.0.1:7447", "udp/224.0.0.224:7447", "quic/127.0.0.1:7447"])
def test_zenoh_endpoint_over_udp_is_refused(option: str, endpoint: str) -> None:
    with pytest.raises(ValidationError, match="not a reliable protocol; expected one of tcp, tls"):
        ZenohOptions.model_validate({option: ["tcp/127.0.0.1:7447", endpoint]})


@pytest.mark.parametrize(
    "content",
    [
        '{listen: {endpoints: ["tcp/127.0.0.1:1", "udp/127.0.0.1:1"]}}',
        '{connect: {endpoints: {peer: ["tcp/127.0.0.1:1"], router: ["quic/127.0.0.1:1"]}}}',
    ],
    ids=["listen", "connect"],
)
def test_zenoh_file_with_an_endpoint_over_udp_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "zenoh.json5"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match="not over UDP") as caught:
        session_config(ZenohOptions(config_file=file))
    assert caught.value.key == "config_file"


@pytest.mark.parametrize("content", [None, '{transport: {link: {protocols: ["udp", "tcp"]}}}'], ids=["options", "file"])
def test_zenoh_neither_opens_nor_accepts_links_over_udp_that_others_name(tmp_path: Path, content: str | None) -> None:
    """Addresses that scouting finds are in no configuration; Zenoh's own list of protocols keeps them out."""
    file = tmp_path / "zenoh.json5"
    file.write_text(content or "{}")
    config = session_config(ZenohOptions(config_file=file if content else None))
    allowed = json.loads(config.get_json("transport/link/protocols"))
    assert "tcp" in allowed
    assert not [protocol for protocol in allowed if protocol.startswith(("udp", "quic"))]
