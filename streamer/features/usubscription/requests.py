"""The requests of a client as records that are the same for all versions. No rules, no I/O."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message

from streamer.features.usubscription.entries import SubscribeAttributes, Subscription, SubscriptionState
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri


class Subscribe(NamedTuple):
    topic: UUri
    attributes: SubscribeAttributes


class Unsubscribe(NamedTuple):
    topic: UUri


class Fetch(NamedTuple):
    """List the subscriptions that match both patterns (None: all). ``offset``: if the client requests pages."""

    topic: UUri | None = None
    subscriber: UUri | None = None
    offset: int | None = None


class Register(NamedTuple):
    """Register for notifications of a topic's changes, or (None) of all topics'."""

    topic: UUri | None = None


class Unregister(NamedTuple):
    topic: UUri | None = None


class Reset(NamedTuple):
    """Delete all entries, or those of the authority of a service elsewhere."""


Asked = Subscribe | Unsubscribe | Fetch | Register | Unregister | Reset


class Subscribed(NamedTuple):
    """The result of `Subscribe`."""

    topic: UUri
    state: SubscriptionState


class Listed(NamedTuple):
    """The result of `Fetch`: the subscriptions as `VersionMethod.entry` encodes them."""

    entries: Sequence[Message]
    has_more: bool


class VersionMethod(NamedTuple):
    """A method in one version.

    ``read`` takes the Request and its source, and raises `UStatusError`. ``write`` takes the result (`Subscribed`, `Listed`
    or None), and raises `UStatusError` if it cannot be encoded. ``entry`` encodes a subscription as an element of a list.
    """

    read: Callable[[UMessage, UUri], Asked]
    write: Callable[[Any], Message]
    entry: Callable[[Subscription], Message] | None = None
