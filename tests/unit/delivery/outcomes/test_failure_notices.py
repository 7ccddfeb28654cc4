"""Failure notices: which dead letters and error Responses a failure causes, and where and to whom they are sent."""

from dataclasses import replace
from pathlib import Path

import pytest

from streamer.config.models import QueueBounds
from streamer.delivery.custody.custody import Custody
from streamer.delivery.lanes.lane import Delivery
from streamer.delivery.outcomes.failure_notices import FailureNotices, NoticeOptions
from streamer.delivery.seen import SeenIds
from streamer.delivery.stats import RouteStats
from streamer.journal.entries import Letter
from streamer.journal.journal import Journal
from streamer.routing.outcome import NOWHERE, Failure, Outcome, Where
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage, UMessageType, notification, publish, request
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.well_known import LOCAL_ENDPOINT
from tests.clock import START_MS, FakeClock
from tests.unit.delivery.messages import FakeOwner, message, push, queue_policy, route_queue, topic
from tests.unit.journal.harness import BOUNDS

EXPIRED = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL passed")
APP, METHOD = UUri("veh1", 0xA, 1, 0), UUri("fleet", 0xB, 1, 7)
QUESTION = request(START_MS, APP, METHOD, 1000, b"?")


class NoticesHarness:
    """Notices at `vehicle` (veh1), `cloud` (everyone) and the streamer's services, with an optional journal."""

    def __init__(self, endpoints: tuple[str, ...] = ("origin",), journal: Journal | None = None) -> None:
        self.clock = FakeClock()
        self.custody = Custody(lambda after_s, call: None, self.clock, SeenIds(100, 100, 0), journal)
        options = NoticeOptions("gateway", 0x8001, endpoints, QueueBounds(messages=3), queue_policy())
        self.notices = FailureNotices(options, self.custody, self.clock)
        self.owner = FakeOwner()
        self.stats = RouteStats()

    @property
    def letters(self) -> list[Letter]:
        """What the journal will get."""
        return [*self.custody._letters]

    def add(self, name: str, *authorities: str, addressed: bool = False) -> None:
        self.notices.add_endpoint(name, self.owner, authorities, addressed)

    def add_all(self, addressed: bool = False) -> "NoticesHarness":
        self.add("vehicle", "veh1", addressed=addressed)
        self.add("cloud", "*", addressed=addressed)
        self.add(LOCAL_ENDPOINT)
        return self

    def of(self, sent: UMessage, ingress: str = "vehicle", delivery: Delivery | None = None) -> list[tuple[str, UMessage]]:
        """The notices of a failure, each with the name of its queue."""
        queue = None if delivery is None else delivery.lane.queue
        where = NOWHERE if queue is None else Where(queue.name, queue.target)
        found = self.notices.of(Received(sent), ingress, self.stats, EXPIRED, where, delivery)
        return [(queue.name, notice.check()) for queue, notice in found]


def content(letter: UMessage) -> pb.DeadLetter:
    return pb.DeadLetter.FromString(letter.payload or b"")


# where they are sent


def test_a_failure_is_published_where_its_message_came_from() -> None:
    sent = message(payload=b"x")
    ((queue, letter),) = NoticesHarness().add_all().of(sent)
    assert queue == "dead-letter/vehicle"
    assert letter.attributes.source == UUri("gateway", 4, 1, 0x8001)
    assert message_from_proto(content(letter).message) == sent
    assert content(letter).status.message == EXPIRED.text


def test_the_sender_of_a_request_is_answered_before_the_failure_is_published() -> None:
    (queue, answer), (other, _) = NoticesHarness().add_all().of(QUESTION)
    assert (queue, other) == ("rpc-error/vehicle", "dead-letter/vehicle")
    assert (answer.attributes.type, answer.attributes.reqid) == (UMessageType.RESPONSE, QUESTION.id)
    assert answer.attributes.commstatus is UCode.DEADLINE_EXCEEDED


