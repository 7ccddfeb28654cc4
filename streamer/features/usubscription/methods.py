"""The methods of the service (004 §4, §7.2, §9): turns a Request into a response and a change of the registry. Pure."""

from itertools import islice
from typing import NamedTuple

from google.protobuf.message import Message

from streamer.features.host.access import Access
from streamer.features.usubscription import wire
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.features.usubscription.entries import Change
from streamer.features.usubscription.registry import SubscriptionRegistry
from streamer.features.usubscription.requests import (
    Fetch,
    Listed,
    Register,
    Reset,
    Subscribe,
    Subscribed,
    Unregister,
    Unsubscribe,
    VersionMethod,
)
from streamer.features.usubscription.versions import VERSIONS
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

_OVERHEAD_BYTES = 8  # added by the encoding to each entry of a list


class Called(NamedTuple):
    """The payload of the response, and the change that the call made."""

    proto: Message
    change: Change
    is_reset: bool


class Methods:
    """``access`` decides who may call what, ``options`` bound the size of a list. A reload sets both."""

    def __init__(self, registry: SubscriptionRegistry, options: UsubscriptionConfig, access: Access) -> None:
        self.access = access
        self.options = options
        self._registry = registry

    def call(self, now_ms: int, request: UMessage) -> Called:
        """Carry out a Request. Raises `UStatusError` for the response if nothing was changed."""
        source, sink = request.attributes.source, request.attributes.sink
        assert sink is not None
        methods = VERSIONS[sink.version].METHODS
        method = methods.get(sink.resource)
        if method is None:
            known = ", ".join(f"{number:X}" for number in sorted(methods))
            raise UStatusError(UCode.UNIMPLEMENTED, f"method {sink.resource:X}: expected one of {known}")
        if not source.is_entity or source.has_wildcard or not source.authority:
            raise wire.invalid(f"source {source}: expected a uEntity (resource 0), no wildcard")
        change = Change()
        result: Subscribed | Listed | None = None
        match asked := method.read(request, source):
            case Subscribe(topic, attributes):
                self._check_topic(source, topic, "subscribe to")
                state, change = self._registry.subscribe(now_ms, topic, source, sink.authority, attributes, sink.version)
                result = Subscribed(topic, state)
            case Unsubscribe(topic):
                change = self._registry.unsubscribe(now_ms, topic, source)
            case Fetch():
                result = self._fetch(asked, source, method)
            case Register(topic):
                self._check_observer(source, topic)
                change = self._registry.register(topic, source, sink.authority)
            case Unregister(topic):
                change = self._registry.unregister(topic, source)
            case Reset():
                change = self._reset(now_ms, source)
        return Called(method.write(result), change, isinstance(asked, Reset))

    def is_list(self, message: UMessage) -> bool:
        """Whether a message is a Request for a list, which may be long."""
        sink = message.attributes.sink
        assert sink is not None
        method = VERSIONS[sink.version].METHODS.get(sink.resource)
        return method is not None and method.entry is not None

    def _fetch(self, asked: Fetch, source: UUri, method: VersionMethod) -> Listed:
        """List as much as fits into a message; at most one page if the client requests pages."""
        if asked.subscriber != source:
            self._check_fetch(source)
        assert method.entry is not None
        entries: list[Message] = []
        size = 0
        for entry in islice(self._registry.matching(asked.topic, asked.subscriber), asked.offset, None):
            proto = method.entry(entry)
            size += proto.ByteSize() + _OVERHEAD_BYTES
            is_page_full = asked.offset is not None and len(entries) == self.options.page
            if is_page_full or size > self.options.max_answer_bytes:
                return Listed(entries, has_more=True)
            entries.append(proto)
        return Listed(entries, has_more=False)

    def _reset(self, now_ms: int, source: UUri) -> Change:
        if not self.access.may_reset(source):
            raise UStatusError(UCode.PERMISSION_DENIED, f"{source} may not reset subscriptions here (usubscription.reset)")
        if source.authority in self.access.local:
            return self._registry.reset(now_ms)
        return self._registry.reset_of(now_ms, source.authority)

    def _check_observer(self, source: UUri, topic: UUri | None) -> None:
        if topic is None:
            self._check_fetch(source)
        else:
            self._check_topic(source, topic, "be notified of")

    def _check_topic(self, source: UUri, topic: UUri, what: str) -> None:
        if self.access.is_about_subscriptions(topic):
            self._check_fetch(source)
        elif not self.access.may_subscribe(source, topic):
            raise UStatusError(
                UCode.PERMISSION_DENIED,
                f"{source} may not {what} {topic}: no route publishes it to {source.authority}, and "
                f"usubscription.subscribe at {self.access.authority} does not permit it",
            )

    def _check_fetch(self, source: UUri) -> None:
        if not self.access.may_fetch(source):
            raise UStatusError(
                UCode.PERMISSION_DENIED, f"{source} may list only its own subscriptions (usubscription.fetch)"
            )
