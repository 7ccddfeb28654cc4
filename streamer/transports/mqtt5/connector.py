"""Connects an MQTT endpoint to one of its brokers: dials, waits between attempts, and returns to the first broker.

What happens on a connection is `BrokerLink`'s.
"""

import asyncio
import logging
import random
from functools import partial

import mqtt5

from streamer.backoff import RECONNECT_STEPS, wait_s
from streamer.files import Files
from streamer.transports.base import LinkState, UTransport
from streamer.transports.errors import ConfigurationError
from streamer.transports.link_error import LinkFailure, failure_of
from streamer.transports.mqtt5.broker_link import TIED, BrokerLink, refusal_of
from streamer.transports.mqtt5.brokers import Broker, WebSocketError
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.dialing import Way, accepts, dial, read_way
from streamer.transports.mqtt5.keep_alive import FAREWELL_S
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.probe import Trial, no_broker
from streamer.transports.mqtt5.tunnel import ProxyError

logger = logging.getLogger("ustreamer.mqtt5")

QUIET_S = 0.05
"""After this long without a packet, no more are expected."""


class Connector:
    """Keeps ``link`` connected from `start` to `stop`, and reports the time of the next attempt to ``endpoint``."""

    def __init__(self, endpoint: UTransport, options: Mqtt5Options, link: BrokerLink) -> None:
        self._endpoint = endpoint
        self._options = options
        self._link = link
        self._files = Files()
        self._task: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Read credentials and certificates. Raises `ConfigurationError` if a file that the options name cannot be used."""
        self._options.credentials()
        self._options.tls_context()
        self._options.proxy_credentials()

    async def start(self) -> None:
        """Begin to connect. Raises `ConfigurationError` as `prepare` does."""
        if self._task is None:
            await self._files.run(self.prepare)
        if self._task is None:
            self._link.is_wanted = True
            self._task = asyncio.create_task(self._keep_connected(), name=f"mqtt5-{self._link.name}")

    async def stop(self) -> None:
        """Make no more connections. The present one stays open."""
        self._link.is_wanted = False
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _keep_connected(self) -> None:
        failures = refusals = 0  # refusals: attempts in a row in which no broker accepted
        loop, link, name = asyncio.get_running_loop(), self._link, self._link.name
        while True:
            link.begin_attempt()
            connections, last_broker = link.connections, link.session_broker
            try:
                reason = await self._connect(max(0, refusals - 1))
            except Exception as exc:  # no other task awaits this one: the endpoint would stay down silently
                reason = link.failed(*failure_of(exc))
                logger.exception("connect_failed endpoint=%s address=%s reason=%s text=%s", name, *link.blame(), reason)
                if link.traffic.connection is not None:
                    link.traffic.connection.abort(reason)
                    await link.traffic.connection.wait_lost(FAREWELL_S)
            refusals = 0 if link.connections > connections else refusals + 1
            # After a link that was up for a while, or to another broker, the wait begins with the shortest again.
            up_s = 0.0 if link.up_since_s is None else loop.time() - link.up_since_s
            has_switched = last_broker not in (None, link.session_broker)
            if link.is_no_fault or has_switched or up_s > self._options.reconnect.max_ms / 1000:
                failures = 0
            if not refusals and link.choice.is_returning:
                continue
            failures += 1
            retry_s = wait_s(self._options.reconnect, failures, random.random(), RECONNECT_STEPS)
            self._endpoint.retry_in(retry_s)
            address, failure = link.blame()
            text = "link_down endpoint=%s address=%s reason=%s text=%s retry_in_s=%.2f"
            state = (f"link {name}", f"down: {failure}")
            logger.warning(text, name, address, failure, reason, retry_s, extra={"state": state})
            await asyncio.sleep(retry_s)

    async def _connect(self, first_address: int) -> str:
        """Connect to the first broker that accepts, stay until the connection ends, and return the reason.

        ``first_address`` is the number of the address of each broker to try first.
        """
        link, reasons = self._link, list[str]()
        for number in link.choice.order:
            connections = link.connections
            reason = await self._connect_to(number, first_address)
            if link.connections > connections:
                if not link.choice.is_returning:
                    link.choice.ended(asyncio.get_running_loop().time() - link.connected_s, link.is_no_fault)
                return reason
            if len(link.brokers) > 1:
                text = "broker_not_reached endpoint=%s address=%s reason=%s text=%s"
                logger.warning(text, link.name, *link.blame(), reason)
            reasons.append(reason if len(link.brokers) == 1 else f"{link.brokers[number].where}: {reason}")
        return "; ".join(reasons)

    async def _connect_to(self, number: int, first_address: int) -> str:
        """Connect to one broker, stay until the connection ends, and return the reason."""
        link, options = self._link, self._options
        link.broker, broker = number, link.brokers[number]
        try:
            username, password, way, link.has_expired_certificate = await self._files.run(lambda: self._read(broker))
        except ConfigurationError as exc:
            return link.failed(LinkFailure.FILES, f"{exc.key}: {exc}")
        except OSError as exc:  # reading takes too long
            return link.failed(LinkFailure.FILES, f"files: {exc.strerror}")
        loop = asyncio.get_running_loop()
        traffic = link.traffic
        make = partial(Connection, options.max_packet_bytes, traffic.on_frames, traffic.on_writable, link.on_lost)
        good_address = link.choice.good_addresses.get(number)
        try:
            if options.of_streamer is not None:
                refusal = await self._try_session(options.of_streamer, way, number, username, password)
                if refusal is not None:
                    return link.failed(*refusal)
            connection, address = await dial(way, make, first_address, good_address)
        except TimeoutError:
            return link.failed(LinkFailure.TIMEOUT, f"no connection within {options.connect_timeout_s:g} s")
        except ProxyError as exc:
            return link.failed(LinkFailure.PROXY, str(exc))
        except WebSocketError as exc:
            return link.failed(LinkFailure.PROTOCOL, str(exc))
        except (OSError, UnicodeError) as exc:
            if link.will is not None and isinstance(exc, ConnectionRefusedError):
                link.will.counts_as_offline()
            return link.failed(*failure_of(exc))
        keep_alive = link.begin(connection, address, username, password)
        if keep_alive is None:
            return connection.reason
        testing: asyncio.Task[None] | None = None
        try:
            while not connection.lost.done():
                await asyncio.wait((connection.lost,), timeout=keep_alive.tick_s)
                now_s = loop.time()
                keep_alive.check(now_s)
                self._resume_search(now_s)
                if testing is None and link.session.is_connected and (every_s := link.choice.test_every_s) is not None:
                    testing = asyncio.create_task(self._test_first(every_s), name=f"mqtt5-test-{link.name}")
                self._return_to_first(connection, now_s)
        finally:
            if testing is not None:
                testing.cancel()
        return connection.reason

    async def _try_session(
        self, options: Mqtt5Options, way: Way, number: int, username: str | None, password: bytes | None
    ) -> tuple[LinkFailure, str] | None:
        """Find out whether a broker gives us a session of our own. Return why we may not connect; None: we may.

        ``options`` are those of the streamer. Raises OSError and UnicodeError as `dial` does.
        """
        link = self._link
        if number not in link.ties:
            trials: list[Trial] = []  # one for each address; the last one is connected

            def new_connection() -> Connection:
                trials.append(Trial(options))
                return trials[-1].connection

            await dial(way, new_connection)
            connection = trials[-1].connection
            try:
                async with asyncio.timeout(options.connect_timeout_s):
                    packet = await trials[-1].ask(link.client_id, username, password)
            except ConnectionError:
                return link.why_not_accepted(connection)
            if not isinstance(packet, mqtt5.ConnAckPacket):
                return LinkFailure.PROTOCOL, no_broker(packet)
            if int(packet.reason_code):
                return refusal_of(packet)
            link.ties[number] = packet.session_present
        return (LinkFailure.AUTHENTICATION, TIED) if link.ties[number] else None

    def _read(self, broker: Broker) -> tuple[str | None, bytes | None, Way, bool]:
        options = self._options
        now_s = self._endpoint.context.now_ms() / 1000
        return (*options.credentials(), read_way(options, broker), options.has_expired_certificate(now_s))

    async def can_connect(self) -> bool:
        """Return whether a broker accepts connections, without using one."""
        for number, broker in enumerate(self._link.brokers):
            try:
                way = await self._files.run(partial(read_way, self._options, broker))
                if await accepts(way, self._link.choice.good_addresses.get(number)):
                    return True
            except (ConfigurationError, OSError):
                continue
        return False

    async def _test_first(self, every_s: float) -> None:
        """Find out again and again whether the first broker accepts connections, while another one is in use."""
        while True:
            try:
                way = await self._files.run(lambda: read_way(self._options, self._link.brokers[0]))
                is_good = await accepts(way, self._link.choice.good_addresses.get(0))
            except (ConfigurationError, OSError):
                is_good = False
            except Exception:  # no other task awaits this one: the broker would not be tested any more
                is_good = False
                logger.exception("broker_test_failed endpoint=%s broker=%s", self._link.name, self._link.brokers[0].where)
            self._link.choice.tested(is_good, asyncio.get_running_loop().time())
            await asyncio.sleep(every_s)

    def _return_to_first(self, connection: Connection, now_s: float) -> None:
        """End the connection in favour of the first broker, if that has proven itself and the link is idle."""
        is_quiet = now_s - max(connection.last_read_s, connection.last_write_s) > QUIET_S
        if (
            self._link.choice.may_return(now_s)
            and is_quiet
            and self._link.session.is_idle
            and self._endpoint.state is LinkState.UP
        ):
            self._link.choice.return_to_first()
            where = self._link.brokers[0].where
            logger.info("returning_to_first_broker endpoint=%s broker=%s", self._link.name, where)
            reason = f"the streamer returns to {where}"
            connection.disconnect_gently(self._link.say_farewell(reason), reason)

    def _resume_search(self, now_s: float) -> None:
        """Send the next suspect, if the connection has stood for long enough."""
        search = self._link.session.search
        if search.is_suspended and self._link.up_since_s is not None and now_s - self._link.connected_s >= search.stand_s:
            self._link.session.resume_search()
            self._link.traffic.write_outgoing()
