"""``streamer listen``: what it receives, prints and answers."""

import asyncio
import json
from typing import Any

import pytest
from google.protobuf.message import Message

from streamer.tools import listen as module
from streamer.tools.listen import ListenCommand, filters
from streamer.transports.listeners import check_filter, filter_matches
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import (
    Attributes,
    Options,
    UMessage,
    UMessageType,
    UPayloadFormat,
    UPriority,
    notification,
    publish,
    request,
    response,
    sink_matches,
)
from streamer.uprotocol.proto import ustreamer_v1_pb2 as us
from streamer.uprotocol.uri import UUri, everything_at
from tests.unit.tools.client import given, peer
from tests.unit.tools.commands import SPEED

TOPIC, APP, METHOD = UUri.parse(SPEED), UUri.parse("//cloud/C0/1/0"), UUri.parse("//cloud/C0/1/7")
CALLER = UUri.parse("//veh1/A8000/2/0")
ANY = everything_at("*")

PUBLISH = publish(1, TOPIC, b"21.5", Options(ttl=5000, payload_format=UPayloadFormat.TEXT))
NOTIFICATION = notification(1, TOPIC, APP, b"\xff\x00")
REQUEST = request(1, CALLER, METHOD, 5000, b'{"a": 1}', Options(token="sesame"))
RESPONSE = response(1, REQUEST, b"done")
ADDRESSED = UMessage(PUBLISH.id, Attributes(UMessageType.PUBLISH, TOPIC, everything_at("cloud")), b"1")


def command(file: str, *words: str) -> ListenCommand:
    return ListenCommand(*given(file, "listen", "--endpoint", "vehicle", *words))


async def heard(file: str, *words: str, messages: tuple[UMessage, ...] = (), count: int | None = None) -> int:
    """Listen until as many messages as were sent, or ``count``, are printed."""
    number = str(len(messages) if count is None else count)
    async with peer("cli-vehicle") as far:
        running = asyncio.create_task(command(file, "--count", number, *words).run())
        while not far.transport.registry.filters() or not _is_listening():
            await asyncio.sleep(0)
        far.send(*messages)
        return await running


def _is_listening() -> bool:
    return any(task.get_name() == "report" for task in asyncio.all_tasks())


