"""Reads how many bytes a TCP connection has carried, from the kernel: with TLS, and with what was sent again.

Nothing is counted for that while messages pass. Only Linux says it.
"""

import socket
import sys
from typing import Final, NamedTuple

_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_RECEIVED_AT, _SENT_AT, _INFO_BYTES = 128, 200, 208  # tcpi_bytes_received and tcpi_bytes_sent: Linux 4.19 or newer


class ByteCounts(NamedTuple):
    """Bytes that were sent and received."""

    sent: int = 0
    received: int = 0

    def plus(self, other: "ByteCounts") -> "ByteCounts":
        """Return the sum of both."""
        return ByteCounts(self.sent + other.sent, self.received + other.received)


NO_BYTES: Final = ByteCounts()


def wire_bytes(connection: socket.socket) -> ByteCounts | None:
    """Return what a connection has carried so far, without the headers of TCP and IP; None if the kernel does not say.

    The connection may be closed at the other end.
    """
    if _TCP_INFO is None:
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO_BYTES)
    except (OSError, ValueError):  # a closed socket has no descriptor
        return None
    if len(info) < _INFO_BYTES:
        return None
    sent = int.from_bytes(info[_SENT_AT:_INFO_BYTES], sys.byteorder)
    return ByteCounts(sent, int.from_bytes(info[_RECEIVED_AT : _RECEIVED_AT + 8], sys.byteorder))