def test_named_endpoints_get_every_failure_once_also_if_one_of_them_is_the_origin() -> None:
    harness = NoticesHarness(("origin", "cloud", "vehicle")).add_all()
    assert [queue for queue, _ in harness.of(message())] == ["dead-letter/vehicle", "dead-letter/cloud"]


def test_without_named_endpoints_nothing_is_published_and_a_request_is_answered_nevertheless() -> None:
    harness = NoticesHarness(()).add_all()
    assert harness.of(message()) == []
    assert [queue for queue, _ in harness.of(QUESTION)] == ["rpc-error/vehicle"]


def test_the_services_of_the_streamer_get_answers_and_no_dead_letters() -> None:
    harness = NoticesHarness().add_all()
    asked = request(START_MS, UUri("gateway", 4, 1, 0), METHOD, 1000)
    assert [queue for queue, _ in harness.of(asked, LOCAL_ENDPOINT)] == [f"rpc-error/{LOCAL_ENDPOINT}"]


def test_nobody_is_told_at_an_endpoint_that_is_gone() -> None:
    harness = NoticesHarness(("origin", "elsewhere", "cloud")).add_all()
    assert [queue for queue, _ in harness.of(QUESTION, "formerly")] == ["dead-letter/cloud"]


@pytest.mark.parametrize("topic", [0x8001, 0x8002, 0x9001], ids=["letter", "status", "letter-elsewhere"])
@pytest.mark.parametrize("streamer", ["gateway", "another"])
def test_what_a_streamer_says_itself_causes_no_dead_letter(streamer: str, topic: int) -> None:
    """Where another one publishes its dead letters, only its own configuration says."""
    harness = NoticesHarness(("origin", "cloud")).add_all()
    assert harness.of(publish(START_MS, UUri(streamer, 4, 1, topic), b"letter")) == []
    assert harness.notices.made == 0
    assert len(harness.of(publish(START_MS, UUri(streamer, 5, 1, topic)))) == 1
    assert len(harness.of(publish(START_MS, UUri(streamer, 4, 2, topic)))) == 1


def test_a_notification_from_the_topic_of_the_dead_letters_is_a_message_like_others() -> None:
    said = notification(START_MS, UUri("another", 4, 1, 0x8001), APP)
    assert len(NoticesHarness().add_all().of(said)) == 1


# what they say


def test_a_failure_tells_route_endpoint_attempts_and_both_times() -> None:
    harness = NoticesHarness().add_all()
    delivery = push(route_queue("up"), message())
    delivery.attempts = 3
    harness.clock.advance(1500)
    ((_, letter),) = harness.of(delivery.message, delivery=delivery)
    told = content(letter)
    assert (told.route, told.endpoint, told.attempts, told.streamer) == ("up", "cloud", 3, "gateway")
    assert told.first_time.ToMilliseconds() == START_MS
    assert told.last_time.ToMilliseconds() == START_MS + 1500


def test_a_message_that_was_never_accepted_failed_when_it_came() -> None:
    ((_, letter),) = NoticesHarness().add_all().of(message())
    told = content(letter)
    assert (told.route, told.endpoint, told.attempts) == ("", "", 0)
    assert told.first_time == told.last_time


def test_the_access_token_is_told_to_nobody() -> None:
    plain = message()
    secret = replace(plain, attributes=replace(plain.attributes, token="hunter2"))
    found = dict(NoticesHarness(("origin", "cloud")).add_all().of(secret))
    assert message_from_proto(content(found["dead-letter/vehicle"]).message) == plain
    assert message_from_proto(content(found["dead-letter/cloud"]).message) == plain


def test_failures_are_counted_by_code_on_the_account_of_their_route() -> None:
    harness = NoticesHarness().add_all()
    delivery = push(route_queue("up"), message())
    harness.of(message())
    harness.of(delivery.message, delivery=delivery)
    assert (harness.stats.dead_letters, harness.notices.made) == ({UCode.DEADLINE_EXCEEDED: 2}, 2)


# to whom they are addressed, on a network that wants an authority