async def test_each_message_is_a_line(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await heard(good, messages=(PUBLISH, NOTIFICATION, REQUEST, RESPONSE)) == 0
    out, err = capsys.readouterr()
    assert err == "listening on vehicle (memory); ends after --count 4, or at Ctrl-C\n"
    lines = [line.partition("Z  ")[2].split("  ") for line in out.splitlines()]
    assert [(line[0], line[1], *line[3:]) for line in lines] == [
        ("publish", SPEED, "4 B", "21.5"),
        ("notification", f"{SPEED} → {APP}", "2 B", "ff00"),
        ("request", f"{CALLER} → {METHOD}", "8 B", '{"a": 1}'),
        ("response", f"{METHOD} → {CALLER}", "4 B", "done"),
    ]
    assert [line[2].replace("-", "") for line in lines] == [m.id.hex() for m in (PUBLISH, NOTIFICATION, REQUEST, RESPONSE)]


async def test_each_message_is_an_object_of_json_without_the_token(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await heard(good, "--json", messages=(REQUEST, PUBLISH)) == 0
    asked, published = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert asked | {"t": None, "id": None} == {
        "t": None,
        "type": "request",
        "source": str(CALLER),
        "sink": str(METHOD),
        "id": None,
        "priority": "CS4",
        "ttl_ms": 5000,
        "permission_level": None,
        "traceparent": None,
        "reqid": None,
        "code": "OK",
        "text": "",
        "bytes": 8,
        "payload_format": "unspecified",
        "payload": {"json": {"a": 1}},
    }
    assert (published["sink"], published["payload_format"], published["payload"]) == (None, "text", {"text": "21.5"})


@pytest.mark.parametrize(
    ("form", "end"),
    [("none", ""), ("length", "4 B"), ("hex", "4 B  32312e35"), ("json", "4 B  21.5"), ("text", "4 B  21.5")],
)
async def test_the_payload_is_printed_as_wanted(good: str, form: str, end: str, capsys: pytest.CaptureFixture[str]) -> None:
    await heard(good, "--payload", form, messages=(PUBLISH,))
    line = capsys.readouterr().out.rstrip("\n")
    assert line.partition(f"{line.split('  ')[3]}")[2].strip() == end


async def test_what_a_terminal_would_obey_is_removed(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    await heard(good, messages=(publish(1, TOPIC, b"\x1b]0;owned\x07\r\n"),))
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert not {"\x1b", "\x07", "\r"} & set(out)


async def test_only_what_is_wanted_is_printed_and_counted(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = publish(1, TOPIC._replace(resource=0x8001), b"other")
    assert await heard(good, "--source", SPEED, messages=(other, PUBLISH, REQUEST, NOTIFICATION), count=2) == 0
    assert [line.split("  ")[1] for line in capsys.readouterr().out.splitlines()] == ["publish", "notification"]


async def test_only_what_is_addressed_to_the_sink_is_printed(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--option", "sink_authority=true", "--sink")
    assert await heard(good, *words, str(METHOD), messages=(ADDRESSED, NOTIFICATION, REQUEST), count=1) == 0
    assert await heard(good, *words, str(everything_at("cloud")), messages=(ADDRESSED, NOTIFICATION, REQUEST)) == 0
    types = [line.split("  ")[1] for line in capsys.readouterr().out.splitlines()]
    assert types == ["request", "publish", "notification", "request"]


STATUS_TOPIC = UUri.parse("//gw/4/1/8002")


def of_streamer(status: Message, topic: UUri = STATUS_TOPIC) -> UMessage:
    return publish(1, topic, status.SerializeToString(), Options(payload_format=UPayloadFormat.PROTOBUF))


async def test_what_a_streamer_says_is_readable_and_in_hexadecimal(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    offline = us.Status(link=us.LINK_OFFLINE, reasons=["the connection was lost"])
    message = of_streamer(offline)
    await heard(good, messages=(message,))
    assert capsys.readouterr().out.endswith('  Status {"reasons": ["the connection was lost"], "link": "LINK_OFFLINE"}\n')
    await heard(good, "--json", messages=(message,))
    shown = json.loads(capsys.readouterr().out)
    assert shown["payload_type"] == "uprotocol.core.ustreamer.v1.Status"
    assert shown["payload"]["json"] == {"reasons": ["the connection was lost"], "link": "LINK_OFFLINE"}
    assert bytes.fromhex(shown["payload"]["hex"]) == message.payload
    await heard(good, "--payload", "hex", messages=(message,))
    assert capsys.readouterr().out.endswith(f"  {(message.payload or b'').hex()}\n")


async def test_without_enough_messages_in_time_it_fails(good: str) -> None:
    async with peer("cli-vehicle"):
        assert await command(good, "--count", "1", "--for", "20ms").run() == 1
        assert await command(good, "--for", "20ms").run() == 0


async def test_each_request_is_answered(good: str) -> None:
    async with peer("cli-vehicle") as far:
        running = asyncio.create_task(command(good, "--answer", "fine", "--count", "3").run())
        while not _is_listening():
            await asyncio.sleep(0)
        far.send(PUBLISH, REQUEST, NOTIFICATION)
        assert await running == 0
        (answer,) = far.arrived
    a = answer.attributes
    assert (a.type, a.source, a.sink, a.reqid) == (UMessageType.RESPONSE, METHOD, CALLER, REQUEST.id)
    assert (a.priority, a.ttl, a.commstatus) == (UPriority.CS4, 5000, None)
    assert (answer.payload, a.payload_format) == (b"fine", UPayloadFormat.TEXT)


async def test_what_comes_faster_than_it_is_read_is_left_out_and_counted(
    good: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING", 2)
    received = [MemoryReceived(PUBLISH) for _ in range(5)]
    ours = command(good, "--count", "2")
    for each in received:
        ours.on_receive(each)
    assert [each.acknowledged for each in received] == [False, False, True, True, True]
    async with peer("cli-vehicle"):
        assert await ours.run() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "... 3 messages left out: the output is too slow"
    assert all(each.acknowledged for each in received)


async def test_a_lost_link_is_told(good: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    start = "streamer.transports.memory.MemoryTransport.start"

    async def started(self: Any) -> None:
        made.append(self)
        self.restore_link()

    monkeypatch.setattr(start, started)
    running = asyncio.create_task(command(good, "--count", "1").run())
    while not _is_listening():
        await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    (transport,) = made
    transport.set_state(transport.state.DOWN, "the cable")
    for _ in range(3):
        await asyncio.sleep(0)
    transport.restore_link()
    for _ in range(3):
        await asyncio.sleep(0)
    transport.inject(MemoryReceived(PUBLISH))
    assert await running == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "the link is down: the cable; waiting until it is up",
        "the link is up again",
    ]


@pytest.mark.parametrize("is_addressed", [False, True])
@pytest.mark.parametrize("sink", [None, ANY, everything_at("cloud"), APP, METHOD], ids=str)
@pytest.mark.parametrize("source", [ANY, everything_at("veh1"), TOPIC, CALLER, METHOD], ids=str)
def test_filters_are_those_of_the_specification_and_miss_nothing(
    source: UUri, sink: UUri | None, is_addressed: bool
) -> None:
    found = filters(source, sink, is_addressed)
    for each in found:
        check_filter(*each)
    for message in (ADDRESSED if is_addressed else PUBLISH, NOTIFICATION, REQUEST, RESPONSE):
        a = message.attributes
        is_wanted = source.matches(a.source) and (sink is None or sink_matches(sink, a.sink))
        if is_wanted:
            assert any(filter_matches(*each, a) for each in found), (message, found)
