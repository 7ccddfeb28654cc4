"""The thread for Zenoh's calls that can block: in order, with results and errors on the loop, and it ends when told."""

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
import zenoh

from streamer.transports.zenoh.control import ControlThread, tell_loop


async def test_calls_run_in_order_on_one_other_thread() -> None:
    control = ControlThread(asyncio.get_running_loop(), "test")
    seen: list[tuple[int, int]] = []

    def call(number: int) -> int:
        seen.append((number, threading.get_ident()))
        return number

    def first() -> None:
        call(1)

    control.post(first)
    answers = [control.ask(partial(call, number)) for number in (2, 3)]
    assert await asyncio.wait_for(asyncio.gather(*answers), 10) == [2, 3]
    assert [number for number, _ in seen] == [1, 2, 3]
    assert {thread for _, thread in seen}.isdisjoint({threading.get_ident()})
    assert len({thread for _, thread in seen}) == 1
    control.end()


async def test_an_error_of_zenoh_is_the_answer_and_the_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    control = ControlThread(asyncio.get_running_loop(), "test")

    def fail() -> None:
        raise zenoh.ZError("it failed")

    with pytest.raises(zenoh.ZError, match="it failed"):
        await asyncio.wait_for(control.ask(fail), 10)
    control.post(fail)
    assert await asyncio.wait_for(control.ask(lambda: 7), 10) == 7
    assert [record.getMessage() for record in caplog.records] == ["zenoh_call_failed error=it failed"]
    control.end()


class Panic(BaseException):
    """What a panic in Zenoh becomes is no Exception."""


@pytest.mark.parametrize("error", [ValueError, Panic])
async def test_whatever_a_call_raises_is_the_answer_and_the_thread_goes_on(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    control = ControlThread(asyncio.get_running_loop(), "test")

    def fail() -> None:
        raise error

    with pytest.raises(error):
        await asyncio.wait_for(control.ask(fail), 10)
    control.post(fail)
    assert await asyncio.wait_for(control.ask(lambda: 7), 10) == 7
    assert [record.getMessage() for record in caplog.records] == ["zenoh_call_failed"]
    control.end()


async def test_an_answer_that_nobody_waits_for_any_more_is_dropped() -> None:
    control = ControlThread(asyncio.get_running_loop(), "test")
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    may_go_on = threading.Event()
    answer = control.ask(may_go_on.wait)
    answer.cancel()
    may_go_on.set()
    assert await asyncio.wait_for(control.ask(lambda: 7), 10) == 7
    assert answer.cancelled()
    assert faults == []
    control.end()


async def test_the_thread_ends_after_the_calls_that_wait() -> None:
    control = ControlThread(asyncio.get_running_loop(), "test-end")
    done: list[int] = []
    control.post(lambda: done.append(1))
    (thread,) = (each for each in threading.enumerate() if each.name == "test-end-control")
    control.end()
    await asyncio.to_thread(thread.join, 10)
    assert (thread.is_alive(), done) == (False, [1])
    assert thread.daemon


def test_a_loop_that_is_closed_cannot_be_told() -> None:
    loop = asyncio.new_event_loop()
    told: list[int] = []
    assert tell_loop(loop, told.append, 1)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert not tell_loop(loop, told.append, 2)
    assert told == [1]
