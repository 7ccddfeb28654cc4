"""`Received`, a message from a transport, and `UListener`, which takes it: a part of the interface in `base`.

A file of its own, which may be compiled, because every message passes through it. Classes that are not compiled, such as a
plugin's, may still derive from these.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from mypy_extensions import mypyc_attr

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode

KNOWN_PAYLOAD_BYTES = 4096
"""How many bytes of the payload are kept of a message that is too large."""

_MAX_COPIES = 16


@mypyc_attr(allow_interpreted_subclasses=True)
class Received:
    """A message from the wire. It is acknowledged once every listener that got it has called `release`.

    ``redelivered``: it may have been delivered before, by the transport's own mark (MQTT: DUP) or in a pair. ``holders``
    counts the listeners that still have to `release` the message. ``is_acknowledged``: the source was acknowledged before
    that (`take_custody`). ``key`` is the key under which the router remembers the message's id; empty if it does not.
    ``wire_bytes``: the size of its packet; 0 if unknown. ``since_s``: when it arrived, on the monotonic clock, if it had to
    wait before it entered a queue; else 0.
    """

    source_retransmits: ClassVar[bool] = False
    """Whether the source redelivers the message until it is acknowledged."""

    __slots__ = ("_copies", "holders", "is_acknowledged", "key", "message", "redelivered", "since_s", "wire_bytes")

    def __init__(self, message: UMessage, redelivered: bool = False, wire_bytes: int = 0) -> None:
        self.message = message
        self.wire_bytes = wire_bytes
        self.redelivered = redelivered
        self.since_s = 0.0
        self.holders = 1
        self.is_acknowledged = False
        self.key = b""
        self._copies: list[Received] | None = None

    def attach(self, copy: "Received") -> None:
        """Release a second copy of the same message together with this one.

        Beyond `_MAX_COPIES` the oldest copy is released: copies must not fill the memory, and after a reconnect only the
        acknowledgement of the latest counts. A copy that arrives after this message was released is released at once.
        """
        if self.holders <= 0:
            copy.release()
            return
        if self._copies is None:
            self._copies = []
        if self.is_acknowledged:
            copy.release()
            return
        copy.message = self.message  # the copy's own message would take memory that no bound counts
        self._copies.append(copy)
        if len(self._copies) > _MAX_COPIES:
            self._copies.pop(0).release()

    def release(self) -> None:
        """Release one holder's claim: the message is delivered, on disk, or its failure is accounted for."""
        self.holders -= 1
        if self.holders == 0 and not self.is_acknowledged:
            self._acknowledge_with_copies()

    def take_custody(self) -> None:
        """Acknowledge the message without waiting for the last holder: it is in the streamer's custody."""
        if not self.is_acknowledged and self.holders > 0:
            self.is_acknowledged = True
            self._acknowledge_with_copies()

    def _acknowledge_with_copies(self) -> None:
        self.acknowledge()
        if self._copies is not None:
            for copy in self._copies:
                copy.release()
            self._copies = None

    def acknowledge(self) -> None:
        """Acknowledge the message to its source. Transports without acknowledgements do not override this."""


class Refused(NamedTuple):
    """A message that a transport cannot deliver, such as one that is too large, with the reason as code and text.

    ``payload_bytes`` is None, or the length of the payload of a message of which only a part is known: some attributes may
    be missing, and there is only the beginning of the payload.
    """

    received: Received
    code: UCode
    text: str
    payload_bytes: int | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class UListener:
    """Receives valid messages pushed by a transport (uP-L1 UListener). Runs on the event loop and must not block."""

    def on_receive(self, received: Received) -> None:
        """Take one message; call ``received.release()`` once it is safe."""
        raise NotImplementedError

    def on_receive_batch(self, batch: Sequence[Received]) -> None:
        """Take the messages of one read from the wire, in order. The default passes them to `on_receive` one by one."""
        for received in batch:
            self.on_receive(received)
