"""A rolling upgrade of a pair of streamers under load, from the released version to this one, and what it cost.

    python -m tests.upgrade.run [--link zenoh|mqtt] [--messages 2000]

    far (MQTT, off-vehicle) ─ gw-a ─ link: Zenoh or an MQTT broker ─ gw-b ─ near (MQTT, in-vehicle)

Both sides send all the time. One goes back to the released version, on the files of this one; then one after the other is
upgraded, on its own files. While a streamer changes, messages of a paused flow are in its journal, and the rule in its state
file. The brokers keep their sessions, so everything that a sender was acknowledged has to arrive. Exits with 1 if anything
is missing.
"""

import argparse
import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tests.brokers import Mosquitto
from tests.independent.message import Plain, Uri, inversions, uri_text
from tests.independent.mqtt import MqttSide
from tests.process import StreamerProcess
from tests.upgrade.release import program
from tests.waiting import until
from tests.zenoh_peers import free_endpoint, receipts_of

OLD, NEW = "0.1", "new"
TTL_MS = 600_001  # no whole seconds: a broker counts those down
PER_TURN, TURN_S = 10, 0.05
UNCERTAIN_S = 2.0
HELD = 0xE
"""The uEntity whose messages are paused now and then."""


class Sender:
    """One side's load: Notifications and Requests of some flows to the other side, and Publishes where they need no sink."""

    def __init__(self, side: MqttSide, here: str, there: str) -> None:
        self.side, self.here, self.there = side, here, there
        self.sent: list[Plain] = []
        """What the broker has confirmed, in order."""
        self._turns = 0

    async def run(self) -> None:
        while True:
            await self.send([self._message(number) for number in range(PER_TURN)])
            self._turns += 1
            await asyncio.sleep(TURN_S)

    async def send(self, messages: list[Plain]) -> None:
        await self.side.send(messages)
        self.sent += messages

    async def send_held(self, count: int) -> list[Plain]:
        messages = [Plain(4, (self.here, HELD, 1, 0x9000), (self.there, HELD, 1, 0), b"held %d" % n) for n in range(count)]
        await self.send(messages)
        return messages

    def _message(self, number: int) -> Plain:
        entity = 0x10 + number % 5
        payload = b"%s %d.%d" % (self.here.encode(), self._turns, number)
        sink: Uri = (self.there, entity, 1, 0)
        if number == 8 and self.side.structure == "in-vehicle":
            return Plain(1, (self.here, entity, 1, 0x8001), payload=payload)
        if number == 9:
            method: Uri = (self.there, entity, 1, 7)
            return Plain(2, (self.here, entity, 1, 0), method, payload, 5, TTL_MS, permission_level=2, token="token")
        return Plain(4, (self.here, entity, 1, 0x9000), sink, payload, priority=1 + entity % 7, traceparent=_TRACE)


_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Gateway:
    """One of the two streamers, in whichever version it runs."""

    def __init__(
        self, name: str, directory: Path, endpoints: dict[str, Any], receipts: dict[str, Any], version: str
    ) -> None:
        """``receipts``: the option, for a version that knows it."""
        self.name = name
        self._directory = directory / name
        self._directory.mkdir()
        self._endpoints = endpoints
        self._receipts = receipts
        self.version = version
        self.daemon = self._daemon(version)

    def _daemon(self, version: str) -> StreamerProcess:
        there = {name: dict(endpoint) for name, endpoint in self._endpoints.items()}
        if version == NEW and there["link"]["transport"] == "zenoh":
            there["link"]["options"] = there["link"]["options"] | {"receipts": self._receipts}
        (first, one), (second, two) = there.items()
        config = {
            "authority": self.name,
            "endpoints": there,
            "routes": [
                {"from": here, "to": to}
                | ({"publish": ["//near/FFFFFFFF/FF/8001"], "publish_to": ["far"]} if at["authorities"] == ["near"] else {})
                for here, to, at in ((first, second, one), (second, first, two))
            ],
            "journal": {"path": str(self._directory / "journal.db")},
            "shutdown": {"drain_s": 2},
        }
        installed = [sys.executable, "-m", "streamer"] if version == NEW else program()
        return StreamerProcess(self._directory, config, program=installed)

    async def start(self) -> None:
        self.daemon.start()
        await self.daemon.until_up(60)

    async def change_to(self, version: str, number: signal.Signals = signal.SIGTERM) -> float:
        """End it, and start the other version on the same files. Returns how many seconds it was away."""
        began_s = time.monotonic()
        self.daemon.signal(number)
        await self.daemon.ended(60)
        self.check()
        if version == OLD:
            write = [sys.executable, "-m", "streamer.features.host.earlier_state", str(self._directory / "journal.db")]
            await asyncio.to_thread(subprocess.run, write, check=True)
        self.version, self.daemon = version, self._daemon(version)
        await self.start()
        return time.monotonic() - began_s

    async def command(self, word: str, topic: str) -> None:
        """Pause or resume a topic."""
        command = [*(self.daemon.program or ()), word, "--config", str(self.daemon.path), "--topic", topic]
        await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL, cwd=self._cwd)

    def delivered(self) -> float:
        """How many messages it knows to have arrived at the other streamer."""
        return self.daemon.total("ustreamer_outcomes_total", outcome="delivered", egress="link")

    async def until_delivered(self, count: float) -> None:
        """It knows that so many have arrived."""
        await until(lambda: self.delivered() >= count, f"{self.name} delivers {count} messages", 120)

    @property
    def _cwd(self) -> Path:
        return Path.cwd() if self.version == NEW else self._directory

    def check(self) -> None:
        """Its log must not tell of a file that was set aside, or an entry that was not understood."""
        bad = ("file_set_aside", "journal_set_aside", "state_damaged", "_unreadable", "segment_lost", "Traceback")
        lines = [line for line in self.daemon.log.splitlines() if any(word in line for word in bad)]
        assert lines == [], lines


