"""The pages about a pair: what each of the two says, the hand-over, and what one on standby refuses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamer import __version__
from streamer.config.shown import fingerprint
from streamer.features.api.readiness import summary, unready
from streamer.main import main
from streamer.tools.running import user
from streamer.transports.memory import MemoryTransport
from tests.fake_network import FakeNetwork
from tests.flow.harness import SPEED
from tests.unit.features.api.audit import audited
from tests.unit.features.api.daemon import running
from tests.unit.features.api.played import document_of
from tests.unit.features.pair.daemons import PairHarness, pair, view_of
from tests.unit.features.pair.found import pair_of
from tests.waiting import until

PAIR, HANDOVER = "/api/v1/pair", "/api/v1/pair/handover"
PAUSE = {"topic": str(SPEED)}


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[PairHarness]:
    async with pair(tmp_path) as found:
        yield found


async def test_each_of_the_two_says_how_it_sees_the_pair(two: PairHarness) -> None:
    for harness, role, takeovers in ((two.active, "active", 1), (two.standby, "standby", 0)):
        document = await document_of(harness)
        asked = await harness.ask(PAIR, headers={})
        told = document.check("get", PAIR, asked)
        assert (asked.status, told["role"], told["epoch"], told["takeovers"]) == (200, role, 1, takeovers)
        assert (told["link"], told["other_version"]) == ({"up": True, "problem": ""}, __version__)
        assert (told["alike"], told["protected"], told["problem"]) == (True, True, "")
        assert told["refused"] == {"stranger": 0, "frame": 0, "heartbeat": 0}
        about = document.check("get", "/api/v1", await harness.ask("/api/v1"))
        assert {**about["pair"], "waiting_bytes": 0} == {**told, "waiting_bytes": 0}


async def test_a_transport_that_is_built_anew_still_hears_the_other_one_beside_the_link(
    two: PairHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, network = two.active.daemon, FakeNetwork()
    monkeypatch.setattr(MemoryTransport, "shared", network)
    await daemon._reloading.rebuild("vehicle")
    assert network.takes == [pair_of(daemon.features).member.hear_aside]


async def test_one_that_works_alone_has_no_pair(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        document = await document_of(served)
        for method, path, body in (("get", PAIR, None), ("post", HANDOVER, {})):
            asked = await served.ask(path, body)
            assert asked.status == 404
            assert document.check(method, path, asked)["error"].startswith("this streamer works alone")
        assert (await served.ask("/api/v1")).json["pair"] is None
        assert "ustreamer_pair" not in (await served.ask("/metrics")).text


async def test_a_hand_over_is_permitted_begun_and_recorded(two: PairHarness, caplog: pytest.LogCaptureFixture) -> None:
    active, standby = two.active, two.standby
    document = await document_of(active)
    caplog.clear()
    refused = await active.ask(HANDOVER, {}, headers={})
    assert refused.status == 401
    assert view_of(active).is_active
    accepted = await active.ask(HANDOVER, {})
    told = document.check("post", HANDOVER, accepted)
    assert (accepted.status, told["role"], told["epoch"]) == (202, "active", 1)
    assert await two.tasks[two.harnesses.index(active)] == 0
    assert active.daemon.must_restart
    await until(lambda: standby.daemon.has_started, "the other one is active")
    assert (view_of(standby).is_active, view_of(standby).epoch) == (True, 2)
    denied, asked, *roles = audited(caplog)
    assert denied.startswith("denied who=http where=127.0.0.1 reason=expected Authorization")
    assert denied.endswith(f"path={HANDOVER}")
    assert asked == "handover who=http where=127.0.0.1 epoch=1"
    assert roles == [
        "role_changed who=pair where=process role=standby epoch=1 reason=handed over",
        "role_changed who=pair where=process role=active epoch=2 reason=the other hands over",
    ]


async def test_a_hand_over_to_one_that_is_not_ready_changes_nothing(
    two: PairHarness, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    active, standby = two.active, two.standby
    monkeypatch.setattr("streamer.features.pair.page._PATIENCE_S", 0)
    standby.daemon.stop()
    await until(lambda: view_of(active).problem == "the other one does not answer", "the other one has gone")
    why = "not handed over: the other one does not answer"
    caplog.clear()
    asked = await active.ask(HANDOVER, {})
    assert (asked.status, asked.json) == (409, {"error": why})
    assert await asyncio.to_thread(main, ["handover", "--config", str(active.file), "--wait"]) == 1
    assert capsys.readouterr().err == f"{why}\n"
    assert [each.partition(" reason=")[0] for each in audited(caplog) if "role_changed" not in each] == [
        "denied who=http where=127.0.0.1",
        f"denied who={user()} where=command line",
    ]
    assert not active.daemon.router.is_draining
    assert view_of(active).is_active


async def test_a_hand_over_waits_for_a_heartbeat_that_is_late(two: PairHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    late = ["the other one does not answer"] * 3
    monkeypatch.setattr("streamer.features.pair.page._PATIENCE_S", 600)
    monkeypatch.setattr("streamer.features.pair.page._AGAIN_S", 0)
    pair_of_active = pair_of(two.active.daemon.features)
    assert pair_of_active is not None
    why = pair_of_active.member.why_not_hand_over
    monkeypatch.setattr(pair_of_active.member, "why_not_hand_over", lambda: late.pop() if late else why())
    assert (await two.active.ask(HANDOVER, {})).status == 202
    assert late == []


async def test_a_client_that_does_not_wait_for_it_hands_nothing_over(
    two: PairHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streamer.features.pair.page._PATIENCE_S", 600)
    active = two.active
    monkeypatch.setattr(pair_of(active.daemon.features), "hand_over", lambda anyway: "the other one does not answer")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await active.ask(HANDOVER, {})
    await until(lambda: "reason=the client is gone" in "".join(audited(caplog)), "it notices")
    assert not active.daemon.router.is_draining


async def test_one_that_ends_for_good_does_not_start_anew_to_hand_over(two: PairHarness) -> None:
    active = two.active
    active.daemon.stop()
    asked = await active.ask(HANDOVER, {})
    assert (asked.status, asked.json) == (409, {"error": "not handed over: it is ending already"})
    assert await two.tasks[two.harnesses.index(active)] == 0
    assert not active.daemon.must_restart


async def test_one_that_hands_over_and_is_told_to_end_ends_for_good(two: PairHarness) -> None:
    active = two.active
    assert (await active.ask(HANDOVER, {})).status == 202
    active.daemon.stop()
    assert await two.tasks[two.harnesses.index(active)] == 0
    assert not active.daemon.must_restart


@pytest.mark.needs("judge", "pause")
async def test_on_standby_nothing_can_be_changed_and_everything_be_read(two: PairHarness) -> None:
    standby = two.standby
    document = await document_of(standby)
    works = {"/api/v1/reload", "/api/v1/preview", "/api/v1/probation", "/api/v1/confirm", HANDOVER}
    for path, item in document.data["paths"].items():
        if "post" in item and path not in works:
            for headers, status in (({}, 401), (None, 409)):
                asked = await standby.ask(path, {}, headers=headers)
                told = document.check("post", path, asked)
                assert asked.status == status, path
            assert told == {"error": "on standby: ask the active one"}
        elif "get" in item and not path.endswith(("/events", "/tap", "{number}", "/explain")):
            asked = await standby.ask(path)
            document.check("get", path, asked)
            assert asked.status == 200, (path, asked.text)
    explained = await standby.ask("/api/v1/explain", type="publish", source=str(SPEED))
    assert explained.json["hops"][0]["endpoint"] == "cloud"
    assert (await standby.ask(HANDOVER, {})).json == {"error": "not handed over: this one is on standby"}
    assert (await standby.ask("/api/v1/nothing", {})).status == 404
    assert (await two.active.ask("/api/v1/pause", PAUSE)).json == {"changed": True}


async def test_on_standby_it_is_ready_once_it_could_take_over(two: PairHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    active, standby = two.active, two.standby
    told: list[str] = []
    monkeypatch.setattr("streamer.daemon.daemon.systemd.notify", lambda *lines: told.extend(lines))
    asked = await standby.ask("/readyz")
    assert (asked.status, asked.json["ready"], asked.json["reasons"]) == (200, True, [])
    shown = [(await each.ask("/metrics", headers={})).text for each in (active, standby)]
    assert ["ustreamer_journal_up 1.0" in text for text in shown] == [True, False]
    assert ["ustreamer_journal_up" in text for text in shown] == [True, False]
    router = standby.daemon.router
    assert summary(router).startswith("on standby, with a copy of everything")
    patched = pytest.MonkeyPatch()
    patched.setattr(pair_of(standby.daemon.features).member, "why_not_whole", lambda: "the disk is full")
    why = "on standby: the disk is full"
    await until(lambda: f"STATUS={why}" in told, "systemd knows")
    asked = await standby.ask("/readyz")
    assert (asked.status, asked.json["ready"], asked.json["reasons"]) == (503, False, [why])
    assert (await standby.ask("/api/v1")).json["reasons"] == [why]
    patched.undo()
    await until(lambda: any(each.startswith("STATUS=on standby, with a copy") for each in told), "systemd knows")
    assert (await active.ask("/readyz")).status == 200


async def test_with_another_configuration_nobody_takes_over(two: PairHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the one on standby is ready, so that an update one after the other goes on to the other one."""
    active, standby = two.active, two.standby
    pair_of(standby.daemon.features).member.configured("that of another file")
    await until(lambda: not any(view_of(each).is_alike for each in two.harnesses), "both know")
    why = "the other one has another configuration"
    monkeypatch.setattr("streamer.features.pair.page._PATIENCE_S", 0)
    assert (await active.ask(HANDOVER, {})).json["error"] == f"not handed over: {why}"
    assert (await standby.ask(PAIR)).json["problem"] == why
    asked = await standby.ask("/readyz")
    while (
        asked.status != 200
    ):  # the copy is complete after a while, and is behind for a moment whenever something is written
        await until(lambda: not unready(standby.daemon.router), "the copy is complete")
        asked = await standby.ask("/readyz")
    assert asked.json["ready"] is True


