"""Subscribers of a topic, as uSubscription tells the router about them."""

import asyncio

from streamer.uprotocol.uri import UUri
from tests.flow.harness import RouterHarness


async def want(harness: RouterHarness, topic: UUri, interested: dict[str, int], owner: str = "test") -> None:
    harness.router.set_interest(topic, interested, owner)
    await asyncio.sleep(0)  # the turn of the loop after which it holds
    await harness.router.listening.catch_up()
