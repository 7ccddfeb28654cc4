"""Bounds the entries of one uEntity, of one authority, of one topic, and of all together. Pure.

A uEntity that may subscribe can do so in the name of invented uEntities at its authority and, where a permission has a
wildcard for the authority, at invented authorities. It cannot use authorities that the configuration names elsewhere.
"""

from collections.abc import Callable
from typing import NamedTuple

from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.features.usubscription.index import Index
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION


class Limits(NamedTuple):
    """``subscriptions`` also bounds the remote topics, including those that are being left."""

    subscriptions: int
    observers: int
    remote_timeout_ms: int
    of_subscriber: int
    of_authority: int
    authorities_of_topic: int
    observers_of_topic: int
    observers_of_authority: int
    remote_version: int = 4

    @classmethod
    def of(cls, options: UsubscriptionConfig) -> "Limits":
        """Return the limits of a configuration."""
        return cls(
            options.max_subscriptions,
            options.max_observers,
            round(options.remote_timeout_s * 1000),
            options.max_subscriptions_per_subscriber,
            max(options.max_subscriptions_per_authority, options.max_subscriptions // 10),
            options.max_authorities_per_topic,
            options.max_observers_per_topic,
            options.max_observers_per_authority,
            options.remote_version,
        )


def check_subscription(limits: Limits, index: Index, topic: UUri, subscriber: UUri, is_named: Callable[[str], bool]) -> None:
    """Check that there is room for one more subscription. Raises `UStatusError` (RESOURCE_EXHAUSTED).

    A uSubscription service subscribes for its whole device: only the bound of its authority applies to it.
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
    """Check that there is room for one more observer. Raises `UStatusError` (RESOURCE_EXHAUSTED)."""
    if index.observers >= limits.observers:
        raise _exhausted(f"there are {limits.observers} registrations already")
    if index.observers_at[observer.authority] >= limits.observers_of_authority:
        raise _exhausted(f"observers at {observer.authority} have {limits.observers_of_authority} registrations already")
    if len(index.observers_of(topic)) >= limits.observers_of_topic:
        raise _exhausted(f"{topic or 'everything'} has {limits.observers_of_topic} observers already")


def _exhausted(text: str) -> UStatusError:
    return UStatusError(UCode.RESOURCE_EXHAUSTED, text)
