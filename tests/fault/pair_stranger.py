"""Connects to one of a pair as somebody who does not have its key."""

import asyncio
import contextlib
import hashlib
import hmac
import os
import random

from tests.ports import HOST

WITHIN_S = 20.0
_GUESSED = b"the key that somebody has guessed"
_GREETING_BYTES = 43
_PROOF_BYTES = 16


async def call(port: int, how: str, recorded: bytes, chance: random.Random) -> bytes:
    """Connect, say something, and return what is answered beyond the greeting, until the other end has closed.

    ``how``: with another ``key``; a ``replay`` of what the right one has said once (``recorded``); or ``noise``.
    """
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        async with asyncio.timeout(WITHIN_S):
            with contextlib.suppress(ConnectionError):
                answer = b""
                match how:
                    case "key":
                        mine = b"uS-pair\n" + (1).to_bytes(2, "big") + b"b" + os.urandom(32)
                        writer.write(mine)
                        theirs = await reader.readexactly(_GREETING_BYTES)
                        key = hmac.digest(
                            b"the key that somebody has guessed", b"uS-pair key b" + mine + theirs, hashlib.sha256
                        )
                        writer.write(hmac.digest(key, bytes(8) + mine + theirs, hashlib.sha256)[:_PROOF_BYTES])
                        greeted = 0
                    case "replay":
                        writer.write(recorded)
                        greeted = _GREETING_BYTES
                    case _:
                        writer.write(chance.randbytes(chance.randint(_GREETING_BYTES, 4096)))
                        greeted = _GREETING_BYTES
                while data := await reader.read(65_536):
                    answer += data
                return answer[greeted:]
            return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def forged(frame: bytes, chance: random.Random) -> bytes:
    """Return a sealed frame with one bit changed."""
    place = chance.randrange(len(frame))
    return frame[:place] + bytes([frame[place] ^ 1 << chance.randrange(8)]) + frame[place + 1 :]
