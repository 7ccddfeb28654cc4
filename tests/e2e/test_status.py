"""A uEntity in the cloud subscribes to the status of a gateway, over the gateway itself."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from tests.brokers import BrokerProcess, any_broker
from tests.independent.mqtt import MqttSide
from tests.process import StreamerProcess
from tests.usubscription_client import SUBSCRIBED, UsubscriptionClient
from tests.waiting import until

APP = ("cloud", 0x100, 1, 0)
STATUS = ("gateway.veh1", 4, 1, 0x8002)
EVERY_S = 10


class Gateway:
    def __init__(self, daemon: StreamerProcess, inside: BrokerProcess, side: MqttSide) -> None:
        self.daemon, self.inside = daemon, inside
        self.app = UsubscriptionClient(side, APP, "gateway.veh1")

    def told(self) -> list[pb.Status]:
        arrived = [each for each in list(self.app.side.arrived) if each.type == 1]
        assert {(each.source, each.ttl) for each in arrived} <= {(STATUS, 3000 * EVERY_S)}
        return [pb.Status.FromString(each.payload) for each in arrived]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with AsyncExitStack() as stack:
        inside, outside = stack.enter_context(any_broker()), stack.enter_context(any_broker())
        side = await stack.enter_async_context(MqttSide(outside.port, "off-vehicle", ["+/cloud"]))
        mqtt = {"transport": "mqtt5"}
        config = {
            "authority": "gateway.veh1",
            "endpoints": {
                "vehicle": mqtt | {"authorities": ["veh1"], "options": {"broker": inside.url, "topics": "in-vehicle"}},
                "cloud": mqtt | {"authorities": ["cloud"], "options": {"broker": outside.url}},
            },
            "routes": [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}],
            "journal": {"path": str(tmp_path / "journal.db")},
            "status": {"every_s": EVERY_S},
        }
        daemon = await stack.enter_async_context(StreamerProcess(tmp_path, config))
        yield Gateway(daemon, inside, side)


async def test_the_cloud_hears_of_the_health_once_it_has_subscribed(gateway: Gateway) -> None:
    daemon, app = gateway.daemon, gateway.app
    accepted, queued = "ustreamer_accepted_messages_total", "ustreamer_queue_messages"
    await until(lambda: daemon.total(accepted, route="core/vehicle") >= 1, "a status inside the vehicle")
    assert daemon.total(accepted, route="core/cloud") == 0  # nobody there has asked
    assert await app.subscribe(STATUS) == SUBSCRIBED
    gateway.inside.stop()
    await until(lambda: any(not each.ready for each in gateway.told()), "a change of health")
    told = gateway.told()[-1]
    assert [reason.partition(" since ")[0] for reason in told.reasons] == ["endpoint vehicle (mqtt5) is not connected"]
    states = {each.name: each.state for each in told.endpoints}
    assert states == {"vehicle": "down", "cloud": "up", "core": "up"}
    assert (told.journal.state, told.interval_ms, len(told.config_fingerprint)) == ("ok", EVERY_S * 1000, 12)
    assert await app.unsubscribe(STATUS) is None
    known = len(gateway.told())
    gateway.inside.start()
    await daemon.until_up()
    await until(lambda: daemon.total(queued, route="core/vehicle") == 0, "the change in the vehicle")
    assert daemon.total(queued, route="core/cloud") == 0
    assert len(gateway.told()) == known
    daemon.check_books()
