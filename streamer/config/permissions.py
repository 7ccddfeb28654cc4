"""The section ``permissions``: who may send what to whom, in whose name, and what methods require of callers."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from streamer import plugins
from streamer.config.checks import check_installed, check_options
from streamer.config.types import AnyPattern, MethodPattern, Name, RateConfig, Section, SpokenFor
from streamer.uprotocol.uri import ANY_RESOURCE, FIRST_TOPIC, LAST_METHOD, UUri, everything_at
from streamer.uprotocol.well_known import USUBSCRIPTIONS

TypeName = Literal["publish", "request", "response", "notification"]
PriorityName = Literal["CS0", "CS1", "CS2", "CS3", "CS4", "CS5", "CS6"]
Level = Annotated[int, Field(ge=0, le=0xFFFF_FFFF)]

TYPES: tuple[TypeName, ...] = ("publish", "request", "response", "notification")

VERIFIERS = "ustreamer.token_verifiers"
"""The group of entry points."""

EVERYTHING = str(everything_at("*"))


class DenyConfig(Section):
    """The messages to which a rule applies. A key that is left out matches everything."""

    from_: AnyPattern = Field(default=EVERYTHING, validate_default=True, alias="from")
    """The pattern of sources."""
    to: AnyPattern = Field(default=EVERYTHING, validate_default=True)
    """The pattern of sinks; of a Publish, of its topic."""
    types: Annotated[list[TypeName], Field(min_length=1)] = list(TYPES)
    """The types of messages."""

    @model_validator(mode="after")
    def _can_match(self) -> "DenyConfig":
        if not any(fits(kind, self.from_, self.to) for kind in self.types):
            raise PydanticCustomError(
                "check",
                "{text}",
                {"text": f"no {' or '.join(self.types)} goes from {self.from_} to {self.to}: {_ADDRESSES}"},
            )
        return self


_ADDRESSES = (
    "a Publish has a topic (8000 to FFFE) as from and to, a Request goes from 0 to a method (1 to 7FFF), a Response from a "
    "method to 0, a Notification from a topic to 0"
)


class AllowConfig(DenyConfig):
    """The messages to which a rule applies, and how they are treated."""

    max_priority: PriorityName = "CS6"
    """Messages with a higher priority class are treated in this one."""
    rate: RateConfig | None = None
    """How fast such messages may come, for each source authority. Further ones are rejected."""


class RuleConfig(Section):
    """Either an allow or a deny."""

    allow: AllowConfig | None = None
    """The messages that are allowed, and how they are treated."""
    deny: DenyConfig | None = None
    """The messages that are denied."""

    @model_validator(mode="after")
    def _one_of_them(self) -> "RuleConfig":
        if (self.allow is None) == (self.deny is None):
            raise PydanticCustomError("check", "expected either allow or deny; deny: {} is about everything")
        return self


class EndpointPermissions(Section):
    """The messages that may come in through one endpoint."""

    rules: list[RuleConfig] = []
    """The first that matches decides. What none matches is denied."""
    identities: Annotated[dict[str, Annotated[list[SpokenFor], Field(min_length=1)]], Field(min_length=1)] | None = None
    """The authorities for which an identity that the network proves may speak. ``*`` is every identity,
    or every authority; ``{identity}`` is the authority whose name is the identity. None: identities do not matter."""
    max_priority: PriorityName = "CS6"
    """Messages from here with a higher priority class are treated in this one."""
    max_permission_level: Level = 0
    """The highest permission level that is believed. A message that claims more is passed on with this one."""


class MethodConfig(Section):
    """The demands of methods on a Request."""

    method: MethodPattern
    """The pattern of methods."""
    permission_level: Level = 0
    """The lowest permission level that may call them."""
    tap: bool = False
    """Whether a Request needs a valid token whose scope contains the method."""


class TapConfig(Section):
    """The token verifier (token-based access permissions): a class of an installed package, see `streamer.tokens.base`."""

    verifier: str
    """The name of an installed token verifier."""
    options: Any = Field(default={}, validate_default=True)
    """An instance of the verifier's own options model."""

    @field_validator("verifier")
    @classmethod
    def _installed(cls, value: str) -> str:
        return check_installed(value, load_verifier, available_verifiers, "token verifier")

    @field_validator("options")
    @classmethod
    def _of_verifier(cls, value: Any, info: ValidationInfo) -> Any:
        return check_options(value, info.data.get("verifier"), load_verifier)

    def new_verifier(self) -> Any:
        """Return a verifier with these options."""
        return load_verifier(self.verifier)(self.options)


