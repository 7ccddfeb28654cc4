"""Interest: which authorities have subscribed to a topic, whoever tells; and samplers, which leave messages out."""

from hypothesis import given
from hypothesis import strategies as st

from streamer.routing.interest import EVERY_MESSAGE, Interest, Sampler
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.clock import START_MS

SPEED, DOORS = UUri("veh1", 0xA, 1, 0x8000), UUri("veh1", 0xA, 1, 0x8001)


def test_nobody_is_interested_in_a_topic_at_first() -> None:
    assert Interest().of(SPEED) == {}


def test_a_change_holds_for_its_topic_and_says_that_it_made_a_difference() -> None:
    interest = Interest()
    assert interest.change(SPEED, {"cloud": EVERY_MESSAGE}, "usubscription")
    assert (interest.of(SPEED), interest.of(DOORS)) == ({"cloud": EVERY_MESSAGE}, {})
    assert list(interest.topics()) == [SPEED]


def test_the_same_again_makes_no_difference() -> None:
    interest = Interest()
    interest.change(SPEED, {"cloud": 100}, "usubscription")
    assert not interest.change(SPEED, {"cloud": 100}, "usubscription")
    assert interest.change(SPEED, {"cloud": 200}, "usubscription")
    assert interest.of(SPEED) == {"cloud": 200}


def test_the_fastest_period_of_an_authority_counts_over_all_owners() -> None:
    interest = Interest()
    interest.change(SPEED, {"cloud": 100, "phone": 500}, "usubscription")
    assert not interest.change(SPEED, {"cloud": 200}, "multicast")
    assert interest.of(SPEED) == {"cloud": 100, "phone": 500}
    assert interest.change(SPEED, {"cloud": EVERY_MESSAGE}, "multicast")
    assert interest.of(SPEED) == {"cloud": EVERY_MESSAGE, "phone": 500}


def test_an_owner_takes_back_only_its_own_word() -> None:
    interest = Interest()
    interest.change(SPEED, {"cloud": 100}, "usubscription")
    interest.change(SPEED, {"cloud": 200}, "multicast")
    assert interest.change(SPEED, {}, "usubscription")
    assert interest.of(SPEED) == {"cloud": 200}
    assert interest.change(SPEED, {}, "multicast")
    assert (interest.of(SPEED), list(interest.topics())) == ({}, [])


def test_taking_back_what_was_never_said_makes_no_difference() -> None:
    assert not Interest().change(SPEED, {}, "usubscription")


def test_a_mapping_that_its_owner_changes_later_changes_nothing() -> None:
    interest, said = Interest(), {"cloud": 100}
    interest.change(SPEED, said, "usubscription")
    said["phone"] = 1
    interest.change(SPEED, {"cloud": 100}, "multicast")
    assert interest.of(SPEED) == {"cloud": 100}


authorities = st.dictionaries(st.sampled_from(("cloud", "phone", "veh2")), st.integers(0, 3), max_size=3)
changes = st.lists(st.tuples(st.sampled_from((SPEED, DOORS)), authorities, st.sampled_from(("a", "b", "c"))), max_size=30)


@given(changes)
def test_whatever_was_said_the_latest_word_of_each_owner_holds(said: list[tuple[UUri, dict[str, int], str]]) -> None:
    interest = Interest()
    latest: dict[tuple[UUri, str], dict[str, int]] = {}
    for topic, interested, owner in said:
        before = dict(interest.of(topic))
        made_a_difference = interest.change(topic, interested, owner)
        latest[topic, owner] = interested
        expected: dict[str, int] = {}
        for (each, _), word in latest.items():
            for authority, period_ms in word.items() if each == topic else ():
                expected[authority] = min(period_ms, expected.get(authority, period_ms))
        assert interest.of(topic) == expected
        assert made_a_difference == (expected != before)
    assert set(interest.topics()) == {topic for (topic, _), word in latest.items() if word}


# samplers


LATER_MS = START_MS + 10_000


def passed(sampler: Sampler, *made_ms: int) -> list[int]:
    return [ms for ms in made_ms if sampler.lets_pass(new_id(START_MS + ms), LATER_MS)]


def test_one_message_per_period_passes_by_the_times_at_which_they_were_made() -> None:
    assert passed(Sampler(100), 0, 1, 99, 100, 150, 199, 200, 500) == [0, 100, 200, 500]


def test_a_clock_that_was_set_back_silences_no_topic() -> None:
    assert passed(Sampler(100), 5000, 1000, 1050, 1100) == [5000, 1000, 1100]


def test_ids_from_the_future_count_from_their_arrival() -> None:
    sampler, year_9999 = Sampler(100), 253_402_300_799_000
    arrivals = [0, 50, 99, 100, 150, 200]
    ids = [year_9999 + 1000 * n for n in range(6)]
    assert [ms for ms, made in zip(arrivals, ids, strict=True) if sampler.lets_pass(new_id(made), START_MS + ms)] == [
        0,
        100,
        200,
    ]
    assert not sampler.lets_pass(new_id(START_MS + 250), START_MS + 251)


def test_a_message_that_was_overtaken_within_the_period_is_left_out() -> None:
    assert passed(Sampler(100), 100, 50) == [100]


def test_interest_in_any_instance_or_version_is_interest_in_each() -> None:
    interest = Interest()
    wide = [SPEED._replace(ue_id=0xFFFF_000A), SPEED._replace(version=0xFF), SPEED._replace(ue_id=0xFFFF_000A, version=0xFF)]
    for period_ms, topic in enumerate(wide, start=1):
        assert interest.change(topic, {"cloud": period_ms, f"app{period_ms}": 9}, "usubscription")
    interest.change(SPEED, {"cloud": 5}, "usubscription")
    assert interest.of(SPEED) == {"cloud": 1, "app1": 9, "app2": 9, "app3": 9}
    assert interest.of(SPEED._replace(ue_id=0x7000A, version=2)) == {"cloud": 3, "app3": 9}
    assert interest.of(SPEED._replace(ue_id=0x7000B)) == interest.of(DOORS) == {}
    assert interest.at(SPEED) == {"cloud": 5}
    for topic, left in zip(wide, ({"cloud": 2, "app2": 9, "app3": 9}, {"cloud": 3, "app3": 9}, {"cloud": 5}), strict=True):
        interest.change(topic, {}, "usubscription")
        assert interest.of(SPEED) == left
