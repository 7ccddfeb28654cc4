"""The pause rules, and the flows that they match.

The law of this file:
- A rule is a pattern of sources, and optionally a pattern of sinks. A flow is paused while at least one rule matches it.
- A rule without sink pauses every flow of its sources, whatever the sink.
- A rule with a sink pauses only flows that have one. A Publish has none, except for the authority that a streamer sets where
  the network needs one: then only the authority is compared.
- A rule is removed only by exactly its source and sink. Other rules may still pause the same flows.

Pure: no event loop, no clock, no logger, no file.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streamer.uprotocol.message import sink_matches
from streamer.uprotocol.patterns import PatternIndex
from streamer.uprotocol.uri import ANY_RESOURCE, FIRST_TOPIC, LAST_METHOD, UriError, UUri

MAX_RULES = 1000


class PauseRuleError(ValueError):
    """The text is not a valid rule; the message says what was expected."""


class PauseRule(NamedTuple):
    """Pauses flows from ``source``; with a ``sink``, only flows to it. Both may have wildcards."""

    source: UUri
    sink: UUri | None = None

    @classmethod
    def parse(cls, source: str, sink: str | None = None) -> "PauseRule":
        """Read both from their text form. Raises `PauseRuleError`."""
        return cls(_read("topic", source), None if sink is None else _read("sink", sink)).check()

    def check(self) -> "PauseRule":
        """Return self if it can match any flow, else raise `PauseRuleError`."""
        _check("topic", self.source)
        if LAST_METHOD >= self.source.resource > 0:
            raise PauseRuleError(
                f"topic {self.source}: expected a topic (resource 8000 to FFFE), a uEntity (0) or any (FFFF); "
                "a method is a sink"
            )
        if self.sink is not None:
            _check("sink", self.sink)
            if FIRST_TOPIC <= self.sink.resource < ANY_RESOURCE:
                raise PauseRuleError(
                    f"sink {self.sink}: expected a uEntity (resource 0), a method (1 to 7FFF) or any (FFFF)"
                )
        return self

    def matches(self, source: UUri, sink: UUri | None) -> bool:
        """Whether the rule pauses a flow with these addresses."""
        return self.source.matches(source) and self.allows_sink(sink)

    def allows_sink(self, sink: UUri | None) -> bool:
        """Whether the rule pauses a flow to this sink, given that its source matches."""
        return self.sink is None or sink_matches(self.sink, sink)

    def __str__(self) -> str:
        return f"{self.source}" if self.sink is None else f"{self.source} → {self.sink}"


class PauseRules:
    """All rules, in the order in which they were added.

    They are indexed by source: see `PatternIndex` for the cost of a look-up, and one access per rule with the same source.
    """

    def __init__(self, rules: Iterable[PauseRule] = ()) -> None:
        self._rules: dict[PauseRule, None] = {}
        self._by_source: PatternIndex[dict[PauseRule, None]] = PatternIndex()
        for rule in rules:
            self.add(rule)

    @property
    def rules(self) -> tuple[PauseRule, ...]:
        """Every rule, oldest first."""
        return tuple(self._rules)

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached. It applies to new rules only; rules on disk are always restored."""
        return len(self._rules) >= MAX_RULES

    def __len__(self) -> int:
        return len(self._rules)

    def __contains__(self, rule: PauseRule) -> bool:
        return rule in self._rules

    def add(self, rule: PauseRule) -> bool:
        """Add a rule; return False if it was there already."""
        if rule in self._rules:
            return False
        self._rules[rule] = None
        self._by_source.setdefault({}, rule.source)[rule] = None
        return True

    def remove(self, rule: PauseRule) -> bool:
        """Remove exactly this rule; return False if it was not there."""
        if rule not in self._rules:
            return False
        del self._rules[rule]
        rules = self._by_source.setdefault({}, rule.source)
        del rules[rule]
        if not rules:
            self._by_source.remove(rule.source)
        return True

    def rule_for(self, source: UUri, sink: UUri | None) -> PauseRule | None:
        """Return a rule that pauses a flow with these addresses, or None."""
        return next(self.rules_for(source, sink), None)

    def rules_for(self, source: UUri, sink: UUri | None) -> Iterator[PauseRule]:
        """Yield every rule that pauses a flow with these addresses."""
        for rules in self._by_source.matching(source):
            yield from (rule for rule in rules if rule.allows_sink(sink))


def _read(name: str, text: str) -> UUri:
    try:
        return UUri.parse(text)
    except UriError as exc:
        raise PauseRuleError(f"{name} {exc}") from exc


def _check(name: str, pattern: UUri) -> None:
    try:
        pattern.check()
    except UriError as exc:
        raise PauseRuleError(f"{name} {exc}") from exc
    if not pattern.authority:
        raise PauseRuleError(f"{name} {pattern}: expected an authority, or * for any")
