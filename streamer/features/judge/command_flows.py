"""Where `streamer diff` and `test --record` find flows: in traces, at a running daemon, or made up of configurations."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from streamer.config.models import Config
from streamer.features.flow import Flow
from streamer.features.judge.representative import representatives
from streamer.features.record import first
from streamer.tools.running import NotAskedError, add_elsewhere, daemon_of
from streamer.tools.text import EX_IOERR, milliseconds

DEFAULT_LAST = "7d"


class Found(NamedTuple):
    """Flows, and where they were found in words.

    ``is_real``: messages of these flows were seen. ``cut``: why they are not all that matter, empty if they are.
    ``unread``: the files that cannot be read, and why.
    """

    flows: list[Flow]
    where: str
    is_real: bool
    cut: str = ""
    unread: Sequence[str] = ()

    @property
    def status(self) -> int:
        """Return the exit status, if nothing else is wrong."""
        return EX_IOERR if self.unread else 0


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where flows are found."""
    group = parser.add_argument_group("the flows", "Without one of these, flows are made up that stand for all patterns.")
    group.add_argument("--traces", type=Path, metavar="DIR", help="those in a folder of traces")
    group.add_argument(
        "--last", type=_window, metavar="7d", help=f"of --traces, those of this time: 12h, 7d; default: {DEFAULT_LAST}"
    )
    group.add_argument("--running", action="store_true", help="those that the running daemon knows")
    add_elsewhere(parser)


def _window(text: str) -> int:
    length_ms = milliseconds(text)
    if not length_ms:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a duration above 0")
    return length_ms


def wrong_usage(arguments: argparse.Namespace) -> str:
    """Return what is wrong with the options; empty if nothing is."""
    if arguments.traces is not None and (arguments.running or arguments.url is not None):
        return "either --traces, or --running or --url"
    if arguments.last is not None and arguments.traces is None:
        return "--last belongs to --traces"
    return ""


def find_flows(arguments: argparse.Namespace, *configs: Config) -> Found:
    """Return the flows that the options name. Raises `NotAskedError` if there is no way to them, OSError for the folder."""
    if arguments.traces is not None:
        return _of_traces(arguments, configs[0].authority)
    if arguments.running or arguments.url is not None:
        from streamer.features.judge.command_known_flows import flows_of_daemon  # noqa: PLC0415

        daemon = daemon_of(arguments, configs[0])
        flows, forgotten = flows_of_daemon(daemon)
        cut = f"the daemon had to forget a flow for another {forgotten} times since its start" if forgotten else ""
        return Found(flows, f"the {_flows(len(flows))} that the daemon at {daemon.named} knows", is_real=True, cut=cut)
    made = representatives(*configs)
    more = ", of which there are more" if made.has_more else ""
    about = " of patterns that differ" if len(configs) > 1 else ""
    cut = f"there are more flows{about} than can be made up" if made.is_cut else ""
    return Found(
        made.flows,
        f"{_flows(len(made.flows))} made up of the patterns in the file{_s(len(configs))}{more}",
        is_real=False,
        cut=cut,
    )


def _of_traces(arguments: argparse.Namespace, streamer: str) -> Found:
    """Return the flows in a folder of traces: those of this streamer, or if it has none there, those of all."""
    if (read_week := first(kind.flow_reader() for kind in arguments.features)) is None:
        raise NotAskedError("this streamer has no feature that writes traces")
    last_ms = arguments.last or milliseconds(DEFAULT_LAST)
    now_us = time.time_ns() // 1000
    next(arguments.traces.iterdir(), None)  # raises OSError
    since_us = now_us - last_ms * 1000
    unread: list[str] = []
    week = read_week(arguments.traces, since_us, now_us, unread.append, streamer)
    if not week.records:
        unread.clear()
        week = read_week(arguments.traces, since_us, now_us, unread.append, None)
    where, cut = f"the {_flows(len(week.flows))} in {arguments.traces} of the last {_duration(last_ms)}", ""
    if week.more_flows:
        where += f" with the most messages, without {week.more_messages} messages of at least {week.more_flows} others"
        cut = f"the traces have at least {_flows(week.more_flows)} more"
    return Found(week.flows, where, is_real=True, cut=cut, unread=unread)


def _duration(length_ms: int) -> str:
    for name, unit in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if length_ms % unit == 0:
            return f"{length_ms // unit} {name}"
    return f"{length_ms / 1000:g} seconds"


def _flows(count: int) -> str:
    return f"{count} flow{_s(count)}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
