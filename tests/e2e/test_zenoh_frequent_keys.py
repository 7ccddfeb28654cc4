"""Keys that are declared where their samples arrive, with real eclipse-zenoh sessions."""

import asyncio
from collections.abc import Sequence

import zenoh

from streamer.transports.zenoh.transport import ZenohTransport
from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.uri import UUri
from tests.listeners import RecordingListener
from tests.waiting import until
from tests.zenoh_peers import ANYTHING, free_endpoint, now_ms, opened, put, put_all, raw_peer, running, until_matched

CHUNK = 2000
CHUNKS_AT_MOST = 200  # only then it is certain that keys will never be declared


def topics(authority: str) -> list[UUri]:
    return [UUri(authority, 0xA, 1, 0x8000 + number) for number in range(4)]


def keys_of(topics: Sequence[UUri]) -> set[str]:
    return {key_for(publish(now_ms(), topic).attributes, "") for topic in topics}


class Sender:
    """Messages of several topics in turn."""

    def __init__(self, peer: zenoh.Session, transport: ZenohTransport, inbox: RecordingListener) -> None:
        self.peer, self.transport, self.inbox = peer, transport, inbox
        self.sent: list[UMessage] = []

    @property
    def declared(self) -> set[str]:
        frequent = opened(self.transport).intake._frequent
        assert frequent is not None
        return set(map(str, frequent._declared))

    async def send(self, topics: Sequence[UUri]) -> None:
        """A chunk of messages, and wait until as many have come."""
        chunk = [publish(now_ms(), topics[n % len(topics)], b"%d" % n) for n in range(CHUNK)]
        self.sent += chunk
        await asyncio.to_thread(put_all, self.peer, chunk)
        await until(lambda: len(self.inbox.messages) >= len(self.sent), "the messages", 30)

    async def until_declared(self, topics: Sequence[UUri]) -> None:
        """Send until the keys of these topics are declared."""
        for _ in range(CHUNKS_AT_MOST):
            if self.declared >= keys_of(topics):
                return
            await self.send(topics)
        raise AssertionError(f"{self.declared} are declared, and not {keys_of(topics)}")


async def test_nothing_is_lost_or_out_of_order_while_keys_are_declared() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        inbox = RecordingListener()
        await transport.register_listener(ANYTHING, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, next(iter(keys_of(topics("veh1")))))
            sender = Sender(peer, transport, inbox)
            for authority in ("veh1", "veh2"):
                await sender.until_declared(topics(authority))
                await sender.send(topics(authority))
        assert inbox.messages == sender.sent


async def test_who_listens_later_to_a_declared_key_gets_its_messages() -> None:
    """Zenoh remembers who gets the samples on a declared key: a subscription that comes or goes must change that."""
    endpoint = free_endpoint()
    wanted = topics("veh1")
    async with running(listen=[endpoint]) as transport:
        inbox = RecordingListener()
        await transport.register_listener(ANYTHING, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, next(iter(keys_of(wanted))))
            sender = Sender(peer, transport, inbox)
            await sender.until_declared(wanted)

            late = RecordingListener()
            await transport.register_listener(wanted[0], None, late)
            await transport.unregister_listener(ANYTHING, None, inbox)
            again = RecordingListener()
            await transport.register_listener(ANYTHING, None, again)
            message = publish(now_ms(), wanted[0], b"after")
            last = publish(now_ms(), wanted[1], b"last")

            async def heard() -> None:
                while not (late.messages and again.messages):  # the subscriptions spread
                    put(peer, message)
                    put(peer, last)
                    await asyncio.sleep(0.02)

            await asyncio.wait_for(heard(), 15)
        assert set(late.messages) == {message}
        assert set(again.messages) <= {message, last}
        assert inbox.messages == sender.sent
