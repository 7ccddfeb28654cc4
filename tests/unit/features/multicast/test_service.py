"""Receivers of multicast, on a real file: the interest that follows, the bounds, and what survives a restart."""

import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from streamer.features.host.access import Access, SubscribeRule
from streamer.features.host.state import StateError
from streamer.features.multicast.ids import Catalogue, MulticastId
from streamer.features.multicast.service import REGISTER, RESOLVE, UNREGISTER, MulticastReceivers, Registration, filters
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri, everything_at
from tests.hosted import StateOn
from tests.unit.features.host.fake_router import FakeRouter
from tests.unit.features.host.patterns import entities_at

ACCESS = Access(
    "gw",
    frozenset({"gw", "veh1"}),
    published={"cloud": (everything_at("veh1"),)},
    subscribe=(SubscribeRule(entities_at("*"), (everything_at("veh1"),)),),
)
"""The cloud is named; everybody may receive what the vehicle fires."""

DOORS = "//veh1/A8000/2/0/doorOpened"
FRONT, LEFT, RIGHT = (UUri("veh1", 0xA8000, 2, resource) for resource in (0x8001, 0x8002, 0x8003))
APP, OTHER_APP, PHONE = UUri("cloud", 0xA, 1, 0), UUri("cloud", 0xB, 1, 0), UUri("phone", 0xA, 1, 0)


def known(**partitions: int) -> Catalogue:
    return Catalogue(
        {MulticastId.parse(f"{DOORS}/{name.replace('_', '/')}"): resource for name, resource in partitions.items()}
    )


CATALOGUE = known(front=0x8001, front_left=0x8002, front_right=0x8003)


class ReceiversHarness:
    def __init__(self, path: Path | None, catalogue: Catalogue = CATALOGUE, access: Access = ACCESS) -> None:
        self.router = FakeRouter()
        self.state = StateOn(path, MulticastReceivers.TABLES)
        self.state.open()
        self.receivers = MulticastReceivers(self.state, self.router, catalogue, access)
        self.receivers.restore()

    async def register(self, receiver: UUri, partition: str) -> frozenset[UUri]:
        return await self.receivers.register(Registration(receiver, MulticastId.parse(f"{DOORS}/{partition}")))

    async def unregister(self, receiver: UUri, partition: str) -> None:
        await self.receivers.unregister(Registration(receiver, MulticastId.parse(f"{DOORS}/{partition}")))

    async def call(self, method: int, caller: UUri, request: Message) -> Message:
        return await self.receivers.methods()[method].call(caller, request)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[ReceiversHarness]:
    made = ReceiversHarness(tmp_path / "state.db")
    yield made
    made.state.close()


async def test_a_registration_is_interest_of_the_receiver_s_authority_in_its_topics(service: ReceiversHarness) -> None:
    assert await service.register(APP, "front/+") == {LEFT, RIGHT}
    assert service.router.interest == {LEFT: {"cloud": 0}, RIGHT: {"cloud": 0}}


async def test_interest_lasts_until_the_last_registration_that_covers_a_topic_is_removed(service: ReceiversHarness) -> None:
    await service.register(APP, "front/*")
    await service.register(APP, "front/left")
    await service.unregister(APP, "front/*")
    assert service.router.interest == {LEFT: {"cloud": 0}}
    await service.unregister(APP, "front/left")
    assert service.router.interest == {}
    assert service.receivers.topics == len(service.receivers) == 0


async def test_interest_lasts_until_the_last_receiver_at_an_authority_is_removed(service: ReceiversHarness) -> None:
    await service.register(APP, "front/left")
    await service.register(OTHER_APP, "front/left")
    await service.unregister(APP, "front/left")
    assert service.router.interest == {LEFT: {"cloud": 0}}
    assert service.router.interest_changes == 1  # the router is told only about changes
    await service.unregister(OTHER_APP, "front/left")
    assert service.router.interest == {}


async def test_authorities_count_separately(service: ReceiversHarness) -> None:
    await service.register(APP, "front/left")
    await service.register(PHONE, "front/left")
    assert service.router.interest == {LEFT: {"cloud": 0, "phone": 0}}
    await service.unregister(APP, "front/left")
    assert service.router.interest == {LEFT: {"phone": 0}}


