"""Copies that came the wrong way: how long they wait for their originals, and what becomes of them."""

from streamer.delivery.inbound.misrouted import GRACE_S, MisroutedCopies
from streamer.delivery.seen import SeenIds, key_of
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Received
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.status import UCode
from tests.unit.delivery.messages import message

WRONG_WAY = Failure(Outcome.REJECTED, UCode.UNAUTHENTICATED, "not from here")


class MisroutedHarness:
    """Misrouted copies, and their outcomes."""

    def __init__(self) -> None:
        self.ids = SeenIds(100, 1000.0, 0.0)
        self.duplicates: list[bytes] = []
        self.failed: list[tuple[bytes, Failure]] = []
        self.misrouted = MisroutedCopies(self.ids, self._duplicate, self._fail_unrouted)

    def _duplicate(self, received: Received) -> None:
        self.duplicates.append(received.message.id)

    def _fail_unrouted(self, received: Received, failure: Failure) -> None:
        self.failed.append((received.message.id, failure))


def test_misrouted_copies_are_judged_when_their_grace_is_over_and_not_before() -> None:
    harness = MisroutedHarness()
    copy, forged = MemoryReceived(message()), MemoryReceived(message())
    harness.misrouted.take(copy, WRONG_WAY, 5.0)
    harness.misrouted.take(forged, WRONG_WAY, 5.5)
    assert copy.acknowledged
    assert harness.misrouted.bytes > 0
    harness.ids.young[key_of(copy.message)] = None
    harness.misrouted.expire(5.0 + GRACE_S - 0.01)
    assert len(harness.misrouted) == 2
    harness.misrouted.expire(5.0 + GRACE_S)
    assert harness.duplicates == [copy.message.id]
    assert harness.failed == []
    harness.misrouted.expire(5.5 + GRACE_S)
    assert harness.failed == [(forged.message.id, WRONG_WAY)]
    assert len(harness.misrouted) == harness.misrouted.bytes == 0


def test_second_misrouted_copy_with_the_same_id_and_one_whose_original_is_known_are_copies_at_once() -> None:
    harness = MisroutedHarness()
    first = MemoryReceived(message())
    known_already = MemoryReceived(message())
    harness.ids.young[key_of(known_already.message)] = None
    for copied in (first, MemoryReceived(first.message), known_already):
        harness.misrouted.take(copied, WRONG_WAY, 0.0)
    assert harness.duplicates == [first.message.id, known_already.message.id]
    assert len(harness.misrouted) == 1


def test_misrouted_copy_whose_original_is_about_to_be_forgotten_is_judged_in_time() -> None:
    harness = MisroutedHarness()
    copy, other = MemoryReceived(message()), MemoryReceived(message())
    for copied in (copy, other):
        harness.misrouted.take(copied, WRONG_WAY, 0.0)
    harness.ids.young[key_of(copy.message)] = None
    for turn in range(1, 4):
        harness.ids.rotate(turn * 1000.0)
    assert harness.duplicates == [copy.message.id]
    assert len(harness.misrouted) == 1
