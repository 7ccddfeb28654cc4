"""The MQTT 5 transport: the endpoint's side of a `BrokerLink`, which its `Connector` keeps connected.

Messages and their confirmations pass through `traffic`. What is here begins and ends the link, and its session.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from streamer.transports.base import Done, LinkState, Parcel, Report, TransportContext, TransportEvents, UTransport
from streamer.transports.errors import ConfigurationError
from streamer.transports.listening import ListeningTransport
from streamer.transports.mqtt5.broker_link import BrokerLink
from streamer.transports.mqtt5.connector import QUIET_S, Connector
from streamer.transports.mqtt5.ending import END_S, Ending, is_session_resumed_by, until
from streamer.transports.mqtt5.keep_alive import FAREWELL_S
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.subscriptions import filters_for
from streamer.transports.mqtt5.tools import Mqtt5Tools
from streamer.uprotocol.uri import UUri

logger = logging.getLogger("ustreamer.mqtt5")

_LEAVE_S = 3.0  # for unsubscribing, and the messages that come until then


class Mqtt5Transport(ListeningTransport):
    """uTransport over an MQTT 5 broker. UP once the broker has confirmed every subscription."""

    kind = "mqtt5"
    confirms_in_order = True
    Options = Mqtt5Options

    def __init__(self, context: TransportContext, options: Mqtt5Options) -> None:
        super().__init__(context, options)
        self.options: Mqtt5Options = options
        self.source_retransmits = options.is_session_persistent
        self._link = BrokerLink(self, options, self.registry)
        self._connector = Connector(self, options, self._link)
        self._ending = Ending(self._link.session, self._link.traffic, self._link.subscribing)

    @property
    def capacity(self) -> int:
        return self._link.capacity

    tools = Mqtt5Tools()

    def report(self) -> Report:
        link = self._link
        return Report(
            link.problems(),
            tuple(broker.where for broker in link.brokers),
            (link.brokers[link.broker].where,) if link.session.is_connected else (),
            wire_bytes=link.wire_bytes(),
            certificates=tuple(self.options.certificates().values()),
        )

    async def can_connect(self) -> bool:
        return await self._connector.can_connect()

    # -- life -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        self._connector.prepare()

    async def start(self) -> None:
        await self._connector.start()

    async def stop_receiving(self) -> None:
        """Unsubscribe, and deliver the messages sent until then, if the session ends with the connection."""
        if self.source_retransmits:
            return
        self._link.subscribing.leave()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _LEAVE_S
        while (
            (connection := self._link.traffic.connection) is not None
            and self._link.session.is_connected
            and loop.time() < until_s
        ):
            if not self._link.session.has_requests and loop.time() - connection.last_read_s > QUIET_S:
                return
            await asyncio.sleep(QUIET_S / 5)

    async def stop(self) -> None:
        await self._stop(None)

    async def _stop(self, session_expiry_s: int | None) -> None:
        """Stop as `stop` does. ``session_expiry_s`` is the session's from now on; None does not change it."""
        await self._connector.stop()
        connection = self._link.traffic.connection
        if connection is not None:
            self._link.traffic.flush()
            if self._link.session.unacknowledged and not self.source_retransmits:
                count = len(self._link.session.unacknowledged)
                logger.warning("unacknowledged_given_up endpoint=%s messages=%d", self.context.name, count)
            connection.disconnect(self._link.say_farewell("stopped"), "stopped", session_expiry_s)
            await connection.wait_lost(FAREWELL_S)
        self._link.session.lose_all()
        self.set_state(LinkState.DOWN, "stopped")

    async def end_session(self, successor: UTransport) -> None:
        """Receive the remaining messages of each broker's session, then end it, unless the successor resumes it."""
        until_s = asyncio.get_running_loop().time() + END_S
        self.context = replace(self.context, name=f"{self.context.name}:earlier", events=TransportEvents())
        later = successor if isinstance(successor, Mqtt5Transport) else None
        for number in sorted(self._link.have_session, key=lambda number: number != self._link.session_broker):
            await self._end_session_at(number, successor, later, until_s)

    async def _end_session_at(
        self, number: int, successor: UTransport, later: "Mqtt5Transport | None", until_s: float
    ) -> None:
        if later is not None and self._is_session_resumed_by(later, number):
            return
        problem: str | None = "there was no time"
        try:
            if not await until(lambda: successor.state is not LinkState.DOWN, until_s):
                problem = "the new connection is not up"  # until then, ending the session would lose messages
            elif later is not None and self._is_session_resumed_by(later, number):
                problem = None
            else:
                problem = await self._end(later, number, until_s)
        finally:  # also if this task is cancelled
            if problem is not None:
                self._log_session_end(successor.context.name, number, problem)

    def _log_session_end(self, endpoint: str, number: int, problem: str) -> None:
        where = self._link.brokers[number].where
        if problem:
            text = "session_left endpoint=%s broker=%s client_id=%s reason=%s consequence=%s"
            consequence = f"the broker keeps it for {self.options.session_expiry_s} s, with the messages in it"
            logger.warning(text, endpoint, where, self._link.client_id, problem, consequence)
        else:
            logger.info("session_ended endpoint=%s broker=%s client_id=%s", endpoint, where, self._link.client_id)

    def _is_session_resumed_by(self, later: "Mqtt5Transport", number: int) -> bool:
        """Return whether a later transport goes on with the session at a broker. Logs if that is only probable."""
        options, broker, authority = self.options, self._link.brokers[number], self.context.authority
        if is_session_resumed_by(options, broker, authority, later.options, False):
            return True
        # A session that was found may be that of a broker behind another name or port, if it can only be that of one.
        has_resumed = later._link.has_resumed and len(self._link.have_session) == 1
        if not is_session_resumed_by(options, broker, authority, later.options, has_resumed):
            return False
        text = "session_taken_for_the_same endpoint=%s broker=%s earlier_broker=%s client_id=%s consequence=%s"
        consequence = f"if it is another one, the earlier broker keeps its messages for {options.session_expiry_s} s"
        logger.info(
            text,
            later.context.name,
            later._link.brokers[later._link.broker].where,
            broker.where,
            self._link.client_id,
            consequence,
        )
        return True

    async def _end(self, later: "Mqtt5Transport | None", number: int, until_s: float) -> str:
        """Connect once more to a broker and empty the session. Return why that failed; empty if it did not."""
        self._link.choice.stay_at(number)
        epoch = 0 if later is None else later._link.session.epoch
        self._link.will = None  # the successor has its own
        self._link.subscribing.leave()
        expiry_s: int | None = None
        try:
            await self.start()
            if not await until(lambda: self._link.session.is_connected, until_s):
                return "no connection"
            # If both connections have one session, the broker has ended the successor's connection, which will reconnect.
            if not await self._ending.is_answered(until_s) or (later is not None and later._link.session.epoch != epoch):
                return "the broker has ended a connection over it"
            if not await self._ending.take_rest(until_s):
                return f"not everything could be taken within {END_S:g} s"
            expiry_s = 0
            return ""
        except ConfigurationError as exc:
            return f"{exc.key}: {exc}"
        finally:
            await self._stop(expiry_s)

    # -- messages and filters ---------------------------------------------------------------------------------------

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        self._link.traffic.submit(parcels, done)

    def awaits_acknowledgements(self, now_s: float) -> bool:
        return self._link.session.pressure.may_have_stopped(len(self._link.session.unacknowledged), now_s)

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        self._link.subscribing.open(self._filters(source, sink))

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        self._link.subscribing.close(self._filters(source, sink))

    def _filters(self, source: UUri, sink: UUri | None) -> tuple[str, ...]:
        return filters_for(source, sink, self.options.topics, self.context.authority, self.options.share)
