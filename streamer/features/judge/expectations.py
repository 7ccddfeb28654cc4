"""A file of expectations: messages, and what a configuration has to do with them. `streamer test` reads it."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from streamer.config.permissions import Level, PriorityName, TypeName
from streamer.config.types import Section, SingleAuthority, expected
from streamer.uprotocol.uri import UriError, UUri

OUTCOMES = ("routes", "endpoints", "sinks", "priority", "identity", "denied", "dropped")
"""The keys of an expectation that say what has to happen."""
_NOWHERE = ("denied", "dropped")


def _address(value: Any) -> UUri:
    try:
        return UUri.parse(value)
    except (UriError, TypeError, AttributeError) as exc:
        raise expected("an address such as //veh1/A8000/2/8A50, its numbers in hex") from exc


def _several(value: Any) -> Any:
    """Return a list, also for a single text."""
    return [value] if isinstance(value, str) else value


Address = Annotated[UUri, PlainValidator(_address), PlainSerializer(str)]


def _reason(value: Any) -> Any:
    """Return a part of a reason that says something: a full stop is in every reason."""
    if isinstance(value, str) and re.search(r"[^\W\d_]{4,}", value) is None:
        raise expected("a part of the reason with a word of at least four letters, or its code, such as PERMISSION_DENIED")
    return value


Reason = Annotated[str, BeforeValidator(_reason)]
Texts = Annotated[list[str], BeforeValidator(_several), Field(min_length=1)]


class ExpectedMessage(Section):
    """A message that somebody may send."""

    type: TypeName
    """The type of the message."""
    source: Address
    """The source of the message; of a Publish, the topic."""
    sink: Address | None = None
    """The sink of the message. A Publish has none."""
    from_: str | None = Field(default=None, alias="from")
    """The endpoint that it comes in through. None: where its source lives."""
    identity: str | None = None
    """The sender's identity, as proven by the network. None: none is."""
    priority: PriorityName | None = None
    """The class that it claims. None: CS4 for a Request or a Response, else CS1."""
    permission_level: Level | None = None
    """The permission level that it claims. None: none."""
    subscribed: Annotated[list[SingleAuthority], BeforeValidator(_several)] = []
    """The authorities that have subscribed to its topic."""


class Expectation(Section):
    """A message, and what has to happen to it. A key that is left out says nothing."""

    name: str = ""
    """A text about the case, for people."""
    message: ExpectedMessage
    """The message."""
    routes: Texts | None = None
    """The names of all routes that it takes, in any order."""
    endpoints: Texts | None = None
    """The endpoints that it leaves through."""
    sinks: Texts | None = None
    """The sinks that it has there; none for a Publish without one."""
    priority: PriorityName | None = None
    """The class in which it is treated."""
    identity: str | None = None
    """The identity by which it may come in, where identities matter."""
    denied: Reason | None = None
    """The message is refused, and the reason contains these whole words, or they are its code."""
    dropped: Reason | None = None
    """The message goes nowhere and nobody is told: nobody wants it, or it has arrived already; these words are in it."""

    @model_validator(mode="after")
    def _one_outcome(self) -> "Expectation":
        nowhere = [key for key in _NOWHERE if getattr(self, key) is not None]
        somewhere = [key for key in OUTCOMES if key not in _NOWHERE and getattr(self, key) is not None]
        if len(nowhere) > 1 or (nowhere and somewhere):
            found = " and ".join((*somewhere, *nowhere))
            raise PydanticCustomError("check", "{text}", {"text": f"expected only one outcome, found {found}"})
        return self

    @property
    def outcomes(self) -> dict[str, Any]:
        """Return what has to happen, by key."""
        return {key: value for key in OUTCOMES if (value := getattr(self, key)) is not None}


class Expectations(Section):
    """The whole file."""

    expect: Annotated[list[Expectation], Field(min_length=1)]
    """Messages, and what has to happen to each."""
