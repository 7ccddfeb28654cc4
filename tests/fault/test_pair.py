"""What the harness of a pair takes for accepted of what was put on Zenoh."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fault.ledger import Sent
from tests.fault.pair import PairHarness
from tests.independent.message import uuid7

LOST_MS = 1_700_000_000_000


def harness(directory: Path, lost_ms: list[list[float]], put_ms: int) -> Any:
    """A harness whose source has put one message, and whose two streamers have lost their links to it at these times."""
    found: Any = PairHarness(directory, 1)
    message_id = uuid7(put_ms)
    found.ledger.sent(Sent(message_id, "veh→cloud", 0, "cloud", "", 0.0, False))
    found._source = SimpleNamespace(zid="source", puts=[message_id])
    found.gateways = {
        name: SimpleNamespace(lost_ms={"source": lost}, read_log=lambda: None)
        for name, lost in zip("ab", lost_ms, strict=True)
    }
    found.accept_all()
    return found


@pytest.mark.parametrize(
    ("lost_ms", "put_ms", "has_to_arrive"),
    [
        ([[], []], LOST_MS, True),
        ([[LOST_MS], []], LOST_MS - 100, True),
        ([[LOST_MS], [LOST_MS + 80]], LOST_MS - 100, False),
        ([[LOST_MS + 80], [LOST_MS]], LOST_MS + 40, False),
        ([[LOST_MS], [LOST_MS + 80]], LOST_MS - 2001, True),
        ([[LOST_MS], [LOST_MS + 80]], LOST_MS + 81, True),
        ([[LOST_MS], [LOST_MS + 1000]], LOST_MS - 100, True),
    ],
    ids=[
        "no loss",
        "one",
        "at once, just before",
        "at once, between",
        "beyond the lease",
        "after it",
        "one after the other",
    ],
)
def test_what_both_may_not_have_heard_need_not_arrive(
    tmp_path: Path, lost_ms: list[list[float]], put_ms: int, has_to_arrive: bool
) -> None:
    found = harness(tmp_path, lost_ms, put_ms)
    assert len(found.ledger.missing()) == has_to_arrive
    assert found._unheard == (not has_to_arrive)
    found.accept_all()
    assert found._unheard == (not has_to_arrive)  # it is counted once
