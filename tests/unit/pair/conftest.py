"""Tests of the link run on each event loop that the daemon may have: their transports have nothing in common."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """At the end there is no task of the test any more; pytest looks for sockets."""
    yield
    assert asyncio.all_tasks() == {asyncio.current_task()}
