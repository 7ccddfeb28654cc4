"""A reload on probation: what ends it, and what is refused."""

import errno
import stat
from pathlib import Path
from typing import Any

import pytest

from streamer.config.models import Config
from streamer.transports.base import LinkState
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from tests.unit.features.api.daemon import running
from tests.unit.features.probation.world import begin, change, feature, gone_back, kept_file, notes, reload, state, window


async def test_a_confirmed_configuration_stays_and_nothing_is_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        change(served)
        await begin(served)
        assert window(served) == 7
        assert stat.S_IMODE(kept_file(tmp_path).stat().st_mode) == 0o600
        assert (await notes(served))[0].startswith("a configuration is on probation until ")
        assert (await served.ask("/api/v1/confirm", {})).json["state"] == "confirmed"
        assert (window(served), await notes(served), kept_file(tmp_path).exists()) == (7, [], False)
        assert (await served.ask("/api/v1/confirm", {})).status == 409


async def test_what_nobody_confirms_in_time_goes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        change(served)
        await begin(served, for_s=1)
        assert await gone_back(served) == "nobody has confirmed it in time"


async def test_a_link_that_stays_down_ends_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.features.probation.feature._PATIENCE_S", 0.0)
    async with running(tmp_path) as served:
        change(served)
        await begin(served)
        served.transport("cloud").set_state(LinkState.DOWN)
        assert await gone_back(served) == "endpoint cloud was up and stays down"


async def test_what_ends_the_judgement_once_it_lasts_is_told_and_going_back_is_tried_until_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streamer.features.probation.feature._LOOK_S", 0.0)
    async with running(tmp_path) as served:
        change(served)
        await begin(served, for_s=1)
        work = served.daemon._reloading._use
        failures = ["once", "twice"]

        async def use(config: Config) -> list[str]:
            return [failures.pop()] if failures else await work(config)

        monkeypatch.setattr(served.daemon._reloading, "_use", use)
        assert await gone_back(served) == "nobody has confirmed it in time"
        assert failures == []
        assert caplog.text.count("went_back who=probation where=process why=nobody has confirmed it in time") == 1
        status = pb.Status()
        feature(served).report(status)
        assert list(status.notes) == await notes(served)
        assert "ustreamer_config_refused 1.0" in (await served.ask("/metrics")).text


async def test_during_a_probation_only_its_own_file_and_the_one_before_can_be_reloaded(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        change(served)
        await begin(served)
        assert (await reload(served), window(served)) == ([], 7)
        assert (await served.ask("/api/v1/probation", {"for_s": 600})).status == 409
        change(served, 8)
        (problem,) = await reload(served)
        assert problem.startswith("a configuration is on probation until ")
        assert problem.endswith(": confirm it first")
        assert (window(served), await state(served)) == (7, ("on_probation", ""))
        del served.raw["queue_policy"]
        served.write()
        assert (await reload(served), window(served), await notes(served)) == ([], 1000, [])
        assert await state(served) == ("gone_back", "the file before was read again")
        assert not kept_file(tmp_path).exists()


REFUSED: dict[str, tuple[int, dict[str, Any], str]] = {
    "invalid": (422, {"queue_policy": {"windw": 7}}, "did you mean 'window'?"),
    "needs a restart": (422, {"authority": "other"}, "restart to use it"),
    "unchanged": (409, {}, "the file is in use already"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_reloaded_is_refused_with_the_reason_and_nothing_is_kept(tmp_path: Path, case: str) -> None:
    status, changes, reason = REFUSED[case]
    async with running(tmp_path) as served:
        served.raw |= changes
        served.write()
        answer = await served.ask("/api/v1/probation", {"for_s": 600})
        assert answer.status == status
        assert reason in answer.json["error"]
        assert (window(served), await state(served), kept_file(tmp_path).exists()) == (1000, ("none", ""), False)


async def test_without_a_journal_or_room_to_keep_what_works_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("t" * 20)
    control = {"http_token_file": str(tmp_path / "token")}
    async with running(tmp_path, journal=None, control=control) as served:
        change(served)
        answer = await served.ask("/api/v1/probation", {"for_s": 600}, headers={"Authorization": "Bearer " + "t" * 20})
        assert (answer.status, window(served)) == (409, 1000)
        assert "journal: null" in answer.json["error"]
    async with running(tmp_path) as served:
        change(served)

        def full(number: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("streamer.features.probation.kept.os.fsync", full)
        answer = await served.ask("/api/v1/probation", {"for_s": 600})
        assert (answer.status, window(served)) == (409, 1000)
        assert "No space left on device" in answer.json["error"]
        assert not kept_file(tmp_path).exists()


async def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        for for_s in (None, 0, 86_401, "10m", float("1e400")):
            assert (await served.ask("/api/v1/probation", {"for_s": for_s})).status == 400
