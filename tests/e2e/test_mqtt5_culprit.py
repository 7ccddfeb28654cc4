"""Brokers that end the connection over a message, and networks that end it whatever is sent."""

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial

import mqtt5
import pytest

from streamer.transports.errors import PermanentError
from streamer.uprotocol.status import UCode
from tests.e2e.mqtt_messages import message
from tests.mqtt_peer import BrokerConnection, Endpoint, FakeBroker, meanwhile
from tests.waiting import until

BEHIND = 50
SOON_S = 0.05


class ChoosyBroker:
    """Confirms every message, but ends the connection over those that ``hates`` names.

    ``takes_one_more``: if another message came with it, that is confirmed before. ``is_away``: so is the broker then for a
    moment, and a proxy before it takes the next connection and ends it at once.
    """

    def __init__(
        self, fake: FakeBroker, hates: set[bytes], keeps_session: bool, takes_one_more: bool = False, is_away: bool = False
    ) -> None:
        self._fake = fake
        self._hates = hates
        self._keeps_session = keeps_session
        self._takes_one_more = takes_one_more
        self._is_away = is_away
        self.taken: list[bytes] = []
        self.connections = 0

    async def _serve(self, peer: BrokerConnection) -> None:
        await peer.accept(session_present=self._keeps_session and self.connections > 1)
        while True:
            packet = await peer.next_packet()
            if isinstance(packet, mqtt5.PublishPacket):
                if packet.payload in self._hates:
                    if self._takes_one_more:
                        await self._take_one_more(peer)
                    peer.drop()
                    if self._is_away:
                        (await self._fake.peer()).drop()
                    return
                self.taken.append(packet.payload)
                peer.write(mqtt5.PubAckPacket(packet.packet_id or 0))

    async def _take_one_more(self, peer: BrokerConnection) -> None:
        try:
            async with asyncio.timeout(SOON_S):
                packet = await peer.next(mqtt5.PublishPacket)
        except TimeoutError:
            return
        self.taken.append(packet.payload)
        peer.write(mqtt5.PubAckPacket(packet.packet_id or 0))

    async def _serve_all(self) -> None:
        while True:
            peer = await self._fake.peer()
            self.connections += 1
            await self._serve(peer)

    def serving(self) -> AbstractAsyncContextManager[None]:
        return meanwhile(self._serve_all())


def searching(fake: FakeBroker, least_s: float = 0.05) -> Endpoint:
    """An endpoint whose connections have to stand for ``least_s`` before a suspect is sent."""
    endpoint = Endpoint(fake.url, connect_timeout_s=0.2)  # it looks four times in that time whether a connection stands
    endpoint.transport._link.session.search.least_s = least_s
    return endpoint


async def connection(fake: FakeBroker, endpoint: Endpoint, number: int, *texts: str) -> BrokerConnection:
    """The broker's side of a connection. On the first one, whose number is 0, the messages are submitted."""
    peer = await fake.peer()
    await peer.accept(session_present=number > 0)
    await endpoint.up()
    if not number:
        endpoint.submit([message(text) for text in texts])
    return peer


@pytest.mark.parametrize("first", [0, 3], ids=["at once", "behind others"])
async def test_the_message_fails_and_those_behind_it_arrive_in_order(fake: FakeBroker, first: int) -> None:
    endpoint, broker = searching(fake), ChoosyBroker(fake, {b"bad"}, keeps_session=True)
    others = [str(number).encode() for number in range(BEHIND)]
    async with broker.serving(), endpoint.running():
        await endpoint.up()
        texts = [*others[:first], b"bad", *others[first:]]
        endpoint.submit([message(text.decode()) for text in texts])
        await until(lambda: len(endpoint.confirmed) == BEHIND, "all others")
    assert endpoint.confirmed == others
    assert list(dict.fromkeys(broker.taken)) == others
    ((payload, error),) = endpoint.refused
    assert payload == b"bad"
    assert isinstance(error, PermanentError)
    assert error.code is UCode.INTERNAL
    assert "ends the connection" in error.message


async def test_two_such_messages_fail_one_after_the_other(fake: FakeBroker) -> None:
    endpoint, broker = searching(fake), ChoosyBroker(fake, {b"bad", b"worse"}, keeps_session=True)
    async with broker.serving(), endpoint.running():
        await endpoint.up()
        endpoint.submit([message(text) for text in ("bad", "a", "worse", "b")])
        await until(lambda: len(endpoint.confirmed) == 2, "the good ones")
    assert [payload for payload, _ in endpoint.refused] == [b"bad", b"worse"]
    assert endpoint.confirmed == [b"a", b"b"]


