"""Pause and resume on a running daemon: by independent clients over MQTT and Zenoh, on the command line, over kills."""

import signal
from pathlib import Path
from typing import Any

import pytest

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from tests import preloaded
from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.waiting import until

PROTOBUF = 2
UP = {"route": "first-second"}
SPEED = ("alpha", 0x10, 1, 0x8001)
SPEED_TEXT = "//alpha/10/1/8001"


def uuri(parts: tuple[str, int, int, int]) -> pb.UUri:
    authority, ue_id, version, resource = parts
    return pb.UUri(authority_name=authority, ue_id=ue_id, ue_version_major=version, resource_id=resource)


def publishes(source: tuple[str, int, int, int], *numbers: int) -> list[Plain]:
    return [Plain(1, source, payload=b"%d" % number, payload_format=6, priority=2) for number in numbers]


async def ask(topology: Topology, side: int, method: int, payload: bytes, ue_id: int = 0x10) -> Plain:
    """The daemon's Response to a Request from one side's uEntity."""
    network = topology.networks[side]
    asked = Plain(
        2,
        (network.authority, ue_id, 1, 0),
        ("gw", 4, 1, method),
        priority=5,
        ttl=20_000,
        payload=payload,
        payload_format=PROTOBUF,
    )
    await network.side.send([asked])

    def answers() -> list[Plain]:
        return [message for message in network.side.arrived if message.reqid == asked.id]

    await until(lambda: bool(answers()), what="the answer")
    (answer,) = answers()
    assert (answer.type, answer.source, answer.sink) == (3, asked.sink, asked.source)
    assert answer.payload_format == PROTOBUF
    return answer


async def command(topology: Topology, *argv: str) -> tuple[int, str]:
    """What ``streamer …`` says of the running daemon, and its exit status."""
    done = await preloaded.command(argv[0], "--config", topology.daemon.path, *argv[1:])
    return done.returncode, done.stdout + done.stderr


def on_disk(directory: Path, **changes: Any) -> dict[str, Any]:
    return {"journal": {"path": str(directory / "journal.db")}, "shutdown": {"drain_s": 300}} | changes


@pytest.mark.parametrize("side", [0, 1], ids=["asked-over-mqtt", "asked-over-zenoh"])
async def test_topic_is_paused_and_resumed_over_uprotocol(side: int) -> None:
    allow: dict[str, Any] = {"control": {"allow": ["//alpha/10/1/0", "//beta/10/1/0"]}}
    async with Topology("mqtt/in-vehicle", "zenoh", **allow) as topology:
        far = topology.networks[1].side
        rule = ustreamer.DispatchRule(topic=uuri(SPEED))
        stop = ustreamer.StopDispatchRequest(rule=rule).SerializeToString()
        answer = await ask(topology, side, 1, stop)
        assert answer.commstatus in (None, 0)
        assert ustreamer.StopDispatchResponse.FromString(answer.payload).changed

        held, others = publishes(SPEED, 1, 2, 3), publishes((*SPEED[:3], 0x8002), 4)
        await topology.networks[0].side.send([*held, *others])
        await topology.daemon.until_total(3, "ustreamer_paused_messages", **UP)
        await until(lambda: [m for m in far.arrived if m.type == 1] == others, what="the other topic")
        fetched = await ask(topology, side, 3, b"")
        (found,) = ustreamer.FetchStopsResponse.FromString(fetched.payload).stops
        assert (found.rule, found.lanes, found.messages) == (rule, 1, 3)

        start = ustreamer.StartDispatchRequest(rule=rule).SerializeToString()
        assert (await ask(topology, side, 2, start)).commstatus in (None, 0)
        await until(lambda: [m for m in far.arrived if m.type == 1] == [*others, *held], what="what had waited, in order")
        refused = await ask(topology, side, 2, start)
        assert refused.commstatus == 5
        assert pb.UStatus.FromString(refused.payload).code == 5
        topology.daemon.check_books()


async def test_pause_of_everything_can_be_lifted_over_uprotocol_by_those_allowed() -> None:
    allow: dict[str, Any] = {"control": {"allow": ["//alpha/10/1/0"]}}
    async with Topology("mqtt/in-vehicle", "zenoh", **allow) as topology:
        everything = ustreamer.DispatchRule(topic=uuri(("*", 0xFFFFFFFF, 0xFF, 0xFFFF)))
        stop = ustreamer.StopDispatchRequest(rule=everything).SerializeToString()
        assert (await ask(topology, 1, 1, stop)).commstatus == 7  # beta may not
        assert (await ask(topology, 0, 1, stop, ue_id=0x11)).commstatus == 7
        assert (await ask(topology, 0, 1, stop)).commstatus in (None, 0)
        request = Plain(2, ("beta", 0x20, 1, 0), ("alpha", 0x10, 1, 5), priority=5, ttl=1500, payload=b"?", payload_format=6)
        await topology.networks[1].side.send([request])
        await until(
            lambda: [m.commstatus for m in topology.networks[1].side.arrived if m.reqid == request.id] == [4],
            what="DEADLINE_EXCEEDED for a Request that expired while it was stopped",
        )
        start = ustreamer.StartDispatchRequest(rule=everything).SerializeToString()
        assert (await ask(topology, 0, 2, start)).commstatus in (None, 0)
        (message,) = publishes(SPEED, 1)
        assert await topology.exchange(0, [message]) == [message]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=lambda end: end.name)
async def test_paused_on_the_command_line_waits_over_a_restart(tmp_path: Path, end: signal.Signals) -> None:
    async with Topology("mqtt/in-vehicle", "zenoh", **on_disk(tmp_path)) as topology:
        daemon, far = topology.daemon, topology.networks[1].side
        assert await command(topology, "pause", "--topic", SPEED_TEXT) == (0, f"paused {SPEED_TEXT}\n")
        held = publishes(SPEED, *range(20))
        await topology.networks[0].side.send(held)
        await daemon.until_total(20, "ustreamer_paused_messages", **UP)
        await daemon.until_total(20, "ustreamer_journal_written_messages_total")

        daemon.signal(end)
        await daemon.ended()  # a drain of five minutes does not wait for what is stopped
        daemon.start()
        await daemon.until_up()
        await daemon.until_total(1, "ustreamer_pause_rules")
        await daemon.until_total(20, "ustreamer_paused_messages", **UP)
        status, listed = await command(topology, "pause")
        assert (status, [line.split() for line in listed.splitlines()][1:]) == (0, [[SPEED_TEXT, "any", "1", "20", "-"]])
        assert [m for m in far.arrived if m.type == 1] == []

        later = publishes(SPEED, 20)
        await topology.networks[0].side.send(later)
        await daemon.until_total(21, "ustreamer_paused_messages", **UP)
        assert await command(topology, "resume", "--topic", SPEED_TEXT) == (0, f"resumed {SPEED_TEXT}\n")
        await until(lambda: [m for m in far.arrived if m.type == 1] == [*held, *later], what="everything, in order")
        status, said = await command(topology, "resume", "--topic", SPEED_TEXT)
        assert status == 1
        assert "no rule pauses" in said
        daemon.check_books()