class Upgrade:
    """The pair, its clients and the ledger."""

    def __init__(self, link: str, messages: int) -> None:
        self._link, self._messages = link, messages
        self.far: Sender
        self.near: Sender
        self.a: Gateway
        self.b: Gateway

    async def run(self, directory: Path) -> bool:
        async with AsyncExitStack() as stack:
            await self._set_up(directory, stack)
            await asyncio.gather(self.a.start(), self.b.start())
            loads = [asyncio.create_task(each.run()) for each in (self.far, self.near)]
            await self._progress("gw-a runs 0.1, gw-b the new version, on files of its own")

            held = await self._hold(self.b, self.near)
            away_s = await self.b.change_to(OLD)
            await self._progress(f"both run 0.1, gw-b on the files of the new version; it was away for {away_s:.1f} s")
            await self._release(self.b, self.near, held)

            held = await self._hold(self.a, self.far)
            away_s = await self.a.change_to(NEW)
            await self._progress(f"gw-a runs the new version, on the files of 0.1; it was away for {away_s:.1f} s")
            await self._release(self.a, self.far, held)

            away_s = await self.b.change_to(NEW, signal.SIGKILL)
            await self._progress(f"gw-b was killed, and both run the new version; it was away for {away_s:.1f} s")
            for load in loads:
                load.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
            return await self._verdict()

    async def _set_up(self, directory: Path, stack: AsyncExitStack) -> None:
        outer, inner, between = (stack.enter_context(Mosquitto(persistence=True)) for _ in range(3))
        key_file = directory / "receipts.key"
        key_file.touch(0o600)
        key_file.write_text(secrets.token_hex(32))
        zenoh, quick = free_endpoint(), {"reconnect": {"initial_ms": 100, "max_ms": 500}}

        def mqtt(broker: Mosquitto, topics: str, authority: str) -> dict[str, Any]:
            options = {"broker": broker.url, "topics": topics, **quick}
            return {"transport": "mqtt5", "authorities": [authority], "options": options}

        def link(authority: str, where: str) -> dict[str, Any]:
            if self._link == "mqtt":
                return mqtt(between, "off-vehicle", authority)
            options = {where: [zenoh], "uncertain_s": UNCERTAIN_S, "lease_ms": 2000, "wait_before_close_ms": 500}
            return {"transport": "zenoh", "authorities": [authority], "options": options}

        ends_a = {"cloud": mqtt(outer, "off-vehicle", "far"), "link": link("near", "listen")}
        ends_b = {"plant": mqtt(inner, "in-vehicle", "near"), "link": link("far", "connect")}
        self.a = Gateway("gw-a", directory, ends_a, receipts_of(key_file, "gw-b"), OLD)
        self.b = Gateway("gw-b", directory, ends_b, receipts_of(key_file, "gw-a"), NEW)
        for gateway in (self.a, self.b):
            stack.push_async_callback(self._end, gateway)
        far = await stack.enter_async_context(MqttSide(outer.port, "off-vehicle", ["+/far"]))
        near = await stack.enter_async_context(MqttSide(inner.port, "in-vehicle", ["far/+/+/+/+/near/#"]))
        self.far, self.near = Sender(far, "far", "near"), Sender(near, "near", "far")

    @staticmethod
    async def _end(gateway: Gateway) -> None:
        process = gateway.daemon.process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    @property
    def _ways(self) -> list[tuple[Sender, Sender]]:
        return [(self.far, self.near), (self.near, self.far)]

    async def _progress(self, text: str) -> None:
        """The load goes on: so many messages arrive on either side, and both streamers know that of as many."""
        before = {side: len(side.side.arrived) for _, side in self._ways}
        settled = {gateway: gateway.delivered() for gateway in (self.a, self.b)}
        began_s = time.monotonic()
        await until(
            lambda: all(len(side.side.arrived) >= count + self._messages for side, count in before.items()),
            f"{self._messages} more messages on either side: {text}",
            120,
        )
        for gateway, count in settled.items():  # receipts of another form must hold up nobody
            await gateway.until_delivered(count + self._messages)
        print(f"{text}: {self._messages} more messages each way in {time.monotonic() - began_s:.1f} s", flush=True)

    @staticmethod
    async def _hold(gateway: Gateway, sender: Sender) -> list[Plain]:
        """Pause a flow, and have messages wait in the journal."""
        await gateway.command("pause", uri_text((sender.here, HELD, 1, 0x9000)))
        held = await sender.send_held(50)
        name = "ustreamer_dispatch_stopped_messages" if gateway.version == OLD else "ustreamer_paused_messages"
        await gateway.daemon.until_total(len(held), name)
        return held

    async def _release(self, gateway: Gateway, sender: Sender, held: list[Plain]) -> None:
        """The rule has survived, and so have the messages."""
        (receiver,) = (there for here, there in self._ways if here is sender)
        ids = {message.id for message in held}
        assert not ids.intersection(message.id for message in receiver.side.arrived), "the rule was forgotten"
        await gateway.command("resume", uri_text((sender.here, HELD, 1, 0x9000)))
        await until(lambda: ids <= {m.id for m in list(receiver.side.arrived)[-20_000:]}, "what was paused", 60)
        print(f"{gateway.name}: {len(held)} messages that waited in the journal have arrived", flush=True)

    async def _verdict(self) -> bool:
        is_good = True
        for sender, receiver in self._ways:
            ids = {message.id: message for message in sender.sent}
            side = receiver.side
            try:
                await until(partial(_has_all, ids, side), "everything", 60)
            except AssertionError:
                is_good = False
            counts = Counter(message.id for message in side.arrived)
            changed = [m for m in side.arrived if m.id in ids and m.type != 1 and m != ids[m.id]]
            figures = {
                "acknowledged": len(ids),
                "arrived": len(ids.keys() & counts.keys()),
                "lost": len(ids.keys() - counts.keys()),
                "changed": len(changed),
                "out_of_order": inversions(side.arrived, sender.sent),
                "duplicates": sum(count - 1 for count in counts.values()),
            }
            is_good = is_good and not (figures["lost"] or figures["changed"])
            print(f"{sender.here} → {sender.there}: {json.dumps(figures)}", flush=True)
        for gateway in (self.a, self.b):
            gateway.check()
            letters = gateway.daemon.total("ustreamer_dead_letters_total")
            is_good = is_good and not letters
            print(f"{gateway.name}: {letters:.0f} dead letters", flush=True)
        return is_good


def _has_all(ids: Mapping[bytes, Plain], side: MqttSide) -> bool:
    return ids.keys() <= {message.id for message in side.arrived}


def main() -> int:
    parser = argparse.ArgumentParser(description="A rolling upgrade under load, from the released version to this one.")
    parser.add_argument("--link", choices=["zenoh", "mqtt"], action="append", help="what is between the two; default: both")
    parser.add_argument("--messages", type=int, default=2000, help="so many arrive on either side between two steps")
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    is_good = True
    for link in arguments.link or ["zenoh", "mqtt"]:
        print(f"== a pair over {link}", flush=True)
        with tempfile.TemporaryDirectory() as directory:
            is_good = asyncio.run(Upgrade(link, arguments.messages).run(Path(directory))) and is_good
    print("nothing lost" if is_good else "NOT GOOD")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
