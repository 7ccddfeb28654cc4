"""``streamer diff``: what differs in meaning between two configurations, over the flows of traces or of a running daemon."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from streamer.config.checks import nearest
from streamer.config.load import ConfigError, load
from streamer.config.models import Config
from streamer.config.reload import beyond_reload, reconnected_endpoints
from streamer.config.shown import fingerprint
from streamer.features.host.host import table_of
from streamer.features.host.state import StateError
from streamer.features.judge.changed import Setting, changed_settings
from streamer.features.judge.command_explain import known_of
from streamer.features.judge.command_flows import Found, add_sources, find_flows, wrong_usage
from streamer.features.judge.diff import Comparison, Kind, Side
from streamer.features.judge.diff_text import (
    as_code,
    as_plain,
    consequences_json,
    consequences_lines,
    consequences_markdown,
    weight,
)
from streamer.features.judge.representative import representatives
from streamer.features.record import Kinds
from streamer.tools.running import answered
from streamer.tools.text import EX_CONFIG, EX_IOERR, add_json, complain, document_out, lines_out, reason_of

_SETTINGS, _NONE = "settings", "none"
FAIL_ON = (*(kind.value for kind in Kind), _SETTINGS)


class Differences(NamedTuple):
    """Everything in which two configurations differ.

    ``openings``: what made-up flows show beside flows that were seen; those are what is possible today, and show no opening.
    """

    comparison: Comparison
    openings: Comparison | None
    settings: list[Setting]
    restart: list[str]
    rebuilt: list[str]

    @property
    def comparisons(self) -> list[tuple[Comparison, bool]]:
        """Return each comparison of flows, and whether these were seen."""
        if self.openings is None:
            return [(self.comparison, False)]
        return [(self.comparison, True), (self.openings, False)]

    @property
    def names(self) -> set[str]:
        """Return the kinds that there are, as ``--fail-on`` names them."""
        found = {kind.value for comparison, _ in self.comparisons for kind in comparison.kinds}
        return found | ({_SETTINGS} if self.settings else set())

    def failing(self, gate: Sequence[str] | None) -> list[str]:
        """Return the kinds that a gate stops. None: all that can lose or expose a message."""
        if gate is not None:
            return sorted(self.names & set(gate))
        risky = self.names - {Kind.REASON.value}
        if all(setting.is_harmless for setting in self.settings):
            risky.discard(_SETTINGS)
        return sorted(risky)


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Show what differs in meaning between two configuration files: which flows would go elsewhere or be denied."
    sub = commands.add_parser("diff", help=text, description=text)
    sub.set_defaults(command=answered(_diff))
    sub.add_argument("old", type=Path, metavar="OLD", help="the configuration file that is in use")
    sub.add_argument("new", type=Path, metavar="NEW", help="the one that is to take its place")
    text = f"exit with 1 only for these, of {', '.join((*FAIL_ON, _NONE))}; default: all that can lose or expose a message"
    sub.add_argument("--fail-on", type=_kinds, metavar="denied,moved", help=text)
    add_sources(sub)
    text = "markdown: for a comment on a pull request; default: text"
    sub.add_argument("--format", choices=("text", "markdown"), default="text", help=text)
    add_json(sub)


def _kinds(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if names == [_NONE]:
        return names
    for name in names:
        if name not in FAIL_ON:
            raise argparse.ArgumentTypeError(f"{name!r}: expected one of {', '.join(FAIL_ON)}{nearest(name, FAIL_ON)}")
    # What is dropped without a word is lost as well, as for `reload --if-nothing-denied`.
    return [*names, Kind.UNROUTED.value] if Kind.DENIED.value in names else names


def _diff(arguments: argparse.Namespace) -> int:
    if wrong := wrong_usage(arguments):
        return complain(wrong, 2)
    loaded = [_loaded(path, arguments.kind) for path in (arguments.old, arguments.new)]
    old, new = loaded
    if old is None or new is None:
        count = sum(each is None for each in loaded)
        return complain(f"{'one file' if count == 1 else 'both files'} cannot be used", EX_CONFIG)
    arguments.config = arguments.old
    try:
        found = find_flows(arguments, old, new)
        known = known_of(old, arguments.features)
    except StateError as exc:
        return complain(str(exc), EX_CONFIG)
    except OSError as exc:
        return complain(reason_of(exc), EX_IOERR)
    differences = compared(old, new, found, Side(old, known), arguments.features)
    failing = differences.failing(arguments.fail_on)
    made = not found.is_real
    is_sample = bool(found.cut) and arguments.fail_on != [_NONE]
    if arguments.as_json:
        document_out({"fingerprint": fingerprint(new), **_document(arguments, differences, found), "failed_on": failing})
    else:
        for text in found.unread:
            complain(text, 0)
        is_markdown = arguments.format == "markdown"
        lines_out(_markdown(arguments, differences, found) if is_markdown else _lines(arguments, differences, found))
        if failing:
            complain(f"fails on {', '.join(failing)}", 1)
        if is_sample:
            complain(f"not all was judged: {found.cut}. Judge those that run: --traces DIR{' or --running' * made}", 1)
    return found.status or (1 if failing or is_sample else 0)


def _loaded(path: Path, kind: type[Config]) -> Config | None:
    try:
        return load(path, kind=kind)
    except ConfigError as exc:
        for problem in exc.problems:
            complain(problem, EX_CONFIG)
        return None


def compared(old: Config, new: Config, found: Found, before: Side, kinds: Kinds) -> Differences:
    """Return everything in which two configurations differ."""
    after = before.known._replace(table=table_of(new, kinds))
    comparison = Comparison(before, Side(new, after))
    for flow in found.flows:
        comparison.add(flow)
    openings = None
    if found.is_real:
        openings = Comparison(before, Side(new, after), only_openings=True)
        for flow in representatives(old, new).flows:
            openings.add(flow)
    return Differences(
        comparison, openings, changed_settings(old, new), beyond_reload(old, new), reconnected_endpoints(old, new)
    )


def _lines(arguments: argparse.Namespace, differences: Differences, found: Found) -> Iterator[str]:
    comparison = differences.comparison
    about = f", {weight(comparison.messages_per_day)}" if comparison.messages_per_day else ""
    yield f"{arguments.old} → {arguments.new}, over {found.where}{about}"
    for each, is_real in differences.comparisons:
        yield from consequences_lines(each, is_real)
    if not differences.names:
        yield "nothing differs in meaning"
        return
    for title, lines in _sections(differences):
        yield from ("", title, *(f"  {line}" for line in lines))


def _markdown(arguments: argparse.Namespace, differences: Differences, found: Found) -> Iterator[str]:
    """Yield the differences as Markdown, which shows every name as it is."""
    yield f"### {as_code(str(arguments.old))} → {as_code(str(arguments.new))}"
    yield ""
    yield f"Over {as_plain(found.where)}."
    if found.cut:
        yield f"**Not all was judged:** {as_plain(found.cut)}."
    yield ""
    for each, is_real in differences.comparisons:
        yield from consequences_markdown(each, is_real)
    if not differences.names:
        yield "Nothing differs in meaning."
        return
    for title, lines in _sections(differences):
        yield from (f"**{title}**", "", *(f"- {as_code(line)}" for line in lines), "")


def _sections(differences: Differences) -> Iterator[tuple[str, list[str]]]:
    """Yield what differs beside the flows: titles and sentences."""
    for title, lines in (
        ("Settings that change:", [setting.text for setting in differences.settings]),
        ("At a reload:", list(_at_a_reload(differences))),
    ):
        if lines:
            yield title, lines


def _at_a_reload(differences: Differences) -> Iterator[str]:
    yield from differences.restart
    for name in () if differences.restart else differences.rebuilt:
        yield f"endpoint {name} disconnects, and connects with its new options"


def _document(arguments: argparse.Namespace, differences: Differences, found: Found) -> dict[str, Any]:
    return {
        "old": str(arguments.old),
        "new": str(arguments.new),
        **consequences_json(differences.comparison),
        "is_real": found.is_real,
        "is_cut": bool(found.cut),
        "openings": [] if differences.openings is None else consequences_json(differences.openings)["changes"],
        "unread": list(found.unread),
        "settings": [setting._asdict() for setting in differences.settings],
        "restart": differences.restart,
        "rebuilt": differences.rebuilt,
    }