def test_the_origin_is_addressed_by_the_authority_of_the_sender() -> None:
    ((_, letter),) = NoticesHarness().add_all(addressed=True).of(message())
    assert letter.attributes.sink == everything_at("veh1")


def test_a_sender_without_a_valid_authority_is_addressed_with_everybody() -> None:
    plain = message()
    harness = NoticesHarness().add_all(addressed=True)
    for authority in ("", "VEH 1"):
        source = topic()._replace(authority=authority)
        ((_, letter),) = harness.of(replace(plain, attributes=replace(plain.attributes, source=source)))
        assert letter.attributes.sink == everything_at("*")


def test_another_endpoint_is_addressed_by_each_authority_that_it_names() -> None:
    harness = NoticesHarness(("cloud",))
    harness.add("vehicle", "veh1")
    harness.add("cloud", "fleet", "*", "backup", addressed=True)
    assert [letter.attributes.sink for _, letter in harness.of(message())] == [
        everything_at("fleet"),
        everything_at("backup"),
    ]


def test_another_endpoint_that_names_nobody_is_addressed_with_everybody() -> None:
    harness = NoticesHarness(("cloud",)).add_all(addressed=True)
    assert [letter.attributes.sink for _, letter in harness.of(message())] == [everything_at("*")]


def test_no_sink_is_set_where_none_is_wanted() -> None:
    assert [letter.attributes.sink for _, letter in NoticesHarness().add_all().of(message())] == [None]


# their queues


def test_queues_for_notices_have_no_source_and_let_the_oldest_go() -> None:
    harness = NoticesHarness().add_all()
    queues = harness.notices.queues()
    assert [(queue.name, queue.source, queue.target) for queue in queues] == [
        ("dead-letter/vehicle", "", "vehicle"),
        ("rpc-error/vehicle", "", "vehicle"),
        ("dead-letter/cloud", "", "cloud"),
        ("rpc-error/cloud", "", "cloud"),
        (f"rpc-error/{LOCAL_ENDPOINT}", "", LOCAL_ENDPOINT),
    ]
    assert {queue.policy.queue.on_full for queue in queues} == {"evict"}
    assert {queue.policy.queue.messages for queue in queues} == {3}
    assert not any(queue.may_pause for queue in queues)


def test_other_options_and_authorities_hold_from_now_on() -> None:
    harness = NoticesHarness(("cloud",))
    harness.add("vehicle", "veh1")
    harness.add("cloud", "fleet", addressed=True)
    options = NoticeOptions("gateway2", 0x9000, ("cloud",), QueueBounds(messages=7), queue_policy(window=5))
    harness.notices.use(options, {"cloud": ("backup",)}, {"cloud"})
    ((_, letter),) = harness.of(message())
    assert letter.attributes.source == UUri("gateway2", 4, 1, 0x9000)
    assert letter.attributes.sink == everything_at("backup")
    policies = [queue.policy for queue in harness.notices.queues()]
    assert {(policy.queue.messages, policy.queue.on_full, policy.window) for policy in policies} == {(7, "evict", 5)}


# the journal


def journal(path: Path) -> Journal:
    """A journal that is not open, and only gives numbers."""
    return Journal(path, 1 << 20, BOUNDS, lambda call, *args: None)


def test_the_journal_keeps_a_letter_of_every_failure_also_if_nobody_can_be_told(tmp_path: Path) -> None:
    harness = NoticesHarness((), journal(tmp_path / "journal.db"))
    secret = replace(QUESTION, attributes=replace(QUESTION.attributes, token="hunter2"))
    assert harness.of(secret, "formerly") == []
    (letter,) = harness.letters
    assert (letter.id, letter.ingress, letter.outcome, letter.code) == (secret.id, "formerly", "expired", 4)
    assert b"hunter2" in letter.body


def test_a_dead_letter_that_fails_is_not_kept_as_another(tmp_path: Path) -> None:
    harness = NoticesHarness(("origin",), journal(tmp_path / "journal.db")).add_all()
    harness.of(publish(START_MS, UUri("another", 4, 1, 0x8001), b"letter"))
    assert harness.letters == []