async def test_one_that_has_not_met_the_other_one_is_not_ready(tmp_path: Path) -> None:
    alone = PairHarness(tmp_path, {}).harnesses[1]
    task = asyncio.create_task(alone.daemon.run())
    try:
        await until(lambda: task.done() or bool(view_of(alone).link_problem))
        asked = await alone.ask("/readyz", headers={})
        why = ["on standby: there is no link to the other one"]
        assert (asked.status, asked.json["ready"], asked.json["reasons"]) == (503, False, why)
        told = (await alone.ask(PAIR, headers={})).json
        assert (told["role"], told["link"]["up"], told["other_version"]) == ("standby", False, None)
        assert told["link"]["problem"].endswith("connection refused")
    finally:
        alone.daemon.stop()
        await task


@pytest.mark.needs("judge")
async def test_a_reload_on_standby_starts_anew_with_a_file_that_can_be_used(
    two: PairHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    standby = two.standby
    index = two.harnesses.index(standby)
    before = fingerprint(standby.daemon.config)
    standby.raw["endpoints"]["cloud"]["options"]["bus"] = 7
    standby.write()
    assert (await standby.ask("/api/v1/reload", {})).status == 422
    standby.raw["endpoints"]["cloud"]["options"]["bus"] = "another"
    standby.raw["log"] = {"audit": str(standby.file.parent)}  # a folder: found only when it is opened
    standby.write()
    asked = await standby.ask("/api/v1/reload", {})
    assert (asked.status, not two.tasks[index].done()) == (422, True)
    del standby.raw["log"]
    standby.write()
    assert (await standby.ask("/api/v1/preview", {})).status == 200
    assert await asyncio.to_thread(main, ["reload", "--config", str(standby.file)]) == 0
    assert await two.tasks[index] == 0
    assert standby.daemon.must_restart
    after = fingerprint(standby.daemon.config)
    assert (after != before, f"fingerprint {after}" in capsys.readouterr().out) == (True, True)
