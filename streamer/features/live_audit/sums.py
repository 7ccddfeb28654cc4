"""The sums that the live audit compares: how many messages, and the XOR of their encrypted ids. Pure.

Equal sums mean the same messages, in whichever order and parts they were added. Each id is encrypted (AES, one block) first:
who does not know the key cannot choose ids that cancel out, and who knows it gets the id back from a sum of one.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import created_ms

MINUTE_MS: Final = 60_000
DAY_MINUTES: Final = 1440
ID_BYTES: Final = 16
PUBLIC_KEY: Final = b"live audit key 1"  # of streamers whose configuration has none

TAKEN_IN: Final = 0
DELIVERED: Final = 1
REJECTED: Final = 4
OTHER: Final = 6  # ended otherwise, such as superseded; or failed, and may have arrived all the same
ENDED: Final = range(2, 7)
AWAY: Final = 8  # added to a kind at endpoints that do not lead to the receiver of a row
KINDS: Final = ("taken_in", "delivered", "duplicate", "expired", "rejected", "dead_lettered")
"""The kinds of sums, mostly in the words of outcomes. The places here are the numbers on the wire."""


class Sum(NamedTuple):
    """The number of some messages, and the XOR of their encrypted ids. A difference may have a negative number."""

    messages: int
    ids: int

    def plus(self, other: "Sum") -> "Sum":
        """Return the sum of the messages of both."""
        return Sum(self.messages + other.messages, self.ids ^ other.ids)

    def minus(self, other: "Sum") -> "Sum":
        """Return the difference."""
        return Sum(self.messages - other.messages, self.ids ^ other.ids)


NOTHING: Final = Sum(0, 0)


def add(found: dict[Any, Sum], more: Mapping[Any, Sum]) -> None:
    """Add sums to others of the same keys."""
    for key, each in more.items():
        found[key] = found.get(key, NOTHING).plus(each)


class IdCipher:
    """Adds up ids, and finds the id in a difference of one. ``key``: 16, 24 or 32 bytes, the same in all streamers."""

    def __init__(self, key: bytes = PUBLIC_KEY) -> None:
        cipher = Cipher(AES(key), ECB())  # a permutation of single blocks
        self._encrypt, self._decrypt = cipher.encryptor().update, cipher.decryptor().update

    def fold(self, ids: bytes | bytearray) -> int:
        """Return the XOR of the encrypted ids that stand one after the other."""
        number, found = len(ids) // ID_BYTES, int.from_bytes(self._encrypt(ids), "big")
        while number > 1:  # XOR of the halves
            number = (number + 1) // 2
            bits = number * ID_BYTES * 8
            found = found >> bits ^ found & (1 << bits) - 1
        return found

    def id_in(self, difference: Sum, minute: int) -> bytes | None:
        """Return the id of the only message of a difference; None: it is not one id of that minute."""
        found = self._decrypt(difference.ids.to_bytes(ID_BYTES, "big"))
        is_id = found[6] >> 4 == 7 and found[8] >> 6 == 0b10 and created_ms(found) // MINUTE_MS == minute
        return found if is_id and abs(difference.messages) == 1 else None


class FlowClass(NamedTuple):
    """The messages from one authority to another; or, with a resource, of one topic, as addressed on the network."""

    source: str
    sink: str
    ue_id: int = 0
    version: int = 0
    resource: int = 0

    @property
    def topic(self) -> UUri:
        """The topic, if there is a resource."""
        return UUri(self.source, self.ue_id, self.version, self.resource)

    def __str__(self) -> str:
        return (str(self.topic) if self.resource else self.source) + (f" to {self.sink}" if self.sink else "")


Row = tuple[FlowClass, int, dict[tuple[str, int], Sum]]
"""A class, a minute (Unix), and the sums by endpoint and kind."""
