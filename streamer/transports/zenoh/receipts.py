"""Exchanges receipts between streamers that share a key, on keys that other uProtocol nodes ignore.

When a message for an authority that it serves is acknowledged (`Received.acknowledge`), a streamer gives a receipt to every
streamer that expects receipts, also for a duplicate. The streamer that sent the message waits for the receipt (`ledger`).
Tokens and receipts with a wrong proof (`receipt_proofs`), or from a streamer that the configuration does not name, are
counted and otherwise ignored. This module runs on the event loop, except that Zenoh's threads check proofs, and the control
thread makes the calls that can block.
"""

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import zenoh

from streamer.transports.base import Done, Parcel, Received, SendResult
from streamer.transports.zenoh.control import ControlThread, tell_loop
from streamer.transports.zenoh.ledger import ReceiptLedger
from streamer.transports.zenoh.receipt_proofs import HELLO, MOST_IDS, RECEIPTS, SERVES, ReceiptKey, Streamer, giver_of
from streamer.uprotocol.message import UMessage

logger = logging.getLogger("ustreamer.zenoh")

_FLUSH_S = 0.001
_MAX_IDS = 65536
_TICK_S = 1.0
_TOKENS_S = 1.0  # within which all tokens of a streamer come or go
_MAX_SESSIONS = 4  # of one streamer at a time: a token of an earlier session may still be there, or be replayed
_MAX_COUNTERS = 64  # remembered per streamer: a token comes back with its link, and its counter then continues
_HOW: dict[str, Any] = {
    "priority": zenoh.Priority.INTERACTIVE_HIGH,
    "congestion_control": zenoh.CongestionControl.BLOCK,
    "allowed_destination": zenoh.Locality.REMOTE,
}

Tokens = dict[str, zenoh.LivelinessToken]
"""The tokens that are declared to one streamer, by authority."""


class Receipted(Received):
    """A message whose sender may wait for a receipt."""

    __slots__ = ("_receipts",)

    def __init__(self, message: UMessage, receipts: "Receipts", wire_bytes: int = 0) -> None:
        super().__init__(message, wire_bytes=wire_bytes)
        self._receipts = receipts

    def acknowledge(self) -> None:
        self._receipts.acknowledge(self.message.id)


