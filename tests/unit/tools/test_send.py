"""``streamer send``: what goes out, what is printed, and the exit status."""

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from streamer.tools.network import NetworkError
from streamer.tools.send import SendCommand
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessage, UMessageType, UPayloadFormat, UPriority, response
from streamer.uprotocol.protobuf import status_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.unit.tools.client import Peer, given, peer
from tests.unit.tools.commands import SPEED

APP, METHOD = "//cloud/C0/1/0", "//cloud/C0/1/7"
CALLER = "//veh1/A8000/2/0"
CALL = ("--source", CALLER, "--sink", METHOD)


def command(file: str, *words: str) -> SendCommand:
    return SendCommand(*given(file, "send", "--endpoint", "vehicle", *words))


async def sent(file: str, *words: str) -> tuple[int, list[UMessage]]:
    async with peer("cli-vehicle") as far:
        return await command(file, *words).run(), far.arrived


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--source", SPEED), (UMessageType.PUBLISH, SPEED, None)),
        (("--source", "/A8000/2/8A50"), (UMessageType.PUBLISH, SPEED, None)),
        (("--source", SPEED, "--sink", APP), (UMessageType.NOTIFICATION, SPEED, APP)),
    ],
)
async def test_the_sink_says_the_type_and_the_endpoint_a_missing_authority(
    good: str, words: tuple[str, ...], expected: tuple[UMessageType, str, str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    status, (message,) = await sent(good, *words)
    a = message.attributes
    assert (a.type, str(a.source), None if a.sink is None else str(a.sink)) == expected
    assert (a.priority, a.ttl, a.token, a.payload_format, message.payload) == (0, None, None, 0, None)
    assert status == 0
    line = capsys.readouterr().out
    assert line.startswith(f"{expected[0].name.lower()} {expected[1]}")
    assert "delivered in " in line


async def test_everything_that_can_be_said_arrives(good: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame\n")
    words = ("--priority", "CS6", "--ttl", "30s", "--permission-level", "3", "--token-file", str(tmp_path / "token"))
    status, (message,) = await sent(good, "--source", SPEED, "--text", "21.5", *words)
    a = message.attributes
    assert (a.priority, a.ttl, a.permission_level, a.token) == (UPriority.CS6, 30_000, 3, "sesame")
    assert status == 0


@pytest.mark.parametrize(
    ("words", "payload", "form"),
    [
        (("--text", "21,5 °C"), "21,5 °C".encode(), UPayloadFormat.TEXT),
        (("--text", ""), b"", UPayloadFormat.TEXT),
        (("--hex", "00 ff"), b"\x00\xff", UPayloadFormat.RAW),
        (("--hex", "0a", "--format", "protobuf"), b"\x0a", UPayloadFormat.PROTOBUF),
        (("--json-payload", '{"speed": 1}'), b'{"speed": 1}', UPayloadFormat.JSON),
        (("--file", "FILE"), b"\x1b[2J", UPayloadFormat.RAW),
        (("--file", "-", "--format", "someip"), b"from a pipe", UPayloadFormat.SOMEIP),
        ((), None, UPayloadFormat.UNSPECIFIED),
    ],
)
async def test_a_payload_in_each_form(
    good: str,
    words: tuple[str, ...],
    payload: bytes | None,
    form: UPayloadFormat,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "payload").write_bytes(b"\x1b[2J")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe")))
    words = tuple(word.replace("FILE", str(tmp_path / "payload")) for word in words)
    _, (message,) = await sent(good, "--source", SPEED, *words)
    assert (message.payload, message.attributes.payload_format) == (payload, form)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--source", SPEED, "--hex", "0"), "--hex: expected pairs of hexadecimal digits"),
        (("--source", SPEED, "--json-payload", "{"), "--json-payload: not JSON"),
        (("--source", SPEED, "--file", "/nowhere"), "--file: /nowhere: No such file"),
        (("--source", SPEED, "--token-file", "/nowhere"), "--token-file: /nowhere: No such file"),
        (("--source", SPEED, "--format", "text"), "payload_format: expected only with a payload"),
        (("--source", CALLER), "this is no valid publish: source: expected a topic"),
        (("--source", CALLER, "--sink", APP), "this is no valid notification: source: expected a topic"),
        (("--source", SPEED, "--sink", METHOD), "this is no valid request: source: expected a uEntity"),
        (("--source", CALLER, "--type", "request"), "this is no valid request: sink: expected a method"),
        (("--source", SPEED, "--type", "publish", "--sink", APP), "sink: expected none for a Publish"),
        ((*CALL, "--priority", "CS1"), "priority: a Request needs CS4 or higher"),
        ((*CALL, "--ttl", "0s"), "ttl: a Request needs one above 0"),
        (("--source", "//*/A8000/2/8A50"), "has a wildcard"),
    ],
)
def test_what_cannot_be_sent_is_told_before_anything_is_tried(good: str, words: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(NetworkError, match=complaint.replace("(", r"\(")) as refused:
        command(good, *words)
    assert refused.value.status == 2


def test_on_a_network_with_addressed_publishes_one_needs_an_authority(good: str) -> None:
    words = ("send", "--endpoint", "cloud", "--source", SPEED)
    with pytest.raises(NetworkError, match="--sink //AUTHORITY/FFFFFFFF/FF/FFFF"):
        SendCommand(*given(good, *words))
    found = SendCommand(*given(good, *words, "--sink", str(everything_at("fleet"))))
    assert found._attributes.type is UMessageType.PUBLISH


async def test_many_have_ids_of_their_own_and_are_counted(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, messages = await sent(good, "--source", SPEED, "--count", "3000")
    assert status == 0
    assert len({message.id for message in messages}) == 3000
    out = capsys.readouterr().out
    assert out.startswith("3000 messages in ")
    assert out.endswith(" s: 3000 delivered\n")


async def test_each_is_a_line_of_json(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, messages = await sent(good, "--source", SPEED, "--count", "2", "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"].replace("-", "") for line in lines] == [message.id.hex() for message in messages]
    assert [(line["outcome"], line["source"], line["sink"]) for line in lines] == [("delivered", SPEED, None)] * 2


async def test_without_evidence_it_says_so_and_succeeds(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = await sent(good, "--source", SPEED, "--option", "unconfirmed_s=0.02")
    assert status == 0
    assert "unconfirmed in " in capsys.readouterr().out


async def test_what_is_refused_fails_with_the_reason(
    good: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Any, parcels: Any, done: Any) -> None:
        done(parcels, PermanentError(UCode.PERMISSION_DENIED, "not \x1b[2J here"))

    monkeypatch.setattr("streamer.transports.memory.MemoryTransport.submit", refused)
    assert await command(good, "--source", SPEED, "--count", "2").run() == 1
    out, err = capsys.readouterr()
    assert err == "not delivered: PERMISSION_DENIED: not \N{REPLACEMENT CHARACTER}[2J here (2 times)\n"
    assert out.endswith("2 failed\n")
    assert await command(good, "--source", SPEED, "--json").run() == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["code"] == "PERMISSION_DENIED"


async def test_what_was_interrupted_is_not_confirmed(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    ours = command(good, "--source", SPEED, "--option", "unconfirmed_s=30", "--count", "2", "--rate", "0.01")
    async with peer("cli-vehicle") as far:
        running = asyncio.create_task(ours.run())
        arrived = asyncio.Event()
        far.on_message = lambda message: arrived.set()
        await arrived.wait()
        running.cancel()
        await asyncio.wait((running,))
    assert ours.status() == 1
    out, err = capsys.readouterr()
    assert err == "not confirmed: interrupted\n"
    assert "1 messages in " in out


# Requests


def answering(far: Peer, payload: bytes, commstatus: UCode | None, form: UPayloadFormat) -> None:
    def answer(message: UMessage) -> None:
        if message.attributes.type is UMessageType.REQUEST:
            stranger = response(0, UMessage(b"\x01" * 6 + b"\x70" + b"\x01" + b"\x80" + b"\x01" * 7, message.attributes))
            far.send(stranger, response(0, message, payload, commstatus, form))

    far.on_message = answer


async def test_the_answer_to_a_request_is_printed(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with peer("cli-vehicle") as far:
        answering(far, b"fine", None, UPayloadFormat.TEXT)
        assert await command(good, *CALL, "--text", "how?", "--timeout", "5s").run() == 0
        (asked,) = far.arrived
    a = asked.attributes
    assert (a.type, a.source, a.sink) == (UMessageType.REQUEST, UUri.parse(CALLER), UUri.parse(METHOD))
    assert (a.priority, a.ttl, asked.payload) == (UPriority.CS4, 5000, b"how?")
    (line,) = capsys.readouterr().out.splitlines()
    assert f"response  {METHOD} → {CALLER}" in line
    assert "  fine  (" in line


async def test_the_answer_is_json_inside_the_line(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with peer("cli-vehicle") as far:
        answering(far, b'{"a": 1}', None, UPayloadFormat.JSON)
        assert await command(good, *CALL, "--json").run() == 0
        (asked,) = far.arrived
    line = json.loads(capsys.readouterr().out)
    assert line["outcome"] == "answered"
    assert line["answer"]["payload"] == {"json": {"a": 1}}
    assert line["answer"]["reqid"] == line["id"]
    assert line["id"].replace("-", "") == asked.id.hex()


@pytest.mark.parametrize("payload", [status_to_proto(UCode.NOT_FOUND, "no \x1b such door").SerializeToString(), b"\xff"])
async def test_an_answer_that_refuses_is_a_failure(good: str, payload: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    async with peer("cli-vehicle") as far:
        answering(far, payload, UCode.NOT_FOUND, UPayloadFormat.PROTOBUF)
        assert await command(good, *CALL).run() == 1
    out, err = capsys.readouterr()
    assert "NOT_FOUND: " in out
    assert err.startswith("refused: NOT_FOUND: ")
    assert "\x1b" not in out + err


async def test_a_request_without_an_answer_fails_after_its_ttl(
    good: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.tools.send._GRACE_S", 0.0)
    status, _ = await sent(good, *CALL, "--ttl", "20ms")
    assert status == 1
    assert capsys.readouterr().err == "not delivered: DEADLINE_EXCEEDED: no answer within its TTL, 0.02 s\n"
