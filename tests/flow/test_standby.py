"""What a standby of a pair overhears, and takes when it takes over."""

from streamer.pair.shadows import Shadows
from tests.flow.harness import RouterHarness


async def test_what_is_overheard_is_counted_and_what_is_taken_counts_once_more() -> None:
    harness, shadows = RouterHarness(), Shadows()
    vehicle = harness.transports["vehicle"]
    vehicle.is_overheard = True  # type: ignore[misc]  # as Zenoh is
    await harness.router.overhear(shadows.hear)
    dealt_with, waiting = harness.speed(), harness.speed()
    harness.arrive("vehicle", dealt_with, waiting)
    account = next(each for each in harness.router.endpoint_accounts() if each.name == "vehicle")
    assert dict(account.stats.unwanted) == {"overheard": 2}
    shadows.drop([dealt_with])
    async with harness:
        harness.router.take_over(shadows.settled(), shadows.take())
        harness.check_books()
        assert [message.id for message in harness.sent("cloud")] == [waiting.id]
        assert (account.stats.packets, account.stats.received) == (3, 1)
        later = harness.speed()
        harness.arrive("vehicle", later)
        assert [message.id for message in harness.sent("cloud")] == [waiting.id, later.id]
