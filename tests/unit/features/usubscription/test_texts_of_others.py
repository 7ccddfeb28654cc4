"""What the service of a remote topic says about it is passed on to every subscriber: no more than is sensible."""

import pytest
from google.protobuf.message import Message

from streamer.features.usubscription import rows, v3, wire
from streamer.features.usubscription.entries import Update
from streamer.uprotocol.message import UMessage, UMessageType, UPayloadFormat, notification, response
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import status_to_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION
from tests.unit.features.usubscription.harness import (
    APP,
    PLAIN,
    REMOTE,
    SUBSCRIBED,
    UNSUBSCRIBED,
    US,
    UsubscriptionHarness,
    status,
)

APPS = [APP._replace(ue_id=0x100 + number) for number in range(10)]
REFUSAL = status_to_proto(UCode.PERMISSION_DENIED, "é" * 1500)
PROTOS: dict[str, tuple[Message, UCode | None]] = {
    "a failure": (REFUSAL, UCode.PERMISSION_DENIED),
    "a response": (pb.SubscriptionResponse(status=status(UNSUBSCRIBED, "é" * 1500)), None),
}


async def asked(harness: UsubscriptionHarness) -> UMessage:
    """The command to the other service, of which all apps wait for the answer."""
    for app in APPS:
        await harness.subscribe(REMOTE, app)
    (command,) = harness.commands(v3.SUBSCRIBE)
    harness.forget()
    return command


def told(harness: UsubscriptionHarness) -> list[tuple[UUri | None, str]]:
    """Who was told what about the end of its subscription."""
    updates = [each for each in harness.messages(UMessageType.NOTIFICATION) if each.attributes.source.version == 3]
    return [(each.attributes.sink, wire.read(each, pb.Update).status.message) for each in updates]


@pytest.mark.parametrize(("proto", "code"), PROTOS.values(), ids=PROTOS)
async def test_a_long_text_in_an_answer_is_cut_before_it_is_kept_for_each_subscriber(
    harness: UsubscriptionHarness, proto: Message, code: UCode | None
) -> None:
    command = await asked(harness)
    harness.core.is_safe = False
    payload = proto.SerializeToString()
    await harness.send(response(harness.clock.ms, command, payload, code, UPayloadFormat.PROTOBUF))
    assert told(harness) == [(app, "é" * wire.MAX_TEXT) for app in APPS]
    kept = [message for _, message in rows.outbox(harness.state) if message.attributes.source.version == 3]
    assert max(len(message.payload or b"") for message in kept) < 1024


async def test_a_long_text_in_an_update_is_cut(harness: UsubscriptionHarness) -> None:
    await harness.answered(await asked(harness), SUBSCRIBED)
    harness.forget()
    harness.clock.advance(1)
    us = pb.SubscriberInfo(uri=uri_to_proto(US))
    proto = pb.Update(topic=uri_to_proto(REMOTE), subscriber=us, status=status(UNSUBSCRIBED, "x" * 3000))
    source = USUBSCRIPTION.at("dev2", CHANGES)
    await harness.send(notification(harness.clock.ms, source, US, proto.SerializeToString(), PLAIN))
    assert told(harness) == [(app, "x" * wire.MAX_TEXT) for app in APPS]


async def test_one_turn_makes_no_more_updates_than_the_outbox_may_keep(
    harness: UsubscriptionHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command = await asked(harness)
    harness.service._outbox.max_bytes = 3500
    made, make = [], v3.update_message

    def counted(now_ms: int, update: Update) -> UMessage:
        made.append(update)
        return make(now_ms, update)

    monkeypatch.setattr(v3, "update_message", counted)
    payload = REFUSAL.SerializeToString()
    await harness.send(response(harness.clock.ms, command, payload, UCode.PERMISSION_DENIED, UPayloadFormat.PROTOBUF))
    assert [sink for sink, _ in told(harness)] == APPS[:3]
    assert len(made) == 3
    assert "usubscription_updates_given_up" in caplog.text
    assert await harness.subscribers(REMOTE) == {}


async def test_what_ends_the_subscriptions_elsewhere_is_kept_even_if_there_is_no_room_for_updates(
    harness: UsubscriptionHarness,
) -> None:
    await harness.answered(await asked(harness), SUBSCRIBED)
    harness.forget()
    harness.service._outbox.max_bytes = 1
    await harness.call(v3.RESET, pb.ResetRequest(), UUri.parse("//dev1/0/3/0"))
    assert len(harness.commands(v3.UNSUBSCRIBE)) == 1
    assert len(told(harness)) == 1
