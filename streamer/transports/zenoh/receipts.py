"""Receipts between streamers, beside the wire format that everybody else knows.

    ustreamer/1/serves/<zid>/<authority>   liveliness token: this streamer delivers to that authority
    ustreamer/1/receipts/<zid>             ids of messages that this streamer has delivered or keeps on disk, 16 bytes each

When a message for an authority that it serves is acknowledged (`Received.acknowledge`), a streamer publishes a receipt if
anybody listens, also for a duplicate. The streamer that sent the message waits for the receipt (`ledger`). Everything here
runs on the event loop, and leaves what can block to the control thread.
"""

import asyncio
import logging
from collections.abc import Sequence

import zenoh

from streamer.transports.base import Done, Parcel, Received, SendResult
from streamer.transports.zenoh.control import ControlThread, tell_loop
from streamer.transports.zenoh.ledger import ReceiptLedger
from streamer.transports.zenoh.presence_watch import is_matching
from streamer.uprotocol.message import UMessage

logger = logging.getLogger("ustreamer.zenoh")

SERVES = "ustreamer/1/serves"
RECEIPTS = "ustreamer/1/receipts"

_FLUSH_S = 0.001
_MOST = 4096  # ids in one receipt
_MAX_IDS = 65536
_TICK_S = 1.0


class Receipted(Received):
    """A message whose sender may wait for a receipt."""

    __slots__ = ("_receipts",)

    def __init__(self, message: UMessage, receipts: "Receipts") -> None:
        super().__init__(message)
        self._receipts = receipts

    def acknowledge(self) -> None:
        self._receipts.acknowledge(self.message.id)


