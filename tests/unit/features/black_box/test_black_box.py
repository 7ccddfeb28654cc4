"""A fault at a running gateway, the file that it leaves, and its replay: as the page says."""

import re
from pathlib import Path

import pytest

from tests.e2e.gateway import RunningCommand, gateway
from tests.independent.message import Plain
from tests.pages import DOCS
from tests.preloaded import command
from tests.unit.features.black_box import other_reader
from tests.waiting import until

pytestmark = pytest.mark.long
TOPIC = ("veh1", 0xA8000, 2, 0x8A50)


async def test_what_was_there_before_the_cloud_was_lost_is_in_a_file_and_arrives_again(tmp_path: Path) -> None:
    page = (DOCS / "features/black_box.md").read_text()
    assert re.search(r"streamer record --config streamer.yaml --out \S+ --freeze-on", page)
    assert re.search(r"streamer replay \S+.mcap --zenoh \S+ --ingress vehicle", page)
    async with gateway(journal={"path": str(tmp_path / "journal.db")}) as found:
        words = ("--out", tmp_path / "files", "--after", "100ms", "--files", "1", "--freeze-on", "endpoint-down")
        recording = RunningCommand(tmp_path, ["record", *found.by_file, *words])
        await until(lambda: recording.process.poll() is not None or "recording" in recording.err, "the recorder")
        assert recording.process.poll() is None, (recording.out, recording.err)
        messages = [Plain(4, TOPIC, ("cloud", 0xC0, 1, 0), b"%d" % number) for number in range(20)]
        await found.car.send(messages)
        await until(lambda: len(found.cloud.arrived) == 20, "all messages")
        found.broker.kill()
        assert await recording.ended() == 0
        (path,) = (tmp_path / "files").iterdir()
        assert recording.out == f"{path}: {len(other_reader.read(path))} messages and events, for endpoint-down\n"
        shown = [data for topic, _, data in other_reader.read(path) if topic == "messages" and data["event"] == "message"]
        assert {each["id"].replace("-", "") for each in shown} == {each.id.hex() for each in messages}
        assert {each["outcome"] for each in shown} == {"delivered"}
        states = [data for topic, _, data in other_reader.read(path) if topic == "events" and data.get("name") == "cloud"]
        assert [each["state"] for each in states][-1] != "up"
    async with gateway() as bench:
        done = await command("replay", path, "--zenoh", bench.locator, "--ingress", "vehicle", "--pace", "100")
        assert (done.returncode, done.stderr) == (0, "")
        await until(lambda: len(bench.cloud.arrived) == 20, "all messages")
        assert sorted(each.payload for each in bench.cloud.arrived) == sorted(each.payload for each in messages)
        assert not {each.id for each in bench.cloud.arrived} & {each.id for each in messages}


async def test_a_daemon_that_does_not_answer_and_a_wrong_cause_are_errors(tmp_path: Path) -> None:
    done = await command("record", "--url", "http://127.0.0.1:9", "--out", tmp_path)
    assert (done.returncode, "127.0.0.1:9" in done.stderr) == (1, True)
    done = await command("record", "--url", "http://127.0.0.1:9", "--out", tmp_path, "--freeze-on", "fire")
    assert done.returncode == 2
    assert "expected dead-letter, endpoint-down, unheard" in done.stderr
