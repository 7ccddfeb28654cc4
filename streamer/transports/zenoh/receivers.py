"""Tells the streamer who receives a flow on Zenoh: by the watch of the open session, before by what is known of nodes."""

from streamer.transports.base import Presence, Receivers
from streamer.transports.zenoh.presence import OnPresence, WatchedFlows
from streamer.transports.zenoh.presence_watch import PresenceWatch
from streamer.transports.zenoh.wire import key_filter
from streamer.uprotocol.uri import ANY_RESOURCE, UUri


class ZenohReceivers(Receivers):
    """The watched flows of an endpoint. ``is_watching`` False: every flow counts as received."""

    def __init__(self, authority: str, is_watching: bool, flows: WatchedFlows) -> None:
        self._authority = authority
        self._is_watching = is_watching
        self._flows: WatchedFlows | PresenceWatch = flows

    def use(self, watch: PresenceWatch) -> None:
        """Ask the watch of a session that has been opened from now on. It has the flows that are watched."""
        self._flows = watch

    def watch(self, source: UUri, sink: UUri | None, on_presence: OnPresence) -> Presence:
        if not self._is_watching:
            return Presence.PRESENT
        key = self._key(source, sink)
        flows = self._flows
        return flows.add(key, on_presence) if isinstance(flows, PresenceWatch) else flows.add(key, on_presence)[0].presence

    def forget(self, source: UUri, sink: UUri | None, on_presence: OnPresence) -> None:
        self._flows.remove(self._key(source, sink), on_presence)

    def _key(self, source: UUri, sink: UUri | None) -> str:
        """Return the key on which a flow's messages are put. Only the sink of a Publish may have a wildcard."""
        is_publish = sink is None or sink.resource == ANY_RESOURCE
        return key_filter(source, None if is_publish else sink, self._authority)
