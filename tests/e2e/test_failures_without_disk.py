"""A journal that takes nothing, and messages that fail: MQTT is acknowledged in order, so none of them may wait for long."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pytest

from streamer.transports.base import LinkState
from streamer.uprotocol.message import UMessage, notification
from streamer.uprotocol.uri import UUri
from tests.brokers import BROKERS, broker
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint
from tests.process import StreamerProcess
from tests.waiting import until

SOURCE, APP = UUri("cloud", 0xC0, 1, 0x9000), UUri("veh1", 0xA8000, 2, 0)
NO_SUCH_ENTITY = UUri("gateway", 0x77, 1, 0)
MESSAGES = 3000


def said(sink: UUri, payload: bytes) -> UMessage:
    return notification(time.time_ns() // 1_000_000, SOURCE, sink, payload)


@contextmanager
def held(journal: Path) -> Iterator[None]:
    """A commit hangs for as long."""
    with closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.parametrize("hangs", [False, True], ids=["no-folder", "hangs"])
@pytest.mark.parametrize("kind", BROKERS)
async def test_a_message_that_fails_holds_up_no_other_while_the_journal_takes_nothing(
    tmp_path: Path, kind: str, hangs: bool
) -> None:
    journal = tmp_path / "j.db" if hangs else tmp_path / "no" / "such" / "j.db"
    with broker(kind) as one, broker(kind) as two:
        options = {"topics": "in-vehicle"}
        config = {
            "authority": "gateway",
            "journal": {"path": str(journal)},
            "endpoints": {
                "cloud": {"transport": "mqtt5", "authorities": ["cloud"], "options": {"broker": one.url} | options},
                "vehicle": {"transport": "mqtt5", "authorities": ["veh1"], "options": {"broker": two.url} | options},
            },
            "routes": [{"from": "cloud", "to": "vehicle"}, {"from": "vehicle", "to": "cloud"}],
        }
        daemon, inbox = StreamerProcess(tmp_path, config), RecordingListener()
        daemon.start()
        assert daemon.process is not None
        try:
            async with Endpoint(one.url, "cloud").running() as cloud, Endpoint(two.url, "veh1").running() as car:
                await car.transport.register_listener(UUri("cloud", 0xFFFFFFFF, 0xFF, 0xFFFF), APP, inbox)
                await cloud.up()
                await car.up()
                await until(lambda: daemon.log.count(f'"{LinkState.UP.value}"') >= 2, what="both links of the streamer")
                word = "journal_available" if hangs else "journal_unavailable"
                await until(lambda: f'"{word}"' in daemon.log, what="the journal's fate")
                with held(journal) if hangs else nullcontext():
                    cloud.submit(
                        [said(NO_SUCH_ENTITY, b"fails"), *(said(APP, b"%d" % number) for number in range(MESSAGES))]
                    )
                    await until(lambda: len(inbox.received) >= MESSAGES, what="all of the others")
                assert inbox.payloads == [b"%d" % number for number in range(MESSAGES)]
        finally:
            daemon.process.kill()
            daemon.process.wait()
