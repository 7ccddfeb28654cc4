"""Reads MCAP files by the specification (mcap.dev/spec), without our code and without the package. No tests."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

MAGIC = b"\x89MCAP0\r\n"
CHANNEL, MESSAGE, CHUNK, METADATA = 4, 5, 6, 12


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the records, those in chunks instead of the chunks."""
    while data:
        opcode, length = struct.unpack_from("<BQ", data)
        content, data = data[9 : 9 + length], data[9 + length :]
        if opcode != CHUNK:
            yield opcode, content
            continue
        (name_bytes,) = struct.unpack_from("<I", content, 28)
        assert content[32 : 32 + name_bytes] == b"zstd"
        yield from records(zstandard.decompress(content[32 + name_bytes + 8 :]))


def read(path: Path) -> list[tuple[str, int, dict[str, Any]]]:
    """Return topic, time in nanoseconds, and data of every message."""
    data = path.read_bytes()
    assert (data[:8], data[-8:]) == (MAGIC, MAGIC)
    topics: dict[int, str] = {}
    found = []
    for opcode, content in records(data[8:-8]):
        if opcode == CHANNEL:
            number, _, length = struct.unpack_from("<HHI", content)
            topics[number] = content[8 : 8 + length].decode()
        elif opcode == MESSAGE:
            number, _, at_ns = struct.unpack_from("<HIQ", content)
            found.append((topics[number], at_ns, json.loads(content[22:])))
    return found
