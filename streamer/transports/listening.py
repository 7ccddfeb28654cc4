"""The shared receiving half of transports: listeners, pull buffers, and the subscriptions on the wire.

A transport that derives from `ListeningTransport` only has to open and close filters on its wire.
"""

from abc import abstractmethod
from typing import Any

from streamer.transports.base import TransportContext, UListener, UTransport
from streamer.transports.listeners import Filter, ListenerRegistry, PullBuffer
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri


class ListeningTransport(UTransport):
    """uTransport's receiving operations on top of two calls: open and close a filter."""

    def __init__(self, context: TransportContext, options: Any) -> None:
        super().__init__(context, options)
        self.registry = ListenerRegistry(options.listeners, context.events, context.flows)
        self._pulls: dict[Filter, PullBuffer] = {}

    @abstractmethod
    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        """Begin to receive messages that match these filters: now, or as soon as there is a connection."""

    @abstractmethod
    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        """Stop receiving messages that match these filters."""

    async def register_listener(self, source_filter: UUri, sink_filter: UUri | None, listener: UListener) -> None:
        self.require_authenticated()
        wanted = self._local(source_filter, sink_filter)
        if self.registry.add(*wanted, listener):
            self.open_filter(*wanted)

    async def unregister_listener(self, source_filter: UUri, sink_filter: UUri | None, listener: UListener) -> None:
        self.require_authenticated()
        unwanted = self._local(source_filter, sink_filter)
        if self.registry.remove(*unwanted, listener):
            self.close_filter(*unwanted)

    async def receive(self, source_filter: UUri, sink_filter: UUri | None = None) -> UMessage:
        wanted = self._local(source_filter, sink_filter)
        buffer = self._pulls.get(wanted)
        if buffer is None:
            buffer = PullBuffer(self.context.now_ms)
            await self.register_listener(*wanted, buffer)
            self._pulls[wanted] = buffer
        return buffer.pull()

    def _local(self, source: UUri, sink: UUri | None) -> Filter:
        """Return the filters with our authority where they have none (uP-L1, LocalUriProvider)."""
        ours = self.context.authority
        return (
            source if source.authority else source._replace(authority=ours),
            sink if sink is None or sink.authority else sink._replace(authority=ours),
        )
