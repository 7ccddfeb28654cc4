"""What a newcomer types does what the README and docs/first-message.md say, and what ``streamer init`` writes starts."""

import asyncio
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from streamer.main import main
from streamer.tools.init_file import LISTEN, ROLES
from tests.brokers import any_broker
from tests.e2e.gateway import Gateway, RunningCommand, arrives_in_the_car, gateway, of_page, run_to_its_end
from tests.pages import README, block
from tests.ports import free_port
from tests.preloaded import command
from tests.process import StreamerProcess
from tests.waiting import until

HEADING = "## A first configuration"


@pytest.fixture
async def running() -> AsyncIterator[Gateway]:
    async with gateway() as found:
        yield found


@pytest.mark.mosquitto_pub
async def test_mosquitto_pub_sends_the_first_message(running: Gateway) -> None:
    await run_to_its_end("bash", "-euc", of_page("### mosquitto_pub", "bash", running.broker))
    await arrives_in_the_car(running)


@pytest.mark.mosquitto_pub
async def test_mosquitto_sub_shows_what_the_table_says(running: Gateway, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    program, *words = shlex.split(of_page("### On MQTT 5", "bash", running.broker))
    argv = ["stdbuf", "-oL", program, "-d", "-C", "1", *words]  # -d tells of the subscription
    with shown.open("w") as out:
        watching = await asyncio.create_subprocess_exec(*argv, stdout=out, stderr=out)
    try:
        await until(lambda: "SUBACK" in shown.read_text(), "the subscription")
        source = ("--source", "//cloud/C0/1/8001", "--sink", "//veh1/A8000/2/0", "--text", "hello", "--ttl", "20s")
        assert (await command("send", "--broker", running.broker.url, *source)).returncode == 0
        await asyncio.wait_for(watching.wait(), 30)
    finally:
        if watching.returncode is None:
            watching.kill()
            await watching.wait()
    (found,) = [each for each in shown.read_text().splitlines() if each.startswith("cloud/veh1 ")]
    for part in ("uP:1 ", "2:up-not.v1 ", "3://cloud/C0/1/8001 ", "4://veh1/A8000/2/0 ", " 7 20 hello"):
        assert part in found


async def test_paho_sends_the_first_message(running: Gateway, tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(of_page("### paho", "python", running.broker))
    await run_to_its_end(sys.executable, script)
    await arrives_in_the_car(running)


async def test_a_newcomer_sends_listens_and_calls_from_the_readme_alone(tmp_path: Path) -> None:
    with any_broker() as broker:
        ports = {"1883": str(broker.port), "7447": str(free_port())}
        text = re.sub(r"\b(1883|7447)\b", lambda match: ports[match[0]], block(README, HEADING, "yaml"))
        config = yaml.safe_load(text) | {"journal": {"path": str(tmp_path / "journal.db")}}
        daemon = StreamerProcess(tmp_path, config)
        daemon.start()
        async with AsyncExitStack() as stack:
            stack.push_async_exit(daemon)
            await until(lambda: daemon.get("/readyz")[0] == 200, "the daemon")  # nobody is on Zenoh yet
            lines = re.findall(r"^    (streamer (?:listen|send|ping) .*)$", README.read_text(), re.MULTILINE)
            printed, listeners = "", []
            (tmp_path / "commands").mkdir()
            for line in lines:
                argv = shlex.split(line.replace("streamer.yaml", str(daemon.path)), comments=True)[1:]
                if argv[0] == "listen":
                    listeners.append(RunningCommand(tmp_path / "commands", argv))
                    await listeners[-1].until_listening()
                else:
                    done = await command(*argv)
                    assert (done.returncode, done.stderr) == (0, ""), line
                    printed += done.stdout
            cloud, service = listeners
            await cloud.until_out("  fine")
            assert [await each.interrupted(signal.SIGINT) for each in listeners] == [0, 0]
        assert [line.split("  ")[1] for line in cloud.out.splitlines()] == ["publish", "request", "response"]
        assert "  21.5\n" in cloud.out
        assert [line.split("  ")[1] for line in service.out.splitlines()] == ["request"]  # not the Publish for all of cloud
        assert service.out.endswith("  how are you?\n")
        assert "delivered in " in printed
        assert "  fine  (" in printed
        assert "3 sent, 3 answered, 0 % lost" in printed


@pytest.mark.parametrize("role", ROLES)
async def test_daemon_starts_with_the_file_of_every_role(role: str, tmp_path: Path) -> None:
    streamer = StreamerProcess(tmp_path, {})
    nobody = f"mqtt://127.0.0.1:{free_port()}"
    zenoh = f"{LISTEN}tcp/127.0.0.1:{free_port()}"
    words = ["--device", f"dev-a={nobody if role == 'cloud-gateway' else zenoh}"]
    if ROLES[role].cloud:
        words += ["--cloud", f"backend=mqtt://127.0.0.1:{free_port()}"]
    else:
        words += ["--device", f"dev-b=tcp/127.0.0.1:{free_port()}" if role == "ubus" else f"dev-b={nobody}"]
    words += ["--journal", str(tmp_path / "journal.db"), "--metrics", f"127.0.0.1:{streamer.admin}"]
    assert main(["init", "--role", role, *words, "--output", str(streamer.path), "--force"]) == 0
    streamer.start()
    try:
        await until(lambda: streamer.get("/healthz")[0] == 200, what="an answer of the daemon")
        await until((tmp_path / "journal.db").exists, what="the journal, which a thread opens")
    finally:
        await streamer.__aexit__()
    assert streamer.process is not None
    assert streamer.process.returncode == 0, streamer.log
