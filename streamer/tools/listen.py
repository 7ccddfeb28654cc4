"""``streamer listen``: prints the messages that arrive on a network, until Ctrl-C.

It is a receiver like any other uEntity: messages are acknowledged once they are printed. On a network that cannot tell who
listens, it would stand in for a receiver that is away. So beside a running daemon it shows the daemon's tap there, unless
it is told to join. If whoever reads the output is too slow, the messages beyond `_MAX_WAITING` are left out: a listener
must not hold up others on the network.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from streamer.clock import SystemClock
from streamer.config.load import load
from streamer.files import in_thread
from streamer.journal.moments import as_moment
from streamer.tools.network import Client, Filter, Network, add_command, joined
from streamer.tools.running import DaemonAddress, NotAskedError, answered, ask, configured
from streamer.tools.tap import watch
from streamer.tools.text import complain, lines_out, milliseconds, payload_text, uri
from streamer.transports.base import Received, UListener
from streamer.transports.errors import SendError
from streamer.transports.listeners import check_filter
from streamer.uprotocol.known_types import decoded, readable
from streamer.uprotocol.message import UMessage, UMessageType, UPayloadFormat, response
from streamer.uprotocol.payload import payload_as
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_RESOURCE, UUri, everything_at
from streamer.uprotocol.uuid import format_id

_MAX_WAITING = 10_000
_OWN = "listener"
"""The authority of a listener for others. No message has it as source."""
_ASK_S = 2.0
_COUNTS = "until this ends, messages that match and have no other receiver come here, and count as delivered"

FORMS = ("none", "length", "hex", "json", "text")


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = (
        "Print the messages that arrive on a network, until Ctrl-C, as a receiver of its own: tap only watches the daemon."
    )
    listen = add_command(commands, "listen", text, ListenCommand)
    text = "only messages from this source: a UUri or a pattern; default: any"
    listen.add_argument("--source", type=uri, default=everything_at(ANY_AUTHORITY), metavar="URI", help=text)
    text = "only messages to this sink: a UUri or a pattern; default: any, and Publishes"
    listen.add_argument("--sink", type=uri, metavar="URI", help=text)
    text = "how to print the payload; json: as JSON, text or hexadecimal, whichever it is; default: json"
    listen.add_argument("--payload", choices=FORMS, default="json", help=text)
    listen.add_argument("--answer", metavar="TEXT", help="answer each Request with this text")
    text = "end after this time; exit code 1 if --count messages have not come by then"
    text = "join the network as a receiver, also where that counts as the receiver of everybody's messages (Zenoh)"
    listen.add_argument("--join", action="store_true", help=f"{text}; default there: show the tap of a running streamer")
    listen.set_defaults(command=answered(partial(_beside_daemon, listen.get_default("command"))))
    listen.add_argument("--for", dest="for_ms", type=milliseconds, metavar="DURATION", help=text)


def _beside_daemon(join: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Show the tap of the streamer whose endpoint this is, if it runs, and if a listener would be taken for a receiver."""
    daemon = None if arguments.join or arguments.answer is not None else _daemon_beside(arguments)
    if daemon is None:
        return join(arguments)
    if arguments.for_ms is not None:
        return complain("--for: expected --join as well: the tap of a running streamer has no end of its own", 2)
    text = f"at {arguments.endpoint}, a listener counts as everybody's receiver: this is the tap of the running streamer"
    complain(f"{text}; --join joins the network", 0)
    source, sink = arguments.source, arguments.sink
    asked = {
        "source": None if source == everything_at(ANY_AUTHORITY) else str(source),
        "sink": None if sink is None else str(sink),
        **dict.fromkeys(("route", "type", "outcome")),
        "rate": None,
    }
    return watch(argparse.Namespace(**{**vars(arguments), **asked}), daemon)


def _daemon_beside(arguments: argparse.Namespace) -> DaemonAddress | None:
    """Return the running streamer that has the endpoint, if its network cannot tell who listens; else None."""
    if arguments.endpoint is None:
        return None
    config = load(arguments.config, kind=arguments.kind)
    endpoint = config.endpoints.get(arguments.endpoint)
    if endpoint is None or not endpoint.options.is_shared:
        return None
    try:
        daemon = configured(arguments.config, config)
        ask(daemon, "", lambda answer: answer["authority"], within_s=_ASK_S)
    except NotAskedError:
        return None
    return daemon


def filters(source: UUri, sink: UUri | None, is_addressed: bool) -> list[Filter]:
    """Return the filters of listeners (uP-L1, table of resource ids) that together cover what matches source and sink.

    ``is_addressed``: a Publish has a sink on this network.
    """
    found: list[Filter] = []
    if sink is None:
        if not is_addressed and (source.is_topic or source.resource == ANY_RESOURCE):
            found.append((source, None))
        sink = everything_at(ANY_AUTHORITY)
    exact = source._replace(resource=0) if sink.is_method else source, sink
    try:
        check_filter(*exact)
    except UStatusError:
        is_addressed = True
    found.append((source._replace(resource=ANY_RESOURCE), everything_at(sink.authority)) if is_addressed else exact)
    return found


