"""``streamer replay``: sends the messages of a recording again, with new ids, through a network: for a test bench."""

import argparse
import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from streamer.clock import SystemClock
from streamer.features.black_box.ring import MESSAGES
from streamer.tools.network import Network, NetworkError, add_command, joined
from streamer.tools.text import EX_CONFIG, lines_out, rate, reason_of
from streamer.transports.errors import SendError
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Send the messages of a recording again, with new ids, through a network. For a test bench."
    replay = add_command(commands, "replay", text, ReplayCommand, count=1)
    replay.add_argument("file", type=Path, metavar="FILE", help="what `streamer record` has written")
    text = "the endpoint through which the messages had come in; default: --endpoint"
    replay.add_argument("--ingress", metavar="NAME", help=text)
    replay.add_argument("--pace", type=rate, default=1.0, metavar="X", help="so many times as fast; default: 1")


def message_of(data: dict[str, Any]) -> UMessage:
    """Return a recorded message with an id of the year 1970. Raises ValueError with the reason why it cannot be sent."""
    if data.get("type") == "response":
        raise ValueError("a Response belongs to the id of its Request")
    if data.get("cut_bytes") or (data.get("payload") is None) is not (data.get("bytes") is None):
        raise ValueError("its payload was not recorded, or not all of it")
    try:
        payload = None if data["bytes"] is None else bytes.fromhex(data["payload"]["hex"])
        sink = None if data["sink"] is None else UUri.parse(data["sink"])
        kind, form = UMessageType[data["type"].upper()], UPayloadFormat[data.get("payload_format", "unspecified").upper()]
        priority = UPriority[data["priority"]]
        attributes = Attributes(kind, UUri.parse(data["source"]), sink, priority, data["ttl_ms"], payload_format=form)
        message = UMessage(new_id(0), attributes, payload)
        message.check()
    except (LookupError, ValueError, TypeError, AttributeError) as exc:
        raise ValueError("it is no valid message") from exc
    return message


class ReplayCommand:
    """Sends the messages that had come in through one endpoint, and counts what becomes of them."""

    def __init__(self, arguments: argparse.Namespace, network: Network) -> None:
        """Read the file. Raises `NetworkError`."""
        self._network = network
        self._times, self._pace = arguments.count, arguments.pace
        self._counts: Counter[str] = Counter()
        self._recorded: dict[object, tuple[float, UMessage]] = {}  # by id: when, in seconds, and the message
        ingress, left_out = arguments.ingress or arguments.endpoint, Counter[str]()
        try:
            from streamer.features.black_box.file import read  # noqa: PLC0415  # of an extra

            for at_ns, data in read(arguments.file, MESSAGES):
                if data.get("event") == "message" and data.get("ingress") == ingress and data["id"] not in self._recorded:
                    try:
                        self._recorded[data["id"]] = at_ns / 1e9, message_of(data)
                    except ValueError as exc:
                        left_out[str(exc)] += 1
        except ImportError as exc:
            raise NetworkError(str(exc), EX_CONFIG) from exc
        except OSError as exc:
            raise NetworkError(reason_of(exc)) from exc
        except (ValueError, LookupError) as exc:
            raise NetworkError(f"{arguments.file}: not a recording, or damaged: {exc or type(exc).__name__}") from exc
        lines_out(f"left out: {number} messages: {why}" for why, number in left_out.items())
        if not self._recorded:
            raise NetworkError(f"{arguments.file}: no message that came in through {ingress} can be sent")

    async def run(self) -> int:
        """Send all messages, ``--count`` times; return the exit status."""
        loop, recorded = asyncio.get_running_loop(), list(self._recorded.values())
        first_s, first = recorded[0]
        async with joined(self._network, first.attributes.source.authority) as client, asyncio.TaskGroup() as tasks:
            room = asyncio.Semaphore(client.window)

            async def send(message: UMessage) -> None:
                try:
                    self._counts[(await client.send(message, room.release)).value] += 1
                except SendError as exc:
                    self._counts[f"failed: {exc}"] += 1

            for _ in range(self._times):
                began_s = loop.time()
                for at_s, message in recorded:
                    await asyncio.sleep(max(0.0, began_s + (at_s - first_s) / self._pace - loop.time()))
                    await room.acquire()
                    again = UMessage(new_id(SystemClock().wall_ms()), message.attributes, message.payload)
                    tasks.create_task(send(again), name="message")
        return self.status()

    def status(self) -> int:
        """Print the counts, and return the exit status."""
        lines_out([f"{self._counts.total()} messages: {', '.join(f'{n} {what}' for what, n in self._counts.items())}"])
        is_whole = self._counts.total() == len(self._recorded) * self._times
        return 0 if is_whole and not any(what.startswith("failed") for what in self._counts) else 1