class Receipts:
    """Gives receipts for received messages, and records the receipts of sent ones.

    ``streamers`` are the trusted authorities; ``refused`` is called with the number of refused tokens and receipts, and
    ``away`` with `ReceiptLedger.away` whenever it may have changed. No receipt is given or expected before `announce`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        control: ControlThread,
        session: zenoh.Session,
        key: ReceiptKey,
        name: str,
        authority: str,
        serves: Sequence[str],
        streamers: Sequence[str],
        patience_s: float,
        refused: Callable[[int], None],
        away: Callable[[frozenset[str]], None],
    ) -> None:
        self._loop = loop
        self._control = control
        self._session = session
        self._key = key
        self.serves = frozenset(serves) if streamers else frozenset()
        self.ledger = ReceiptLedger(patience_s)
        self._name = name
        self._streamers = frozenset(streamers)
        self._refused = refused
        self._away = away
        self._refusals = 0
        self._refusals_lock = threading.Lock()
        self._own = Streamer(authority, secrets.token_hex(16))
        self._is_closed = False
        self._declared: list[object] = []  # referenced here because Zenoh undeclares unreferenced objects
        self._hellos: object = None  # the subscriber, for the same reason
        self._receivers: dict[Streamer, Tokens] = {}  # oldest first
        self._givers: dict[Streamer, set[str]] = {}  # with the authorities that they serve; oldest first
        self._counters: dict[Streamer, int] = {}  # counters of the latest receipts
        self._counter = 0
        self._ids: list[bytes] = []
        self._sending = False
        self._ticker: asyncio.TimerHandle | None = None
        self._settling: dict[str, asyncio.TimerHandle] = {}  # by streamer, while its tokens come or go

    def announce(self) -> None:
        """Announce this streamer, and watch for others. Call this once our subscriptions are declared."""
        self._control.post(self._declare_blocking)

    def lose_all(self) -> None:
        """Report all messages that wait for a receipt as lost with the link."""
        self.ledger.lose_all()

    def close(self) -> None:
        """Send the remaining receipts, then stop."""
        while self._ids:
            self._flush()
        self._is_closed = True
        for timer in (self._ticker, *self._settling.values()):
            if timer is not None:
                timer.cancel()

    def serve(self, authorities: Sequence[str]) -> None:
        """Give receipts for messages to these authorities from now on, and to no others."""
        self.serves = frozenset(authorities) if self._streamers else frozenset()
        if self._streamers and not self._is_closed:
            self._control.post(self._hear_blocking)
            for receiver, tokens in self._receivers.items():
                self._control.post(partial(self._serve_blocking, receiver, self.serves, tokens))

    # -- receiving

    def acknowledge(self, uuid: bytes) -> None:
        """Give a receipt for an acknowledged message to every streamer that expects one."""
        if not self._receivers or not self.serves or self._is_closed:
            return
        if len(self._ids) >= _MAX_IDS:  # the receivers do not read; the senders time out
            return
        self._ids.append(uuid)
        if not self._sending:
            self._sending = True
            self._loop.call_later(_FLUSH_S, self._flush)

    def _flush(self) -> None:
        if self._is_closed or not self._ids:
            self._sending = False
            return
        ids, self._ids = b"".join(self._ids[:MOST_IDS]), self._ids[MOST_IDS:]
        self._counter += 1
        receivers = tuple(self._receivers)
        self._control.post(partial(self._put_blocking, receivers, self._counter, ids))

    def _flushed(self) -> None:
        """Schedule the next receipts, if there are any, after the last ones were put."""
        if self._ids and not self._is_closed:
            self._loop.call_later(_FLUSH_S, self._flush)
        else:
            self._sending = False

    def _receiver(self, is_there: bool, receiver: Streamer) -> None:
        """Handle that a streamer expects receipts from now on, or no longer does."""
        if self._is_closed:
            return
        if not is_there:
            self._drop_receiver(receiver)
        elif receiver not in self._receivers:
            for oldest in _beyond(_MAX_SESSIONS - 1, self._receivers, receiver.authority):
                self._drop_receiver(oldest)
            tokens = self._receivers[receiver] = {}
            self._control.post(partial(self._serve_blocking, receiver, self.serves, tokens))

    def _drop_receiver(self, receiver: Streamer) -> None:
        tokens = self._receivers.pop(receiver, None)
        if tokens is not None and not self._is_closed:
            self._control.post(partial(self._serve_blocking, receiver, frozenset(), tokens))

    # -- sending

    def put(self, done: Done, parcels: Sequence[Parcel], result: SendResult) -> None:
        """Pass the sender's result for parcels of which some are receipted to the ledger."""
        self.ledger.put(parcels, result, done, self._loop.time())
        if self._ticker is None and len(self.ledger) and not self._is_closed:
            self._ticker = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticker = None
        self.ledger.tick(self._loop.time())
        if len(self.ledger) and not self._is_closed:
            self._ticker = self._loop.call_later(_TICK_S, self._tick)

    def _giver(self, is_there: bool, giver: Streamer, authority: str) -> None:
        """Handle that a streamer gives receipts for messages to an authority from now on, or no longer does."""
        if self._is_closed:
            return
        if is_there:
            for oldest in _beyond(_MAX_SESSIONS, {**self._givers, giver: ()}, giver.authority):
                for served in self._givers.pop(oldest):
                    self.ledger.remove_streamer(oldest, served)
            self._givers.setdefault(giver, set()).add(authority)
            self._counters.setdefault(giver, -1)
            for oldest in _beyond(_MAX_COUNTERS, self._counters, giver.authority):
                del self._counters[oldest]
            self.ledger.add_streamer(giver, authority)
        elif authority in self._givers.get(giver, ()):
            self._givers[giver].remove(authority)
            if not self._givers[giver]:
                del self._givers[giver]
            self.ledger.remove_streamer(giver, authority)
        else:
            return
        self._away(self.ledger.away)
        if giver.authority not in self._settling and self.ledger.awaits(giver.authority):
            self._settling[giver.authority] = self._loop.call_later(_TOKENS_S, partial(self._give_up, giver.authority))
        text = (
            "zenoh_streamer_found endpoint=%s streamer=%s serves=%s"
            if is_there
            else "zenoh_streamer_lost endpoint=%s streamer=%s serves=%s"
        )
        state = (f"streamer {self._name} {giver.authority} {authority}", is_there)
        logger.info(text, self._name, giver.authority, authority, extra={"state": state})

    def _give_up(self, name: str) -> None:
        """Wait no longer for authorities that a streamer does not serve any more, although it is there."""
        del self._settling[name]
        if any(streamer.authority == name for streamer in (*self._givers, *self._receivers)):
            self.ledger.give_up(name)
            self._away(self.ledger.away)

    def _arrived(self, giver: Streamer, counter: int, ids: bytes) -> None:
        if self._is_closed:
            return
        if giver not in self._givers:  # its link was lost
            return
        if counter <= self._counters.get(giver, -1):
            self._refuse()
            return
        self._counters[giver] = counter
        self.ledger.receipts(giver, ids)

    def _tell_refusals(self) -> None:
        with self._refusals_lock:
            number, self._refusals = self._refusals, 0
        self._refused(number)

    # -- control thread

    def _declare_blocking(self) -> None:
        """Declare our subscriptions and tokens. The subscription to receipts comes before the token that requests them."""
        session = self._session
        liveliness, own = session.liveliness(), self._own
        receipts = f"{RECEIPTS}/*/*/{own.path}"
        self._declared += [
            session.declare_subscriber(receipts, self._on_receipt, allowed_origin=zenoh.Locality.REMOTE),
            liveliness.declare_subscriber(f"{SERVES}/*/*/{own.path}/*/*", self._on_serves, history=True),
            liveliness.declare_token(self._key.hello(own)),
        ]
        self._hear_blocking()

    def _hear_blocking(self) -> None:
        """Subscribe to the tokens of streamers that expect receipts, unless we serve no authority."""
        if self.serves and self._hellos is None:
            self._hellos = self._session.liveliness().declare_subscriber(f"{HELLO}/*/*/*", self._on_hello, history=True)

    def _serve_blocking(self, receiver: Streamer, authorities: frozenset[str], tokens: Tokens) -> None:
        """Declare and undeclare ``tokens`` so that they promise a streamer receipts for exactly these authorities."""
        for authority in tokens.keys() - authorities:
            tokens.pop(authority).undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type
        for authority in sorted(authorities.difference(tokens)):  # minus the keys is a set, which the compiled form refuses
            tokens[authority] = self._session.liveliness().declare_token(self._key.serves(self._own, receiver, authority))

    def _put_blocking(self, receivers: Sequence[Streamer], counter: int, ids: bytes) -> None:
        try:
            for receiver in receivers:
                self._session.put(*self._key.receipt(self._own, receiver, counter, ids), **_HOW)
        finally:
            tell_loop(self._loop, self._flushed)

    # -- threads of Zenoh

    def _on_hello(self, sample: zenoh.Sample) -> None:
        receiver = self._key.read_hello(str(sample.key_expr))
        if receiver == self._own:
            return
        if receiver is None or receiver.authority not in self._streamers:
            self._refuse()
        else:
            tell_loop(self._loop, self._receiver, sample.kind == zenoh.SampleKind.PUT, receiver)

    def _on_serves(self, sample: zenoh.Sample) -> None:
        served = self._key.read_serves(str(sample.key_expr), self._own)
        if served is None or served[0].authority not in self._streamers:
            self._refuse()
        else:
            tell_loop(self._loop, self._giver, sample.kind == zenoh.SampleKind.PUT, *served)

    def _on_receipt(self, sample: zenoh.Sample) -> None:
        key = str(sample.key_expr)
        giver = giver_of(key)
        receipt = None
        if giver is not None and giver.authority in self._streamers:
            receipt = self._key.read_receipt(key, sample.payload.to_bytes())
        if giver is None or receipt is None:
            self._refuse()
        else:
            tell_loop(self._loop, self._arrived, giver, *receipt)

    def _refuse(self) -> None:
        """Count a refused token or receipt. The loop reports many at a time."""
        with self._refusals_lock:
            self._refusals += 1
            is_first = self._refusals == 1
        if is_first:
            tell_loop(self._loop, self._tell_refusals)


def _beyond(limit: int, streamers: Iterable[Streamer], authority: str) -> list[Streamer]:
    """Return the oldest sessions of a streamer beyond a bound. ``streamers`` are in the order in which they came."""
    sessions = [streamer for streamer in streamers if streamer.authority == authority]
    return sessions[: max(0, len(sessions) - limit)]
