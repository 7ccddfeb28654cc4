"""The live pages with those of the tap."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from streamer.features.tap.feature import TapFeature
from tests.unit.features.api.live import LiveHarness, serving


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[tuple[LiveHarness, aiohttp.ClientSession]]:
    async with serving(tmp_path, TapFeature) as pages:
        yield pages
