"""The section ``permissions`` of the configuration, prepared to judge every flow.

The law of this file:
- Rules belong to the endpoint that a message comes in through. The first that matches decides; if none does, the message is
  denied, also at an endpoint that the section does not name.
- ``from`` is compared with the source, ``to`` with the sink. The source of a Publish is its topic: both are compared with
  that, whatever sink its network needs.
- Where identities are configured, a message is accepted only if the network proves the sender's identity, and only from an
  authority for which this identity may send.
- The priority that a message claims is lowered to the ceilings of endpoint and rule, its permission level to that of the
  endpoint.
- The demands of methods apply to every Request, also to the streamer's own services.

The text of a refusal names the rule. It is for operators and is not sent to the message's sender
(`streamer.delivery.outcomes.dead_letter`).

Pure: no event loop, no clock, no logger, no file.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from streamer.config.permissions import TYPES, DenyConfig, EndpointPermissions, PermissionsConfig, PriorityName
from streamer.config.types import OWN_NAME, RateConfig
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import HIGHEST_CLASS, Attributes, UMessageType
from streamer.uprotocol.patterns import PatternIndex
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at

_EVERYTHING = everything_at(ANY_AUTHORITY)
_KINDS = {name: UMessageType[name.upper()] for name in TYPES}

T = TypeVar("T")


class Demand(NamedTuple):
    """The demand of a method on a Request. ``name`` is its place in the configuration."""

    name: str
    level: int
    needs_token: bool

    def __str__(self) -> str:
        token = " and a token whose scope it is in" if self.needs_token else ""
        return f"{self.name} demands permission level {self.level}{token}"


@dataclass(frozen=True, slots=True)
class Permit:
    """The result of a rule that allows a message. ``name`` is the rule's place in the configuration.

    ``ceiling_by`` and ``level_by`` are the places of the keys that set the ceiling of the priority class, and ``max_level``.
    """

    name: str
    ceiling: int = HIGHEST_CLASS
    max_level: int = 0
    rate: RateConfig | None = None
    demand: Demand | None = None
    ceiling_by: str = ""
    level_by: str = ""

    def __str__(self) -> str:
        if self.rate is None:
            return f"{self.name} allows it"
        limits = ((self.rate.messages, "messages/s"), (self.rate.bytes, "bytes/s"))
        text = " and ".join(f"{limit:g} {what}" for limit, what in limits if limit is not None)
        return f"{self.name} allows it, at most {text} of each source authority"

    def applied(self, attributes: Attributes) -> Attributes:
        """Return the attributes with which a message is forwarded: the same object unless they claim too much."""
        if (attributes.permission_level or 0) > self.max_level:
            attributes = replace(attributes, permission_level=self.max_level)
        return attributes.below(self.ceiling)

    def refusal(self, attributes: Attributes) -> Failure | None:
        """Return why a Request with these attributes may not call its method; None if it may."""
        level = min(attributes.permission_level or 0, self.max_level)
        if self.demand is None or level >= self.demand.level:
            return None
        claimed = f"it claims {attributes.permission_level or 0}, and its endpoint may claim {self.max_level}"
        return denied(UCode.PERMISSION_DENIED, f"{self.demand}: {claimed}")


class Permissions:
    """All rules. The cost of a judgement hardly depends on their number, see `PatternIndex`."""

    def __init__(self, config: PermissionsConfig) -> None:
        self._endpoints = {name: _Endpoint(name, section) for name, section in config.endpoints.items()}
        self._demands = FirstMatch(
            (
                (UMessageType.REQUEST,),
                _EVERYTHING,
                each.method,
                Demand(f"permissions.methods[{at}]", each.permission_level, each.tap),
            )
            for at, each in enumerate(config.methods)
        )

    def judge(
        self, kind: UMessageType, source: UUri, sink: UUri | None, ingress: str, identity: str | None
    ) -> Permit | Failure:
        """Return the permit of a message that comes in through ``ingress``, or the failure if it is denied."""
        endpoint = self._endpoints.get(ingress)
        if endpoint is None:
            return denied(UCode.PERMISSION_DENIED, f"permissions.endpoints has no {ingress}: nothing is allowed there")
        problem = endpoint.unproven(source.authority, identity)
        if problem:
            return denied(UCode.UNAUTHENTICATED, f"{endpoint.name}.identities: {problem}")
        to = source if kind is UMessageType.PUBLISH or sink is None else sink
        found = endpoint.rules.find(kind, source, to)
        if found is None:
            return denied(UCode.PERMISSION_DENIED, f"{endpoint.name}.rules: none of them allows it")
        if isinstance(found, Failure):
            return found
        demand = self._demands.find(kind, source, to) if kind is UMessageType.REQUEST else None
        return replace(found, demand=demand) if demand is not None else found

    def checks_identities(self, ingress: str) -> bool:
        """Whether messages that come in through ``ingress`` need a proven identity."""
        endpoint = self._endpoints.get(ingress)
        return endpoint is not None and endpoint.checks_identities

    def speakers(self, ingress: str, authority: str) -> tuple[str, ...]:
        """Return identities that may speak for ``authority`` where they are checked; where anybody may, its own name."""
        endpoint = self._endpoints.get(ingress)
        return () if endpoint is None else tuple(endpoint.speakers(authority))


class _Endpoint:
    """The configured rules and identities of one endpoint."""

    def __init__(self, name: str, section: EndpointPermissions) -> None:
        self.name = f"permissions.endpoints.{name}"
        self.rules = FirstMatch(self._rules(section))
        self._identities = section.identities

    def _rules(self, section: EndpointPermissions) -> Iterable["_Entry[Permit | Failure]"]:
        for at, rule in enumerate(section.rules):
            name = f"{self.name}.rules[{at}]"
            about: DenyConfig
            verdict: Permit | Failure
            if rule.allow is not None:
                about = rule.allow
                of_endpoint, of_rule = _class(section.max_priority), _class(rule.allow.max_priority)
                verdict = Permit(
                    name,
                    min(of_endpoint, of_rule),
                    section.max_permission_level,
                    rule.allow.rate,
                    ceiling_by=f"{self.name if of_endpoint <= of_rule else f'{name}.allow'}.max_priority",
                    level_by=f"{self.name}.max_permission_level",
                )
            else:
                assert rule.deny is not None
                about = rule.deny
                verdict = denied(UCode.PERMISSION_DENIED, f"{name} denies it")
            yield tuple(_KINDS[kind] for kind in about.types), about.from_, about.to, verdict

    @property
    def checks_identities(self) -> bool:
        return self._identities is not None

    def speakers(self, authority: str) -> Iterator[str]:
        """Yield the configured identities that may speak for ``authority``; for ``*`` the authority's own name."""
        for identity in self._identities or ():
            name = authority if identity == ANY_AUTHORITY else identity
            if not self.unproven(authority, name):
                yield name

    def unproven(self, authority: str, identity: str | None) -> str:
        """Return why a message from ``authority`` may not come in with this identity; empty if it may."""
        if self._identities is None:
            return ""
        if not identity:
            return "the network proves no identity of the sender"
        spoken_for = (*self._identities.get(identity, ()), *self._identities.get(ANY_AUTHORITY, ()))
        if ANY_AUTHORITY in spoken_for or authority in spoken_for or (OWN_NAME in spoken_for and identity == authority):
            return ""
        return f"{identity!r} may not speak for {authority!r}"


def _class(priority: PriorityName) -> int:
    return int(priority[2:])


def denied(code: UCode, because: str) -> Failure:
    """Return the failure of a denial, with the reason for operators. The caller writes it to the audit log."""
    return Failure(Outcome.REJECTED, code, because, is_audited=True)


_Entry = tuple[Iterable[UMessageType], UUri, UUri, T]


class FirstMatch(Generic[T]):
    """Finds the first entry whose patterns match."""

    def __init__(self, entries: Iterable["_Entry[T]"]) -> None:
        self._by_kind: dict[UMessageType, PatternIndex[tuple[int, T]]] = {}
        for position, (kinds, source, to, value) in enumerate(entries):
            for kind in kinds:
                self._by_kind.setdefault(kind, PatternIndex()).setdefault((position, value), source, to)

    def find(self, kind: UMessageType, source: UUri, to: UUri) -> T | None:
        """Return the value of the first entry of this type that matches both addresses, which have no wildcards, or None."""
        index = self._by_kind.get(kind)
        first = None if index is None else min(index.matching(source, to), key=itemgetter(0), default=None)
        return None if first is None else first[1]
