"""The status of a streamer whose network to the cloud is away for a day."""

import asyncio
from pathlib import Path

from streamer.features.api.status_message import StatusView
from streamer.features.host.status import LIFETIME, StatusConfig, StatusService
from streamer.transports.local import LocalTransport
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT
from tests.flow.devices import Devices

DAY_MIN = 24 * 60


async def test_a_network_that_is_away_for_a_day_gets_the_last_few_and_no_dead_letter(tmp_path: Path) -> None:
    async with Devices(tmp_path) as devices:
        devices.changes = {
            "endpoints": {
                "near": {"transport": "memory", "authorities": ["dev1"]},
                "far": {"transport": "memory", "authorities": ["*"], "global": True},
            }
        }
        device = await devices.device(1)
        router, local = device.router, device.router.transports[LOCAL_ENDPOINT]
        assert isinstance(local, LocalTransport)
        service = StatusService(local, StatusConfig(every_s=60), StatusView(device), devices.clock)
        waiting = []

        def minute() -> None:
            service.run_once()
            devices.pass_time(60_000)
            waiting.append(sum(account.queued for account in router.accounts() if account.name == "core/far"))

        minute()
        assert (len(device.near.sent), len(device.far.sent)) == (1, 0)  # nobody out there has asked
        router.set_interest(UUri("gw1", 4, 1, 0x8002), {"backend": 0}, "test")
        await asyncio.sleep(0)  # the interest is used
        device.far.lose_link()
        for _ in range(DAY_MIN):
            minute()
        assert len(device.near.sent) == 1 + DAY_MIN  # inside nobody misses one
        assert 0 < max(waiting) <= LIFETIME
        assert router.account().dead_letters == 0
        device.far.restore_link()
        told = [pb.Status.FromString(message.payload or b"") for message in device.far.sent]
        assert 0 < len(told) <= LIFETIME
        (reasons,) = {tuple(each.reasons) for each in told}
        assert [reason.partition(" since ")[0] for reason in reasons] == ["endpoint far (memory) is not connected"]
        assert told[-1].uptime_s == DAY_MIN * 60
