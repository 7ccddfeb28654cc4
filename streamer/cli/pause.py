"""``streamer pause | resume``: tells a running daemon, over its HTTP port, which flows to pause.

The answer is printed without control characters, which a terminal would obey.
"""

import argparse
import json
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from streamer.admin.access import read_token
from streamer.cli.text import EX_CONFIG, as_table, complain, lines_out, plain
from streamer.config.load import load
from streamer.config.models import MetricsConfig
from streamer.routing.pause_rules import PauseRule, PauseRuleError

_ANSWER_S = 10.0
_ANSWER_BYTES = 1 << 20  # a thousand rules with the longest names take half of that

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where to reach a daemon that listens there


class _NoAnswerError(Exception):
    """Nobody answered, or not a streamer. The text says which."""


class _RefusedError(Exception):
    """The daemon refused. The text says why."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands to the command line."""
    text = "Pause a topic: its messages wait, as long as their TTL allows. Without --topic: list what is paused."
    pause = commands.add_parser("pause", help=text, description=text)
    pause.set_defaults(command=_pause)
    text = "Resume a topic, with the same options that paused it. The messages that waited are sent in order."
    resume = commands.add_parser("resume", help=text, description=text)
    resume.set_defaults(command=_resume)
    for command in (pause, resume):
        command.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration file")
        command.add_argument(
            "--topic",
            metavar="URI",
            required=command is resume,
            help="a topic such as //veh1/A8000/2/8A50, a uEntity that sends Requests (resource 0), or a pattern",
        )
        command.add_argument("--sink", metavar="URI", help="only messages to it: a uEntity, a method, or a pattern")


def _pause(arguments: argparse.Namespace) -> int:
    if arguments.topic is not None:
        return _change(arguments, "pause")
    if arguments.sink is not None:
        return complain("--sink needs --topic", 2)
    return _ask(arguments, "/paused", None)


def _resume(arguments: argparse.Namespace) -> int:
    return _change(arguments, "resume")


def _change(arguments: argparse.Namespace, what: str) -> int:
    try:
        rule = PauseRule.parse(arguments.topic, arguments.sink)
    except PauseRuleError as exc:
        return complain(f"--{exc}", 2)
    asked = {"topic": str(rule.source)} | ({} if rule.sink is None else {"sink": str(rule.sink)})
    return _ask(arguments, f"/{what}", asked)


def _ask(arguments: argparse.Namespace, page: str, asked: dict[str, str] | None) -> int:
    config = load(arguments.config)
    metrics, token_file = config.metrics, config.control.http_token_file
    if metrics is None:
        return complain(f"{arguments.config}: metrics: null: the daemon is told over that port", EX_CONFIG)
    if not metrics.port:
        return complain(f"{arguments.config}: metrics.listen: {metrics.listen}: the port is not known", EX_CONFIG)
    headers = {"Content-Type": "application/json", "Host": "localhost"}  # the daemon may not know its other names
    if token_file is not None and asked is not None:
        try:
            headers["Authorization"] = f"Bearer {read_token(token_file).decode()}"
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            return complain(f"{arguments.config}: control.http_token_file: {token_file}: {reason}", 1)
    try:
        answer = _fetch(metrics, page, asked, headers)
        lines_out(_listed(answer) if asked is None else [_result(asked, bool(answer["changed"]), page)])
    except _RefusedError as exc:
        return complain(plain(str(exc)), 1)
    except _NoAnswerError as exc:
        return complain(f"{metrics.listen} (metrics.listen): {plain(str(exc))}", 1)
    except (KeyError, TypeError):
        return complain(f"{metrics.listen} (metrics.listen): what answers there is not a streamer", 1)
    return 0


def _fetch(metrics: MetricsConfig, page: str, asked: dict[str, str] | None, headers: dict[str, str]) -> Any:
    """The answer of a page: to a GET, or to a POST if something is asked."""
    host = _ANY_ADDRESS.get(metrics.host, metrics.host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{metrics.port}{page}"
    request = Request(url, None if asked is None else json.dumps(asked).encode(), headers)
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=_ANSWER_S) as answer:
            return json.loads(answer.read(_ANSWER_BYTES))
    except HTTPError as exc:
        raise _RefusedError(_reason(exc)) from exc
    except (URLError, OSError) as exc:
        raise _NoAnswerError(f"no streamer answers there ({getattr(exc, 'reason', None) or exc})") from exc
    except (ValueError, HTTPException) as exc:
        raise _NoAnswerError("what answers there is not a streamer") from exc


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read(_ANSWER_BYTES))["error"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return f"it answers {error.code} {error.reason}; is it a streamer, and of this version?"


def _result(asked: dict[str, str], changed: bool, page: str) -> str:
    what = " → ".join(asked.values())
    if page == "/resume":
        return f"resumed {what}"
    return f"paused {what}" if changed else f"{what} was paused already"


def _listed(answer: Any) -> list[str]:
    rules = [
        (plain(each["topic"]), plain(each["sink"] or "any"), str(each["lanes"]), str(each["messages"]))
        for each in answer["paused"]
    ]
    return list(as_table([("TOPIC", "SINK", "FLOWS", "WAITING"), *rules])) if rules else ["nothing is paused"]
