"""Makes and checks the proofs that a token or a receipt comes from a streamer with the shared key. Pure.

    ustreamer/2/hello/<streamer>/<session>/<proof>                                         token: expects receipts
    ustreamer/2/serves/<giver>/<session>/<receiver>/<its session>/<authority>/<proof>      token: gives it receipts
    ustreamer/2/receipts/<giver>/<session>/<receiver>/<its session>                        counter, ids, proof

A *session* is 16 random bytes, drawn whenever a streamer opens its Zenoh session. A proof is an HMAC-SHA256 over the rest of
the token or receipt. It covers both sessions, so that a recording from before a restart of either side proves nothing.
Within a session the counter only rises, so that no receipt counts twice.
"""

import hashlib
import hmac
from dataclasses import dataclass

HELLO = "ustreamer/2/hello"
SERVES = "ustreamer/2/serves"
RECEIPTS = "ustreamer/2/receipts"

MOST_IDS = 4096
"""The most ids in one receipt, 16 bytes each."""

SHORTEST_KEY = 16

_COUNTER = 8
_PROOF = 32


@dataclass(frozen=True, slots=True)
class Streamer:
    """One Zenoh session of a streamer. ``session`` is its random number in hexadecimal."""

    authority: str
    session: str

    @property
    def path(self) -> str:
        return f"{self.authority}/{self.session}"


class ReceiptKey:
    """Makes and checks proofs with the key that all streamers share. Tokens and receipts with a wrong proof read as None."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def hello(self, streamer: Streamer) -> str:
        """Return the token of a streamer that expects receipts."""
        key = f"{HELLO}/{streamer.path}"
        return f"{key}/{self._prove(key)}"

    def read_hello(self, key: str) -> Streamer | None:
        """Return the streamer that has declared this token, or None."""
        match self._proven(key).split("/")[3:]:
            case [authority, session]:
                return Streamer(authority, session)
        return None

    def serves(self, giver: Streamer, receiver: Streamer, authority: str) -> str:
        """Return the token of a streamer that gives receipts to another one, for messages to an authority."""
        key = f"{SERVES}/{giver.path}/{receiver.path}/{authority}"
        return f"{key}/{self._prove(key)}"

    def read_serves(self, key: str, receiver: Streamer) -> tuple[Streamer, str] | None:
        """Return the streamer that has declared this token to ``receiver``, and the authority; or None."""
        match self._proven(key).split("/")[3:]:
            case [giver, session, to, its_session, authority] if receiver == Streamer(to, its_session):
                return Streamer(giver, session), authority
        return None

    def receipt(self, giver: Streamer, receiver: Streamer, counter: int, ids: bytes) -> tuple[str, bytes]:
        """Return the key and the payload of a receipt."""
        key = f"{RECEIPTS}/{giver.path}/{receiver.path}"
        payload = counter.to_bytes(_COUNTER, "big") + ids
        return key, payload + self._mac(key, payload)

    def read_receipt(self, key: str, payload: bytes) -> tuple[int, bytes] | None:
        """Return the counter and the ids of a receipt, or None."""
        length = len(payload) - _COUNTER - _PROOF
        if not 0 < length <= 16 * MOST_IDS or length % 16:
            return None
        content, proof = payload[:-_PROOF], payload[-_PROOF:]
        if not hmac.compare_digest(self._mac(key, content), proof):
            return None
        return int.from_bytes(content[:_COUNTER], "big"), content[_COUNTER:]

    def _proven(self, key: str) -> str:
        """Return a token without its proof; empty if the proof is wrong."""
        text, _, proof = key.rpartition("/")
        return text if hmac.compare_digest(self._prove(text).encode(), proof.encode()) else ""

    def _prove(self, key: str) -> str:
        return self._mac(key, b"").hex()

    def _mac(self, key: str, content: bytes) -> bytes:
        text = key.encode()
        return hmac.digest(self._secret, len(text).to_bytes(4, "big") + text + content, hashlib.sha256)


def giver_of(key: str) -> Streamer | None:
    """Return the streamer that claims to have given a receipt with this key, or None."""
    match key.split("/")[3:]:
        case [authority, session, _, _]:
            return Streamer(authority, session)
    return None
