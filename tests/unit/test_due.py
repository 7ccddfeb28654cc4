"""Each thing is due once, at the time that was set last."""

from hypothesis import example, given
from hypothesis import strategies as st

from streamer.due import Due

STEPS = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 30)))


@given(STEPS, st.integers(0, 30))
@example([(0, 7), (1, 8)], 7)
def test_a_thing_is_due_at_the_time_that_was_set_last(steps: list[tuple[int, int | None]], now_ms: int) -> None:
    due: Due[int] = Due()
    model: dict[int, int | None] = {}
    for key, time_ms in steps:
        due.set(key, time_ms)
        model[key] = time_ms
    waiting = {key: time_ms for key, time_ms in model.items() if time_ms is not None}
    assert due.next() == min(waiting.values(), default=None)
    taken = list(due.take(now_ms))
    assert sorted(taken) == sorted(key for key, time_ms in waiting.items() if time_ms <= now_ms)
    assert [waiting[key] for key in taken] == sorted(waiting[key] for key in taken)
    assert list(due.take(now_ms)) == []
    assert due.next() == min((time_ms for time_ms in waiting.values() if time_ms > now_ms), default=None)


def test_setting_a_thing_repeatedly_does_not_use_more_memory() -> None:
    due: Due[int] = Due()
    for number in range(100_000):
        due.set(number % 3, 1_000_000 + number)
        due.set(number, 2_000_000)
        due.set(number, None)
    assert len(due._heap) < 200
