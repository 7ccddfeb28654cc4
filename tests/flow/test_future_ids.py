"""Ids whose creation time lies in the future: because their sender lies, or because a clock is wrong, perhaps ours."""

from dataclasses import replace

import pytest

from streamer.delivery.outcomes.dead_letter import with_ttl_from_now
from streamer.uprotocol.message import UMessage, request
from streamer.uprotocol.uuid import created_ms, new_id
from tests.clock import START_MS, FakeClock
from tests.flow.harness import CLIMATE, CLOUD_APP, ORDERS, VEHICLE_APP, RouterHarness

ROUTE = "cloud-vehicle"
YEAR_9999_MS = 253_402_300_799_000
YEARS_MS = 56 * 365 * 86_400_000


def ask(made_ms: int, ttl: int = 1000) -> UMessage:
    return request(made_ms, CLOUD_APP, CLIMATE, ttl)


async def test_request_of_the_year_9999_expires_while_it_waits_and_is_answered() -> None:
    async with RouterHarness() as harness:
        harness.transports["vehicle"].lose_link()
        asked = ask(YEAR_9999_MS)
        harness.arrive("cloud", asked)
        harness.pass_time(1000)
        assert harness.queued(ROUTE) == 1
        harness.pass_time(1)
        assert harness.queued(ROUTE) == 0
        assert harness.outcomes(ROUTE) == {"expired": 1}
        (answer,) = [message for message in harness.sent("cloud") if message.attributes.reqid == asked.id]
        assert answer.attributes.sink == CLOUD_APP


async def test_no_id_spoils_the_sum_of_the_latencies() -> None:
    async with RouterHarness() as harness:
        harness.arrive("cloud", ask(YEAR_9999_MS), replace(harness.notify(sink=VEHICLE_APP, source=ORDERS), id=new_id(0)))
        assert harness.outcomes(ROUTE) == {"delivered": 2}
        (account,) = (account for account in harness.router.accounts() if account.name == ROUTE)
        assert account.stats.end_to_end.sum == 86_400


async def test_gateway_that_boots_in_1970_loses_nothing_when_its_clock_is_set() -> None:
    async with RouterHarness(clock=FakeClock(START_MS - YEARS_MS)) as harness:
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", ask(START_MS))
        harness.pass_time(500)
        harness.clock.ms += YEARS_MS
        harness.pass_time(400)
        harness.transports["vehicle"].restore_link()
        harness.pass_time(0)
        assert harness.outcomes(ROUTE) == {"delivered": 1}


@pytest.mark.parametrize(
    ("made_ms", "ttl"),
    [(START_MS - 5000, 15_000), (START_MS, 10_000), (YEAR_9999_MS, 10_000)],
    ids=["past", "now", "future"],
)
def test_redriven_message_lives_for_its_new_ttl_from_now_on(made_ms: int, ttl: int) -> None:
    message = with_ttl_from_now(ask(made_ms), 10_000, START_MS)
    assert message.attributes.ttl == ttl
    assert created_ms(message.id) == made_ms
    assert new_id(made_ms)[:6] == message.id[:6]
