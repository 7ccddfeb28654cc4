"""The brokers of an endpoint: reads their URLs, and decides which one is tried next. Pure: times are passed in.

The rules:

- The next attempt begins with the broker that accepted the last connection, and goes on with the others in their order.
- A broker whose connections end soon after they began, twice in a row, is tried last.
- `prefer: first` returns to the first broker once it has accepted connections for ``return_after_s``, at every test. If it
  is lost again within ten times that time, or does not even accept, the time doubles, up to an hour.
- Of the addresses of a name, the one that accepted the last connection is tried first.
"""

from typing import Literal, NamedTuple

from streamer.transports.addresses import split_url
from streamer.transports.probe import address_of

Prefer = Literal["first", "last-good"]

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_EXPECTED = "expected mqtt://host:port, mqtts://host:port, ws://host:port/path or wss://host:port/path"
_PATH = "/mqtt"  # of WebSocket, if the URL has none
_SHORT_LIVES = 2  # so many in a row, and another broker is tried
_HELD = 10  # a return has held after so many times the time that it took
_LONGEST_PROOF_S = 3600.0


class WebSocketError(OSError):
    """The peer that answers does not speak WebSocket, or not for MQTT. The text says so."""


class Broker(NamedTuple):
    """Where a broker is, and how it is reached."""

    scheme: str
    host: str
    port: int
    path: str = ""
    """The path of a WebSocket address."""

    @property
    def uses_tls(self) -> bool:
        return self.scheme in ("mqtts", "wss")

    @property
    def is_websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def where(self) -> str:
        """Host and port as one text."""
        return address_of(self.host, self.port)


def read_broker(text: str) -> Broker:
    """Read the URL of a broker. Raises ValueError, whose text does not contain the URL."""
    url = split_url(text, _EXPECTED, "username and password_file")
    port, host = url.port, url.hostname
    if url.scheme not in PORTS or not host or port == 0:
        raise ValueError(_EXPECTED)
    broker = Broker(url.scheme, host, port or PORTS[url.scheme])
    if url.query or url.fragment or (url.path not in ("", "/") and not broker.is_websocket):
        raise ValueError(f"expected nothing after the {'path' if broker.is_websocket else 'port'}")
    if not broker.is_websocket:
        return broker
    if not (url.path.isascii() and url.path.isprintable() and " " not in url.path):
        raise ValueError("expected a path of printable ASCII characters without spaces")
    return broker._replace(path=url.path or _PATH)


class BrokerChoice:
    """Decides which of ``count`` brokers is tried next, by their numbers. Times are in seconds, on one monotonic clock.

    ``settled_s``: a connection that ends before that was short-lived. ``good_addresses``: for each broker the address that
    accepted the last connection. ``is_returning``: the connection was ended in favour of the first broker, and none has
    accepted since.
    """

    def __init__(self, count: int, prefer: Prefer, return_after_s: float, settled_s: float) -> None:
        self.good_addresses: dict[int, str] = {}
        self._count = count
        self._returns = prefer == "first"
        self._return_after_s = return_after_s
        self._settled_s = settled_s
        self._next = 0
        self._stays = False  # at that one
        self._short_lives = 0
        self._proof_s = return_after_s  # for how long the first broker has to accept connections
        self._accepts_since_s: float | None = None
        self.is_returning = False

    @property
    def order(self) -> list[int]:
        """The brokers in the order of the next attempt."""
        return [self._next] if self._stays else [(self._next + step) % self._count for step in range(self._count)]

    @property
    def test_every_s(self) -> float | None:
        """The time between two tests of the first broker; None if it need not be tested."""
        return self._return_after_s / 2 if self._returns and self._next else None

    def accepted(self, broker: int, address: str) -> None:
        """Record that a broker accepted a connection, at one of its addresses."""
        if broker != self._next:
            self._short_lives = 0
        if self.is_returning and broker:  # the first takes connections, but refuses us or does not answer
            self._double_proof()
        self.is_returning = False
        self._next = broker
        self._accepts_since_s = None
        self.good_addresses[broker] = address

    def ended(self, lived_s: float, is_no_fault: bool) -> None:
        """Record that an accepted connection ended. ``is_no_fault``: over a message, not because of the broker."""
        if not self._next and self._returns:
            has_held = is_no_fault or lived_s >= _HELD * self._proof_s
            if has_held:
                self._proof_s = self._return_after_s
            else:
                self._double_proof()
        if is_no_fault or lived_s > self._settled_s:
            self._short_lives = 0
            return
        self._short_lives += 1
        if self._short_lives >= _SHORT_LIVES and not self._stays:
            self._short_lives = 0
            self._next = (self._next + 1) % self._count

    def tested(self, accepts: bool, now_s: float) -> None:
        """Record whether the first broker accepts connections."""
        if not accepts:
            self._accepts_since_s = None
        elif self._accepts_since_s is None:
            self._accepts_since_s = now_s

    def may_return(self, now_s: float) -> bool:
        """Return whether the first broker has accepted connections for long enough."""
        since_s = self._accepts_since_s
        return self._returns and self._next != 0 and since_s is not None and now_s - since_s >= self._proof_s

    def return_to_first(self) -> None:
        """Begin the next attempt with the first broker."""
        self._next = self._short_lives = 0
        self._accepts_since_s = None
        self.is_returning = True

    def stay_at(self, broker: int) -> None:
        """Use this broker, and no other any more."""
        self._next, self._stays, self._returns = broker, True, False

    def _double_proof(self) -> None:
        self._proof_s = min(2 * self._proof_s, max(_LONGEST_PROOF_S, self._return_after_s))
