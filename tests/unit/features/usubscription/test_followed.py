"""What is known of another uSubscription service: queries replace their scope, updates override pages, and it is bounded."""

import pytest

from streamer.features.usubscription.followed import MAX_LEFT_OUT, Followed, Query, Relation
from streamer.features.usubscription.remote_topic import BACKOFF, wait_ms
from streamer.uprotocol.uri import UUri

SPEED, DOORS = UUri("veh1", 0xA, 1, 0x8000), UUri("veh1", 0xA, 1, 0x8001)
APP, OTHER_APP, PHONE = UUri("cloud", 0xC, 1, 0), UUri("cloud", 0xD, 1, 0), UUri("phone1", 0xC, 1, 0)


def everybody(subscriber: UUri, topic: UUri) -> bool:
    return True


def followed(most: int = 100) -> Followed:
    """Follows `DOORS` and `PHONE` by configuration."""
    return Followed((DOORS,), (PHONE,), most)


def finish(known: Followed, query: Query) -> None:
    for relation, period_ms in known.finish(query):
        known.set(relation, period_ms)


def relations(known: Followed) -> set[Relation]:
    return {relation for relation, _ in known.all()}


def test_a_subscription_is_known_until_it_is_removed() -> None:
    known = followed()
    assert known.set((SPEED, APP), 100)
    assert not known.set((SPEED, APP), 100)
    assert known.set((SPEED, APP), 0)
    assert (known.count, known.interested(SPEED, everybody)) == (1, {"cloud": 0})
    assert known.set((SPEED, APP), None)
    assert not known.set((SPEED, APP), None)
    assert (known.count, known.interested(SPEED, everybody), known.topics) == (0, {}, {DOORS})


def test_the_shortest_period_of_an_authoritys_subscribers_counts() -> None:
    known = followed()
    for subscriber, period_ms in ((APP, 100), (OTHER_APP, 500), (PHONE, 700)):
        known.set((SPEED, subscriber), period_ms)
    assert known.interested(SPEED, everybody) == {"cloud": 100, "phone1": 700}


def test_subscriptions_beyond_the_bound_are_left_out_and_counted() -> None:
    known = followed(most=1)
    known.set((SPEED, APP), 0)
    assert not known.set((SPEED, PHONE), 0)
    assert (known.count, known.left_out) == (1, 1)
    assert known.set((SPEED, APP), 100)
    known.set((SPEED, APP), None)
    assert known.set((SPEED, PHONE), 0)


def test_what_is_left_out_is_counted_once_however_often_it_is_listed() -> None:
    known = followed(most=1)
    for _ in range(3):
        finish(known, Query(pages={(SPEED, APP): 0, (SPEED, OTHER_APP): 0, (DOORS, APP): 0}))
    assert (known.count, known.left_out) == (1, 2)


@pytest.mark.parametrize(
    "query", [Query(), Query(topic=SPEED), Query(subscriber=OTHER_APP)], ids=["all", "topic", "subscriber"]
)
def test_what_is_left_out_is_counted_until_it_is_no_longer_listed(query: Query) -> None:
    known = followed(most=1)
    known.set((SPEED, APP), 0)
    known.set((SPEED, OTHER_APP), 0)
    query.pages.update({(SPEED, APP): 0} if query.subscriber is None else {})
    finish(known, query)
    assert (known.count, known.left_out) == (1, 0)


def test_what_is_left_out_is_counted_until_it_ends_or_has_room() -> None:
    known = followed(most=1)
    for subscriber in (APP, OTHER_APP, PHONE):
        known.set((SPEED, subscriber), 0)
    assert known.left_out == 2
    known.set((SPEED, OTHER_APP), None)
    assert known.left_out == 1
    known.set((SPEED, APP), None)
    assert known.set((SPEED, PHONE), 0)
    assert (known.count, known.left_out) == (1, 0)


def test_what_has_ended_while_a_list_was_read_makes_room_for_what_is_in_it() -> None:
    known = followed(most=1)
    known.set((SPEED, APP), 0)
    finish(known, Query(topic=SPEED, pages={(SPEED, PHONE): 0, (SPEED, APP): 0}, updates={(SPEED, APP): None}))
    assert (known.interested(SPEED, everybody), known.count, known.left_out) == ({"phone1": 0}, 1, 0)


