"""A device, a uEntity or two on it, and the uSubscription service of another device, for the tests that ask for them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamer.features.usubscription import service
from tests.flow.devices import Device, Devices
from tests.flow.uentities import Client, RemoteService


@pytest.fixture
async def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Devices]:
    monkeypatch.setattr(service, "TICK_S", 0.005)  # what is due by the fake clock is noticed soon
    async with Devices(tmp_path) as devices:
        yield devices


@pytest.fixture
async def device(devices: Devices) -> Device:
    return await devices.device(1)


@pytest.fixture
async def app(devices: Devices, device: Device) -> Client:
    return await devices.client(1, 0xA)


@pytest.fixture
async def other(devices: Devices, device: Device) -> Client:
    return await devices.client(1, 0xB)


@pytest.fixture
async def remote(devices: Devices, device: Device) -> RemoteService:
    """The service at dev2, which the test plays."""
    return await devices.remote("dev2")
