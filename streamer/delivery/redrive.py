"""Redrive: the messages of dead letters are sent again, with their id and attributes, over today's routes.

A letter is deleted from the journal in the same transaction in which its message enters it, unless the message is delivered
before. One that cannot be sent now, because nobody is interested or its endpoint is gone, stays and can be redriven later.
"""

import logging
from collections.abc import Mapping, Sequence

from streamer.clock import Clock
from streamer.delivery.custody import Custody
from streamer.delivery.dead_letter import live_on
from streamer.delivery.ingress import Again, Ingress
from streamer.delivery.pump import Pump
from streamer.journal import codec
from streamer.journal.entries import Letter

logger = logging.getLogger("ustreamer.redrive")


class Redrive:
    """Redrives letters. Those for which there is no room yet wait. ``count``: how many were sent."""

    def __init__(self, ingresses: Mapping[str, Ingress], custody: Custody, clock: Clock, pump: Pump) -> None:
        self.count = 0
        self._ingresses = ingresses
        self._custody = custody
        self._clock = clock
        self._pump = pump
        self._waiting: dict[int, tuple[Letter, int | None]] = {}
        self._taken: set[int] = set()  # numbers, which are never given twice

    def take(self, letters: Sequence[Letter], ttls_ms: Sequence[int | None]) -> None:
        """Send these, each with a new TTL in ms from now on (0: none), or with its own."""
        for letter, ttl_ms in zip(letters, ttls_ms, strict=True):
            if letter.number not in self._taken:
                self._waiting[letter.number] = (letter, ttl_ms)
        self.go_on()

    @property
    def is_waiting(self) -> bool:
        """Whether there is a letter for which there was no room yet."""
        return bool(self._waiting)

    def go_on(self) -> None:
        """Send what waits, as far as there is room."""
        if not self._waiting:
            return
        unwanted: list[Letter] = []
        for number, (letter, ttl_ms) in list(self._waiting.items()):
            if not letter.ingress:
                logger.error("redrive_impossible reason=only_a_part_is_known id=%s", letter.id.hex())
                self._keep(number)
                continue
            ingress = self._ingresses.get(letter.ingress)
            if ingress is None:
                logger.error("redrive_impossible reason=no_such_endpoint ingress=%s id=%s", letter.ingress, letter.id.hex())
                self._keep(number)
                continue
            try:
                message = codec.unpack(letter.body)
            except codec.UnreadableError as exc:
                logger.error("redrive_impossible reason=unreadable id=%s error=%s", letter.id.hex(), exc)
                self._keep(number)
                continue
            if ttl_ms is not None:
                message = live_on(message, ttl_ms, self._clock.wall_ms())
            match ingress.redrive(message):
                case Again.TAKEN:
                    del self._waiting[number]
                    self._taken.add(number)
                    self._custody.letter_done(number)
                    self.count += 1
                case Again.UNWANTED:
                    self._keep(number)
                    unwanted.append(letter)
        if unwanted:
            text = "redrive_kept letters=%d first_id=%s reason=%s"
            logger.warning(text, len(unwanted), unwanted[0].id.hex(), "nobody wants it now")
        self._pump.run()

    def _keep(self, number: int) -> None:
        """A letter stays in the journal and can be redriven later."""
        del self._waiting[number]
        self._custody.letter_kept(number)
