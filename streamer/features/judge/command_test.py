"""``streamer test``: holds a configuration against files of expectations, or writes such a file of what happens today.

It reads files and connects to nothing; with ``--record`` it may read traces, or ask a running daemon for its flows.
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import yaml

from streamer.config.load import ConfigError, load, load_as
from streamer.config.models import Config
from streamer.features.flow import Flow
from streamer.features.host.host import table_of
from streamer.features.judge.command_flows import add_sources, find_flows, wrong_usage
from streamer.features.judge.diff import interest_of as interest_of_flow
from streamer.features.judge.expectations import OUTCOMES, Expectation, Expectations
from streamer.features.judge.expected import Difference, differences, flow_of, interest_of, recorded
from streamer.features.judge.judge import Judgement, Known, UnclearQuestionError, judge
from streamer.routing.interest import Interest
from streamer.routing.pause_rules import PauseRules
from streamer.tools.running import answered
from streamer.tools.text import (
    CONFIG_DEFAULT,
    EX_CONFIG,
    EX_IOERR,
    add_json,
    complain,
    document_out,
    lines_out,
    plain,
    reason_of,
)
from streamer.uprotocol.uri import UriError


class Case(NamedTuple):
    """An expectation, and its place in a file."""

    file: str
    line: int
    column: int
    expectation: Expectation

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def name(self) -> str:
        message = self.expectation.message
        sink = "" if message.sink is None else f" → {message.sink}"
        return self.expectation.name or f"{message.type} {message.source}{sink}"


class Result(NamedTuple):
    """The result of a case: its fault, or none. ``why``: the rules that applied."""

    case: Case
    wrong: list[Difference]
    why: tuple[str, ...]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Hold the configuration against expectations: for each message its routes, or why it is denied."
    sub = commands.add_parser("test", help=text, description=text)
    sub.set_defaults(command=answered(_test))
    sub.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a file of expectations, in YAML")
    sub.add_argument("--config", type=Path, metavar="FILE", help=f"the configuration file; {CONFIG_DEFAULT}")
    sub.add_argument("--junit", type=Path, metavar="FILE", help="also write the results as JUnit XML, for CI")
    text = "print expectations that hold today: of the messages in FILE, or of flows"
    sub.add_argument("--record", action="store_true", help=text)
    add_sources(sub)
    add_json(sub)


def _test(arguments: argparse.Namespace) -> int:
    has_flows = arguments.traces is not None or arguments.running or arguments.url is not None
    wrong = wrong_usage(arguments)
    if has_flows and not arguments.record:
        wrong = "--traces, --running and --url belong to --record"
    elif has_flows and arguments.files:
        wrong = "either FILE, or --traces, --running or --url"
    elif not arguments.files and not arguments.record:
        wrong = "expected a FILE of expectations, or --record"
    elif arguments.record and (arguments.as_json or arguments.junit is not None):
        wrong = "--record prints YAML: without --json and --junit"
    if wrong:
        return complain(wrong, 2)
    config = load(arguments.config, kind=arguments.kind)
    cases, is_wrong = _cases(arguments.files, not arguments.record)
    if is_wrong:
        return EX_CONFIG
    known = Known(table_of(config, arguments.features), Interest(), PauseRules())  # without any subscription or pause rule
    if arguments.record:
        return _record(arguments, config, known, cases)
    results = [_result(case, known) for case in cases]
    if arguments.junit is not None:
        try:
            arguments.junit.write_bytes(_junit(results))
        except OSError as exc:
            return complain(reason_of(exc), EX_IOERR)
    if arguments.as_json:
        document_out(_document(results))
    else:
        lines_out(_lines(results))
    return 1 if any(result.wrong for result in results) else 0


def _cases(files: Iterable[Path], needs_outcome: bool) -> tuple[list[Case], bool]:
    """Return the expectations of all files, and whether some file is wrong, which has been said then."""
    cases: list[Case] = []
    is_wrong = False
    for file in files:
        try:
            found, document = load_as(Expectations, file)
        except ConfigError as exc:
            for problem in exc.problems:
                complain(problem, EX_CONFIG)
            is_wrong = True
            continue
        for index, expectation in enumerate(found.expect):
            case = Case(str(file), *document.position(("expect", index)), expectation)
            if needs_outcome and not expectation.outcomes:
                text = f"nothing is expected; expected one of {', '.join(OUTCOMES)}"
                complain(f"{case.where}: expect[{index}]: {text}", EX_CONFIG)
                is_wrong = True
            cases.append(case)
    return cases, is_wrong


def _judged(expectation: Expectation, known: Known) -> Judgement:
    message = expectation.message
    return judge(flow_of(message), known, interest_of(message))


def _result(case: Case, known: Known) -> Result:
    try:
        judgement = _judged(case.expectation, known)
    except UnclearQuestionError as exc:
        return Result(case, [Difference("message", "one that can be judged", str(exc))], ())
    wrong = differences(case.expectation, judgement, known.table)
    return Result(case, wrong, judgement.why if wrong else ())


# output


def _lines(results: list[Result]) -> Iterator[str]:
    failed = [result for result in results if result.wrong]
    for result in failed:
        yield f"{result.case.where}: {result.case.name}"
        for wrong in result.wrong:
            yield f"  {wrong.key}: expected {wrong.expected}"
            yield f"  {' ' * len(wrong.key)}  found    {wrong.found}"
            if wrong.hint:
                yield f"  {' ' * len(wrong.key)}  {wrong.hint}"
        yield from (f"    {reason}" for reason in result.why)
    count = f"{len(results)} expectation{'' if len(results) == 1 else 's'}"
    yield f"{count}: {f'{len(failed)} failed' if failed else 'all hold' if len(results) != 1 else 'it holds'}"


def _document(results: list[Result]) -> dict[str, Any]:
    return {
        "expectations": len(results),
        "failed": sum(bool(result.wrong) for result in results),
        "results": [
            {
                "file": result.case.file,
                "line": result.case.line,
                "column": result.case.column,
                "name": result.case.name,
                "holds": not result.wrong,
                "differences": [wrong._asdict() for wrong in result.wrong],
                "why": list(result.why),
            }
            for result in results
        ],
    }


def _junit(results: list[Result]) -> bytes:
    """Return the results as JUnit XML, with a suite for each file."""
    failed = sum(bool(result.wrong) for result in results)
    root = ElementTree.Element("testsuites", tests=str(len(results)), failures=str(failed))
    suites: dict[str, ElementTree.Element] = {}
    for result in results:
        case = result.case
        if case.file not in suites:
            own = [each for each in results if each.case.file == case.file]
            wrong = sum(bool(each.wrong) for each in own)
            suites[case.file] = ElementTree.SubElement(
                root, "testsuite", name=plain(case.file), tests=str(len(own)), failures=str(wrong)
            )
        element = ElementTree.SubElement(
            suites[case.file],
            "testcase",
            classname=plain(case.file),
            name=plain(case.name),
            file=plain(case.file),
            line=str(case.line),
        )
        if result.wrong:
            lines = [f"{each.key}: expected {each.expected}, found {each.found}" for each in result.wrong]
            failure = ElementTree.SubElement(element, "failure", message=plain("; ".join(lines)))
            failure.text = "\n".join(map(plain, (*lines, *result.why)))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


# recording


def _record(arguments: argparse.Namespace, config: Config, known: Known, cases: list[Case]) -> int:
    entries, left_out, status, found = [], 0, 0, None
    if arguments.files:
        for case in cases:
            try:
                entry = recorded(_judged(case.expectation, known), case.expectation.message.subscribed)
            except UnclearQuestionError as exc:
                return complain(f"{case.where}: {exc}", 2)
            entries.append({"name": case.expectation.name, **entry} if case.expectation.name else entry)
    else:
        try:
            found = find_flows(arguments, config)
        except OSError as exc:
            return complain(reason_of(exc), EX_IOERR)
        status = found.status
        for text in found.unread:
            complain(text, 0)
        unique = {}
        for flow in found.flows:
            judged = _recordable(flow, config, known)
            if judged is None:
                left_out += 1
            else:
                text = _dumped([judged])
                unique[text] = judged
        entries = [unique[text] for text in sorted(unique)]
    if not entries:
        return complain("no expectations: there are no flows that a file can name", 1)
    lines_out(_dumped({"expect": entries}).splitlines())
    if found is not None and found.cut:
        complain(f"not all is recorded: {found.cut}", 0)
    if left_out:
        complain(f"{left_out} flow{'' if left_out == 1 else 's'} left out: no such message is possible, or comes in here", 0)
    return status


def _recordable(flow: Flow, config: Config, known: Known) -> dict[str, Any] | None:
    """Return the expectation about a flow; None if no file can name it."""
    try:
        for address in (flow.source, flow.sink):
            if address is not None:
                address.check()
        endpoint = config.endpoints.get(flow.ingress)
        if flow.identity is None and endpoint is not None and not endpoint.options.proves_identity:
            flow = flow._replace(identity="")
        judgement = judge(flow, known)
        interested = interest_of_flow(judgement, config)
        if interested:
            interested.pop("*", None)
            judgement = judge(flow, known, interested)
    except (UnclearQuestionError, UriError):
        return None
    return recorded(judgement, interested)


def _dumped(data: Any) -> str:
    """Return YAML on lines as they are: ASCII, so that no text can pass for something else."""
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=False, width=1_000_000, default_flow_style=None))
