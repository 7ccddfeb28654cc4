"""Limits how much of the service one uEntity, one authority and all of them together may use. Pure.

A uEntity that may subscribe at all can invent others at its authority, and, where a permission has a wildcard for the
authority, authorities as well. Authorities that the configuration names cannot be invented.
"""

from collections.abc import Callable
from typing import NamedTuple

from streamer.config.services import UsubscriptionConfig
from streamer.services.usubscription.index import Index
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION


class Limits(NamedTuple):
    """``subscriptions`` is also the bound for remote topics, with those that are being left."""

    subscriptions: int
    observers: int
    remote_timeout_ms: int
    of_subscriber: int
    of_authority: int
    authorities_of_topic: int
    observers_of_topic: int
    observers_of_authority: int

    @classmethod
    def of(cls, options: UsubscriptionConfig) -> "Limits":
        """The limits in a configuration."""
        return cls(
            options.max_subscriptions,
            options.max_observers,
            round(options.remote_timeout_s * 1000),
            options.max_subscriptions_per_subscriber,
            options.max_subscriptions_per_authority,
            options.max_authorities_per_topic,
            options.max_observers_per_topic,
            options.max_observers_per_authority,
        )


def check_subscription(limits: Limits, index: Index, topic: UUri, subscriber: UUri, is_named: Callable[[str], bool]) -> None:
    """Raises `UStatusError` (RESOURCE_EXHAUSTED) if there is no room for one more.

    A uSubscription service stands for all of its device: only what its authority may take holds for it.
    """
    authority = subscriber.authority
    if subscriber.ue_id != USUBSCRIPTION.ue_id and len(index.subscribers.get(subscriber, ())) >= limits.of_subscriber:
        raise _exhausted(f"{subscriber} has {limits.of_subscriber} subscriptions already")
    if index.subscriptions_at[authority] >= limits.of_authority:
        raise _exhausted(f"subscribers at {authority} have {limits.of_authority} subscriptions already")
    interested = index.topic(topic).periods
    if authority not in interested and not is_named(authority):
        strangers = sum(not is_named(each) for each in interested)
        if strangers >= limits.authorities_of_topic:
            raise _exhausted(f"{topic} has subscribers at {strangers} authorities that the configuration does not name")


def check_observer(limits: Limits, index: Index, topic: UUri | None, observer: UUri) -> None:
    """As `check_subscription`, for a registration for notifications."""
    if index.observers >= limits.observers:
        raise _exhausted(f"there are {limits.observers} registrations already")
    if index.observers_at[observer.authority] >= limits.observers_of_authority:
        raise _exhausted(f"observers at {observer.authority} have {limits.observers_of_authority} registrations already")
    if len(index.observers_of(topic)) >= limits.observers_of_topic:
        raise _exhausted(f"{topic or 'everything'} has {limits.observers_of_topic} observers already")


def _exhausted(text: str) -> UStatusError:
    return UStatusError(UCode.RESOURCE_EXHAUSTED, text)
