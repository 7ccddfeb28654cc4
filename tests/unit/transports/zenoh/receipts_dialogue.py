"""`Receipts` that talk with other streamers on a session that only records."""

import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import zenoh

from streamer.transports.base import UNCONFIRMED, MessageParcel, SendResult
from streamer.transports.errors import LinkLostError
from streamer.transports.zenoh.receipt_proofs import HELLO, RECEIPTS, SERVES, ReceiptKey, Streamer
from streamer.transports.zenoh.receipts import Receipts
from streamer.uprotocol.message import notification
from streamer.uprotocol.uri import UUri

KEY, OTHER_KEY = ReceiptKey(b"k" * 16), ReceiptKey(b"o" * 16)
TOPIC = UUri.parse("//veh1/1/1/8000")
FAR, OTHER, STRANGER = "cloud-gateway", "depot-gateway", "stranger"
PATIENCE_S = 5.0
PUT, DELETE = zenoh.SampleKind.PUT, zenoh.SampleKind.DELETE


def streamer(number: int = 0, authority: str = FAR) -> Streamer:
    """A session of a streamer."""
    return Streamer(authority, f"{number:032x}")


def uuid(number: int) -> bytes:
    return number.to_bytes(16, "big")


class FakeLoop:
    """Time passes, and callbacks run, when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon_threadsafe(self, callback: Callable[..., None], *args: Any) -> None:
        self.soon.append(lambda: callback(*args))

    def call_later(self, after_s: float, callback: Callable[[], None]) -> Any:
        timer = (self.now_s + after_s, callback)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def run(self) -> None:
        """What was said on other threads arrives."""
        while self.soon:
            self.soon.pop(0)()

    def fire(self) -> None:
        """The timers that are set now fire."""
        due, self.timers = self.timers, []
        for at_s, callback in due:
            self.now_s = max(self.now_s, at_s)
            callback()
        self.run()


class FakeControl:
    """A control thread that works at once, and goes on after an error."""

    def post(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(zenoh.ZError):
            call()


class FakeSession:
    """``declared`` is the beginning of every key that was subscribed to or declared, ``tokens`` those that are there."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.tokens: list[str] = []
        self.listeners: dict[str, Callable[[Any], None]] = {}
        self.puts: list[tuple[str, bytes]] = []
        self.failing: set[str] = set()

    def liveliness(self) -> "FakeSession":
        return self

    def declare_subscriber(self, key: str, listener: Callable[[Any], None], **how: object) -> object:
        begin = "/".join(key.split("/")[:3])
        assert how == ({"allowed_origin": zenoh.Locality.REMOTE} if begin == RECEIPTS else {"history": True})
        self.declared.append(begin)
        self.listeners[begin] = listener
        return object()

    def declare_token(self, key: str) -> Any:
        self.declared.append("token " + "/".join(key.split("/")[:3]))
        self.tokens.append(key)
        return SimpleNamespace(undeclare=lambda: self.tokens.remove(key))

    def put(self, key: str, payload: bytes, **how: object) -> None:
        assert how["allowed_destination"] == zenoh.Locality.REMOTE
        if any(name in key for name in self.failing):
            raise zenoh.ZError("no")
        self.puts.append((key, payload))


class Dialogue:
    """Receipts that are open, and serve ``veh1`` if a test does not say otherwise. ``refused`` is what was refused."""

    def __init__(self, serves: Sequence[str] = ("veh1",), streamers: Sequence[str] = (FAR, OTHER)) -> None:
        self.refused: list[int] = []
        self.loop, self.session = FakeLoop(), FakeSession()
        self.said: list[tuple[str, str]] = []
        loop: Any = self.loop
        control: Any = FakeControl()
        session: Any = self.session
        self.away: list[set[str]] = [set()]
        own = ("vehicle", "gateway", serves, streamers)
        told = (self.refused.append, lambda away: self.away.append(set(away)))
        self.receipts = Receipts(loop, control, session, KEY, *own, PATIENCE_S, *told)
        self.own = self.receipts._own
        self.receipts.announce()

    def sample(self, begin: str, key: str, kind: zenoh.SampleKind = PUT, payload: bytes = b"") -> None:
        if begin in self.session.listeners:
            self.session.listeners[begin](
                SimpleNamespace(key_expr=key, kind=kind, payload=SimpleNamespace(to_bytes=lambda: payload))
            )
        self.loop.run()

    def hello(self, receiver: Streamer, kind: zenoh.SampleKind = PUT, key: ReceiptKey = KEY) -> None:
        """A streamer expects receipts, or no longer does."""
        self.sample(HELLO, key.hello(receiver), kind)

    def serve(self, giver: Streamer, authority: str = "cloud", kind: zenoh.SampleKind = PUT, key: ReceiptKey = KEY) -> None:
        """A streamer gives us receipts, or no longer does."""
        self.sample(SERVES, key.serves(giver, self.own, authority), kind)

    def receipt(self, giver: Streamer, counter: int, *ids: bytes, key: ReceiptKey = KEY) -> None:
        """A streamer gives us a receipt."""
        name, payload = key.receipt(giver, self.own, counter, b"".join(ids))
        self.sample(RECEIPTS, name, payload=payload)

    def served(self, receiver: Streamer) -> list[str]:
        """Whom we serve, as we have told a streamer."""
        read = [KEY.read_serves(token, receiver) for token in self.session.tokens]
        assert all(giver == self.own for giver, _ in filter(None, read))
        return [authority for _, authority in filter(None, read)]

    def given(self, receiver: Streamer) -> list[tuple[int, list[bytes]]]:
        """The receipts that a streamer got: counter and ids."""
        path = f"{RECEIPTS}/{self.own.path}/{receiver.path}"
        read = [KEY.read_receipt(key, payload) for key, payload in self.session.puts if key == path]
        return [(counter, [ids[at : at + 16] for at in range(0, len(ids), 16)]) for counter, ids in filter(None, read)]

    def send(self, text: str, sink: str = "cloud") -> bytes:
        """Submit a message, which Zenoh takes; its id. ``said`` gets its result."""
        parcel = MessageParcel(notification(1, TOPIC, UUri(sink, 1, 1, 0), text.encode()))
        self.receipts.ledger.expect([parcel], self._done)
        self.receipts.put(self._done, [parcel], UNCONFIRMED)
        return parcel.message.id

    def _done(self, parcels: Sequence[Any], result: SendResult) -> None:
        word = {None: "confirmed", UNCONFIRMED: "unconfirmed"}.get(result, "lost")  # type: ignore[arg-type]
        assert word != "lost" or isinstance(result, LinkLostError)
        self.said += [((parcel.message.payload or b"").decode(), word) for parcel in parcels]
