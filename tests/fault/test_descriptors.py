"""Too few descriptors: what wants to open something waits, and goes on once there are some again."""

import asyncio
import os
import resource
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamer.features.api import listener as admin_listener
from tests.brokers import Mosquitto
from tests.fault.hostile import configuration, ids, mqtt_endpoint, no_more_descriptors, notifications, pid_of, said
from tests.independent.message import inversions
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.ports import HOST
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint


def descriptors(daemon: StreamerProcess) -> int:
    return len(os.listdir(f"/proc/{pid_of(daemon)}/fd"))


def remove_journal(directory: Path) -> None:
    for file in directory.glob("journal.db*"):
        file.unlink()


@pytest.mark.mosquitto
async def test_without_descriptors_everything_waits_and_with_them_everything_arrives(tmp_path: Path) -> None:
    here = free_endpoint()
    down, up = notifications("alpha", "beta", 600), notifications("beta", "alpha", 300)
    with Mosquitto(persistence=True) as near:
        first = mqtt_endpoint(near.url, "alpha")
        second = {"transport": "zenoh", "authorities": ["beta"], "options": {"mode": "peer", "connect": [here]}}
        config = configuration(tmp_path, first, second) | {"log": {"level": "info", "repeat_s": 0}}
        async with (
            MqttSide(near.port, "in-vehicle", ["beta/#"]) as alpha,
            ZenohSide(listen=[here]) as beta,
            StreamerProcess(tmp_path, config) as daemon,
        ):
            with no_more_descriptors(daemon):
                await alpha.send(down[:300])
                await until(lambda: len(beta.arrived) == 300, what="arrival over open connections")
                near.restart()
                await alpha.reconnect()
                await alpha.send(down[300:])
                await beta.send(up)
                assert daemon.get("/healthz", 0.5) == (0, "")
                daemon.signal(signal.SIGHUP)
                await until(lambda: bool(said(daemon, "reload_refused")), what="the refusal to reload")
                await until(lambda: bool(said(daemon, "admin_accept_failed")), what="word of the admin port")

                def attempts() -> list[float]:
                    return [line["retry_in_s"] for line in said(daemon, "link_down") if "open files" in line["text"]]

                # Two waits of the same step differ by 1.2 / 0.8 at most. A link that comes up for a moment begins anew.
                await until(
                    lambda: len(attempts()) >= 4 and max(attempts()) > 1.5 * min(attempts()), what="waits that climb"
                )
            await until(lambda: len(beta.arrived) >= 600 and len(alpha.arrived) >= 300, what="arrival of the rest")
            assert (sorted(ids(beta.arrived)), sorted(ids(alpha.arrived))) == (sorted(ids(down)), sorted(ids(up)))
            assert inversions(beta.arrived, down) == inversions(alpha.arrived, up) == 0
            await daemon.until_total(1, "ustreamer_journal_up")
            daemon.check_books()


@pytest.mark.mosquitto
async def test_journal_that_cannot_be_opened_anew_without_descriptors_heals_with_them(tmp_path: Path) -> None:
    """Its file was removed: another one has to take its place."""
    messages = notifications("alpha", "beta", 200)
    with Mosquitto(persistence=True) as near, Mosquitto(persistence=True) as far:
        ends = mqtt_endpoint(near.url, "alpha"), mqtt_endpoint(far.url, "beta")
        async with (
            MqttSide(near.port, "in-vehicle", []) as alpha,
            MqttSide(far.port, "in-vehicle", ["alpha/#"]) as beta,
            StreamerProcess(tmp_path, configuration(tmp_path, *ends)) as daemon,
        ):
            far.stop()
            await daemon.until_down("second")
            await alpha.send(messages[:100])
            await daemon.until_total(100, "ustreamer_journal_written_messages_total")
            with no_more_descriptors(daemon):
                remove_journal(tmp_path)
                await alpha.send(messages[100:])
                await until(lambda: bool(said(daemon, "journal_failing")), what="the journal to fail")
            await daemon.until_total(1, "ustreamer_journal_up")
            await daemon.until_total(200, "ustreamer_journal_written_messages_total")
            far.start()
            await beta.reconnect()
            await until(lambda: len(beta.arrived) >= 200, what="arrival of everything")
            assert sorted(ids(beta.arrived)) == sorted(ids(messages))
            assert inversions(beta.arrived, messages) == 0
            daemon.check_books()


@pytest.mark.mosquitto
async def test_crowd_at_the_admin_port_takes_no_descriptors_from_the_rest(tmp_path: Path) -> None:
    """Ten times as many connections as descriptors are left, and the daemon has to connect anew."""
    with Mosquitto(persistence=True) as near, Mosquitto(persistence=True) as far, ExitStack() as crowd:
        ends = mqtt_endpoint(near.url, "alpha"), mqtt_endpoint(far.url, "beta")
        async with (
            MqttSide(near.port, "in-vehicle", []) as alpha,
            MqttSide(far.port, "in-vehicle", ["alpha/#"]) as beta,
            StreamerProcess(tmp_path, configuration(tmp_path, *ends)) as daemon,
        ):
            left = admin_listener.MAX_CONNECTIONS + 16
            open_before = descriptors(daemon)
            before = resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE)
            resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE, (open_before + left, before[1]))
            for n in range(10 * left):
                held = crowd.enter_context(socket.create_connection((HOST, daemon.admin), 5))
                held.sendall(b"GET /metrics HTTP/1.1\r\n"[: n % 20])
            messages = notifications("alpha", "beta", 500)
            await alpha.send(messages[:250])
            near.restart()
            far.restart()
            await asyncio.gather(alpha.reconnect(), beta.reconnect())
            await alpha.send(messages[250:])
            await until(lambda: len(set(ids(beta.arrived))) >= 500, what="arrival of everything")  # some twice: restarts
            assert set(ids(beta.arrived)) == set(ids(messages))
            assert descriptors(daemon) <= open_before + admin_listener.MAX_CONNECTIONS + 1
            await daemon.until_total(500, "ustreamer_outcomes_total", outcome="delivered")
            daemon.check_books()
            assert said(daemon, "admin_accept_failed") == []
