"""Services elsewhere are asked in the newest version that they answer."""

from pathlib import Path

import pytest

from streamer.features.usubscription.remote_topics import RemoteTopics
from streamer.features.usubscription.remote_version import MAX_SERVICES, PATIENCE_MS, TRY_NEWEST_MS, RemoteVersions
from streamer.uprotocol.message import UMessage, UPayloadFormat, notification, response
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.well_known import USUBSCRIPTION, USUBSCRIPTION_4
from tests.unit.features.usubscription.harness import (
    APP,
    PLAIN,
    REMOTE,
    REMOTE2,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    TIMEOUT_MS,
    UNSUBSCRIBED,
    US,
    UsubscriptionHarness,
    method_of,
    version_of,
)


class Unknown(UsubscriptionHarness):
    """Nothing is known of the other services. ``versions``: those in which the one at dev2 answers."""

    known = ()
    versions: tuple[int, ...] = (3, 4)

    def asked(self) -> list[tuple[int, int]]:
        """Method and version of every Request to other services."""
        return [(method_of(each), version_of(each)) for each in self.commands(any_version=True)]

    async def serve(self, code: UCode | None = None) -> None:
        """Answer every Request in a version that the service has, and (``code``) refuse the others; forget them."""
        for command in self.commands(any_version=True):
            self.core.said.remove(command)
            if version_of(command) in self.versions:
                await self.grant(command)
            elif code is not None:
                await self.failed(command, code)

    async def grant(self, command: UMessage) -> None:
        if version_of(command) == 3 or method_of(command) == 2:
            await self.answered(command, SUBSCRIBED if method_of(command) == 1 else None)
            return
        proto = pb.SubscribeResponse(topic=uri_to_proto(REMOTE), status=pb.STATUS_SUBSCRIBED)
        payload = proto.SerializeToString()
        await self.send(response(self.clock.ms, command, payload, None, UPayloadFormat.PROTOBUF))


@pytest.fixture
def harness(tmp_path: Path) -> Unknown:
    return Unknown(tmp_path / "state.db")


async def test_an_unknown_service_is_asked_in_the_newest_version_which_it_keeps(harness: Unknown) -> None:
    await harness.subscribe(REMOTE)
    assert harness.asked() == [(1, 4)]
    await harness.serve()
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.pass_ms(PATIENCE_MS)
    await harness.unsubscribe(REMOTE)
    assert harness.asked() == [(2, 4)]


async def test_a_service_that_has_only_version_3_is_asked_in_it_after_a_short_silence(harness: Unknown) -> None:
    harness.versions = (3,)
    await harness.subscribe(REMOTE)
    await harness.pass_ms(PATIENCE_MS - 1)
    assert harness.asked() == [(1, 4)]
    await harness.pass_ms(1)
    assert harness.asked() == [(1, 4), (1, 3)]
    await harness.serve()
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.subscribe(REMOTE2)
    assert harness.asked() == [(1, 3)]
    await harness.serve()
    await harness.pass_ms(TIMEOUT_MS // 2)
    assert harness.asked() == []


@pytest.mark.parametrize(
    "code",
    [UCode.UNIMPLEMENTED, UCode.NOT_FOUND, UCode.UNAVAILABLE, UCode.DEADLINE_EXCEEDED, UCode.PERMISSION_DENIED],
    ids=lambda code: code.name,
)
async def test_a_version_that_is_refused_is_followed_by_the_other_at_once(harness: Unknown, code: UCode) -> None:
    harness.versions = (3,)
    await harness.subscribe(REMOTE)
    await harness.serve(code)
    assert harness.asked() == [(1, 3)]
    await harness.serve()
    assert harness.states(APP) == [SUBSCRIBE_PENDING, SUBSCRIBED]


async def test_a_refusal_in_one_version_counts_if_the_other_is_silent(harness: Unknown) -> None:
    await harness.subscribe(REMOTE)
    [first] = harness.commands(any_version=True)
    await _refuse(harness, first, UCode.PERMISSION_DENIED)
    assert harness.states(APP) == [SUBSCRIBE_PENDING]
    await harness.pass_ms(TIMEOUT_MS)
    assert harness.states(APP) == [SUBSCRIBE_PENDING, UNSUBSCRIBED]


async def test_a_refusal_counts_at_once_if_the_newer_version_has_been_silent(harness: Unknown) -> None:
    await harness.subscribe(REMOTE)
    await harness.pass_ms(PATIENCE_MS)
    [_, second] = harness.commands(any_version=True)
    await _refuse(harness, second, UCode.PERMISSION_DENIED)
    assert harness.states(APP) == [SUBSCRIBE_PENDING, UNSUBSCRIBED]


async def test_a_command_that_no_version_answers_is_repeated_in_both(harness: Unknown) -> None:
    harness.versions = ()
    await harness.subscribe(REMOTE)
    for _ in range(3):
        await harness.pass_ms(PATIENCE_MS)
        assert harness.asked() == [(1, 4), (1, 3)]
        harness.forget()
        await harness.pass_ms(TIMEOUT_MS)
    harness.versions = (3, 4)
    await harness.serve()
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}


async def test_a_late_answer_in_the_newer_version_counts_and_is_remembered(harness: Unknown) -> None:
    await harness.subscribe(REMOTE)
    await harness.pass_ms(PATIENCE_MS)
    [newer, older] = harness.commands(any_version=True)
    await harness.grant(older)
    await harness.grant(newer)
    harness.forget()
    await harness.subscribe(REMOTE2)
    assert harness.asked() == [(1, 4)]