def test_no_more_than_a_bound_of_what_is_left_out_are_remembered() -> None:
    known = followed(most=1)
    for number in range(MAX_LEFT_OUT + 3):
        known.set((SPEED, APP._replace(ue_id=number)), 0)
    assert (known.count, known.left_out) == (1, MAX_LEFT_OUT)


def test_a_list_of_others_has_the_room_of_those_that_have_gone() -> None:
    known = followed(most=2)
    finish(known, Query(pages={(SPEED, APP): 0, (SPEED, OTHER_APP): 0}))
    finish(known, Query(pages={(SPEED, PHONE): 0, (UUri("veh1", 0xB, 1, 0x8000), APP): 0}))
    assert (known.interested(SPEED, everybody), known.count, known.left_out) == ({"phone1": 0}, 2, 0)


@pytest.mark.parametrize(
    ("query", "gone"),
    [
        (Query(topic=SPEED), {(SPEED, APP), (SPEED, PHONE)}),
        (Query(subscriber=PHONE), {(SPEED, PHONE), (DOORS, PHONE)}),
        (Query(), {(SPEED, APP)}),
    ],
)
def test_a_complete_query_replaces_everything_in_its_scope_and_nothing_else(query: Query, gone: set[Relation]) -> None:
    known = followed()
    everything = {(topic, subscriber) for topic in (SPEED, DOORS) for subscriber in (APP, PHONE)}
    for relation in everything:
        known.set(relation, 0)
    finish(known, query)
    assert relations(known) == everything - gone


def test_a_list_of_everybody_adds_to_what_is_asked_for_by_configuration_and_takes_nothing_from_it() -> None:
    known = followed()
    for relation in ((DOORS, APP), (SPEED, PHONE)):
        known.set(relation, 100)
    finish(known, Query(pages={(DOORS, OTHER_APP): 0, (DOORS, APP): 50}))
    assert dict(known.all()) == {(DOORS, APP): 50, (DOORS, OTHER_APP): 0, (SPEED, PHONE): 100}
    finish(known, Query(topic=DOORS))
    assert relations(known) == {(SPEED, PHONE)}


def test_updates_that_came_during_a_query_override_its_pages() -> None:
    known, query = followed(), Query(topic=SPEED)
    query.pages = {(SPEED, APP): 100, (SPEED, PHONE): 100}
    query.updates = {(SPEED, APP): None, (SPEED, OTHER_APP): 50}
    finish(known, query)
    assert relations(known) == {(SPEED, PHONE), (SPEED, OTHER_APP)}


def test_a_query_that_begins_again_has_nothing_of_before() -> None:
    query = Query(topic=SPEED, offset=3)
    query.pages[SPEED, APP] = 0
    query.updates[SPEED, APP] = None
    query.begin()
    assert (query.pages, query.updates, query.offset) == ({}, {}, 0)


def test_without_a_list_of_everybody_only_configured_relations_are_covered() -> None:
    known = followed()
    for relation in ((SPEED, APP), (DOORS, APP), (SPEED, PHONE)):
        known.set(relation, 0)
        assert known.covers(relation)
    assert known.refused_all() == [(SPEED, APP)]
    assert [known.covers(relation) for relation in ((SPEED, APP), (DOORS, APP), (SPEED, PHONE))] == [False, True, True]


def test_a_query_that_failed_is_asked_again_ever_later_but_not_later_than_it_is_refreshed() -> None:
    query = Query(request=b"id")
    waits = []
    for _ in range(4):
        query.failed(10_000, refresh_ms=3_000)
        waits.append(query.due_ms - 10_000)
    assert (query.request, query.failures) == (None, 4)
    assert waits == [1000, 2000, 3000, 3000]


def test_a_query_that_is_refreshed_often_is_not_asked_faster_than_after_a_first_failure() -> None:
    query = Query()
    query.failed(0, refresh_ms=10)
    assert query.due_ms == wait_ms(1)


def test_waits_for_a_service_double_up_to_a_minute() -> None:
    assert [wait_ms(failures) for failures in (1, 2, 3, 7, 100)] == [1000, 2000, 4000, 60_000, 60_000]
    assert BACKOFF.jitter == 0