class Receipts:
    """Both halves: the receipts that we give, and those that we wait for."""

    def __init__(self, name: str, serves: Sequence[str], patience_s: float) -> None:
        self.serves = frozenset(serves)
        self.ledger = ReceiptLedger(patience_s)
        self._name = name
        self._loop: asyncio.AbstractEventLoop
        self._control: ControlThread
        self._session: zenoh.Session | None = None
        self._own = ""
        self._declared: list[object] = []  # kept here because Zenoh undeclares what nobody references
        self._publisher: zenoh.Publisher | None = None
        self._listening = False
        self._has_listener: bool | None = None
        self._ids: list[bytes] = []
        self._sending = False
        self._ticker: asyncio.TimerHandle | None = None

    def open(self, loop: asyncio.AbstractEventLoop, control: ControlThread, session: zenoh.Session) -> None:
        """The session is open and our subscriptions are declared: announce whom we serve, and learn who serves whom."""
        self._loop = loop
        self._control = control
        self._session = session
        self._own = str(session.zid())
        control.post(lambda: self._declare_blocking(session))

    def lose_all(self) -> None:
        """The link is lost, and everything that waits for a receipt with it."""
        self.ledger.lose_all()

    def close(self) -> None:
        """Send the last receipts, then nothing more."""
        if self._session is not None:
            while self._ids:
                self._flush()
        self._session = None
        if self._ticker is not None:
            self._ticker.cancel()

    # -- receiving

    def acknowledge(self, uuid: bytes) -> None:
        """A message is safe here: give a receipt, if anybody listens."""
        if not self._has_listener or self._session is None:
            return
        if len(self._ids) >= _MAX_IDS:  # nobody takes receipts; the senders will send again
            return
        self._ids.append(uuid)
        if not self._sending:
            self._sending = True
            self._loop.call_later(_FLUSH_S, self._flush)

    def _flush(self) -> None:
        if self._session is None or not self._ids:
            self._sending = False
            return
        ids, self._ids = b"".join(self._ids[:_MOST]), self._ids[_MOST:]
        self._control.post(lambda: self._put_blocking(ids))

    def _flushed(self) -> None:
        """The last receipts are out: go on if there are more."""
        if self._ids and self._session is not None:
            self._loop.call_later(_FLUSH_S, self._flush)
        else:
            self._sending = False

    def _matched(self, is_matched: bool) -> None:
        self._has_listener = is_matched

    def _first_status(self, is_matched: bool) -> None:
        """The status when the publisher was declared, unless the listener was called since."""
        if self._has_listener is None:
            self._has_listener = is_matched

    # -- sending

    def put(self, done: Done, parcels: Sequence[Parcel], result: SendResult) -> None:
        """The sender's result of parcels of which some are receipted."""
        self.ledger.put(parcels, result, done, self._loop.time())
        if self._ticker is None and len(self.ledger) and self._session is not None:
            self._ticker = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticker = None
        self.ledger.tick(self._loop.time())
        if len(self.ledger) and self._session is not None:
            self._ticker = self._loop.call_later(_TICK_S, self._tick)

    def _saw_token(self, is_there: bool, streamer: str, authority: str) -> None:
        """Subscribe to receipts first, then act on the token. Tokens keep their order."""
        if (session := self._session) is None:
            return

        def listen_first() -> None:  # on the control thread
            self._listen_blocking(session)
            tell_loop(self._loop, self._token, is_there, streamer, authority)

        self._control.post(listen_first)

    def _token(self, is_there: bool, streamer: str, authority: str) -> None:
        if self._session is None:
            return
        found, lost = "zenoh_streamer_found endpoint=%s zid=%s serves=%s", "zenoh_streamer_lost endpoint=%s zid=%s serves=%s"
        logger.info(found if is_there else lost, self._name, streamer, authority)
        if is_there:
            self.ledger.add_streamer(streamer, authority)
        else:
            self.ledger.remove_streamer(streamer, authority)

    def _arrived(self, ids: bytes) -> None:
        if self._session is not None:
            self.ledger.receipts(ids)

    # -- control thread

    def _declare_blocking(self, session: zenoh.Session) -> None:
        liveliness, remote = session.liveliness(), zenoh.Locality.REMOTE
        if self.serves:
            publisher = self._publisher = session.declare_publisher(
                f"{RECEIPTS}/{self._own}",
                priority=zenoh.Priority.INTERACTIVE_HIGH,
                congestion_control=zenoh.CongestionControl.BLOCK,
                allowed_destination=remote,
            )
            self._declared.append(publisher.declare_matching_listener(self._on_matching))
            tell_loop(self._loop, self._first_status, is_matching(publisher))
            self._declared += [liveliness.declare_token(f"{SERVES}/{self._own}/{name}") for name in sorted(self.serves)]
        self._declared.append(liveliness.declare_subscriber(f"{SERVES}/*/*", self._on_token, history=True))

    def _listen_blocking(self, session: zenoh.Session) -> None:
        """Subscribe to receipts: before the first message that needs one is sent, and only if somebody gives them."""
        if self._listening:
            return
        self._listening = True
        receipts = session.declare_subscriber(f"{RECEIPTS}/*", self._on_receipts, allowed_origin=zenoh.Locality.REMOTE)
        self._declared.append(receipts)

    def _put_blocking(self, ids: bytes) -> None:
        try:
            if self._publisher is not None:
                self._publisher.put(ids)
        finally:
            tell_loop(self._loop, self._flushed)

    # -- threads of Zenoh

    def _on_matching(self, status: zenoh.MatchingStatus) -> None:
        tell_loop(self._loop, self._matched, status.matching)

    def _on_token(self, sample: zenoh.Sample) -> None:
        streamer, _, authority = str(sample.key_expr)[len(SERVES) + 1 :].partition("/")
        if streamer != self._own:
            tell_loop(self._loop, self._saw_token, sample.kind == zenoh.SampleKind.PUT, streamer, authority)

    def _on_receipts(self, sample: zenoh.Sample) -> None:
        tell_loop(self._loop, self._arrived, sample.payload.to_bytes())
