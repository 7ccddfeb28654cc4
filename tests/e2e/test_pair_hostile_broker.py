"""One of a pair whose other one is gone, with a broker that ends its sessions: what that broker does stays there."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import mqtt5
import pytest

from tests.brokers import any_broker
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.mqtt_peer import BrokerConnection, FakeBroker, meanwhile
from tests.ports import HOST, free_port
from tests.process import StreamerProcess
from tests.waiting import until

TAKEN_OVER = b"\xe0\x02\x8e\x00"
"""DISCONNECT: another client has connected with this client id (MQTT 5, 3.14.2.1)."""


class HostileBroker:
    """Ends each session after ``lives_s``, with the reason 0x8E if it ``says_why``; else it resets the connection.

    ``refuses``: no connection is accepted at all, for this reason.
    """

    def __init__(self, lives_s: float = 0.0, says_why: bool = False, refuses: int | None = None) -> None:
        self._lives_s = lives_s
        self._says_why = says_why
        self._refuses = refuses
        self._fake = FakeBroker()
        self._serving: set[asyncio.Task[None]] = set()
        self.url = ""
        self.ended = 0
        """Sessions that it has ended."""
        self.refused = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HostileBroker"]:
        async with self._fake.running(), meanwhile(self._accept()):
            self.url = self._fake.url
            yield self

    async def _accept(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    peer = await self._fake.peer()
                except TimeoutError:
                    continue
                tasks.create_task(self._serve(peer))

    async def _serve(self, peer: BrokerConnection) -> None:
        try:
            async with asyncio.timeout(30):
                if self._refuses is not None:
                    await peer.next(mqtt5.ConnectPacket)
                    peer.write(bytes([0x20, 3, 0, self._refuses, 0]))
                    self.refused += 1
                    return
                await peer.accept()
                try:
                    async with asyncio.timeout(self._lives_s):
                        await peer.grant()
                        while True:
                            packet = await peer.next_packet()
                            if isinstance(packet, mqtt5.PublishPacket):
                                peer.write(mqtt5.PubAckPacket(packet.packet_id or 0))
                except TimeoutError:
                    self.ended += 1
                    if self._says_why:
                        peer.write(TAKEN_OVER)
                        await peer.closed()
                    else:
                        peer.drop()
        except (AssertionError, ConnectionError, TimeoutError):
            return  # the streamer has closed it, or it was no client


ENDS = 4
"""So many sessions are ended: a streamer that judged itself by them would have stepped back three times."""
HOSTILE = {"after 0.3 s": (0.3, False), "a thief": (1.2, False), "0x8E": (4.0, True)}


class Half:
    """One of a pair, alone: endpoints ``cloud`` at a hostile broker, ``plant`` and ``site`` at another one."""

    def __init__(self, folder: Path, hostile: HostileBroker, url: str) -> None:
        key = folder / "key"
        key.write_text("k" * 40)
        key.chmod(0o600)

        def mqtt(url: str, structure: str, authority: str) -> dict[str, object]:
            options = {"broker": url, "topics": structure, "client_id": f"gw-{authority}"}
            return {"transport": "mqtt5", "authorities": [authority], "options": options}

        self.daemon = StreamerProcess(
            folder,
            {
                "authority": "gw",
                "endpoints": {
                    "cloud": mqtt(hostile.url, "off-vehicle", "cloud"),
                    "plant": mqtt(url, "in-vehicle", "plant"),
                    "site": mqtt(url, "off-vehicle", "site"),
                },
                "routes": [{"from": "plant", "to": "site"}, {"from": "plant", "to": "cloud"}],
                "journal": {"path": str(folder / "journal.db")},
                "pair": {"listen": f"{HOST}:{free_port()}", "key_file": str(key), "wait_s": 1},
            },
        )

    def roles(self) -> list[str]:
        lines = [json.loads(line) for line in self.daemon.log.splitlines() if '"pair_role"' in line]
        return [line["role"] for line in lines]


def message(number: int) -> Plain:
    return Plain(4, ("plant", 0xA8000, 2, 0x8001), ("site", 0xC0, 1, 0), b"%d" % number)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("how", HOSTILE)
async def test_the_ends_of_its_sessions_at_one_broker_change_no_role(
    how: str, tmp_path: Path, stack: AsyncExitStack
) -> None:
    lives_s, says_why = HOSTILE[how]
    hostile = await stack.enter_async_context(HostileBroker(lives_s, says_why).running())
    broker = stack.enter_context(any_broker())
    site = await stack.enter_async_context(MqttSide(broker.port, "off-vehicle", ["+/site"]))
    plant = await stack.enter_async_context(MqttSide(broker.port, "in-vehicle", ["none/#"]))
    half = Half(tmp_path, hostile, broker.url)
    half.daemon.start()
    stack.push_async_exit(half.daemon)
    await until(lambda: hostile.ended > 0, "it works, and has lost a session", within_s=60)
    sent: list[Plain] = []
    async with asyncio.timeout(120):
        while hostile.ended < ENDS:
            sent.append(message(len(sent)))
            await plant.send(sent[-1:])
            await until(lambda: {each.id for each in site.arrived} >= {each.id for each in sent}, "the other route goes on")
    assert [each.id for each in site.arrived] == [each.id for each in sent]
    assert half.roles() == ["active"]
