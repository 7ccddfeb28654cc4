"""``streamer diff``: what differs in meaning between two configurations, over the flows of traces or of a running daemon."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from streamer.cli.explain import known_of
from streamer.cli.flows import Found, add_sources, find_flows, wrong_usage
from streamer.cli.running import answered
from streamer.cli.text import EX_CONFIG, EX_IOERR, add_json, complain, document_out, lines_out, reason_of
from streamer.config.changed import Setting, changed_settings
from streamer.config.checks import nearest
from streamer.config.cost import Cost
from streamer.config.costs import cost_lines, costs
from streamer.config.load import ConfigError, load
from streamer.config.models import Config
from streamer.config.reload import beyond_reload, reconnected_endpoints
from streamer.config.shown import fingerprint
from streamer.routing.diff import Comparison, Kind, Side
from streamer.routing.diff_text import consequences_json, consequences_lines, weight
from streamer.services.host import table_of
from streamer.services.state import StateError

_SETTINGS, _COST = "settings", "cost"
FAIL_ON = (*(kind.value for kind in Kind), _SETTINGS, _COST)


class Differences(NamedTuple):
    """Everything in which two configurations differ."""

    comparison: Comparison
    settings: list[Setting]
    restart: list[str]
    rebuilt: list[str]
    costs: list[Cost]

    @property
    def names(self) -> set[str]:
        """Return the kinds that there are, as ``--fail-on`` names them."""
        found = {kind.value for kind in self.comparison.kinds}
        found |= {_SETTINGS} if self.settings else set()
        return found | ({_COST} if any(cost.is_short for cost in self.costs) else set())


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Show what differs in meaning between two configuration files: which flows would go elsewhere or be denied."
    sub = commands.add_parser("diff", help=text, description=text)
    sub.set_defaults(command=answered(_diff))
    sub.add_argument("old", type=Path, metavar="OLD", help="the configuration file that is in use")
    sub.add_argument("new", type=Path, metavar="NEW", help="the one that is to take its place")
    text = f"exit with 1 if there is one of these: {', '.join(FAIL_ON)}"
    sub.add_argument("--fail-on", type=_kinds, default=[], metavar="denied,moved", help=text)
    add_sources(sub)
    add_json(sub)


def _kinds(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FAIL_ON:
            raise argparse.ArgumentTypeError(f"{name!r}: expected one of {', '.join(FAIL_ON)}{nearest(name, FAIL_ON)}")
    # What is dropped without a word is lost as well, as for `reload --if-nothing-denied`.
    return [*names, Kind.UNROUTED.value] if Kind.DENIED.value in names else names


def _diff(arguments: argparse.Namespace) -> int:
    if wrong := wrong_usage(arguments):
        return complain(wrong, 2)
    loaded = [_loaded(path) for path in (arguments.old, arguments.new)]
    old, new = loaded
    if old is None or new is None:
        count = sum(each is None for each in loaded)
        return complain(f"{'one file' if count == 1 else 'both files'} cannot be used", EX_CONFIG)
    arguments.config = arguments.old
    try:
        found = find_flows(arguments, old, new)
        known = known_of(old)
    except StateError as exc:
        return complain(str(exc), EX_CONFIG)
    except OSError as exc:
        return complain(reason_of(exc), EX_IOERR)
    differences = compared(old, new, found, Side(old, known))
    if arguments.as_json:
        document_out({"fingerprint": fingerprint(new), **_document(arguments, differences, found)})
    else:
        for text in found.unread:
            complain(text, 0)
        lines_out(_lines(arguments, differences, found))
    return found.status or (1 if differences.names & set(arguments.fail_on) else 0)


def _loaded(path: Path) -> Config | None:
    try:
        return load(path)
    except ConfigError as exc:
        for problem in exc.problems:
            complain(problem, EX_CONFIG)
        return None


def compared(old: Config, new: Config, found: Found, before: Side) -> Differences:
    """Return everything in which two configurations differ."""
    after = before.known._replace(table=table_of(new))
    comparison = Comparison(before, Side(new, after))
    for flow in found.flows:
        comparison.add(flow)
    return Differences(
        comparison,
        changed_settings(old, new),
        beyond_reload(old, new),
        reconnected_endpoints(old, new),
        costs(old, new, found.peaks),
    )


def _lines(arguments: argparse.Namespace, differences: Differences, found: Found) -> Iterator[str]:
    comparison = differences.comparison
    about = f", {weight(comparison.messages_per_day)}" if comparison.messages_per_day else ""
    yield f"{arguments.old} → {arguments.new}, over {found.where}{about}"
    yield from consequences_lines(comparison, found.is_real)
    if not comparison.kinds and not differences.settings:
        yield "nothing differs in meaning"
        return
    yield from _section("Settings that change:", (setting.text for setting in differences.settings))
    yield from _section("At a reload:", _at_a_reload(differences))
    yield from _section("What the new file costs:", cost_lines(differences.costs))


def _at_a_reload(differences: Differences) -> Iterator[str]:
    yield from differences.restart
    for name in () if differences.restart else differences.rebuilt:
        yield f"endpoint {name} disconnects, and connects with its new options"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if not number:
            yield from ("", title)
        yield f"  {line}"


def _document(arguments: argparse.Namespace, differences: Differences, found: Found) -> dict[str, Any]:
    return {
        "old": str(arguments.old),
        "new": str(arguments.new),
        **consequences_json(differences.comparison),
        "is_real": found.is_real,
        "unread": list(found.unread),
        "settings": [setting._asdict() for setting in differences.settings],
        "restart": differences.restart,
        "rebuilt": differences.rebuilt,
        "costs": [cost._asdict() | {"is_short": cost.is_short} for cost in differences.costs],
        "failed_on": sorted(differences.names & set(arguments.fail_on)),
    }
