"""The egress is held at 5 000 messages/s: the bounds hold by the daemon's own account, and each policy keeps its promise."""

from pathlib import Path

import pytest

from tests.e2e.held_egress import COUNT, QUEUE, QUEUE_BYTES, RECEIVE_MAXIMUM, hold_egress
from tests.process import StreamerProcess

DEAD_LETTER_BYTES = 64 * 1024 * 1024
"""The default of ``dead_letter.queue.bytes``."""
MESSAGES_IN_A_READ = 256_000 // 256
"""Bytes that are read at once, and bytes of a payload: so many messages can come before TCP holds the broker back."""


@pytest.mark.mosquitto
@pytest.mark.parametrize("policy", ["backpressure", "reject", "evict"])
async def test_every_bound_holds_while_the_egress_is_held(tmp_path: Path, policy: str) -> None:
    held = await hold_egress(tmp_path, policy, check_bounds)
    arrived, lost = set(held.arrived), set(held.lost)
    assert len(arrived) + len(lost) == len(held.arrived) + len(held.lost) == COUNT
    assert not arrived & lost
    assert len(lost) == (0 if policy == "backpressure" else COUNT - QUEUE)


def check_bounds(daemon: StreamerProcess) -> None:
    daemon.check_books()
    assert daemon.total("ustreamer_queue_messages", route="down") <= QUEUE
    assert daemon.total("ustreamer_queue_bytes", route="down") <= QUEUE_BYTES
    assert daemon.total("ustreamer_queue_bytes") <= QUEUE_BYTES + DEAD_LETTER_BYTES
    assert daemon.total("ustreamer_backlog_messages", endpoint="near") < 2 * RECEIVE_MAXIMUM + MESSAGES_IN_A_READ
