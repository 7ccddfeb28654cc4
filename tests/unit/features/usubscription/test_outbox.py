"""The outbox: order, portions, and which messages are safe."""

from collections.abc import Callable, Sequence
from typing import Any

from streamer.features.usubscription.outbox import Outbox
from streamer.uprotocol.message import Options, UMessage, notification, request
from streamer.uprotocol.uri import UUri

NOW_MS = 1_700_000_000_000
SERVICE, APP = UUri("gw", 0, 3, 0x8000), UUri("dev1", 1, 1, 0)


class FakeLocalTransport:
    """Keeps the messages, and the functions to call once they are safe."""

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


def box(max_unsafe: int, at_once_safe: bool = False, **bounds: int) -> tuple[Outbox, FakeLocalTransport]:
    transport = FakeLocalTransport(at_once_safe)
    return Outbox(transport, max_unsafe, **bounds), transport  # type: ignore[arg-type]


def test_messages_are_sent_in_order_a_portion_at_a_time() -> None:
    outbox, transport = box(3)
    sent = entries(outbox, 10)
    outbox.send(sent, NOW_MS, 0.0)
    assert (len(transport.said), len(outbox)) == (3, 10)
    while transport.unsafe:
        transport.unsafe.pop(0)()
        assert len(transport.unsafe) <= 3
    assert transport.said == [message for _, message in sent]
    assert outbox.take_safe() == [number for number, _ in sent]
    assert (outbox.take_safe(), len(outbox)) == ([], 0)


def test_messages_that_are_safe_at_once_do_not_exhaust_the_stack() -> None:
    outbox, transport = box(2, at_once_safe=True)
    outbox.send(entries(outbox, 5000), NOW_MS, 0.0)
    assert (len(transport.said), len(outbox), len(outbox.take_safe())) == (5000, 0, 5000)


def test_restored_messages_go_first_and_numbers_continue() -> None:
    outbox, transport = box(100)
    old = [(7, entries(outbox, 1)[0][1]), (9, entries(outbox, 1)[0][1])]
    outbox.restore(old, 0.0)
    new = entries(outbox, 2)
    assert [number for number, _ in new] == [10, 11]
    outbox.send(new, NOW_MS, 0.0)
    assert transport.said == [message for _, message in (*old, *new)]


def test_a_message_that_expired_before_its_turn_is_deleted_and_not_sent() -> None:
    outbox, transport = box(100)
    short, long = entries(outbox, 1, ttl=1000), entries(outbox, 1, ttl=9000)
    outbox.send([*short, *long], NOW_MS + 1001, 0.0)
    assert transport.said == [long[0][1]]
    assert outbox.take_safe() == [short[0][0]]


def test_beyond_a_bound_in_bytes_the_oldest_updates_are_given_up() -> None:
    outbox, transport = box(1, max_bytes=100_000)
    for number in range(1000):
        update = notification(NOW_MS, SERVICE, APP, b"%4d" % number + bytes(1000))
        outbox.send([(outbox.number(), update)], NOW_MS, 0.0)
        assert len(outbox) <= 52
    given_up = outbox.take_safe()
    assert given_up == list(range(2, len(given_up) + 2))  # they are deleted; the first was handed over before
    while transport.unsafe:
        transport.unsafe.pop(0)()
    heard = [int((message.payload or b"")[:4]) for message in transport.said]
    assert heard == [0, *range(1001 - len(heard), 1000)]
    assert len(heard) >= 40


def test_commands_are_never_given_up() -> None:
    """Nothing else remembers them, and there are no more than subscriptions."""
    outbox, transport = box(1, max_bytes=10_000)
    commands = [request(NOW_MS, SERVICE._replace(resource=0), UUri("dev2", 0, 3, 1), 5000) for _ in range(20)]
    outbox.send([(outbox.number(), command) for command in commands], NOW_MS, 0.0)
    outbox.send(entries(outbox, 100), NOW_MS, 0.0)
    while transport.unsafe:
        transport.unsafe.pop(0)()
    assert transport.said[:20] == commands


def test_what_an_earlier_run_has_kept_is_bounded_as_well() -> None:
    outbox, transport = box(1, max_bytes=10_000)
    outbox.restore(entries(outbox, 100), 0.0)
    outbox.send((), NOW_MS, 0.0)
    assert len(transport.said) == 1
    assert len(outbox) <= 11