class PermissionsConfig(Section):
    """The permission rules. With this section, a message that no rule allows is denied."""

    endpoints: dict[Name, EndpointPermissions] = {}
    """The messages that may come in through each endpoint. Through others: nothing."""
    methods: list[MethodConfig] = []
    """The demands of methods on their callers: the first pattern that matches decides. Other methods demand nothing."""
    tap: TapConfig | None = None
    """The token verifier. None: there is none, and no method can demand a token."""

    @model_validator(mode="after")
    def _tokens_can_be_verified(self) -> "PermissionsConfig":
        if self.tap is None and any(method.tap for method in self.methods):
            text = "expected the key tap as well: a method demands a token, and nothing says what verifies it"
            raise PydanticCustomError("check", "{text}", {"text": text})
        return self


def available_verifiers() -> list[str]:
    """Return the names of all installed token verifiers."""
    return plugins.available(VERIFIERS)


@cache
def load_verifier(name: str) -> Any:
    """Return the verifier class of that name. Raises LookupError (not installed) and ImportError (cannot be loaded)."""
    return plugins.load(VERIFIERS, name, "token verifier")


def fits(kind: TypeName, source: UUri, to: UUri) -> bool:
    """Whether the addresses of a message of that type can match, judged by their resources."""
    sources, sinks = _RESOURCES[kind]
    return _meets(source, sources) and _meets(to, sinks)


_TOPICS, _METHODS, _ENTITY = (FIRST_TOPIC, ANY_RESOURCE - 1), (1, LAST_METHOD), (0, 0)
_RESOURCES: dict[TypeName, tuple[tuple[int, int], tuple[int, int]]] = {
    "publish": (_TOPICS, _TOPICS),
    "request": (_ENTITY, _METHODS),
    "response": (_METHODS, _ENTITY),
    "notification": (_TOPICS, _ENTITY),
}


def _meets(pattern: UUri, resources: tuple[int, int]) -> bool:
    return pattern.resource == ANY_RESOURCE or resources[0] <= pattern.resource <= resources[1]


def hints(section: PermissionsConfig | None, endpoints: Mapping[str, bool]) -> Iterator[str]:
    """Yield settings that are valid, but may not be intended. ``endpoints``: whether their networks prove identities."""
    if section is None:
        yield "permissions: null: open; everybody behind an endpoint may send what its routes allow, also to our services"
        return
    for name in endpoints:
        if name not in section.endpoints:
            yield f"permissions.endpoints: no {name}; nothing that comes in there is allowed"
    for name, endpoint in section.endpoints.items():
        here = f"permissions.endpoints.{name}"
        if endpoint.identities is not None and not endpoints.get(name):
            yield f"{here}.identities: the network of {name} proves no identity, so nothing that comes in there is allowed"
        for index, earlier in _unreachable([rule.allow or rule.deny or DenyConfig() for rule in endpoint.rules]):
            yield f"{here}.rules[{index}]: never reached; rules[{earlier}] matches everything that it matches"
        for index, other in _half_named([(rule.allow or rule.deny or DenyConfig()).to for rule in endpoint.rules]):
            yield f"{here}.rules[{index}]: about one version of uSubscription; no rule is about {other}"


def _half_named(named: list[UUri]) -> Iterator[tuple[int, UUri]]:
    """Yield patterns for one version of uSubscription without one for the other version, each with the other version."""
    of_service = [to for to in named if to.type_id == USUBSCRIPTIONS[0].ue_id]
    for index, to in enumerate(named):
        for entity in USUBSCRIPTIONS if to[1:3] in USUBSCRIPTIONS else ():
            other = to._replace(version=entity.version)
            if not any(each.matches(other) for each in of_service):
                yield index, other


def _unreachable(rules: list[DenyConfig]) -> Iterator[tuple[int, int]]:
    """Yield rules that an earlier rule covers, each with the first such rule.

    A pattern that matches another pattern matches everything that the other does: wildcards match only wildcards there.
    """
    for index, rule in enumerate(rules):
        kinds = {kind for kind in rule.types if fits(kind, rule.from_, rule.to)}
        for position, earlier in enumerate(rules[:index]):
            if kinds <= set(earlier.types) and earlier.from_.matches(rule.from_) and earlier.to.matches(rule.to):
                yield index, position
                break
