"""A desk per test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.services.usubscription.desk import Desk


@pytest.fixture
async def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path / "state.db")
    await found.service.begin()
    yield found
    found.state.close()
