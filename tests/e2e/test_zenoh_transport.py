"""Messages through the Zenoh transport, with real eclipse-zenoh sessions on the other side."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import zenoh

from streamer.transports.base import UNCONFIRMED, MessageParcel
from streamer.transports.errors import Malformed
from streamer.transports.zenoh.intake import MAX_THREADS
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.transports.zenoh.wire import encode_attachment, key_for
from streamer.uprotocol.message import Options, UMessage, UPriority, notification, publish, request, response
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import ANY_RESOURCE, UUri, everything_at
from tests.listeners import RecordingListener
from tests.transport_events import EventLog
from tests.waiting import until
from tests.zenoh_peers import (
    ANYTHING,
    ENTITY,
    LATE_S,
    METHOD,
    TOPIC,
    Outcomes,
    RawSubscriber,
    free_endpoint,
    now_ms,
    put,
    put_all,
    raw_peer,
    running,
    until_heard,
    until_matched,
    until_up,
)


def all_four() -> list[UMessage]:
    asked = request(now_ms(), ENTITY, METHOD, 5000, b"ask", Options(token="secret", permission_level=3))
    return [
        publish(now_ms(), TOPIC, b"news", Options(priority=UPriority.CS2, ttl=70_001)),
        notification(now_ms(), TOPIC, ENTITY, b"note", Options(traceparent=f"00-{'1' * 32}-{'2' * 16}-01")),
        asked,
        response(now_ms(), asked, b"answer", UCode.NOT_FOUND),
    ]


# -- receiving


async def test_all_types_arrive_as_they_were_sent() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        inbox = RecordingListener()
        await transport.register_listener(ANYTHING, None, inbox)
        await transport.register_listener(ANYTHING, ANYTHING, inbox)
        sent = all_four()
        with raw_peer(connect=[endpoint]) as peer:
            for message in sent:
                await until_matched(peer, key_for(message.attributes, ""))
                put(peer, message)
            await until(lambda: len(inbox.messages) >= 4, "four messages")
        assert sorted(inbox.messages, key=lambda message: message.id) == sorted(sent, key=lambda message: message.id)


async def test_overlapping_filters_deliver_each_message_once() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        broad, narrow, other = RecordingListener(), RecordingListener(), RecordingListener()
        await transport.register_listener(ANYTHING, ANYTHING, other)
        await transport.register_listener(ANYTHING, None, broad)
        await transport.register_listener(TOPIC, None, narrow)
        await transport.register_listener(TOPIC, None, broad)
        sent = [publish(now_ms(), TOPIC, b"%d" % n) for n in range(500)]
        last = notification(now_ms(), TOPIC, ENTITY)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(sent[0].attributes, ""))
            put_all(peer, (*sent, last))
            await until(lambda: other.messages and len(broad.messages) >= 500, "all messages")
        assert broad.messages == sent
        assert narrow.messages == sent
        assert other.messages == [last]


async def test_closing_a_filter_loses_nothing_for_those_that_overlap() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        first, second = RecordingListener(), RecordingListener()
        await transport.register_listener(ANYTHING, None, first)
        await transport.register_listener(TOPIC, None, second)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(publish(now_ms(), TOPIC).attributes, ""))
            sent = [publish(now_ms(), TOPIC, b"%d" % n) for n in range(2000)]
            put_all(peer, sent[:1000])
            await until(lambda: first.messages, "the first message")
            await transport.unregister_listener(ANYTHING, None, first)
            heard = len(first.messages)
            put_all(peer, sent[1000:])
            await until(lambda: {m.id for m in second.messages} == {m.id for m in sent}, "all messages")
            assert len(first.messages) == heard


async def test_a_put_on_a_key_with_wildcards_is_malformed_as_often_as_it_arrives() -> None:
    endpoint, events = free_endpoint(), EventLog()
    topics = [TOPIC._replace(resource=0x9000 + number) for number in range(MAX_THREADS + 8)]
    async with running(events, listen=[endpoint]) as transport:
        inbox = RecordingListener()
        for topic in topics:
            await transport.register_listener(topic, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            messages = [publish(now_ms(), topic, b"x") for topic in topics]
            for message in messages:
                await until_matched(peer, key_for(message.attributes, ""))
            peer.put("up/**", b"x", attachment=encode_attachment(messages[0]))
            await until(lambda: len(events.malformed) == len(topics), "every copy")
            put(peer, messages[-1])
            await until(lambda: inbox.messages, "a message")
    assert {error.reason for error in events.malformed} == {Malformed.ADDRESS}
    assert (inbox.messages, events.packets) == ([messages[-1]], len(topics) + 1)


async def test_what_deletes_a_key_is_no_message_whatever_is_attached() -> None:
    endpoint, events = free_endpoint(), EventLog()
    messages = [
        publish(now_ms(), TOPIC),
        notification(now_ms(), TOPIC, ENTITY),
        request(now_ms(), ENTITY, METHOD, 1000),
        publish(now_ms(), TOPIC, b"", Options(token="t" * 2000)),  # too large: a part of it is read
    ]
    async with running(events, listen=[endpoint]) as transport:
        inbox = RecordingListener()
        await transport.register_listener(ANYTHING, None, inbox)
        await transport.register_listener(ANYTHING, ANYTHING, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            for message in messages:
                key = key_for(message.attributes, "")
                await until_matched(peer, key)
                peer.delete(key, attachment=encode_attachment(message))
            await until(lambda: events.packets == len(messages), "every sample")
            put(peer, messages[0])
            await until(lambda: inbox.messages, "a message")
    assert [error.reason for error in events.malformed] == [Malformed.KIND] * len(messages)
    assert (inbox.messages, events.turned_away) == ([messages[0]], [])


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"encoding": zenoh.Encoding.APPLICATION_JSON}, id="encoding"),
        pytest.param({"express": True}, id="express"),
        pytest.param({"congestion_control": zenoh.CongestionControl.DROP}, id="congestion control"),
        pytest.param({"timestamp": "of the session"}, id="timestamp"),
    ],
)
async def test_what_says_nothing_about_the_message_changes_nothing(how: dict[str, Any]) -> None:
    endpoint = free_endpoint()
    message = publish(now_ms(), TOPIC, b"x")
    key = key_for(message.attributes, "")
    async with running(listen=[endpoint]) as transport:
        inbox = RecordingListener()
        await transport.register_listener(TOPIC, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key)
            options = {"timestamp": peer.new_timestamp()} if "timestamp" in how else how
            peer.put(key, b"x", attachment=encode_attachment(message), **options)
            await until(lambda: inbox.messages, "the message")
    assert inbox.messages == [message]


async def test_more_topics_than_threads_are_received_alike_and_a_closed_one_makes_room() -> None:
    endpoint = free_endpoint()
    topics = [TOPIC._replace(resource=0x9000 + number) for number in range(MAX_THREADS + 8)]
    async with running(listen=[endpoint]) as transport:
        inbox = RecordingListener()
        with raw_peer(connect=[endpoint]) as peer:

            async def all_arrive(heard: list[UUri]) -> None:
                sent = [publish(now_ms(), topic, b"%d" % number) for number in range(50) for topic in heard]
                for message in sent[: len(heard)]:
                    await until_matched(peer, key_for(message.attributes, ""))
                inbox.clear()
                put_all(peer, sent)
                await until(lambda: len(inbox.messages) >= len(sent), "all messages")
                for topic in heard:
                    assert [m for m in inbox.messages if m.attributes.source == topic] == [
                        m for m in sent if m.attributes.source == topic
                    ]
                assert len(inbox.messages) == len(sent)

            for topic in topics:
                await transport.register_listener(topic, None, inbox)
            await all_arrive(topics)
            for topic in topics[:4]:
                await transport.unregister_listener(topic, None, inbox)
            later = [TOPIC._replace(resource=0xA000 + number) for number in range(8)]
            for topic in later:
                await transport.register_listener(topic, None, inbox)
            await all_arrive(topics[4:] + later)


async def test_what_services_are_asked_needs_no_thread() -> None:
    """A thread that waits for samples wakes up ten times a second. Services are asked too seldom for that."""
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        inbox = RecordingListener()
        ours = METHOD._replace(authority=transport.context.authority)
        before = _receiving_threads()
        await transport.register_listener(ANYTHING, METHOD._replace(resource=ANY_RESOURCE), inbox)
        await transport.register_listener(ANYTHING, everything_at(ours.authority), inbox)
        with raw_peer(connect=[endpoint]) as peer:
            sent = [request(now_ms(), ENTITY, asked, 5000, b"ask") for asked in (METHOD, ours)]
            for message in sent:
                await until_matched(peer, key_for(message.attributes, ""))
                put(peer, message)
            await until(lambda: len(inbox.messages) == len(sent), "both Requests")
            assert _receiving_threads() == before
            await transport.register_listener(ANYTHING, everything_at(ENTITY.authority), inbox)
            await until(lambda: _receiving_threads() == before + 1, "the thread of a filter for all uEntities there")


def _receiving_threads() -> int:
    return sum(thread.name == "zenoh-recv" for thread in threading.enumerate())


async def test_order_is_kept_over_many_messages_in_both_directions() -> None:
    endpoint = free_endpoint()
    count = 20_000
    async with running(listen=[endpoint]) as transport:
        inbox = RecordingListener()
        await transport.register_listener(TOPIC, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(publish(now_ms(), TOPIC).attributes, ""))
            sent = [publish(now_ms(), TOPIC, b"%d" % n) for n in range(count)]
            await asyncio.to_thread(put_all, peer, sent)
            await until(lambda: len(inbox.messages) >= count, "all messages", 30)
            assert inbox.messages == sent

            subscriber, outcomes = RawSubscriber(peer), Outcomes()
            await until_heard(transport, subscriber)
            parcels = [MessageParcel(message) for message in sent]
            for start in range(0, count, 100):
                transport.submit(parcels[start : start + 100], outcomes.done)
                await asyncio.sleep(0)
            await until(lambda: len(outcomes.reported) >= count and len(subscriber.poll()) >= count, "all", 30)
            assert subscriber.messages() == sent
            assert outcomes.reported == [(parcel, UNCONFIRMED) for parcel in parcels]


async def test_foreign_samples_are_reported_and_not_delivered() -> None:
    endpoint, events = free_endpoint(), EventLog()
    async with running(events, listen=[endpoint]) as transport:
        inbox = RecordingListener()
        await transport.register_listener(TOPIC, None, inbox)
        message = publish(now_ms(), TOPIC, b"good")
        key = key_for(message.attributes, "")
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key)
            peer.put(key, b"no attachment")
            peer.put(key, b"other version", attachment=b"\x02")
            put(peer, message)
            await until(lambda: inbox.messages, "the good message")
        assert inbox.messages == [message]
        assert [error.reason for error in events.malformed] == ["marker", "version"]


async def test_paused_transport_delivers_later_and_in_order() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint], receive_buffer=100) as transport:
        inbox = RecordingListener()
        await transport.register_listener(TOPIC, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(publish(now_ms(), TOPIC).attributes, ""))
            transport.set_receiving(False)
            sent = [publish(now_ms(), TOPIC, b"%d" % n) for n in range(1000)]
            put_all(peer, sent)
            assert inbox.messages == []
            transport.set_receiving(True)
            await until(lambda: len(inbox.messages) >= 1000, "all messages")
        assert inbox.messages == sent


async def test_pull_gets_the_earliest_message_and_then_not_found() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        with pytest.raises(UStatusError, match="NOT_FOUND"):
            await transport.receive(TOPIC)
        message = publish(now_ms(), TOPIC, b"pulled")
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(message.attributes, ""))
            put(peer, message)
            pulled: list[UMessage] = []
            deadline = time.monotonic() + LATE_S
            while not pulled and time.monotonic() < deadline:
                try:
                    pulled.append(await transport.receive(TOPIC))
                except UStatusError:
                    await asyncio.sleep(0.005)
        assert pulled == [message]


# -- sending


@asynccontextmanager
async def sending() -> AsyncIterator[tuple[ZenohTransport, RawSubscriber]]:
    """Our transport, and a raw subscriber that receives what it sends."""
    endpoint = free_endpoint()
    async with running(connect=[endpoint]) as transport:
        with raw_peer(listen=[endpoint]) as peer:
            subscriber = RawSubscriber(peer)
            await until_up(transport)
            await until_heard(transport, subscriber)
            yield transport, subscriber


async def test_all_types_are_sent_with_their_attributes() -> None:
    async with sending() as (transport, subscriber):
        sent = all_four()
        for message in sent:
            await transport.send(message)
        await until(lambda: len(subscriber.poll()) >= 4, "four messages")
        assert sorted(subscriber.messages(), key=lambda message: message.id) == sorted(sent, key=lambda message: message.id)
        assert {str(sample.key_expr) for sample in subscriber.samples} == {
            key_for(message.attributes, "") for message in sent
        }


async def test_messages_pass_both_ways_and_nobody_asks_or_can_be_asked() -> None:
    endpoint, inbox, asked = free_endpoint(), RecordingListener(), list[str]()
    async with running(listen=[endpoint]) as transport:
        await transport.register_listener(ANYTHING, ANYTHING, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            peer.declare_queryable("**", lambda query: asked.append(str(query.selector)))
            subscriber = RawSubscriber(peer)
            await until_up(transport)
            await until_heard(transport, subscriber)
            exchanged = all_four()[1:]  # what has a sink
            for message in exchanged:
                await transport.send(message)
                await until_matched(peer, key_for(message.attributes, ""))
                put(peer, message)
            await until(lambda: len(inbox.messages) >= 3 and len(subscriber.poll()) >= 3, "all messages on both sides")
            assert list(peer.get("up/**")) == []
            assert asked == ["up/**"]  # the peer itself


async def test_priority_classes_become_zenoh_priorities() -> None:
    async with sending() as (transport, subscriber):
        for priority in UPriority:
            await transport.send(publish(now_ms(), TOPIC, priority.name.encode(), Options(priority=priority)))
        await until(lambda: len(subscriber.poll()) >= len(UPriority), "one message per class")
    z = zenoh.Priority
    assert {s.payload.to_string(): s.priority for s in subscriber.samples} == {
        "UNSPECIFIED": z.DATA_LOW,
        "CS0": z.BACKGROUND,
        "CS1": z.DATA_LOW,
        "CS2": z.DATA,
        "CS3": z.DATA_HIGH,
        "CS4": z.INTERACTIVE_LOW,
        "CS5": z.INTERACTIVE_HIGH,
        "CS6": z.REAL_TIME,
    }
    assert all(s.congestion_control == zenoh.CongestionControl.BLOCK for s in subscriber.samples)


async def test_publish_goes_without_the_sink_that_a_streamer_set() -> None:
    async with sending() as (transport, subscriber):
        plain = publish(now_ms(), TOPIC, b"x")
        attributes = plain.attributes.__class__(plain.attributes.type, TOPIC, everything_at("cloud"))
        await transport.send(UMessage(plain.id, attributes, b"x"))
        await until(subscriber.poll, "the message")
        assert subscriber.messages() == [plain]


async def test_own_messages_are_not_received() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        inbox = RecordingListener()
        await transport.register_listener(ANYTHING, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            subscriber = RawSubscriber(peer)
            await until_up(transport)
            await until_heard(transport, subscriber)
            message = publish(now_ms(), TOPIC, b"from outside")
            await until_matched(peer, key_for(message.attributes, ""))
            put(peer, message)
            await until(lambda: inbox.messages, "the message from outside")
        assert inbox.messages == [message]