async def test_a_service_that_was_upgraded_is_found_again(harness: Unknown) -> None:
    harness.versions = (3,)
    await harness.subscribe(REMOTE)
    await harness.serve(UCode.UNIMPLEMENTED)
    await harness.serve()
    harness.versions = (4,)
    await harness.pass_ms(TRY_NEWEST_MS)
    await harness.serve()
    harness.forget()
    await harness.subscribe(REMOTE2)
    assert harness.asked() == [(1, 4)]
    await harness.serve()
    assert await harness.subscribers(REMOTE2) == {APP: SUBSCRIBED}


@pytest.mark.parametrize("code", [None, UCode.UNIMPLEMENTED, UCode.UNAVAILABLE])
async def test_a_service_that_lost_its_newer_version_is_found_again(harness: Unknown, code: UCode | None) -> None:
    await harness.subscribe(REMOTE)
    await harness.serve()
    harness.versions = (3,)
    await harness.subscribe(REMOTE2)
    await harness.serve(code)
    await harness.pass_ms(TIMEOUT_MS)
    await harness.serve(code)
    await harness.pass_ms(PATIENCE_MS)
    await harness.serve(code)
    assert await harness.subscribers(REMOTE2) == {APP: SUBSCRIBED}


async def test_after_a_restart_the_version_is_found_out_again(harness: Unknown) -> None:
    harness.versions = (3,)
    await harness.subscribe(REMOTE)
    await harness.serve(UCode.UNIMPLEMENTED)
    await harness.serve()
    await harness.restart()
    assert harness.asked() == []
    await harness.unsubscribe(REMOTE)
    assert harness.asked() == [(2, 4)]
    await harness.serve(UCode.UNIMPLEMENTED)
    assert harness.asked() == [(2, 3)]
    await harness.serve()
    assert harness.states(APP)[-1] is UNSUBSCRIBED


async def test_reset_unsubscribes_in_every_version_that_is_in_question(harness: Unknown) -> None:
    await harness.subscribe(REMOTE)
    await harness.serve()
    await harness.subscribe(REMOTE.__class__("dev9", *REMOTE[1:]))
    harness.forget()
    await harness.call(9, None, USUBSCRIPTION.at("dev1"))
    assert sorted(str(each.attributes.sink) for each in harness.commands(any_version=True)) == [
        "//dev2/0/4/2",
        "//dev9/0/3/2",
        "//dev9/0/4/2",
    ]


@pytest.mark.parametrize("version", [3, 4])
async def test_changes_are_followed_in_either_version(harness: Unknown, version: int) -> None:
    await harness.subscribe(REMOTE)
    await harness.serve()
    await harness.pass_ms(1)
    if version == 3:
        await harness.update_received(REMOTE, UNSUBSCRIBED)
    else:
        await _told(harness, pb.STATUS_UNSUBSCRIBED)
    assert harness.states(APP)[-1] is UNSUBSCRIBED


async def test_a_change_without_a_status_says_nothing(harness: Unknown) -> None:
    await harness.subscribe(REMOTE)
    await harness.serve()
    await harness.pass_ms(1)
    await _told(harness, pb.STATUS_UNSPECIFIED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}


def test_what_is_known_of_services_is_bounded() -> None:
    versions = RemoteVersions()
    for number in range(MAX_SERVICES + 10):
        versions.learn(f"dev{number}", 3, 0)
    assert len(versions._known) == MAX_SERVICES
    assert versions.order("dev0", 0) == (4, 3)
    assert versions.order(f"dev{MAX_SERVICES}", 0) == (3, 4)


async def _refuse(harness: Unknown, command: UMessage, code: UCode) -> None:
    await harness.send(response(harness.clock.ms, command, b"", code, UPayloadFormat.PROTOBUF))


async def _told(harness: Unknown, status: pb.SubscriptionStatus) -> None:
    proto = pb.Subscription(topic=uri_to_proto(REMOTE), subscriber=uri_to_proto(US), status=status)
    source = USUBSCRIPTION_4.at("dev2", 0x8000)
    await harness.send(notification(harness.clock.ms, source, US, proto.SerializeToString(), PLAIN))


async def test_an_answer_that_is_not_understood_does_not_tell_the_version(harness: Unknown) -> None:
    await harness.subscribe(REMOTE)
    [first] = harness.commands(any_version=True)
    await harness.send(response(harness.clock.ms, first, b"\xff", None, UPayloadFormat.PROTOBUF))
    assert harness.asked() == [(1, 4), (1, 3)]
    harness.versions = (3,)
    await harness.serve()
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.subscribe(REMOTE2)
    assert harness.asked() == [(1, 3)]


async def test_a_service_that_has_lost_a_version_is_asked_in_the_other_from_then_on(harness: Unknown) -> None:
    await harness.subscribe(REMOTE)
    await harness.serve()
    harness.versions = (3,)
    await harness.subscribe(REMOTE2)
    await harness.serve(UCode.UNIMPLEMENTED)
    assert harness.asked() == [(1, 3)]
    await harness.serve()
    await harness.unsubscribe(REMOTE2)
    assert harness.asked() == [(2, 3)]


def test_what_was_open_at_a_flush_is_kept_until_it_has_ended_in_every_version() -> None:
    topics = RemoteTopics()
    topics.versions.learn("dev2", 3, 0)
    topics.versions.mark_unsure("dev2")
    topics.changed(topics.open(0, REMOTE, 3_600_000))
    topics.open(0, REMOTE, 3_600_000).subscribe(0, 0)
    [older, newer] = topics.flush(0)
    assert (older.version, newer.version) == (3, 4)
    topics.flush(newer.ttl_ms)
    assert older.id in topics.open(newer.ttl_ms, REMOTE, 3_600_000).open_commands
