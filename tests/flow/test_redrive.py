"""Dead letters that the journal keeps are sent again, as the messages that they were."""

from pathlib import Path
from typing import Any

import pytest

from streamer.journal.letters import LetterFilter, LetterSummary, open_letters
from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.errors import PermanentError
from streamer.uprotocol.status import UCode
from tests.flow.harness import SPEED
from tests.flow.journaled_run import DOWN, journaled_run, order
from tests.flow.test_interest import want
from tests.waiting import until


async def test_a_dead_letter_is_kept_and_can_be_sent_again_with_its_id_and_attributes(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        vehicle = run.harness.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = order(run.harness, b"again", ttl=60_000)
        run.harness.arrive("cloud", message)
        await run.flush()
        assert run.journal.bytes > 0
        assert run.harness.outcomes(DOWN) == {"dead_lettered": 1}
        vehicle.refuse = lambda message: None
        run.harness.router.redrive.take(run.letters, [None])
        run.harness.router.redrive.take(run.letters, [None])
        assert run.harness.sent("vehicle") == [message]
        await run.flush()
        assert run.journal.bytes == 0


@pytest.mark.parametrize(("ttl_ms", "leaves_with"), [(None, None), (5_000, 65_000), (0, 0)])
async def test_an_expired_one_is_sent_again_only_with_a_new_ttl(
    tmp_path: Path, ttl_ms: int | None, leaves_with: int | None
) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        vehicle = run.harness.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = order(run.harness, b"again", ttl=30_000)
        run.harness.arrive("cloud", message)
        await run.flush()
        vehicle.refuse = lambda message: None
        run.harness.pass_time(60_000)
        run.harness.router.redrive.take(run.letters[:1], [ttl_ms])
        await run.flush()
        if leaves_with is None:
            assert run.harness.sent("vehicle") == []
            assert [letter.outcome for letter in run.letters] == ["dead_lettered", "expired"]
        else:
            (left,) = run.harness.sent("vehicle")
            assert (left.id, left.payload, left.attributes.ttl) == (message.id, b"again", leaves_with)


async def test_one_without_interest_stays_and_can_be_redriven_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.db"
    async with journaled_run(path, routes=[{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]) as run:
        cloud, redrive = run.harness.transports["cloud"], run.harness.router.redrive
        await want(run.harness, SPEED, {"backend": EVERY_MESSAGE})
        cloud.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = run.harness.speed(b"again")
        run.harness.arrive("vehicle", message)
        await run.flush()
        cloud.refuse = lambda message: None
        await want(run.harness, SPEED, {})
        (before,) = stored(path)

        mark(path)
        await until(lambda: bool(run.harness.due), within_s=10, what="the redrive")
        await run.flush()
        assert stored(path) == [before]  # and nobody asks for it any more
        assert (redrive.count, cloud.sent[1:]) == (0, [])
        assert [record.message for record in caplog.records if "redrive_kept" in record.message] == [
            f"redrive_kept letters=1 first_id={message.id.hex()} reason=nobody wants it now"
        ]

        await want(run.harness, SPEED, {"backend": EVERY_MESSAGE})
        mark(path)
        await until(lambda: bool(run.harness.sent("cloud")), within_s=10, what="the second redrive")
        await run.flush()
        assert (redrive.count, run.harness.sent("cloud"), stored(path)) == (1, [message], [])


async def test_one_whose_sink_is_where_it_came_from_stays_a_letter(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.harness.transports["cloud"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        run.harness.arrive("vehicle", run.harness.notify(b"to the cloud"))
        await run.flush()
        letters = run.letters
    moved = {
        "vehicle": {"transport": "memory", "authorities": ["veh1", "cloud"]},
        "cloud": {"transport": "memory", "authorities": ["*"]},
    }
    async with journaled_run(tmp_path / "j.db", endpoints=moved) as run:
        run.harness.router.redrive.take(letters, [None])
        await run.flush()
        assert run.harness.router.redrive.count == 0
    assert [letter.number for letter in stored(tmp_path / "j.db")] == [letters[0].number]


@pytest.mark.parametrize("changes", [{"body": b"\xff"}, {"ingress": "gone"}], ids=["unreadable", "no-such-endpoint"])
async def test_one_that_cannot_be_redriven_stays_and_its_mark_is_removed(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "j.db"
    async with journaled_run(path) as run:
        run.harness.transports["vehicle"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        run.harness.arrive("cloud", order(run.harness))
        await run.flush()
        mark(path)
        (letter,) = run.letters
        run.harness.router.redrive.take([letter._replace(**changes)], [None])
        await run.flush()
        assert [each.redrive_ms for each in stored(path)] == [None]


def mark(path: Path) -> None:
    """What the command line does."""
    with open_letters(path) as file:
        assert file.mark_for_redrive([letter.number for letter in file.find(LetterFilter())], 1, None) == 1


def stored(path: Path) -> list[LetterSummary]:
    with open_letters(path) as file:
        return file.find(LetterFilter())
