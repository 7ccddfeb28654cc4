"""A daemon with its port, and the live pages alone."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.api.live import LiveHarness, serving


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[DaemonHarness]:
    async with running(tmp_path) as harness:
        yield harness


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[tuple[LiveHarness, aiohttp.ClientSession]]:
    async with serving(tmp_path) as pages:
        yield pages
