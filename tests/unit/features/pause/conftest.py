"""The port with the pages for pausing, for the tests of these."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from streamer.config.metrics import ControlConfig
from tests.unit.features.pause.pausing import BEARER, AdminHarness


@pytest.fixture
async def admin(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AdminHarness]:
    """The parameter, if a test gives one, is the setting `control.http`."""
    admin = AdminHarness(ControlConfig(http=getattr(request, "param", "loopback")), tmp_path / "token")
    admin.state.open()
    admin.control.restore()
    await admin.server.start()
    async with admin.harness:
        yield admin
    await admin.server.stop()
    admin.state.close()


@pytest.fixture
async def http(admin: AdminHarness) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{admin.port}", headers=BEARER) as session:
        yield session
