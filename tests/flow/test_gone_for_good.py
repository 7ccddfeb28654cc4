"""A listener that does not come back."""

from streamer.transports.base import Presence
from tests.flow.harness import ORDERS, RouterHarness
from tests.flow.unconfirmed import ABSENT_MS, ROUTE, UNCONFIRMED_S, publishing, reach


async def test_a_steady_flow_whose_subscriber_is_gone_for_good_does_not_fill_the_queue() -> None:
    """After `absent_s` it is as if nobody had ever listened: no message of it waits, however many come."""
    async with RouterHarness(publishing(), unconfirmed_s=UNCONFIRMED_S) as harness:
        harness.arrive("cloud", harness.speed(b"0", source=ORDERS))
        reach(harness, Presence.ABSENT, ORDERS, None)
        for number in range(1, ABSENT_MS // 1000 + 3):
            harness.arrive("cloud", harness.speed(b"%d" % number, source=ORDERS))
            harness.pass_time(1000)
        assert (harness.outcomes(ROUTE), harness.queued(ROUTE)) == ({"unconfirmed": 1, "unheard": number}, 0)
        harness.arrive("cloud", again := harness.speed(source=ORDERS))
        assert harness.outcomes(ROUTE) == {"unconfirmed": 1, "unheard": number + 1}
        reach(harness, Presence.PRESENT, ORDERS, None)
        harness.arrive("cloud", heard := harness.speed(source=ORDERS))
        assert heard in harness.sent("vehicle")
        assert again not in harness.sent("vehicle")