class ListenCommand(UListener):
    """Receives messages and prints them."""

    def __init__(self, arguments: argparse.Namespace, network: Network) -> None:
        """Raises `NetworkError`."""
        self._arguments = arguments
        self._network = network
        self._source = network.at_home(arguments.source, "--source")
        self._sink = None if arguments.sink is None else network.at_home(arguments.sink, "--sink")
        self._answering: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.Queue[Received] = asyncio.Queue(_MAX_WAITING)
        self._left_out = 0

    def on_receive(self, received: Received) -> None:
        attributes = received.message.attributes
        sink, wanted = attributes.sink, self._sink  # a Publish for all of an authority is for no uEntity of it in particular
        is_wanted = self._source.matches(attributes.source) and (
            wanted is None or (sink is not None and wanted.matches(sink))
        )
        if is_wanted and not self._waiting.full():
            self._waiting.put_nowait(received)
        else:
            self._left_out += is_wanted
            received.release()

    async def run(self) -> int:
        """Print messages until there are enough, or the time is over. Return the exit status."""
        arguments, sink = self._arguments, self._sink
        wanted = filters(self._source, sink, self._network.options.addresses_publishes)
        authority = _OWN if sink is None or sink.authority == ANY_AUTHORITY else sink.authority
        for_s = None if arguments.for_ms is None else arguments.for_ms / 1000
        if self._network.options.is_shared:
            complain(f"joining as a receiver: {_COUNTS}", 0)
        async with joined(self._network, authority, wanted, self) as client:
            end = "Ctrl-C ends it" if arguments.count is None else f"ends after --count {arguments.count}, or at Ctrl-C"
            complain(f"listening on {self._network.named}; {end}", 0)
            reporting = asyncio.create_task(_report(client), name="report")
            try:
                async with asyncio.timeout(for_s):
                    await self._print(client)
            except TimeoutError:
                return 0 if arguments.count is None else 1
            finally:
                reporting.cancel()
            if self._answering:
                await asyncio.wait(self._answering)
        return 0

    def status(self) -> int:
        """Return 0: a listener ends when it is interrupted."""
        return 0

    async def _print(self, client: Client) -> None:
        number = 0
        while number != self._arguments.count:
            batch = [await self._waiting.get()]
            while not self._waiting.empty() and number + len(batch) != self._arguments.count:
                batch.append(self._waiting.get_nowait())
            lines = [self._line(each.message) for each in batch]
            if left_out := self._left_out:
                self._left_out = 0
                text = f"... {left_out} {'message' if left_out == 1 else 'messages'} left out: the output is too slow"
                lines.append(json.dumps({"left_out": left_out}) if self._arguments.json else text)
            await in_thread(lambda: _write(lines))  # noqa: B023  # awaited before the next turn
            number += len(batch)
            for received in batch:
                received.release()
                if self._arguments.answer is not None and received.message.attributes.type is UMessageType.REQUEST:
                    task = asyncio.create_task(self._answer(client, received.message), name="answer")
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)

    def _line(self, message: UMessage) -> str:
        shown = as_json(message, SystemClock().wall_ms(), self._arguments.payload)
        return json.dumps(shown) if self._arguments.json else "  ".join(cells(shown))

    async def _answer(self, client: Client, message: UMessage) -> None:
        payload = self._arguments.answer.encode()
        answer = response(SystemClock().wall_ms(), message, payload, payload_format=UPayloadFormat.TEXT)
        try:
            await client.send(answer)
        except SendError as exc:
            complain(f"not answered: {format_id(message.id)}: {exc}", 0)


async def _report(client: Client) -> None:
    """Print when the link is lost, and when it is back."""
    while True:
        await client.until_changed()
        if not client.is_up:
            complain(f"the link is down: {client.link_reason}; waiting until it is up", 0)
            while not client.is_up:
                await client.until_changed()
            complain("the link is up again", 0)


def _write(lines: list[str]) -> None:
    lines_out(lines)
    sys.stdout.flush()


def as_json(message: UMessage, now_ms: int, payload: str) -> dict[str, Any]:
    """Return a message as JSON, as ``streamer tap`` names it, with its payload in one of `FORMS`. Its token is left out."""
    a = message.attributes
    content = message.payload or b""
    shown: dict[str, Any] = {
        "t": as_moment(now_ms),
        "type": a.type.name.lower(),
        "source": str(a.source),
        "sink": None if a.sink is None else str(a.sink),
        "id": format_id(message.id),
        "priority": f"CS{a.priority_class}",
        "ttl_ms": a.ttl,
        "permission_level": a.permission_level,
        "traceparent": a.traceparent,
        "reqid": None if a.reqid is None else format_id(a.reqid),
        "code": UCode(a.commstatus or 0).name,
        "text": _status_text(message),
    }
    if payload != "none":
        shown |= {"bytes": len(content), "payload_format": a.payload_format.name.lower()}
    if payload == "json" and (known := decoded(a, content)) is not None:
        shown["payload"] = {"json": readable(known), "hex": content.hex()}
        shown["payload_type"] = known.DESCRIPTOR.full_name
    elif payload not in ("none", "length"):
        is_text = payload == "json" and a.payload_format is UPayloadFormat.TEXT  # 1e3 is to stay as it is
        shown["payload"] = payload_as(content, "text" if is_text else payload)
    return shown


def cells(shown: dict[str, Any]) -> Iterator[str]:
    """Yield the cells of one message for people. Any text from its sender may be in them."""
    yield shown["t"]
    yield shown["type"]
    yield shown["source"] if shown["sink"] is None else f"{shown['source']} → {shown['sink']}"
    yield shown["id"]
    if "bytes" in shown:
        yield f"{shown['bytes']} B"
    if shown["code"] != "OK":
        yield f"{shown['code']}: {shown['text']}"
    elif "payload" in shown:
        text = payload_text(shown["payload"])
        yield f"{shown['payload_type'].rpartition('.')[2]} {text}" if "payload_type" in shown else text


def _status_text(message: UMessage) -> str:
    """Return the text with which a Response refuses; empty if it does not, or not as a UStatus."""
    status = decoded(message.attributes, message.payload or b"") if message.attributes.commstatus else None
    return status.message if isinstance(status, v1.UStatus) else ""
