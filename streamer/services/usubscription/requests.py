"""The requests of a client, in a form that is the same for all versions. Plain records: no rules, no I/O."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message

from streamer.services.usubscription.entries import SubscribeAttributes, Subscription, SubscriptionState
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri


class Subscribe(NamedTuple):
    topic: UUri
    attributes: SubscribeAttributes


class Unsubscribe(NamedTuple):
    topic: UUri


class Fetch(NamedTuple):
    """List the subscriptions that match both patterns (None: all). ``offset``: of a client that asks page by page."""

    topic: UUri | None = None
    subscriber: UUri | None = None
    offset: int | None = None


class Register(NamedTuple):
    """Be notified of a topic's changes, or (None) of all."""

    topic: UUri | None = None


class Unregister(NamedTuple):
    topic: UUri | None = None


class Reset(NamedTuple):
    """Delete everything, or what belongs to the authority of a service elsewhere."""


Asked = Subscribe | Unsubscribe | Fetch | Register | Unregister | Reset


class Subscribed(NamedTuple):
    """What `Subscribe` is answered with."""

    topic: UUri
    state: SubscriptionState


class Listed(NamedTuple):
    """What `Fetch` is answered with: what `VersionMethod.entry` made of each subscription."""

    entries: Sequence[Message]
    has_more: bool


class VersionMethod(NamedTuple):
    """A method in one version.

    ``read`` takes the Request and its source, and raises `UStatusError`. ``write`` takes the result (`Subscribed`, `Listed`
    or None), and raises `UStatusError` if it cannot be told. ``entry``: a subscription as an element of a list.
    """

    read: Callable[[UMessage, UUri], Asked]
    write: Callable[[Any], Message]
    entry: Callable[[Subscription], Message] | None = None
