"""Fixtures of the tests that cross real connections."""

from collections.abc import AsyncIterator

import pytest

from tests.mqtt_peer import FakeBroker


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with FakeBroker().running() as broker:
        yield broker