async def test_the_same_registration_twice_counts_once(service: ReceiversHarness) -> None:
    await service.register(APP, "front/left")
    assert await service.register(APP, "front/left") == {LEFT}
    assert len(service.receivers) == 1
    await service.unregister(APP, "front/left")
    assert service.router.interest == {}


async def test_unregistering_an_unknown_registration_is_not_found(service: ReceiversHarness) -> None:
    await service.register(APP, "front/*")
    for receiver, partition in ((OTHER_APP, "front/*"), (APP, "front/left")):
        with pytest.raises(UStatusError) as caught:
            await service.unregister(receiver, partition)
        assert caught.value.code is UCode.NOT_FOUND
    assert len(service.router.interest) == 3


async def test_an_id_without_topics_is_not_registered(service: ReceiversHarness) -> None:
    with pytest.raises(UStatusError, match="'front/left'") as caught:
        await service.register(APP, "front/lift")
    assert caught.value.code is UCode.NOT_FOUND
    assert len(service.receivers) == 0


async def test_registrations_survive_a_restart(tmp_path: Path) -> None:
    before = ReceiversHarness(tmp_path / "state.db")
    await before.register(APP, "front/*")
    await before.register(PHONE, "front/left")
    await before.register(PHONE, "front/right")
    await before.unregister(PHONE, "front/right")
    before.state.close()
    after = ReceiversHarness(tmp_path / "state.db")
    assert after.router.interest == {FRONT: {"cloud": 0}, LEFT: {"cloud": 0, "phone": 0}, RIGHT: {"cloud": 0}}
    await after.unregister(APP, "front/*")
    assert after.router.interest == {LEFT: {"phone": 0}}
    after.state.close()


