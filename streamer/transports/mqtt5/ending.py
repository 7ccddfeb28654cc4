"""Empties a session that no streamer resumes, by receiving the messages in it. It does not connect or disconnect.

A broker sends further messages before it answers a ping, so an answer without a message before it means that the session is
empty.
"""

import asyncio
from collections.abc import Callable

import mqtt5

from streamer.transports.mqtt5.brokers import Broker
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.session import Session
from streamer.transports.mqtt5.subscribing import Subscribing
from streamer.transports.mqtt5.traffic import Traffic

END_S = 10.0
"""Seconds for the new connection, the old one, and the messages that come over the old one, in total."""

_QUIET_S = 0.05  # for a broker that answers pings ahead of messages
_LOOK_S = 0.01


def is_session_resumed_by(
    options: Mqtt5Options, broker: Broker, authority: str, later: Mqtt5Options, has_resumed: bool
) -> bool:
    """Return whether ``later`` options resume the session that a broker keeps for these.

    ``has_resumed``: the later connection found this session.
    """
    if options.effective_client_id(authority) != later.effective_client_id(authority):
        return False
    kept = _account(options, broker)
    return has_resumed or any(_account(later, each) == kept for each in later.brokers)


def _account(options: Mqtt5Options, broker: Broker) -> tuple[object, ...]:
    return broker.host, broker.port, options.username, options.username_file


async def until(condition: Callable[[], bool], until_s: float) -> bool:
    """Wait for a condition until a time on the loop's clock. Return whether the condition is true."""
    loop = asyncio.get_running_loop()
    while not condition():
        if loop.time() >= until_s:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


class Ending:
    """Empties one session, on the current connection."""

    def __init__(self, session: Session, traffic: Traffic, subscribing: Subscribing) -> None:
        self._session = session
        self._traffic = traffic
        self._subscribing = subscribing

    async def is_answered(self, until_s: float) -> bool:
        """Send a ping. Return whether the answer came on the same connection."""
        traffic, epoch, answers = self._traffic, self._session.epoch, self._traffic.ping_answers
        traffic.write(mqtt5.PingReqPacket().write())
        await until(lambda: traffic.ping_answers > answers or self._session.epoch != epoch, until_s)
        return traffic.ping_answers > answers and self._session.epoch == epoch

    async def take_rest(self, until_s: float) -> bool:
        """Unsubscribe from everything, and receive the remaining messages. Return whether the session is empty."""
        session, epoch = self._session, self._session.epoch
        self._subscribing.leave()
        while (
            await until(lambda: not session.unacknowledged and not session.has_requests, until_s) and session.epoch == epoch
        ):
            acknowledged = session.acknowledged
            if not await self.is_answered(until_s):
                return False
            await asyncio.sleep(_QUIET_S)
            if session.acknowledged == acknowledged and not session.unacknowledged:
                return True
        return False
