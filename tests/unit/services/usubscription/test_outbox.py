"""The outbox: in order, in portions, and told apart what is safe."""

from collections.abc import Callable, Sequence
from typing import Any

from streamer.services.usubscription.outbox import Outbox
from streamer.uprotocol.message import Options, UMessage, notification
from streamer.uprotocol.uri import UUri

NOW_MS = 1_700_000_000_000
SERVICE, APP = UUri("gw", 0, 3, 0x8000), UUri("dev1", 1, 1, 0)


class FakeLocalTransport:
    """Keeps what is said, and what to call when it is safe."""

    def __init__(self, at_once_safe: bool = False) -> None:
        self.said: list[UMessage] = []
        self.unsafe: list[Callable[[], None]] = []
        self.at_once_safe = at_once_safe

    def emit(self, messages: Sequence[UMessage], on_safe: Callable[[], None]) -> None:
        self.said += messages
        if self.at_once_safe:
            on_safe()
        else:
            self.unsafe.append(on_safe)


def entries(outbox: Outbox, count: int, **options: Any) -> list[tuple[int, UMessage]]:
    made = [notification(NOW_MS, SERVICE, APP, str(number).encode(), Options(**options)) for number in range(count)]
    return [(outbox.number(), message) for message in made]


def box(at_once: int, at_once_safe: bool = False) -> tuple[Outbox, FakeLocalTransport]:
    transport = FakeLocalTransport(at_once_safe)
    return Outbox(transport, at_once), transport  # type: ignore[arg-type]


def test_no_more_than_a_portion_is_open_and_the_next_follow_in_order() -> None:
    outbox, transport = box(3)
    sent = entries(outbox, 10)
    outbox.send(sent, NOW_MS)
    assert (len(transport.said), len(outbox)) == (3, 10)
    while transport.unsafe:
        transport.unsafe.pop(0)()
        assert len(transport.unsafe) <= 3
    assert transport.said == [message for _, message in sent]
    assert outbox.take_safe() == [number for number, _ in sent]
    assert (outbox.take_safe(), len(outbox)) == ([], 0)


def test_what_is_safe_at_once_goes_through_without_end_of_the_stack() -> None:
    outbox, transport = box(2, at_once_safe=True)
    outbox.send(entries(outbox, 5000), NOW_MS)
    assert (len(transport.said), len(outbox), len(outbox.take_safe())) == (5000, 0, 5000)


def test_what_was_kept_goes_first_and_numbers_go_on() -> None:
    outbox, transport = box(100)
    old = [(7, entries(outbox, 1)[0][1]), (9, entries(outbox, 1)[0][1])]
    outbox.restore(old)
    new = entries(outbox, 2)
    assert [number for number, _ in new] == [10, 11]
    outbox.send(new, NOW_MS)
    assert transport.said == [message for _, message in (*old, *new)]


def test_what_is_expired_by_its_turn_is_not_said_and_can_go() -> None:
    outbox, transport = box(100)
    short, long = entries(outbox, 1, ttl=1000), entries(outbox, 1, ttl=9000)
    outbox.send([*short, *long], NOW_MS + 1001)
    assert transport.said == [long[0][1]]
    assert outbox.take_safe() == [short[0][0]]