async def test_a_row_that_cannot_be_read_does_not_affect_the_others(
    service: ReceiversHarness, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable = [("nobody", f"{DOORS}/front"), (str(APP), "what?"), ("//*/A1/1/0", f"{DOORS}/front")]
    rows = [*unreadable, (str(APP), f"{DOORS}/front")]
    await service.state.write([("INSERT INTO multicast_receivers VALUES (?, ?)", row) for row in rows])
    service.receivers.restore()
    assert service.router.interest == {FRONT: {"cloud": 0}}
    assert caplog.text.count("state_row_unreadable") == 3


async def test_a_disk_that_cannot_be_written_changes_nothing(
    service: ReceiversHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.register(APP, "front")

    async def fail(statements: object, most_s: float | None = None) -> None:
        raise StateError("disk full")

    monkeypatch.setattr(service.state, "write", fail)
    for attempt in (service.register(APP, "front/left"), service.unregister(APP, "front")):
        with pytest.raises(UStatusError) as caught:
            await attempt
        assert caught.value.code is UCode.UNAVAILABLE
    assert service.router.interest == {FRONT: {"cloud": 0}}


async def test_a_disk_that_hangs_is_answered_with_what_may_become_of_the_change(
    service: ReceiversHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.features.multicast.service.HANGS_AFTER_S", 0.01)
    may_go_on = threading.Event()
    assert service.state.own is not None
    service.state.own.submit(lambda connection: may_go_on.wait(60))
    with pytest.raises(UStatusError, match="nothing has changed"):  # it had not begun
        await service.register(APP, "front")
    may_go_on.set()
    begun, ends, store = threading.Event(), threading.Event(), service.state.own._store
    use = store.use

    def slow(work: Callable[[sqlite3.Connection], object]) -> object:
        begun.set()
        ends.wait(60)
        return use(work)

    monkeypatch.setattr(store, "use", slow)
    monkeypatch.setattr("streamer.features.multicast.service.HANGS_AFTER_S", 0.2)
    with pytest.raises(UStatusError, match="may be in effect after the next start"):
        await service.register(APP, "front")
    assert begun.is_set()
    ends.set()


async def test_registrations_are_bounded(service: ReceiversHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.features.multicast.service.MAX_REGISTRATIONS", 2)
    await service.register(APP, "front")
    await service.register(PHONE, "front")
    with pytest.raises(UStatusError) as caught:
        await service.register(APP, "front/left")
    assert caught.value.code is UCode.RESOURCE_EXHAUSTED
    await service.register(APP, "front")  # a second time
    await service.unregister(PHONE, "front")
    await service.register(APP, "front/left")


# A changing catalogue.


async def test_a_new_catalogue_is_applied_and_the_router_is_told_only_changes(service: ReceiversHarness) -> None:
    await service.register(APP, "front/*")
    told = service.router.interest_changes
    service.receivers.use(known(front_left=0x8002, front_top=0x8004, rear=0x8005), ACCESS)
    assert service.router.interest == {LEFT: {"cloud": 0}, UUri("veh1", 0xA8000, 2, 0x8004): {"cloud": 0}}
    assert service.router.interest_changes - told == 3  # front and front/right are gone, front/top is new


async def test_receivers_that_are_judged_alike_are_judged_once_at_a_reload_and_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def may_subscribe(self: Access, subscriber: UUri, topic: UUri) -> bool:
        nonlocal asked
        asked += 1
        return True

    made = ReceiversHarness(tmp_path / "state.db")
    for number in range(50):
        await made.register(UUri("cloud", number, 1, 0), "front/*")
    monkeypatch.setattr(Access, "may_subscribe", may_subscribe)
    made.receivers.use(CATALOGUE, ACCESS)
    made.state.close()
    assert asked == 3
    again = ReceiversHarness(tmp_path / "state.db")
    assert (asked, len(again.receivers)) == (6, 50)
    for number in range(50):
        assert set(again.router.interest) == {FRONT, LEFT, RIGHT}
        await again.unregister(UUri("cloud", number, 1, 0), "front/*")
    assert again.router.interest == {}
    again.state.close()


async def test_a_registration_outlives_a_catalogue_that_does_not_know_it(service: ReceiversHarness) -> None:
    await service.register(APP, "front/*")
    service.receivers.use(Catalogue(), ACCESS)
    assert service.router.interest == {}
    service.receivers.use(CATALOGUE, ACCESS)
    assert set(service.router.interest) == {FRONT, LEFT, RIGHT}
    service.receivers.use(Catalogue(), ACCESS)
    await service.unregister(APP, "front/*")
    assert len(service.receivers) == 0


steps = st.lists(
    st.tuples(
        st.sampled_from(["register", "unregister", "use"]),
        st.sampled_from([APP, OTHER_APP, PHONE]),
        st.sampled_from(["front", "front/left", "front/right", "front/+", "front/*", "*", "+"]),
        st.sampled_from([CATALOGUE, known(front_left=0x8002, rear=0x8003), Catalogue()]),
    ),
    max_size=25,
)


@given(steps)
async def test_the_interest_is_what_the_registrations_cover(script: list[tuple[str, UUri, str, Catalogue]]) -> None:
    service, catalogue, model = ReceiversHarness(None), CATALOGUE, set()
    for step, receiver, partition, new in script:
        pattern = MulticastId.parse(f"{DOORS}/{partition}")
        if step == "use":
            catalogue = new
            service.receivers.use(new, ACCESS)
        elif step == "register" and catalogue.expand(pattern):
            await service.register(receiver, partition)
            model.add((receiver, pattern))
        elif step == "unregister" and (receiver, pattern) in model:
            await service.unregister(receiver, partition)
            model.remove((receiver, pattern))
        expected: dict[UUri, dict[str, int]] = {}
        for receiver_, pattern_ in model:
            for topic in catalogue.expand(pattern_):
                expected.setdefault(topic, {})[receiver_.authority] = 0
        assert service.router.interest == expected
    service.state.close()


# Who may.


async def test_receiver_that_may_not_have_all_of_an_id_is_refused_and_learns_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    narrow = Access("gw", frozenset({"gw", "veh1"}), subscribe=(SubscribeRule(APP, (LEFT,)),))
    service = ReceiversHarness(None, access=narrow)
    assert await service.register(APP, "front/left") == {LEFT}
    for receiver, partition in ((APP, "front/+"), (PHONE, "front/left"), (PHONE, "unknown")):
        with pytest.raises(UStatusError) as caught:
            await service.register(receiver, partition)
        assert caught.value.code is UCode.PERMISSION_DENIED
        assert "usubscription.subscribe" in caught.value.message
        assert f"denied who={receiver} where=nowhere" in caplog.records[-1].getMessage()
    assert service.router.interest == {LEFT: {"cloud": 0}}
    service.state.close()


async def test_topic_of_an_id_is_told_to_its_provider_and_to_who_may_receive_it() -> None:
    narrow = Access("gw", frozenset({"gw", "veh1"}), subscribe=(SubscribeRule(APP, (LEFT,)),))
    service = ReceiversHarness(None, access=narrow)
    left, right = (MulticastId.parse(f"{DOORS}/front/{side}") for side in ("left", "right"))
    for caller in (LEFT._replace(resource=0), APP):
        assert service.receivers.resolve(caller, left) == LEFT
    for caller, multicast_id in ((PHONE, left), (APP, right), (PHONE, MulticastId.parse(f"{DOORS}/unknown"))):
        with pytest.raises(UStatusError) as caught:
            service.receivers.resolve(caller, multicast_id)
        assert caught.value.code is UCode.PERMISSION_DENIED
    service.state.close()


async def test_registration_that_is_no_longer_permitted_counts_for_nothing_until_it_is_again(tmp_path: Path) -> None:
    service = ReceiversHarness(tmp_path / "state.db")
    await service.register(APP, "front/+")
    await service.register(PHONE, "front/left")
    nobody = Access("gw", frozenset({"gw", "veh1"}), subscribe=(SubscribeRule(APP, (LEFT,)),))
    service.receivers.use(CATALOGUE, nobody)
    assert service.router.interest == {LEFT: {"cloud": 0}}
    service.state.close()
    service = ReceiversHarness(tmp_path / "state.db", access=nobody)
    assert service.router.interest == {LEFT: {"cloud": 0}}
    service.receivers.use(CATALOGUE, ACCESS)
    assert service.router.interest == {LEFT: {"cloud": 0, "phone": 0}, RIGHT: {"cloud": 0}}
    service.receivers.use(CATALOGUE, nobody)
    await service.unregister(PHONE, "front/left")
    service.receivers.use(CATALOGUE, ACCESS)
    assert service.router.interest == {LEFT: {"cloud": 0}, RIGHT: {"cloud": 0}}
    service.state.close()


async def test_one_authority_and_one_receiver_have_their_quotas(
    service: ReceiversHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.features.multicast.service.MAX_OF_AUTHORITY", 3)
    monkeypatch.setattr("streamer.features.multicast.service.MAX_OF_RECEIVER", 2)
    await service.register(APP, "front")
    await service.register(APP, "front/left")
    await _exhausted(service, APP, "front/right")
    await service.register(OTHER_APP, "front")
    await _exhausted(service, OTHER_APP._replace(ue_id=0xC), "front")
    await service.register(PHONE, "front")
    await service.unregister(APP, "front")
    await service.register(OTHER_APP, "front/left")


async def test_authorities_that_nobody_has_named_are_bounded_for_each_topic(
    service: ReceiversHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.features.multicast.service.MAX_AUTHORITIES_PER_TOPIC", 2)
    for number in range(2):
        await service.register(UUri(f"evil{number}", 1, 1, 0), "front")
    await _exhausted(service, UUri("evil2", 1, 1, 0), "front")
    await service.register(UUri("evil1", 7, 1, 0), "front")  # no further copy
    await service.register(APP, "front")  # named
    assert len(service.router.interest[FRONT]) == 3


async def _exhausted(service: ReceiversHarness, receiver: UUri, partition: str) -> None:
    with pytest.raises(UStatusError) as caught:
        await service.register(receiver, partition)
    assert caught.value.code is UCode.RESOURCE_EXHAUSTED


# Over uProtocol.


async def test_the_response_to_a_registration_has_the_topics_and_their_filters(service: ReceiversHarness) -> None:
    answer = await service.call(REGISTER, APP, pb.RegisterMulticastReceiverRequest(multicast_id=f"{DOORS}/front/+"))
    assert isinstance(answer, pb.RegisterMulticastReceiverResponse)
    assert not answer.has_more_records
    assert [each.multicast_id for each in answer.topics] == [f"{DOORS}/front/left", f"{DOORS}/front/right"]
    left = answer.topics[0]
    assert (left.topic.authority_name, left.topic.ue_id, left.topic.resource_id) == ("veh1", 0xA8000, 0x8002)
    assert left.mqtt_in_vehicle == "veh1/8000/A/2/8002"
    assert left.mqtt_off_vehicle == "veh1/cloud"
    assert left.zenoh == "up/veh1/8000/A/2/8002/{}/{}/{}/{}/{}"


async def test_many_topics_are_returned_page_by_page_and_registered_once() -> None:
    names = {f"p{number}": 0x8000 + number for number in range(600)}
    service = ReceiversHarness(None, known(**names))
    found: list[str] = []
    more = True
    while more:
        request = pb.RegisterMulticastReceiverRequest(multicast_id=f"{DOORS}/*", offset=len(found))
        answer = await service.call(REGISTER, APP, request)
        assert isinstance(answer, pb.RegisterMulticastReceiverResponse)
        assert 0 < len(answer.topics) <= 250
        found += [each.multicast_id for each in answer.topics]
        more = answer.has_more_records
    assert sorted(found) == sorted(f"{DOORS}/{name}" for name in names)
    assert len(service.receivers) == 1
    service.state.close()


async def test_a_sender_can_resolve_the_topic(service: ReceiversHarness) -> None:
    answer = await service.call(RESOLVE, APP, pb.ResolveMulticastRequest(multicast_id=f"{DOORS}/front/left"))
    assert isinstance(answer, pb.ResolveMulticastResponse)
    assert answer.topic.resource_id == 0x8002
    assert (answer.mqtt_in_vehicle, answer.zenoh) == ("veh1/8000/A/2/8002", "up/veh1/8000/A/2/8002/{}/{}/{}/{}/{}")


async def test_an_unregistration_is_answered(service: ReceiversHarness) -> None:
    await service.register(APP, "front/*")
    answer = await service.call(UNREGISTER, APP, pb.UnregisterMulticastReceiverRequest(multicast_id=f"{DOORS}/front/*"))
    assert answer == pb.UnregisterMulticastReceiverResponse()
    assert service.router.interest == {}


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        (REGISTER, pb.RegisterMulticastReceiverRequest(), UCode.INVALID_ARGUMENT),
        (REGISTER, pb.RegisterMulticastReceiverRequest(multicast_id=f"{DOORS}/*/left"), UCode.INVALID_ARGUMENT),
        (REGISTER, pb.RegisterMulticastReceiverRequest(multicast_id=f"{DOORS}/rear"), UCode.NOT_FOUND),
        (UNREGISTER, pb.UnregisterMulticastReceiverRequest(multicast_id=f"{DOORS}/front"), UCode.NOT_FOUND),
        (UNREGISTER, pb.UnregisterMulticastReceiverRequest(multicast_id="front"), UCode.INVALID_ARGUMENT),
        (RESOLVE, pb.ResolveMulticastRequest(multicast_id=f"{DOORS}/+"), UCode.INVALID_ARGUMENT),
        (RESOLVE, pb.ResolveMulticastRequest(multicast_id=f"{DOORS}/*"), UCode.INVALID_ARGUMENT),
        (RESOLVE, pb.ResolveMulticastRequest(multicast_id=f"{DOORS}/rear"), UCode.NOT_FOUND),
    ],
    ids=["none", "star-inside", "unknown", "not-registered", "no-id", "fire-plus", "fire-star", "fire-unknown"],
)
async def test_bad_requests_are_refused(service: ReceiversHarness, method: int, request_: Message, code: UCode) -> None:
    with pytest.raises(UStatusError) as caught:
        await service.call(method, APP, request_)
    assert caught.value.code is code


@pytest.mark.parametrize("receiver", [UUri("", 0xA, 1, 0), UUri("*", 0xA, 1, 0), UUri("cloud", 0xFFFF, 1, 0)], ids=str)
async def test_a_receiver_has_a_name(service: ReceiversHarness, receiver: UUri) -> None:
    with pytest.raises(UStatusError) as caught:
        await service.call(REGISTER, receiver, pb.RegisterMulticastReceiverRequest(multicast_id=DOORS))
    assert caught.value.code is UCode.INVALID_ARGUMENT


def test_a_topic_has_a_filter_on_each_kind_of_network() -> None:
    assert filters(pb.MulticastTopic, LEFT, "cloud") == {
        "mqtt_in_vehicle": "veh1/8000/A/2/8002",
        "mqtt_off_vehicle": "veh1/cloud",
        "zenoh": "up/veh1/8000/A/2/8002/{}/{}/{}/{}/{}",
    }
