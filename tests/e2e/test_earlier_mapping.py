"""A uEntity on MQTT by the specification before 1.6.0-alpha.5, such as Eclipse up-java: 9 and 12 are user properties."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.e2e.roles import arrival, response
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.process import StreamerProcess
from tests.usubscription_client import SUBSCRIBED, UsubscriptionClient

pytestmark = pytest.mark.mosquitto

APP, SERVICE, TOPIC = ("old", 0x100, 1, 0), ("new", 0x200, 1, 0x7), ("new", 0x200, 1, 0x8001)
TEXT = 7


@asynccontextmanager
async def crossing(folder: Path) -> AsyncIterator[tuple[MqttSide, MqttSide, StreamerProcess]]:
    """The uEntity and another one that follows the specification of today, each at a broker of its own."""
    with Mosquitto() as old, Mosquitto() as new:
        options = {"topics": "in-vehicle"}
        config = config_of(
            {
                "old": endpoint_of("mqtt5", "old", broker=old.url, payload_format_property=True, **options),
                "new": endpoint_of("mqtt5", "new", broker=new.url, **options),
            },
            journal={"path": str(folder / "journal.db")},
        )
        topics = ["+/+/+/+/+/old/#"], ["+/+/+/+/+/new/#"]
        async with (
            MqttSide(old.port, "in-vehicle", topics[0], is_earlier=True) as earlier,
            MqttSide(new.port, "in-vehicle", topics[1]) as later,
            StreamerProcess(folder, config) as daemon,
        ):
            await daemon.until_up()
            yield earlier, later, daemon


async def test_requests_and_responses_cross_with_format_and_request_id(tmp_path: Path) -> None:
    async with crossing(tmp_path) as (earlier, later, daemon):
        for client, service, (near, far) in ((earlier, later, (APP, SERVICE)), (later, earlier, (SERVICE, APP))):
            asked = Plain(2, (*near[:3], 0), (*far[:3], 0x7), b"question", 5, 20_500, payload_format=TEXT)
            await client.send([asked])
            assert await arrival(service, asked) == asked
            answer = Plain(**vars(response(asked, b"answer")) | {"payload_format": TEXT})
            await service.send([answer])
            assert await arrival(client, answer) == answer
        daemon.check_books()


async def test_subscription_client_finds_what_the_answer_is(tmp_path: Path) -> None:
    """It unpacks the answer by its payload format."""
    async with crossing(tmp_path) as (earlier, _, daemon):
        assert await UsubscriptionClient(earlier, APP, "gw", wrapped=True).subscribe(TOPIC) == SUBSCRIBED
        daemon.check_books()
