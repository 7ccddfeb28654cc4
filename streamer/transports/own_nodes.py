"""Makes the ids of a streamer's own nodes and recognises them: those of all its endpoints, and of the rest of its pair.

An id is 8 random bytes and their tag, an HMAC-SHA256 cut to 8 bytes, as 32 hexadecimal digits. So an own node is known as
such from the moment at which it appears, without a word from it, and nobody without the key can make an id that counts as
one. Whoever uses an id of an earlier node is not counted as a receiver, which harms nobody else.
"""

import hmac
import secrets

_NONCE_DIGITS = 16
_TAG_DIGITS = 16
_PURPOSE = b"uStreamer: a node of this streamer or its pair\0"


class OwnNodes:
    """``key``: the one that the streamers of a pair share. None: a random one, for a streamer that works alone.

    ``authority`` is the streamer's: another pair may have the same key, and is a receiver like any other.
    """

    def __init__(self, key: bytes | None = None, authority: str = "") -> None:
        self._key = secrets.token_bytes(32) if key is None else key
        self._authority = authority.encode()

    def new_id(self) -> str:
        """Return an id for a new node. It does not begin with a zero, which some networks leave out."""
        while (nonce := secrets.token_hex(_NONCE_DIGITS // 2)).startswith("0"):
            pass
        return nonce + self._tag(nonce)

    def has(self, node: str) -> bool:
        """Return whether a node with this id belongs to this streamer or its pair."""
        nonce, tag = node[:_NONCE_DIGITS], node[_NONCE_DIGITS:]
        return len(tag) == _TAG_DIGITS and hmac.compare_digest(tag.encode(), self._tag(nonce).encode())

    def _tag(self, nonce: str) -> str:
        return hmac.digest(self._key, _PURPOSE + nonce.encode() + self._authority, "sha256").hex()[:_TAG_DIGITS]
