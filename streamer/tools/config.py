"""``streamer config | reload``: prints the file's or the daemon's configuration; makes the daemon read its file again."""

import argparse
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import yaml

from streamer.config.shown import cohort, fingerprint, shown
from streamer.tools.running import DaemonAddress, DaemonRefusedError, add_options, answered, ask, daemon_of, loaded
from streamer.tools.text import EX_CONFIG, add_json, complain, document_out, lines_out

_RELOAD_S = 60.0  # besides the wait for deliveries
_DRAIN_S = 1800.0  # of a daemon elsewhere, whose configuration is not known


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands to the command line."""
    text = "Print the configuration, from the file or as the running daemon uses it, with all defaults and without secrets."
    config = commands.add_parser("config", help=text, description=text)
    config.set_defaults(command=answered(_config))
    config.add_argument("--running", action="store_true", help="the configuration that the running daemon uses")
    text = "Make the running daemon read its file again, and print whether it has accepted it, or everything that is wrong."
    reload = commands.add_parser("reload", help=text, description=text)
    reload.set_defaults(command=answered(_reload))
    text = "only if no flow that the daemon knows would be denied or go nowhere any more; exit code 1 if one would"
    reload.add_argument("--if-nothing-denied", action="store_true", help=text)
    for command in (config, reload):
        add_options(command)
        add_json(command)


def _config(arguments: argparse.Namespace) -> int:
    config = loaded(arguments)
    if arguments.running or config is None:
        data, digits, alike = ask(daemon_of(arguments, config), "/config", _in_use)
    else:
        data, digits, alike = shown(config), fingerprint(config), cohort(config)
    if arguments.as_json:
        document_out({"fingerprint": digits, "cohort": alike, "config": data})
        return 0
    lines_out([f"# fingerprint {digits}", f"# cohort {alike}", *yaml.safe_dump(data, sort_keys=False).splitlines()])
    return 0


def _in_use(answer: Any) -> tuple[dict[str, Any], str, str]:
    """Return the configuration that the daemon uses, its fingerprint and its cohort."""
    if not isinstance(answer["config"], dict):
        raise TypeError
    return answer["config"], str(answer["fingerprint"]), str(answer["cohort"])


def _reload(arguments: argparse.Namespace) -> int:
    return reload(arguments, "/reload", {"if_nothing_denied": True} if arguments.if_nothing_denied else {}, _accepted)


def _accepted(arguments: argparse.Namespace, daemon: DaemonAddress, digits: str) -> int:
    document_out({"fingerprint": digits}) if arguments.as_json else lines_out([f"accepted: fingerprint {digits}"])
    return 0


def reload(arguments: argparse.Namespace, page: str, asked: dict[str, Any], accepted: Callable[..., int]) -> int:
    """Ask a page for a reload. Return what ``accepted`` returns for the fingerprint, or print why it was refused."""
    config = loaded(arguments)
    # Changed endpoints are drained, then removed ones.
    within_s = _RELOAD_S + 2 * (_DRAIN_S if config is None else config.shutdown.drain_s)
    daemon = daemon_of(arguments, config)
    try:
        digits = ask(daemon, page, lambda answer: str(answer["fingerprint"]), asked, within_s)
    except DaemonRefusedError as exc:
        problems = exc.answer.get("problems") if isinstance(exc.answer, dict) else None
        if not isinstance(problems, list):
            return complain(str(exc), exc.status)
        status = 1 if exc.code == HTTPStatus.CONFLICT else EX_CONFIG
        for problem in problems:
            complain(str(problem), status)
        return complain("refused: nothing has changed", status)
    return accepted(arguments, daemon, digits)
