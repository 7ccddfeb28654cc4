"""Timers: each key is due once, at the time that was set last."""

from hypothesis import given
from hypothesis import strategies as st

from streamer.services.usubscription.timers import Timers

STEPS = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 30)))


@given(STEPS, st.integers(0, 30))
def test_a_key_is_due_at_the_time_that_was_set_last(steps: list[tuple[int, int | None]], now_ms: int) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int | None] = {}
    for key, time_ms in steps:
        timers.set(key, time_ms)
        model[key] = time_ms
    waiting = {key: time_ms for key, time_ms in model.items() if time_ms is not None}
    assert timers.next_ms() == min(waiting.values(), default=None)
    due = list(timers.due(now_ms))
    assert sorted(due) == sorted(key for key, time_ms in waiting.items() if time_ms <= now_ms)
    assert [waiting[key] for key in due] == sorted(waiting[key] for key in due)
    assert list(timers.due(now_ms)) == []
    assert timers.next_ms() == min((time_ms for time_ms in waiting.values() if time_ms > now_ms), default=None)


def test_setting_a_key_repeatedly_does_not_use_more_memory() -> None:
    timers: Timers[int] = Timers()
    for number in range(100_000):
        timers.set(number % 3, 1_000_000 + number)
        timers.set(number, 2_000_000)
        timers.set(number, None)
    assert len(timers._heap) < 200
