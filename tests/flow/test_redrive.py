"""Dead letters that the journal keeps are sent again, as the messages that they were."""

from pathlib import Path
from typing import Any

import pytest

from streamer.journal.letters import LetterFilter, LetterSummary, open_letters
from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.errors import PermanentError
from streamer.uprotocol.status import UCode
from tests.flow.life import DOWN, life, order
from tests.flow.stage import SPEED
from tests.flow.test_interest import want
from tests.independent import until


async def test_a_dead_letter_is_kept_and_can_be_sent_again_with_its_id_and_attributes(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        vehicle = now.stage.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = order(now.stage, b"again", ttl=60_000)
        now.stage.arrive("cloud", message)
        await now.flush()
        assert now.journal.bytes > 0
        assert now.stage.outcomes(DOWN) == {"dead_lettered": 1}
        vehicle.refuse = lambda message: None
        now.stage.router.redrive.take(now.letters, [None])
        now.stage.router.redrive.take(now.letters, [None])
        assert now.stage.sent("vehicle") == [message]
        await now.flush()
        assert now.journal.bytes == 0


@pytest.mark.parametrize(("ttl_ms", "leaves_with"), [(None, None), (5_000, 65_000), (0, 0)])
async def test_an_expired_one_is_sent_again_only_with_a_new_ttl(
    tmp_path: Path, ttl_ms: int | None, leaves_with: int | None
) -> None:
    async with life(tmp_path / "j.db") as now:
        vehicle = now.stage.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = order(now.stage, b"again", ttl=30_000)
        now.stage.arrive("cloud", message)
        await now.flush()
        vehicle.refuse = lambda message: None
        now.stage.pass_time(60_000)
        now.stage.router.redrive.take(now.letters[:1], [ttl_ms])
        await now.flush()
        if leaves_with is None:
            assert now.stage.sent("vehicle") == []
            assert [letter.outcome for letter in now.letters] == ["dead_lettered", "expired"]
        else:
            (left,) = now.stage.sent("vehicle")
            assert (left.id, left.payload, left.attributes.ttl) == (message.id, b"again", leaves_with)


async def test_one_that_nobody_wants_now_stays_and_can_be_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.db"
    async with life(path, routes=[{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]) as now:
        cloud, redrive = now.stage.transports["cloud"], now.stage.router.redrive
        await want(now.stage, SPEED, {"backend": EVERY_MESSAGE})
        cloud.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = now.stage.speed(b"again")
        now.stage.arrive("vehicle", message)
        await now.flush()
        cloud.refuse = lambda message: None
        await want(now.stage, SPEED, {})
        (before,) = stored(path)

        mark(path)
        await until(lambda: bool(now.stage.due), 10, "the redrive")
        await now.flush()
        assert stored(path) == [before]  # and nobody asks for it any more
        assert (redrive.count, cloud.sent[1:]) == (0, [])
        assert [record.message for record in caplog.records if "redrive_kept" in record.message] == [
            f"redrive_kept letters=1 first_id={message.id.hex()} reason=nobody wants it now"
        ]

        await want(now.stage, SPEED, {"backend": EVERY_MESSAGE})
        mark(path)
        await until(lambda: bool(now.stage.sent("cloud")), 10, "the second redrive")
        await now.flush()
        assert (redrive.count, now.stage.sent("cloud"), stored(path)) == (1, [message], [])


async def test_one_that_would_stay_where_it_came_from_stays_a_letter(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        now.stage.transports["cloud"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        now.stage.arrive("vehicle", now.stage.notify(b"to the cloud"))
        await now.flush()
        letters = now.letters
    moved = {
        "vehicle": {"transport": "memory", "authorities": ["veh1", "cloud"]},
        "cloud": {"transport": "memory", "authorities": ["*"]},
    }
    async with life(tmp_path / "j.db", endpoints=moved) as now:
        now.stage.router.redrive.take(letters, [None])
        await now.flush()
        assert now.stage.router.redrive.count == 0
    assert [letter.number for letter in stored(tmp_path / "j.db")] == [letters[0].number]


@pytest.mark.parametrize("changes", [{"body": b"\xff"}, {"ingress": "gone"}], ids=["unreadable", "no-such-endpoint"])
async def test_one_that_cannot_be_sent_again_stays_and_nobody_asks_for_it_any_more(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = tmp_path / "j.db"
    async with life(path) as now:
        now.stage.transports["vehicle"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        now.stage.arrive("cloud", order(now.stage))
        await now.flush()
        mark(path)
        (letter,) = now.letters
        now.stage.router.redrive.take([letter._replace(**changes)], [None])
        await now.flush()
        assert [each.redrive_ms for each in stored(path)] == [None]


def mark(path: Path) -> None:
    """What the command line does."""
    with open_letters(path) as file:
        assert file.mark([letter.number for letter in file.find(LetterFilter())], 1, None) == 1


def stored(path: Path) -> list[LetterSummary]:
    with open_letters(path) as file:
        return file.find(LetterFilter())
