"""Which keys are declared where their samples arrive. Without Zenoh."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from streamer.transports.zenoh.frequent_keys import FrequentKeys, worth_declaring

ROUND = 1024
LOOKED_AT = 16  # one of so many in a batch


class FakeSession:
    """Knows what is declared. A key in ``refused`` is not."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.refused: set[str] = set()

    def declare_keyexpr(self, key: str) -> str:
        if key in self.refused:
            raise ValueError(key)
        self.declared.append(key)
        return key


class FakeControl:
    """Runs calls at once, as the control thread does sooner or later. Errors end the call and nothing else."""

    def post(self, call: Callable[[], None]) -> None:
        with suppress(ValueError):
            call()


class Harness:
    """Frequent keys of a session, and batches for it."""

    def __init__(self) -> None:
        self.session = FakeSession()
        session: Any = self.session
        control: Any = FakeControl()
        self.keys = FrequentKeys(session, control)

    def bring(self, keys: Sequence[str]) -> None:
        """One batch."""
        samples: list[Any] = [SimpleNamespace(key_expr=key) for key in keys]
        self.keys.look(samples)

    def bring_singly(self, keys: Sequence[str], times: int) -> None:
        for _ in range(times):
            for key in keys:
                self.bring([key])


def flows(count: int, name: str = "veh1") -> list[str]:
    return [f"up/{name}/{number}/0/1/8000/{{}}/{{}}/{{}}/{{}}/{{}}" for number in range(count)]


def test_keys_of_steady_flows_are_declared_and_nothing_is_declared_twice() -> None:
    harness, steady = Harness(), flows(20)
    harness.bring_singly(steady, 52)
    assert sorted(harness.session.declared) == sorted(steady)
    harness.bring_singly(steady, 500)
    assert len(harness.session.declared) == 20


@pytest.mark.parametrize("size", [2, 16, 20, 64])
def test_flows_that_take_turns_are_all_seen_whatever_the_size_of_batches(size: int) -> None:
    harness, steady = Harness(), flows(20)
    endless = [key for _ in range(size) for key in steady]
    sent = 0
    while sent < 3 * ROUND * LOOKED_AT:
        start = sent % len(steady)
        harness.bring(endless[start : start + size])
        sent += size
    assert sorted(harness.session.declared) == sorted(steady)


def test_keys_stay_declared_and_held_whatever_comes() -> None:
    harness = Harness()
    harness.bring_singly(flows(20), 60)
    harness.bring_singly(flows(5, "veh2"), 5 * ROUND)
    harness.bring_singly(flows(8 * ROUND, "churn"), 1)
    expected = sorted([*flows(20), *flows(5, "veh2")])
    assert sorted(harness.session.declared) == expected
    assert sorted(map(str, harness.keys._declared)) == expected  # Zenoh undeclares what nobody holds


def test_flows_of_one_message_are_not_declared() -> None:
    harness = Harness()
    harness.bring_singly(flows(8 * ROUND, "churn"), 1)
    assert harness.session.declared == []


def test_few_flows_with_most_samples_are_declared_beside_many_rare_ones() -> None:
    harness = Harness()
    for number in range(3 * ROUND):
        harness.bring([flows(5)[number % 5]])
        if number % 5 == 0:
            harness.bring([f"up/rare/{number}"])
    assert sorted(harness.session.declared) == flows(5)


def test_never_more_than_128_keys_are_declared() -> None:
    harness = Harness()
    for number in range(40):
        harness.bring_singly(flows(16, f"veh{number}"), ROUND // 2)
    assert len(harness.session.declared) == len(set(harness.session.declared)) == 128


def test_what_is_remembered_is_bounded_in_number_and_length() -> None:
    harness = Harness()
    for number in range(20 * ROUND):
        harness.bring([f"up/{number}/{'x' * 60_000}"])
    assert sum(map(len, harness.keys._counts)) < 100
    for number in range(20 * ROUND):
        harness.bring([f"up/{number // 2}"])
    assert len(harness.keys._counts) <= 2 * ROUND
    assert harness.session.declared == []


@pytest.mark.parametrize("key", ["up/**", "up/*/1/0/1/8000/{}/{}/{}/{}/{}", f"up/{'x' * 2000}"])
def test_wildcards_and_long_keys_are_never_declared(key: str) -> None:
    harness = Harness()
    harness.bring_singly([key], 3 * ROUND)
    assert harness.session.declared == []


def test_key_that_zenoh_refuses_keeps_no_other_from_being_declared() -> None:
    harness = Harness()
    harness.session.refused = {"up/refused"}
    harness.bring_singly(["up/refused", "up/good"], ROUND)
    assert harness.session.declared == ["up/good"]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"a": 500}, ["a"]),
        ({"a": 500, "b": 501}, ["b", "a"]),
        ({"a": 7}, []),  # too few to know
        ({"a": 8}, ["a"]),
        ({"a": 100, **{f"r{n}": 1 for n in range(2000)}}, []),  # it would save 100 * 20, and cost 2000
        ({"a": 101, **{f"r{n}": 1 for n in range(2000)}}, ["a"]),
        ({"a": 500, "b": 8, **{f"r{n}": 1 for n in range(500)}}, ["a"]),  # b saves 160, and costs the others 492
        ({f"k{n}": 1000 - n for n in range(4)}, ["k0", "k1", "k2"]),  # room for three
        ({}, []),
    ],
)
def test_as_many_are_worth_it_as_save_most(counts: dict[str, int], expected: list[str]) -> None:
    assert worth_declaring(counts, 3) == expected
