"""Redrive: sends the messages of dead letters again, with their id and attributes, over the currently configured routes.

A letter is deleted from the journal in the same transaction that stores its message, or once the message is delivered. If
the message cannot be sent now (it has expired or is not allowed, nobody is interested, or its endpoint is gone), its letter
stays unchanged and can be redriven later. A new letter in its place would say that the message was never accepted.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from streamer.clock import Clock
from streamer.delivery.custody.custody import Custody
from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.inbound.refusals import Admission
from streamer.delivery.outcomes.dead_letter import with_ttl_from_now
from streamer.delivery.pump import Pump
from streamer.journal import codec
from streamer.journal.entries import CorruptEntryError, JournalError, Letter, MissingEntryError
from streamer.routing.outcome import Failure

logger = logging.getLogger("ustreamer.redrive")


_Flow = tuple[str, str, str, str]
"""Route, ingress, source and sink: letters with the same ones are sent in order."""

_Waiting = tuple[Letter, int | None]
"""A letter, without its body once it has had to wait, and the requested TTL in ms."""

_REMEMBERED_LETTERS = 20_000  # as many as are stored
_LETTERS_PER_ROUND = 256  # sent, before the event loop goes on with others
_FULL_FLOWS_PER_ROUND = 64  # flows without room, each of which costs an attempt


class Redrive:
    """Redrives letters. Those for which there is no room yet wait. ``count`` is the number of letters sent."""

    def __init__(self, ingresses: Mapping[str, Ingress], custody: Custody, clock: Clock, pump: Pump) -> None:
        self.count = 0
        self._ingresses = ingresses
        self._custody = custody
        self._clock = clock
        self._pump = pump
        self._waiting: dict[_Flow, dict[int, _Waiting]] = {}
        self._taken: OrderedDict[int, None] = OrderedDict()  # numbers, which are never sent twice

    def take(self, letters: Sequence[Letter], ttls_ms: Sequence[int | None]) -> None:
        """Send letters, each with a new TTL in ms from now on (0: none), or with its own (None)."""
        for letter, ttl_ms in zip(letters, ttls_ms, strict=True):
            if letter.number not in self._taken:
                self._waiting.setdefault(_flow_of(letter), {})[letter.number] = letter, ttl_ms
        self.go_on()
        for letter in letters:  # those that have to wait need not keep their bodies in memory
            waiting = self._waiting.get(_flow_of(letter), {})
            if letter.number in waiting:
                waiting[letter.number] = letter._replace(body=b""), waiting[letter.number][1]

    @property
    def is_waiting(self) -> bool:
        """Whether there is a letter for which there was no room yet."""
        return bool(self._waiting)

    def go_on(self) -> None:
        """Send the waiting letters, each flow in order, as far as there is room."""
        if not self._waiting:
            return
        kept: dict[str, list[Letter]] = {}
        late, enough = 0, self.count + _LETTERS_PER_ROUND
        for flow in list(self._waiting):
            letters = self._waiting.pop(flow)
            if not self._send(letters, kept, enough):
                self._waiting[flow] = letters  # behind the other flows
                late += 1
                if late == _FULL_FLOWS_PER_ROUND or self.count >= enough:
                    break
        for reason, letters_unmarked in kept.items():
            first = letters_unmarked[0].id.hex()
            logger.warning("redrive_kept reason=%s letters=%d first_id=%s", reason, len(letters_unmarked), first)
        self._pump.run()

    def _send(self, letters: dict[int, _Waiting], kept: dict[str, list[Letter]], enough: int) -> bool:
        """Send the letters of a flow until `count` reaches ``enough``; return False if some have to wait.

        ``kept`` collects the letters that cannot be sent, by the reason.
        """
        for number, (letter, ttl_ms) in list(letters.items()):
            became = Admission.LATER if self.count >= enough else self._attempt(letter, ttl_ms)
            if became is Admission.LATER:
                return False
            del letters[number]
            if became is Admission.TAKEN:
                self._taken[number] = None
                if len(self._taken) > _REMEMBERED_LETTERS:
                    self._taken.popitem(last=False)
                self._custody.letter_done(number)
                self.count += 1
            elif became is not None:
                self._custody.letter_kept(number)
                kept.setdefault(became.text if became.is_reported else "nobody wants it now", []).append(letter)
        return True

    def _attempt(self, letter: Letter, ttl_ms: int | None) -> Admission | Failure | None:
        """Try to send a letter. Return None if it was purged, or can never be sent, which is logged."""
        ingress = self._ingresses.get(letter.ingress)
        if ingress is None:
            self._impossible(letter, "no_such_endpoint" if letter.ingress else "only_a_part_is_known")
            return None
        try:
            message = codec.unpack(letter.body or self._body(letter.number))
        except JournalError:  # the file cannot be read now
            return Admission.LATER
        except MissingEntryError:  # purged while it waited
            return None
        except CorruptEntryError as exc:
            self._impossible(letter, str(exc))
            return None
        except codec.UnreadableError as exc:
            self._impossible(letter, f"unreadable: {exc}")
            return None
        now_ms = self._clock.wall_ms()
        waited_s = (now_ms - letter.first_ms) / 1000
        if ttl_ms is not None:
            message, waited_s = with_ttl_from_now(message, ttl_ms, now_ms), 0.0
        return ingress.redrive(message, waited_s, letter.route, letter.target, letter.sink)

    def _body(self, number: int) -> bytes:
        journal = self._custody.journal
        return b"" if journal is None else journal.letter_body(number)

    def _impossible(self, letter: Letter, reason: str) -> None:
        """Log why a letter can never be sent; it stays in the journal."""
        logger.error("redrive_impossible reason=%s ingress=%s id=%s", reason, letter.ingress, letter.id.hex())
        self._custody.letter_kept(letter.number)


def _flow_of(letter: Letter) -> _Flow:
    return letter.route, letter.ingress, letter.source, letter.sink
