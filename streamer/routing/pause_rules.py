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

from streamer.uprotocol.message import authority_only
from streamer.uprotocol.uri import (
    ANY_AUTHORITY,
    ANY_INSTANCE,
    ANY_RESOURCE,
    ANY_TYPE,
    ANY_VERSION,
    FIRST_TOPIC,
    LAST_METHOD,
    UriError,
    UUri,
)

MAX_RULES = 1000

_Shape = tuple[bool, bool, bool, bool, bool]
"""Which parts of a pattern are wildcards: authority, type, instance, version, resource."""


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
        if self.sink is None:
            return True
        if sink is None:
            return False
        if authority_only(sink):
            return self.sink.authority in (ANY_AUTHORITY, sink.authority)
        return self.sink.matches(sink)

    def __str__(self) -> str:
        return f"{self.source}" if self.sink is None else f"{self.source} → {self.sink}"


class PauseRules:
    """All rules, in the order in which they were added.

    They are indexed by source, so that the cost of a lookup does not depend on their number: one access per combination of
    wildcards in use (at most 32), and one per rule with the same source.
    """

    def __init__(self, rules: Iterable[PauseRule] = ()) -> None:
        self._rules: dict[PauseRule, None] = {}
        self._by_shape: dict[_Shape, dict[UUri, dict[PauseRule, None]]] = {}
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
        shape = _shape(rule.source)
        self._by_shape.setdefault(shape, {}).setdefault(_masked(rule.source, shape), {})[rule] = None
        return True

    def remove(self, rule: PauseRule) -> bool:
        """Remove exactly this rule; return False if it was not there."""
        if rule not in self._rules:
            return False
        del self._rules[rule]
        shape = _shape(rule.source)
        by_source = self._by_shape[shape]
        key = _masked(rule.source, shape)
        del by_source[key][rule]
        if not by_source[key]:
            del by_source[key]
        if not by_source:
            del self._by_shape[shape]
        return True

    def rule_for(self, source: UUri, sink: UUri | None) -> PauseRule | None:
        """Return a rule that pauses a flow with these addresses, or None."""
        return next(self.rules_for(source, sink), None)

    def rules_for(self, source: UUri, sink: UUri | None) -> Iterator[PauseRule]:
        """Yield every rule that pauses a flow with these addresses."""
        for shape, by_source in self._by_shape.items():
            for rule in by_source.get(_masked(source, shape), ()):
                if rule.allows_sink(sink):
                    yield rule


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


def _shape(pattern: UUri) -> _Shape:
    return (
        pattern.authority == ANY_AUTHORITY,
        pattern.type_id == ANY_TYPE,
        pattern.instance_id == ANY_INSTANCE,
        pattern.version == ANY_VERSION,
        pattern.resource == ANY_RESOURCE,
    )


def _masked(uri: UUri, shape: _Shape) -> UUri:
    """Return the URI with wildcards where a pattern of this shape has them."""
    authority, type_id, instance_id, version, resource = shape
    return UUri(
        ANY_AUTHORITY if authority else uri.authority,
        (ANY_INSTANCE if instance_id else uri.instance_id) << 16 | (ANY_TYPE if type_id else uri.type_id),
        ANY_VERSION if version else uri.version,
        ANY_RESOURCE if resource else uri.resource,
    )
