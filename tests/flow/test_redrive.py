"""Dead letters that the journal keeps are sent again, as the messages that they were."""

from pathlib import Path

import pytest

from streamer.transports.errors import PermanentError
from streamer.uprotocol.status import UCode
from tests.flow.life import DOWN, life, order


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
