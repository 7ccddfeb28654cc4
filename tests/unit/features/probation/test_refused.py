"""What a start or another reload does with a file that is on probation, or was refused."""

from pathlib import Path

import pytest

from tests.unit.features.api.daemon import running
from tests.unit.features.probation.world import begin, change, gone_back, kept_file, notes, reload, started_again, window


async def test_the_refused_text_is_not_used_again_at_a_reload_or_a_start_until_it_is_confirmed(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        change(served)
        await begin(served, for_s=1)
        await gone_back(served)
        assert (await reload(served), window(served)) == ([], 1000)
        answer = await served.ask("/api/v1/probation", {"for_s": 600})
        assert answer.status == 409
        assert answer.json["problems"] == await notes(served)
    async with started_again(served):
        assert window(served) == 1000
        assert (await notes(served))[0].endswith("nobody has confirmed it in time")
        assert (await served.ask("/api/v1/confirm", {})).status == 200
        assert (await reload(served), window(served), await notes(served)) == ([], 7, [])


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_another_text_on_disk_ends_a_refusal(tmp_path: Path, is_restarted: bool) -> None:
    async with running(tmp_path) as served:
        change(served)
        await begin(served, for_s=1)
        await gone_back(served)
        change(served, 8)
        if not is_restarted:
            assert await reload(served) == []
            assert (window(served), await notes(served), kept_file(tmp_path).exists()) == (8, [], False)
    async with started_again(served):
        assert (window(served), await notes(served), kept_file(tmp_path).exists()) == (8, [], False)


async def test_a_start_during_a_probation_goes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path) as served:
        change(served)
        await begin(served)
    async with started_again(served):
        assert await gone_back(served) == "the daemon has ended before it was confirmed"
    assert "went_back who=probation" in caplog.text
    caplog.clear()
    async with started_again(served):
        assert await gone_back(served) == "the daemon has ended before it was confirmed"
    assert "went_back" not in caplog.text


@pytest.mark.parametrize("content", ["{", '{"text": "a", "other": 1}'])
async def test_a_damaged_file_is_logged_and_counts_as_none(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept_file(tmp_path).write_text(content)
    async with running(tmp_path) as served:
        assert await notes(served) == []
        assert "probation_unreadable" in caplog.text
