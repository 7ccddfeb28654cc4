"""``streamer config | reload``: what a configuration means, what the daemon uses, and having it read its file again."""

import argparse
from pathlib import Path
from typing import Any

import yaml

from streamer.cli.running import DaemonRefusedError, NotAskedError, ask
from streamer.cli.text import EX_CONFIG, complain, lines_out, plain
from streamer.config.load import load
from streamer.config.shown import fingerprint, shown

_RELOAD_S = 60.0  # beside what it waits for deliveries


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands to the command line."""
    text = "Print the configuration with all its defaults and without secrets: what the file means, or what is in use."
    config = commands.add_parser("config", help=text, description=text)
    config.set_defaults(command=_config)
    config.add_argument("--running", action="store_true", help="what the running daemon uses")
    text = "Have the running daemon read its file again, and say whether it accepts it, or everything that is wrong."
    reload = commands.add_parser("reload", help=text, description=text)
    reload.set_defaults(command=_reload)
    for command in (config, reload):
        command.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration file")


def _config(arguments: argparse.Namespace) -> int:
    config = load(arguments.config)
    try:
        in_use = ask(arguments.config, config, "/config", _in_use) if arguments.running else None
    except NotAskedError as exc:
        return complain(str(exc), exc.status)
    data, digits = in_use or (shown(config), fingerprint(config))
    lines_out([plain(f"# fingerprint {digits}"), *map(plain, yaml.safe_dump(data, sort_keys=False).splitlines())])
    return 0


def _in_use(answer: Any) -> tuple[dict[str, Any], str]:
    """The configuration that the daemon uses, and its fingerprint."""
    if not isinstance(answer["config"], dict):
        raise TypeError
    return answer["config"], str(answer["fingerprint"])


def _reload(arguments: argparse.Namespace) -> int:
    config = load(arguments.config)
    try:
        # Endpoints that change are drained, then those that go.
        within_s = _RELOAD_S + 2 * config.shutdown.drain_s
        digits = ask(arguments.config, config, "/reload", lambda answer: str(answer["fingerprint"]), {}, within_s)
        lines_out([f"accepted: fingerprint {plain(digits)}"])
    except DaemonRefusedError as exc:
        problems = exc.answer.get("problems") if isinstance(exc.answer, dict) else None
        if not isinstance(problems, list):
            return complain(str(exc), 1)
        for problem in problems:
            complain(plain(str(problem)), EX_CONFIG)
        return complain("refused: nothing has changed", EX_CONFIG)
    except NotAskedError as exc:
        return complain(str(exc), exc.status)
    return 0
