"""``streamer ping``: measures round trips to a streamer, by Requests to core.ustreamer that it handles like any other."""

import argparse
import json
import sys
import time

from streamer.clock import SystemClock
from streamer.tools.listen import as_json
from streamer.tools.network import Network, NetworkError, add_command, add_rate, joined, paced
from streamer.tools.send import Responses, answer_filters
from streamer.tools.text import lines_out, uri
from streamer.uprotocol.message import Attributes, InvalidMessageError, UMessage, UMessageType, UPriority
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UriError, UUri
from streamer.uprotocol.uuid import new_id
from streamer.uprotocol.well_known import PING, USTREAMER

_SOURCE = UUri("", 0x7E57, 1, 0)
_REACHED = (None, UCode.OK, UCode.UNIMPLEMENTED)
"""The statuses with which core.ustreamer itself answers; UNIMPLEMENTED: a version without this method."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Measure round trips to a streamer, until Ctrl-C. Exit code 1: it never answered."
    ping = add_command(commands, "ping", text, PingCommand)
    add_rate(ping, default=1.0)
    text = "the authority of the streamer, such as gateway.veh1; default: that of --config"
    ping.add_argument("gateway", nargs="?", metavar="GATEWAY", help=text)
    text = f"the uEntity that asks, such as //veh1{_SOURCE}; default: {_SOURCE} at the endpoint's first authority"
    ping.add_argument("--source", type=uri, metavar="URI", help=text)


class PingCommand:
    """Asks again and again, and keeps how long each answer took."""

    def __init__(self, arguments: argparse.Namespace, network: Network) -> None:
        """Raises `NetworkError`."""
        self._arguments = arguments
        self._network = network
        self._gateway: str | None = arguments.gateway or network.streamer
        if self._gateway is None:
            raise NetworkError("expected the authority of the streamer, such as gateway.veh1", 2)
        if arguments.source is None and network.authority is None:
            text = f"expected --source, who asks, such as //veh1{_SOURCE}: {network.named} names no authority"
            raise NetworkError(text, 2)
        source = network.at_home(arguments.source or _SOURCE, "--source")
        ttl, sink = arguments.timeout, USTREAMER.at(self._gateway.removeprefix("//").partition("/")[0], PING)
        self._attributes = Attributes(UMessageType.REQUEST, source, sink, UPriority.CS4, ttl)
        try:
            UMessage(new_id(SystemClock().wall_ms()), self._attributes).check()
        except (InvalidMessageError, UriError) as exc:
            raise NetworkError(f"{self._gateway}: {exc}", 2) from exc
        self._sent = 0
        self._times_ms: list[float] = []

    async def run(self) -> int:
        """Ask until there were enough. Return the exit status."""
        a, answers = self._attributes, Responses()
        async with joined(self._network, a.source.authority, answer_filters(a), answers) as client:
            await client.until_heard(a.source, a.sink)
            if not self._arguments.json:
                lines_out([f"PING {a.sink} from {a.source} through {self._network.named}"])
            async for number in paced(self._arguments.count, self._arguments.rate):
                self._sent += 1
                began_s = time.monotonic()
                try:
                    answer = await answers.call(client, UMessage(new_id(SystemClock().wall_ms()), a))
                except UStatusError as exc:
                    self._print(number, None, str(exc))
                    continue
                took_ms = (time.monotonic() - began_s) * 1000
                shown = as_json(answer, SystemClock().wall_ms(), "none")
                if answer.attributes.commstatus in _REACHED:
                    self._times_ms.append(took_ms)
                    self._print(number, took_ms, "")
                else:
                    self._print(number, None, f"{shown['code']}: {shown['text']}")
        return self.status()

    def _print(self, number: int, took_ms: float | None, problem: str) -> None:
        if self._arguments.json:
            shown = {"number": number, "ms": None if took_ms is None else round(took_ms, 3), "problem": problem or None}
            lines_out([json.dumps(shown)])
        else:
            lines_out([f"{number}: {problem}" if took_ms is None else f"{number}: {took_ms:.2f} ms"])
        sys.stdout.flush()

    def status(self) -> int:
        """Print the summary, and return the exit status."""
        times, answered = self._times_ms, len(self._times_ms)
        lost = 100 * (self._sent - answered) / self._sent if self._sent else 0.0
        figures = (min(times), sum(times) / answered, max(times)) if times else (None, None, None)
        if self._arguments.json:
            names = ("min_ms", "avg_ms", "max_ms")
            rounded = {name: None if each is None else round(each, 3) for name, each in zip(names, figures, strict=True)}
            lines_out([json.dumps({"sent": self._sent, "answered": answered, "lost_percent": round(lost, 1), **rounded})])
        else:
            lines_out([f"{self._gateway}: {self._sent} sent, {answered} answered, {lost:.0f} % lost"])
            if times:
                lines_out(["round trip min/avg/max = {:.2f}/{:.2f}/{:.2f} ms".format(*figures)])
        return 0 if times else 1
