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
        self.changes = 0
        self.refused: set[str] = set()

    def declare_keyexpr(self, key: str) -> str:
        if key in self.refused:
            raise ValueError(key)
        self.declared.append(key)
        self.changes += 1
        return key

    def undeclare(self, key: str) -> None:
        self.declared.remove(key)
        self.changes += 1


class FakeControl:
    """Runs calls at once, or when it is no longer busy. Errors end the call and nothing else."""

    def __init__(self) -> None:
        self.is_busy = False
        self.waiting: list[Callable[[], None]] = []

    def post(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)
        if not self.is_busy:
            self.go_on()

    def go_on(self) -> None:
        self.is_busy = False
        while self.waiting:
            with suppress(ValueError):
                self.waiting.pop(0)()


class Harness:
    """Frequent keys of a session, and batches for it."""

    def __init__(self) -> None:
        self.session = FakeSession()
        session: Any = self.session
        self.control = FakeControl()
        control: Any = self.control
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
    assert harness.session.changes == 20


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


def test_keys_are_taken_back_when_others_come() -> None:
    harness = Harness()
    harness.bring_singly(flows(20), 60)
    harness.bring_singly(flows(5, "veh2"), 5 * ROUND)
    assert sorted(harness.session.declared) == sorted(flows(5, "veh2"))


def test_flows_of_one_message_are_not_declared_and_end_what_is() -> None:
    harness = Harness()
    harness.bring_singly(flows(100), 20)
    assert len(harness.session.declared) == 100
    harness.bring_singly(flows(4 * ROUND, "churn"), 1)
    assert harness.session.declared == []


def test_few_flows_with_most_samples_are_declared_beside_many_rare_ones() -> None:
    harness = Harness()
    for number in range(3 * ROUND):
        harness.bring([flows(5)[number % 5]])
        if number % 5 == 0:
            harness.bring([f"up/rare/{number}"])
    assert sorted(harness.session.declared) == flows(5)


def test_never_more_than_256_keys_are_declared() -> None:
    harness = Harness()
    for _ in range(40):
        harness.bring_singly(flows(256), 1)
    assert len(harness.session.declared) == 256
    assert len(worth_declaring(dict.fromkeys(flows(257), 100) | {"up/most": 200_000}, set())) == 256


def test_what_is_remembered_is_bounded_in_number_and_length() -> None:
    harness = Harness()
    for number in range(20 * ROUND):
        harness.bring([f"up/{number}/{'x' * 60_000}"])
    assert sum(map(len, harness.keys._counts)) < 100
    for number in range(20 * ROUND):
        harness.bring([f"up/{number // 2}"])
    assert len(harness.keys._counts) <= 2 * ROUND
    assert harness.session.declared == []


def test_one_change_at_a_time_waits_for_a_thread_that_is_busy() -> None:
    harness = Harness()
    harness.control.is_busy = True
    for number in range(10):
        harness.bring_singly(flows(5, f"veh{number}"), 4 * ROUND)
    assert len(harness.control.waiting) == 1
    harness.control.go_on()
    harness.bring_singly(flows(5, "late"), 4 * ROUND)
    assert sorted(harness.session.declared) == flows(5, "late")


@pytest.mark.parametrize("key", ["up/**", "up/*/1/0/1/8000/{}/{}/{}/{}/{}", f"up/{'x' * 2000}"])
def test_wildcards_and_long_keys_are_never_declared(key: str) -> None:
    harness = Harness()
    harness.bring_singly([key], 3 * ROUND)
    assert harness.session.declared == []


def test_key_that_zenoh_refuses_is_no_matter_when_it_is_taken_back() -> None:
    harness = Harness()
    harness.session.refused = {"up/refused"}
    harness.bring_singly(["up/refused"], ROUND)
    harness.bring_singly(["up/good"], 20 * ROUND)
    assert harness.session.declared == ["up/good"]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"a": 500}, {"a"}),
        ({"a": 500, "b": 500}, {"a", "b"}),
        ({"a": 3}, set()),  # too few to know
        ({"a": 100, **{f"r{n}": 1 for n in range(2000)}}, set()),  # it would save 100 * 20, and cost 2000
        ({"a": 101, **{f"r{n}": 1 for n in range(2000)}}, {"a"}),
        ({"a": 500, "b": 4, **{f"r{n}": 1 for n in range(500)}}, {"a"}),  # b saves 80, and costs the others 500
        ({}, set()),
    ],
)
def test_as_many_are_worth_it_as_save_most(counts: dict[str, int], expected: set[str]) -> None:
    assert worth_declaring(counts, set()) == expected


def test_key_that_is_declared_stays_with_a_single_sample() -> None:
    counts = {"a": 500, "b": 1}
    assert worth_declaring(counts, {"a", "b"}) == {"a", "b"}
    assert worth_declaring(counts, {"a"}) == {"a"}
