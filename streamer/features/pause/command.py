"""``streamer pause | resume``: adds and removes pause rules of a running daemon, over its HTTP port."""

import argparse
from typing import Any

from streamer.journal.moments import as_span
from streamer.routing.pause_rules import PauseRule, PauseRuleError
from streamer.tools.running import add_options, answered, ask, daemon_of, loaded
from streamer.tools.text import add_json, as_table, complain, document_out, lines_out, milliseconds

_LONGEST_MS = 366 * 24 * 3_600_000


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands to the command line."""
    text = "Pause a topic: its messages wait, while their TTL lasts. Without --topic: list the pause rules."
    pause = commands.add_parser("pause", help=text, description=text)
    pause.set_defaults(command=answered(_pause))
    text = "Resume a topic, with the same --topic and --sink that paused it. Messages that waited are sent in order."
    resume = commands.add_parser("resume", help=text, description=text)
    resume.set_defaults(command=answered(_resume))
    for command in (pause, resume):
        add_options(command)
        add_json(command)
        command.add_argument(
            "--topic",
            metavar="URI",
            required=command is resume,
            help="a topic such as //veh1/A8000/2/8A50, a uEntity that sends Requests (resource 0), or a pattern",
        )
        command.add_argument("--sink", metavar="URI", help="only messages to this sink: a uEntity, a method, or a pattern")
    text = "resume it by itself after that time: 30m, 2h, 7d; default: it stays paused"
    pause.add_argument("--for", type=_span, dest="for_ms", metavar="2h", help=text)


def _pause(arguments: argparse.Namespace) -> int:
    if arguments.topic is not None:
        return _change(arguments, "pause")
    for option, given in (("--sink", arguments.sink), ("--for", arguments.for_ms)):
        if given is not None:
            return complain(f"{option} needs --topic", 2)
    return _ask(arguments, "/paused", None)


def _resume(arguments: argparse.Namespace) -> int:
    return _change(arguments, "resume")


def _change(arguments: argparse.Namespace, what: str) -> int:
    try:
        rule = PauseRule.parse(arguments.topic, arguments.sink)
    except PauseRuleError as exc:
        return complain(f"--{exc}", 2)
    asked: dict[str, Any] = {"topic": str(rule.source)} | ({} if rule.sink is None else {"sink": str(rule.sink)})
    for_ms = getattr(arguments, "for_ms", None)
    return _ask(arguments, f"/{what}", asked | ({} if for_ms is None else {"for_s": for_ms / 1000}))


def _ask(arguments: argparse.Namespace, page: str, asked: dict[str, Any] | None) -> int:
    daemon = daemon_of(arguments, loaded(arguments))
    if asked is None:
        if arguments.as_json:
            document_out({"paused": ask(daemon, page, lambda answer: list(map(dict, answer["paused"])))})
        else:
            lines_out(ask(daemon, page, _listed))
        return 0
    changed = ask(daemon, page, lambda answer: bool(answer["changed"]), asked)
    if arguments.as_json:
        document_out({"topic": asked["topic"], "sink": asked.get("sink"), "changed": changed})
    else:
        lines_out([_result(asked, changed, page)])
    return 0


def _result(asked: dict[str, Any], changed: bool, page: str) -> str:
    what = " → ".join(asked[name] for name in ("topic", "sink") if name in asked)
    if page == "/resume":
        return f"resumed {what}"
    end = f" for {as_span(round(asked['for_s'] * 1000))}" if "for_s" in asked else ""
    return f"paused {what}{end}" if changed else f"{what} was paused already"


def _listed(answer: Any) -> list[str]:
    rules = [
        (each["topic"], each["sink"] or "any", str(each["flows"]), str(each["messages"]), _end(each.get("left_s")))
        for each in answer["paused"]
    ]
    return list(as_table([("TOPIC", "SINK", "FLOWS", "WAITING", "ENDS"), *rules])) if rules else ["nothing is paused"]


def _end(left_s: float | None) -> str:
    return "-" if left_s is None else f"in {as_span(round(left_s * 1000))}"


def _span(text: str) -> int:
    span_ms = milliseconds(text)
    if not 0 < span_ms <= _LONGEST_MS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1ms to 366d")
    return span_ms
