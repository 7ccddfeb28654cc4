"""How much memory the daemon takes while its egress is held. A benchmark: `make bench-tests`."""

from pathlib import Path

import psutil
import pytest

from tests.e2e.held_egress import QUEUE_BYTES, RECEIVE_MAXIMUM, hold_egress
from tests.process import StreamerProcess

SLACK_BYTES = 48 * 1024 * 1024
"""What a Python process may grow by for other reasons: remembered ids, caches, buffers."""


class ResidentMemory:
    """Resident memory of the daemon, at first and at most."""

    def __init__(self) -> None:
        self.first_bytes = self.most_bytes = 0

    def look(self, daemon: StreamerProcess) -> None:
        assert daemon.process is not None
        now_bytes: int = psutil.Process(daemon.process.pid).memory_info().rss
        self.first_bytes = self.first_bytes or now_bytes
        self.most_bytes = max(self.most_bytes, now_bytes)

    @property
    def grown_bytes(self) -> int:
        return self.most_bytes - self.first_bytes


@pytest.mark.benchmark
@pytest.mark.mosquitto
@pytest.mark.parametrize("policy", ["backpressure", "reject", "evict"])
async def test_resident_memory_follows_the_bounds(tmp_path: Path, policy: str) -> None:
    memory = ResidentMemory()
    held = await hold_egress(tmp_path, policy, memory.look)
    letters_bytes = sum(len(letter.payload) + 600 for letter in held.letters)
    assert memory.grown_bytes < QUEUE_BYTES + 2 * RECEIVE_MAXIMUM * 1024 + letters_bytes + SLACK_BYTES
