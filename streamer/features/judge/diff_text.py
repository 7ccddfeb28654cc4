"""The consequences of a change for flows: as lines or Markdown for people, and as JSON for programs. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from streamer.features.flow import Flow
from streamer.features.judge.diff import Comparison, Gathered


def consequences_lines(comparison: Comparison, is_real: bool) -> Iterator[str]:
    """Yield the consequences, each with the flows that have the most messages. ``is_real``: the flows were seen."""
    for consequence, gathered in comparison.found:
        yield ""
        yield f"{_counted(gathered, is_real)} {consequence.kind.words}: {consequence.text}"
        for flow in gathered.examples:
            share = f"  {weight(flow.messages_per_day)}" if flow.messages_per_day else ""
            yield f"  {described(flow)}{share}"
        if gathered.flows > len(gathered.examples):
            yield f"  and {gathered.flows - len(gathered.examples)} more"
    if is_real and comparison.guessed:
        yield ""
        yield (
            f"{comparison.guessed} flow{_s(comparison.guessed)} without a known identity: "
            "judged with one that may speak for the source"
        )
    if comparison.unjudged:
        yield ""
        count = f"{comparison.unjudged} flow{_s(comparison.unjudged)}"
        yield f"{count} not judged: neither file has the endpoint that they came in through"


def consequences_markdown(comparison: Comparison, is_real: bool) -> Iterator[str]:
    """Yield the same as a table of Markdown, and a blank line behind it."""
    found = comparison.found
    if not found:
        return
    yield "| what would happen | flows | messages a day | such as |"
    yield "|---|---|---|---|"
    for consequence, gathered in found:
        flows = f"{gathered.flows}{'' if is_real else ' made up'}"
        per_day = weight(gathered.messages_per_day).rpartition(" message")[0] if gathered.messages_per_day else ""
        first = as_code(described(gathered.examples[0]))
        yield f"| **{consequence.kind.words}:** {as_plain(consequence.text)} | {flows} | {per_day} | {first} |"
    yield ""


def as_plain(text: str) -> str:
    """Return a text that Markdown shows as it is, in a cell of a table, too: no markup, no link, no mention of anybody."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!@&$])", r"\\\1", text)


def as_code(text: str) -> str:
    """Return a text as code of Markdown, in a cell of a table, too."""
    text = text.replace("|", "\N{BROKEN BAR}")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def consequences_json(comparison: Comparison) -> dict[str, Any]:
    """Return the consequences in types of JSON."""
    return {
        "flows": comparison.flows,
        "messages_per_day": comparison.messages_per_day,
        "guessed_identities": comparison.guessed,
        "unjudged": comparison.unjudged,
        "changes": [
            {
                "kind": consequence.kind.value,
                "words": consequence.kind.words,
                "text": consequence.text,
                "flows": gathered.flows,
                "messages_per_day": gathered.messages_per_day,
                "examples": [flow.as_json() for flow in gathered.examples],
            }
            for consequence, gathered in comparison.found
        ],
    }


def losses(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each consequence with which flows go nowhere that went somewhere, or are newly refused."""
    for consequence, gathered in comparison.found:
        if consequence.kind.is_loss:
            first = described(gathered.examples[0])
            yield f"{_counted(gathered, is_real=True)} {consequence.kind.words}: {consequence.text}, such as {first}"


def described(flow: Flow) -> str:
    """Return a flow on one line."""
    sink = "" if flow.sink is None else f" → {flow.sink}"
    identity = f" as {flow.identity!a}" if flow.identity else ""
    return f"{flow.kind.name.lower()} {flow.source}{sink} from {flow.ingress}{identity}, {flow.claimed.name}"


def weight(messages_per_day: float) -> str:
    """Return a number of messages a day, in words, with two digits or three."""
    for unit, name in ((1e9, " billion"), (1e6, " million")):
        if messages_per_day >= unit * 0.9995:
            return f"{_rounded(messages_per_day / unit)}{name} messages a day"
    if messages_per_day >= 10:
        return f"{messages_per_day:,.0f} messages a day".replace(",", " ")
    text = f"{messages_per_day:.2g}"
    return f"{text} message{'' if text == '1' else 's'} a day"


def _rounded(number: float) -> str:
    return f"{number:.1f}" if number < 100 else f"{number:.0f}"


def _counted(gathered: Gathered, is_real: bool) -> str:
    kind = "" if is_real else "made-up "
    flows = f"{gathered.flows} {kind}flow{_s(gathered.flows)}"
    return f"{flows}, {weight(gathered.messages_per_day)}," if gathered.messages_per_day else flows


def _s(count: int) -> str:
    return "" if count == 1 else "s"
