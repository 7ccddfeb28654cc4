"""Many messages at once."""

import random

from tests.independent.message import Plain
from tests.lengths import at_length

COUNT = at_length(25_000, 2_500)


LARGE = [4096, 65_535, 65_536, 300_000, 1 << 20] * 4


def batch() -> list[Plain]:
    """Mostly small messages, some of every size class up to 1 MiB, over 20 flows."""
    chance = random.Random(7)
    block = chance.randbytes(1 << 20)
    every = COUNT // len(LARGE)
    messages = []
    for number in range(COUNT):
        size = LARGE[number // every] if number % every == 0 else chance.choice([0, 1, 64, 256])
        start = chance.randrange((1 << 20) - size + 1)
        source = ("alpha", 0x20000 + number % 20, 1, 0x8001)
        sink = ("beta", 3, 1, 0) if number % 2 else None
        messages.append(Plain(4 if sink else 1, source, sink, block[start : start + size], payload_format=6))
    return messages
