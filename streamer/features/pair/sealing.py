"""Proves that the frames of a link are from the peer, complete and not replayed. Pure: the caller passes random bytes in.

    greeting  = magic, version, name of the sender, nonce: 16 random bytes and two short tags over them
    proof     = tag over both greetings
    frame     = length of the payload, tag; payload, tag

- The one that has connected speaks first, and proves itself first: greeting, greeting, its proof, the other one's, frames.
- Each direction of each connection has a key of its own: an HMAC-SHA256 over the sender's name and both greetings, with the
  key that both share. So nothing from another connection or from the other direction proves anything.
- The tags of a nonce say of which authority the sender is, to whoever has the key: a fleet may have one key for all of its
  pairs, and one that dials the wrong address must not get what another pair has. In versions before, a nonce is 32 random
  bytes: then nothing is known of the authority, and the key is enough.
- A tag is an HMAC-SHA256, cut to 16 bytes, over a counter that is not sent and the bytes. So what is forged, missing,
  doubled or swapped is found, and nothing after it is good.
- A length has a tag of its own: a changed one would make its receiver wait for bytes that never come.

Nothing is encrypted here: that is for TLS. TLS alone would not do: on many gateways there are no certificates, and Python's
`ssl` has had shared keys only since 3.13.
"""

import hmac
import struct
from typing import Final, NamedTuple

VERSION: Final = 1
"""The version of the protocol. All versions begin with magic and version, so that each side can say what is wrong."""

SHORTEST_KEY: Final = 16
NONCE_BYTES: Final = 32
CHANCE_BYTES: Final = 16
TAG_BYTES: Final = 16

_MAGIC = b"uS-pair\n"
_HEAD = struct.Struct(">8sH")
HEAD_BYTES: Final = _HEAD.size
"""The part of a greeting that all versions have."""
REST_BYTES: Final = 1 + NONCE_BYTES
"""The rest of a greeting of this version."""

_NUMBER = struct.Struct(">Q")


class StrangerError(Exception):
    """The other end is not the peer; the text says why."""


class MisfitError(StrangerError):
    """The other end may be the peer, but cannot form a pair with this streamer. It gets a greeting, to say so as well."""


class ForgedError(Exception):
    """A tag is wrong: something was forged, or is missing, doubled or swapped."""


class Greeting(NamedTuple):
    """The first bytes of each end. ``name`` is one byte, which differs between the two streamers."""

    name: bytes
    nonce: bytes

    @property
    def packed(self) -> bytes:
        return _HEAD.pack(_MAGIC, VERSION) + self.name + self.nonce


def check_head(head: bytes) -> None:
    """Raise `StrangerError` unless these `HEAD_BYTES` begin a greeting of this version."""
    magic, version = _HEAD.unpack(head)
    if magic != _MAGIC:
        raise StrangerError("it does not speak the protocol of a pair")
    if version != VERSION:
        raise MisfitError(f"it speaks version {version} of the protocol of a pair, this one version {VERSION}")


def greeting_of(name: bytes, chance: bytes, secret: bytes, authority: str) -> Greeting:
    """Return a greeting. ``chance``: `CHANCE_BYTES` random bytes."""
    says_it, authority_tag = _nonce_tags(chance, secret, authority)
    return Greeting(name, chance + says_it + authority_tag)


def read_rest(rest: bytes, mine: Greeting, secret: bytes, authority: str) -> Greeting:
    """Return the greeting of the other end, whose head is checked.

    Raises `MisfitError` if it has the name of this one, or the key and another authority.
    """
    if rest[:1] == mine.name:
        raise MisfitError("it has the same place in the pair as this one, or sends back what this one says")
    theirs = Greeting(rest[:1], rest[1:])
    says_it, authority_tag = _nonce_tags(theirs.nonce[:CHANCE_BYTES], secret, authority)
    said, said_authority = theirs.nonce[CHANCE_BYTES : -len(authority_tag)], theirs.nonce[-len(authority_tag) :]
    if hmac.compare_digest(said, says_it) and not hmac.compare_digest(said_authority, authority_tag):
        raise MisfitError("it has the key, and another authority: it is one of another pair")
    return theirs


def _nonce_tags(chance: bytes, secret: bytes, authority: str) -> tuple[bytes, bytes]:
    """Return what proves that the sender of a nonce says its authority, and that it is this one."""
    size = (NONCE_BYTES - CHANCE_BYTES) // 2
    texts = b"uS-pair says its authority", b"uS-pair authority " + authority.encode()
    says_it, authority_tag = (hmac.digest(secret, hmac.digest(secret, text, "sha256") + chance, "sha256") for text in texts)
    return says_it[:size], authority_tag[:size]


class Seal:
    """One direction of one connection: what the sender seals, the receiver opens in the same order."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, content: bytes) -> bytes:
        """Return the content with its tag."""
        return content + self.tag(content)

    def open(self, sealed: bytes) -> bytes:
        """Return the content without its tag. Raises `ForgedError`; nothing can be opened after that."""
        content = sealed[:-TAG_BYTES]
        self.check(content, sealed[-TAG_BYTES:])
        return content

    def tag(self, content: bytes) -> bytes:
        """Return the tag of the content that is next."""
        number = self._number
        self._number += 1
        return hmac.digest(self._key, _NUMBER.pack(number) + content, "sha256")[:TAG_BYTES]

    def check(self, content: bytes, tag: bytes) -> None:
        """Raise `ForgedError` unless this is the tag of the content that is next."""
        if not hmac.compare_digest(self.tag(content), tag):
            raise ForgedError("a tag is wrong")


class Seals(NamedTuple):
    """Both directions of one connection, and the greetings, whose tag is the proof."""

    outgoing: Seal
    incoming: Seal
    greetings: bytes


def seals_of(secret: bytes, mine: Greeting, theirs: Greeting, is_first: bool) -> Seals:
    """Return the seals of a connection from the shared key and both greetings. ``is_first``: this one speaks first."""
    first, second = (mine, theirs) if is_first else (theirs, mine)
    greetings = first.packed + second.packed

    def key(sender: Greeting) -> bytes:
        return hmac.digest(secret, b"uS-pair key " + sender.name + greetings, "sha256")

    return Seals(Seal(key(mine)), Seal(key(theirs)), greetings)
