"""Fixtures of the tests that cross real connections."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.mqtt_peer import FakeBroker

KEY = b"a key that only streamers have"


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with FakeBroker().running() as broker:
        yield broker


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The key that streamers share for their receipts."""
    path = tmp_path / "receipts.key"
    path.write_bytes(KEY + b"\n")
    path.chmod(0o600)
    return path
