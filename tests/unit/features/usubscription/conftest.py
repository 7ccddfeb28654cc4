"""A harness for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.features.usubscription.harness import UsubscriptionHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[UsubscriptionHarness]:
    found = UsubscriptionHarness(tmp_path / "state.db")
    await found.service.begin()
    yield found
    found.state.close()
