"""``streamer send``: sends Publishes, Notifications or Requests through a network, and prints what became of them."""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from streamer.clock import SystemClock
from streamer.files import MOST_BYTES, read_up_to
from streamer.tools.listen import as_json, cells
from streamer.tools.network import Client, Confirmation, Filter, Network, NetworkError, add_command, add_rate, joined, paced
from streamer.tools.text import complain, lines_out, milliseconds, reason_of, uri
from streamer.transports.base import Received, UListener
from streamer.transports.errors import SendError
from streamer.uprotocol.message import (
    Attributes,
    InvalidMessageError,
    UMessage,
    UMessageType,
    UPayloadFormat,
    UPriority,
    authority_only,
)
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id, new_id

TYPES = {kind.name.lower(): kind for kind in (UMessageType.PUBLISH, UMessageType.NOTIFICATION, UMessageType.REQUEST)}
FORMATS = {each.name.lower(): each for each in UPayloadFormat}
PRIORITIES = {each.name: each for each in UPriority if each}

_GRACE_S = 1.0
"""How long after its TTL a Request may still be answered: a streamer on the way answers for the receiver then."""

_MAX_REQUESTS = 100
"""Requests without an answer."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Send messages through a network. Exit code 0: all were confirmed, and Requests answered without an error."
    send = add_command(commands, "send", text, SendCommand, count=1)
    add_rate(send, default=None)
    text = "the source: a topic such as //veh1/A8000/2/8A50, of a Request a uEntity (resource 0)"
    send.add_argument("--source", type=uri, required=True, metavar="URI", help=text)
    text = "the sink: of a Notification a uEntity, of a Request a method; a Publish has none, or only an authority"
    send.add_argument("--sink", type=uri, metavar="URI", help=text)
    text = (
        "the type; default: by the sink, no sink or only an authority: publish, a uEntity: notification, a method: request"
    )
    send.add_argument("--type", choices=sorted(TYPES), help=text)
    payload = send.add_mutually_exclusive_group()
    payload.add_argument("--text", metavar="TEXT", help="the payload, in the format text")
    payload.add_argument("--hex", metavar="DIGITS", help="the payload in hexadecimal, in the format raw")
    payload.add_argument("--json-payload", metavar="JSON", help="the payload, in the format json")
    payload.add_argument("--file", metavar="FILE", help="a file with the payload, in the format raw; -: standard input")
    send.add_argument("--format", choices=FORMATS, help="another payload format")
    send.add_argument("--priority", choices=PRIORITIES, help="the priority; default: none, of a Request CS4")
    send.add_argument(
        "--ttl", type=milliseconds, metavar="DURATION", help="the time to live; default of a Request: --timeout"
    )
    send.add_argument("--permission-level", type=int, metavar="N", help="the permission level in a Request")
    send.add_argument("--token-file", type=Path, metavar="FILE", help="a file with the token in a Request")


def attributes_of(arguments: argparse.Namespace, network: Network) -> Attributes:
    """Return the attributes of the messages. Raises `NetworkError`."""
    source = network.at_home(arguments.source, "--source")
    sink = None if arguments.sink is None else network.at_home(arguments.sink, "--sink")
    kind = TYPES[arguments.type] if arguments.type else _type_for(sink)
    is_request = kind is UMessageType.REQUEST
    has_payload = any(each is not None for each in (arguments.text, arguments.hex, arguments.json_payload, arguments.file))
    form = UPayloadFormat.UNSPECIFIED
    if arguments.format is not None:
        form = FORMATS[arguments.format]
    elif has_payload:
        form = UPayloadFormat.RAW
        form = UPayloadFormat.TEXT if arguments.text is not None else form
        form = UPayloadFormat.JSON if arguments.json_payload is not None else form
    attributes = Attributes(
        kind,
        source,
        sink,
        PRIORITIES[arguments.priority] if arguments.priority else UPriority.CS4 if is_request else UPriority.UNSPECIFIED,
        arguments.timeout if is_request and arguments.ttl is None else arguments.ttl,
        arguments.permission_level,
        token=None if arguments.token_file is None else _content(arguments.token_file, "--token-file").decode().strip(),
        payload_format=form,
    )
    try:
        UMessage(new_id(SystemClock().wall_ms()), attributes, b"" if has_payload else None).check()
    except InvalidMessageError as exc:
        raise NetworkError(f"this is no valid {kind.name.lower()}: {exc}", 2) from exc
    if sink is None and network.options.addresses_publishes:
        text = "a Publish needs the authority that it is for on this network: --sink //AUTHORITY/FFFFFFFF/FF/FFFF"
        raise NetworkError(text, 2)
    return attributes


def _type_for(sink: UUri | None) -> UMessageType:
    if sink is None or authority_only(sink):
        return UMessageType.PUBLISH
    return UMessageType.NOTIFICATION if sink.is_entity else UMessageType.REQUEST


def payload_of(arguments: argparse.Namespace) -> bytes | None:
    """Return the payload; None: there is none. Raises `NetworkError`."""
    if arguments.hex is not None:
        try:
            return bytes.fromhex(arguments.hex)
        except ValueError:
            raise NetworkError("--hex: expected pairs of hexadecimal digits", 2) from None
    if arguments.json_payload is not None:
        try:
            json.loads(arguments.json_payload)
        except (ValueError, RecursionError) as exc:
            raise NetworkError(f"--json-payload: not JSON: {exc}", 2) from None
        return str(arguments.json_payload).encode()
    if arguments.file is not None:
        return sys.stdin.buffer.read() if arguments.file == "-" else _content(Path(arguments.file), "--file")
    return None if arguments.text is None else str(arguments.text).encode(errors="surrogateescape")


def _content(file: Path, option: str) -> bytes:
    try:
        content = read_up_to(file, MOST_BYTES + 1)
    except OSError as exc:
        raise NetworkError(f"{option}: {reason_of(exc)}", 2) from exc
    if len(content) > MOST_BYTES:
        raise NetworkError(f"{option}: {file}: longer than {MOST_BYTES} bytes", 2)
    return content


class Responses(UListener):
    """Receives the Responses to our Requests."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, asyncio.Future[UMessage]] = {}

    def on_receive(self, received: Received) -> None:
        waiting = self._waiting.pop(received.message.attributes.reqid or b"", None)
        if waiting is not None and not waiting.done():
            waiting.set_result(received.message)
        received.release()

    async def call(self, client: Client, message: UMessage) -> UMessage:
        """Send a Request, and return the Response. Raises `SendError`, and `UStatusError` if none comes within its TTL."""
        answer: asyncio.Future[UMessage] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = answer
        ttl_s = (message.attributes.ttl or 0) / 1000
        sending = asyncio.create_task(client.send(message), name="send")
        try:
            async with asyncio.timeout(ttl_s + _GRACE_S):
                await asyncio.wait((sending, answer), return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
                return await answer
        except TimeoutError:
            raise UStatusError(UCode.DEADLINE_EXCEEDED, f"no answer within its TTL, {ttl_s:g} s") from None
        finally:
            sending.cancel()
            self._waiting.pop(message.id, None)


def answer_filters(attributes: Attributes) -> Sequence[Filter]:
    """Return the filter for the Responses to Requests with these attributes."""
    return (
        []
        if attributes.sink is None or attributes.type is not UMessageType.REQUEST
        else [(attributes.sink, attributes.source)]
    )


class SendCommand:
    """Sends the messages, and counts what becomes of them."""

    def __init__(self, arguments: argparse.Namespace, network: Network) -> None:
        """Check the message, and read its payload. Raises `NetworkError`."""
        self._arguments = arguments
        self._network = network
        self._attributes = attributes_of(arguments, network)
        self._payload = payload_of(arguments)
        self._answers = Responses()
        self._sent = 0
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._began_s = time.monotonic()

    async def run(self) -> int:
        """Send all messages. Return the exit status."""
        a = self._attributes
        is_request = a.type is UMessageType.REQUEST
        send = self._call if is_request else self._deliver
        async with joined(self._network, a.source.authority, answer_filters(a), self._answers) as client:
            await client.until_heard(a.source, a.sink)
            self._began_s = time.monotonic()
            room = asyncio.Semaphore(min(client.window, _MAX_REQUESTS) if is_request else client.window)
            async with asyncio.TaskGroup() as tasks:
                async for _ in paced(self._arguments.count, self._arguments.rate):
                    await room.acquire()
                    self._sent += 1
                    message = UMessage(new_id(SystemClock().wall_ms()), a, self._payload)
                    tasks.create_task(send(client, message, room), name="message")
        return self.status()

    def status(self) -> int:
        """Print the counts, and return the exit status. Messages without a result are not confirmed."""
        missing = self._sent - self._counts.total()
        if missing:
            self._count_failure("not confirmed: interrupted", missing)
        if not self._arguments.json and (self._arguments.count > 1 or missing):
            counted = ", ".join(f"{number} {what}" for what, number in self._counts.items())
            took_s = time.monotonic() - self._began_s
            lines_out([f"{self._sent} messages in {took_s:.1f} s: {counted or 'nothing was sent'}"])
        for reason, times in self._failures.items():
            complain(reason if times == 1 else f"{reason} ({times} times)", 0)
        return 1 if self._failures or not self._sent else 0

    async def _deliver(self, client: Client, message: UMessage, room: asyncio.Semaphore) -> None:
        """Send one message, print and count its outcome."""
        began_s = time.monotonic()
        try:
            confirmation = await client.send(message, room.release)
        except SendError as exc:
            self._failed(message, exc)
            return
        self._counts[confirmation.value] += 1
        if confirmation is Confirmation.LOST:
            self._failures["lost: the receiver went away, or its link broke; it may have arrived"] += 1
        took_ms = (time.monotonic() - began_s) * 1000
        self._print(
            message, f"{confirmation.value} in {took_ms:.1f} ms", {"outcome": confirmation.value, "ms": round(took_ms, 3)}
        )

    async def _call(self, client: Client, message: UMessage, room: asyncio.Semaphore) -> None:
        """Send one Request, print the answer, and count it."""
        began_s = time.monotonic()
        try:
            answer = await self._answers.call(client, message)
        except UStatusError as exc:
            self._failed(message, exc)
            return
        finally:
            room.release()
        shown = as_json(answer, SystemClock().wall_ms(), "json")
        took_ms = (time.monotonic() - began_s) * 1000
        if answer.attributes.commstatus:
            self._count_failure(f"refused: {shown['code']}: {shown['text']}")
        else:
            self._counts["answered"] += 1
        outcome = {"outcome": "refused" if answer.attributes.commstatus else "answered", "ms": round(took_ms, 3)}
        if self._arguments.json:
            self._print(message, "", {**outcome, "answer": shown})
        else:
            lines_out(["  ".join((*cells(shown), f"({took_ms:.1f} ms)"))])
            sys.stdout.flush()

    def _failed(self, message: UMessage, exc: UStatusError) -> None:
        self._count_failure(f"not delivered: {exc}")
        if self._arguments.json:
            self._print(message, "", {"outcome": "failed", "code": exc.code.name, "text": exc.message})

    def _count_failure(self, reason: str, number: int = 1) -> None:
        self._counts["failed"] += number
        self._failures[reason] += number

    def _print(self, message: UMessage, text: str, outcome: dict[str, object]) -> None:
        a, name = message.attributes, format_id(message.id)
        if self._arguments.json:
            ends = {"source": str(a.source), "sink": None if a.sink is None else str(a.sink)}
            lines_out([json.dumps({"id": name, "type": a.type.name.lower(), **ends, **outcome})])
        elif self._arguments.count == 1:
            ends_text = str(a.source) if a.sink is None else f"{a.source} → {a.sink}"
            lines_out([f"{a.type.name.lower()} {ends_text}  {name}  {text}"])
        sys.stdout.flush()