def told_more_than(endpoint: Endpoint, results: int) -> bool:
    return len(endpoint.told) > results


@pytest.mark.parametrize("is_away", [False, True], ids=["there again at once", "away for a moment"])
@pytest.mark.parametrize("is_urgent", [False, True], ids=["behind it", "before it"])
async def test_what_is_confirmed_meanwhile_does_not_hide_it(fake: FakeBroker, is_urgent: bool, is_away: bool) -> None:
    """Each connection is good for something: without a session all is sent anew, and what is urgent first; and a broker may
    work on several messages at a time.
    """
    broker = ChoosyBroker(fake, {b"bad"}, keeps_session=not is_urgent, takes_one_more=True, is_away=is_away)
    endpoint = searching(fake)
    async with broker.serving(), endpoint.running():
        await endpoint.up()
        messages = {b"bad": message("bad")}
        waiting, lost = [b"bad"], 0
        for number in range(50):
            text = str(number)
            messages[text.encode()] = message(text)
            waiting.insert(0 if is_urgent else len(waiting), text.encode())
            endpoint.submit([messages[payload] for payload in waiting])
            waiting.clear()
            await until(partial(told_more_than, endpoint, len(endpoint.told)), "a result")
            if failed := [payload for payload, error in endpoint.refused if isinstance(error, PermanentError)]:
                break
            await endpoint.up()
            waiting += [payload or b"" for payload, _ in endpoint.refused[lost:]]
            lost = len(endpoint.refused)
    assert failed == [b"bad"]


async def test_connections_that_end_whatever_is_sent_cost_no_message(fake: FakeBroker) -> None:
    endpoint = searching(fake, least_s=60)  # none of them stands for so long
    async with endpoint.running():
        for number in range(12):
            peer = await connection(fake, endpoint, number, "a", "b")
            if number % 4 < 3:
                assert (await peer.next(mqtt5.PublishPacket)).payload == b"a"
            else:
                assert endpoint.transport.capacity == 1
            peer.drop()
            await until(lambda: not endpoint.is_up, "the end of the connection")
        broker = ChoosyBroker(fake, set(), keeps_session=True)
        broker.connections = 1
        async with broker.serving():
            await until(lambda: len(endpoint.confirmed) == 2, "both")
    assert endpoint.refused == []


@pytest.mark.parametrize(
    ("reason", "suspects"),
    [
        (mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE, 1),
        (mqtt5.DisconnectReasonCode.NOT_AUTHORIZED, 1),
        (mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN, 0),
        (mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER, 0),
    ],
)
async def test_a_broker_that_says_why_is_believed(
    fake: FakeBroker, reason: mqtt5.DisconnectReasonCode, suspects: int
) -> None:
    endpoint = searching(fake)
    async with endpoint.running():
        for number in range(3):
            peer = await connection(fake, endpoint, number, "a")
            await peer.next(mqtt5.PublishPacket)
            peer.write(mqtt5.DisconnectPacket(reason_code=reason))
            await peer.closed()
        assert endpoint.transport._link.session.search.suspects == suspects


async def test_a_connection_that_was_not_accepted_acquits_nobody(fake: FakeBroker) -> None:
    endpoint = searching(fake, least_s=60)
    async with endpoint.running():
        for number in range(3):
            peer = await connection(fake, endpoint, number, "a")
            await peer.next(mqtt5.PublishPacket)
            peer.drop()
            await until(lambda: not endpoint.is_up, "the end of the connection")
        peer = await fake.peer()
        await peer.accept(session_present=True)
        await endpoint.up()
        peer.write(mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN))
        await peer.closed()
        (await fake.peer()).drop()
        await fake.peer()
        assert endpoint.transport._link.session.search.suspects == 1


async def test_a_confirmation_that_does_not_come_makes_no_suspects(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, ack_timeout_s=0.1)
    async with endpoint.running():
        for number in range(5):
            peer = await connection(fake, endpoint, number, "a")
            assert endpoint.transport.capacity > 1
            await peer.next(mqtt5.PublishPacket)
            await until(lambda: not endpoint.is_up, "the end of the connection")
        assert endpoint.refused == []
