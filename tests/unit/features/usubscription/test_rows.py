"""The tables of the service: what is written is read as it was."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamer.features.host.state import StateFile
from streamer.features.usubscription import rows
from streamer.features.usubscription.entries import Change, Observer, SubscribeAttributes, Subscription, SubscriptionState
from streamer.features.usubscription.remote_topic import OpenCommand, RemoteTopic
from streamer.uprotocol.message import notification
from streamer.uprotocol.protobuf import message_to_proto
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.clock import START_MS
from tests.hosted import StateOn

SPEED, DOORS = UUri("veh1", 0xA, 1, 0x8000), UUri("veh1", 0xA, 1, 0x8001)
APP, PHONE = UUri("cloud", 0xC, 1, 0), UUri("phone1", 0xC, 1, 0)
FULL = SubscribeAttributes(expire_ms=START_MS, sample_period_ms=100, details=b"\x7a\x07details")
SUBSCRIPTIONS = [
    Subscription(1, SPEED, APP, "veh1", SubscriptionState.SUBSCRIBED, SubscribeAttributes()),
    Subscription(5, DOORS, PHONE, "gateway", SubscriptionState.UNSUBSCRIBE_PENDING, FULL),
    Subscription(6, DOORS, APP, "gateway", SubscriptionState.SUBSCRIBED, FULL, version=4),
]
OBSERVERS = [Observer(2, SPEED, PHONE, "veh1"), Observer(4, DOORS, APP, "gateway"), Observer(7, None, APP, "veh1")]


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[StateFile]:
    file = StateOn(tmp_path / "state.db", rows.TABLES)
    file.open()
    yield file
    file.close()


def remote_topic() -> RemoteTopic:
    remote = RemoteTopic(
        SPEED,
        5000,
        wanted=True,
        state=SubscriptionState.SUBSCRIBE_PENDING,
        is_confirmed=False,
        epoch=3,
        period_ms=100,
        answered_ms=START_MS,
    )
    for number in range(2):
        command = OpenCommand(new_id(START_MS), bool(number), number, START_MS + number)
        remote.open_commands[command.id] = command
    return remote


async def test_entries_are_read_as_they_were_written_in_the_order_of_their_numbers(file: StateFile) -> None:
    change = Change(
        subscriptions={entry.number: entry for entry in reversed(SUBSCRIPTIONS)},
        observers={observer.number: observer for observer in reversed(OBSERVERS)},
    )
    await file.write(rows.statements(change, lambda topic: None))
    assert rows.subscriptions(file) == SUBSCRIPTIONS
    assert rows.observers(file) == OBSERVERS


async def test_an_entry_that_is_none_is_deleted_and_one_that_changed_is_replaced(file: StateFile) -> None:
    first, second, _ = SUBSCRIPTIONS
    await file.write(rows.statements(Change(subscriptions={1: first, 5: second}), lambda topic: None))
    changed = Subscription(5, DOORS, PHONE, "gateway", SubscriptionState.SUBSCRIBED, SubscribeAttributes())
    await file.write(rows.statements(Change(subscriptions={1: None, 5: changed}), lambda topic: None))
    assert rows.subscriptions(file) == [changed]


async def test_the_version_of_a_subscriber_ends_with_its_subscription(file: StateFile) -> None:
    *_, newer = SUBSCRIPTIONS
    await file.write(rows.statements(Change(subscriptions={6: newer}), lambda topic: None))
    await file.write(rows.statements(Change(subscriptions={6: replace(newer, version=3)}), lambda topic: None))
    assert [entry.version for entry in rows.subscriptions(file)] == [3]
    await file.write(rows.statements(Change(subscriptions={6: newer}), lambda topic: None))
    await file.write(rows.statements(Change(subscriptions={6: None}), lambda topic: None))
    await file.write(rows.statements(Change(subscriptions={6: replace(newer, version=3)}), lambda topic: None))
    assert [entry.version for entry in rows.subscriptions(file)] == [3]


async def test_a_version_that_a_later_release_has_written_becomes_the_oldest(file: StateFile) -> None:
    *_, newer = SUBSCRIPTIONS
    await file.write(rows.statements(Change(subscriptions={6: replace(newer, version=5)}), lambda topic: None))
    assert [entry.version for entry in rows.subscriptions(file)] == [3]


async def test_a_remote_topic_is_read_with_the_commands_that_may_still_arrive(file: StateFile) -> None:
    remote = remote_topic()
    await file.write(rows.statements(Change(remotes={SPEED}), lambda topic: remote))
    (found,) = rows.remotes(file, 5000)
    asked = ("topic", "timeout_ms", "wanted", "state", "is_confirmed", "epoch", "period_ms", "answered_ms", "open_commands")
    assert [getattr(found, name) for name in asked] == [getattr(remote, name) for name in asked]


async def test_a_remote_topic_that_is_no_longer_known_is_deleted(file: StateFile) -> None:
    await file.write(rows.statements(Change(remotes={SPEED}), lambda topic: remote_topic()))
    await file.write(rows.statements(Change(remotes={SPEED, DOORS}), lambda topic: None))
    assert rows.remotes(file, 5000) == []


async def test_a_flush_deletes_what_was_there_and_not_what_comes_with_it(file: StateFile) -> None:
    await file.write(
        rows.statements(Change(subscriptions={1: SUBSCRIPTIONS[0]}, remotes={SPEED}), lambda topic: remote_topic())
    )
    await file.write(rows.statements(Change(is_flushed=True, subscriptions={5: SUBSCRIPTIONS[1]}), lambda topic: None))
    assert rows.subscriptions(file) == [SUBSCRIPTIONS[1]]
    assert rows.remotes(file, 5000) == []


async def test_messages_stay_in_the_outbox_in_their_order_until_they_are_deleted(file: StateFile) -> None:
    sent = [notification(START_MS, SPEED, APP, b"%d" % number) for number in range(3)]
    packed = [message_to_proto(message).SerializeToString() for message in sent]
    await file.write([rows.keep_message(number, packed[number]) for number in (2, 0, 1)])
    await file.write([rows.delete_message(1)])
    assert rows.outbox(file) == [(0, sent[0]), (2, sent[2])]
