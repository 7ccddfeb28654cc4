"""``streamer reload --probation`` waits until the configuration is confirmed or was refused; ``streamer confirm``."""

import argparse
import time
from functools import update_wrapper

from streamer.tools import config
from streamer.tools.running import DaemonAddress, NotAskedError, add_options, answered, ask, daemon_of, loaded
from streamer.tools.text import add_json, complain, document_out, lines_out, milliseconds

_LOOK_S = 1.0
_LATE_S = 120.0  # after its end; the streamer may have to start anew


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the option to ``streamer reload``, and the command."""
    text = "go back unless streamer confirm comes within this time, such as 10m, and wait for the end"
    reload = commands.choices["reload"]
    reload.add_argument("--probation", type=milliseconds, metavar="TIME", help=text)
    plain, ours = reload.get_default("command"), answered(_on_probation)
    reload.set_defaults(command=update_wrapper(lambda each: (plain if each.probation is None else ours)(each), plain))
    text = "Confirm the configuration that is on probation."
    confirm = commands.add_parser("confirm", help=text, description=text)
    confirm.set_defaults(command=answered(_confirm))
    add_options(confirm)
    add_json(confirm)


def _on_probation(arguments: argparse.Namespace) -> int:
    if arguments.if_nothing_denied:
        return complain("--probation: not together with --if-nothing-denied", 2)
    return config.reload(arguments, "/probation", {"for_s": arguments.probation / 1000}, _wait)


def _wait(arguments: argparse.Namespace, daemon: DaemonAddress, digits: str) -> int:
    if not arguments.as_json:
        lines_out([f"on probation: fingerprint {digits}; confirm it with: streamer confirm"])
    found, until_s = {"state": "on_probation", "why": ""}, time.monotonic() + arguments.probation / 1000 + _LATE_S
    while found["state"] == "on_probation" and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        try:
            found = ask(daemon, "/probation", lambda answer: {name: str(answer[name]) for name in ("state", "why")})
        except NotAskedError:  # it may be starting anew
            continue
    if arguments.as_json:
        document_out({"fingerprint": digits, **found})
    elif found["state"] == "confirmed":
        lines_out([f"confirmed: fingerprint {digits}"])
    else:
        complain(f"{found['state'].replace('_', ' ')}: {found['why'] or 'the streamer does not say more'}", 1)
    return int(found["state"] != "confirmed")


def _confirm(arguments: argparse.Namespace) -> int:
    found = ask(daemon_of(arguments, loaded(arguments)), "/confirm", dict, {})
    document_out(found) if arguments.as_json else lines_out(["confirmed"])
    return 0
