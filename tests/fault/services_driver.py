"""Sends messages to the services, reads what they send, and knows when all of it has been dealt with."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.uri import UUri
from tests.fault import services_requests as requests
from tests.fault.services_child import from_text, to_text
from tests.fault.services_model import (
    Answered,
    ModelState,
    PendingEvent,
    PossibleStates,
    Receivers,
    after,
    passed,
    receivers_after,
    rules_after,
)
from tests.fault.services_process import ServicesProcess
from tests.fault.services_remote import Command, RemoteServices
from tests.fault.services_requests import RequestGenerator
from tests.fault.services_updates import BrokenError, Updates

START_MS = 1_700_000_000_000


@dataclass(eq=False)
class Asked:
    """A message for the services, until they are done with it. ``pending`` is None for what only looks."""

    message: UMessage
    pending: PendingEvent | None
    possible: PossibleStates[Any] | None
    answer: Any = None
    is_done: bool = False

    @property
    def is_request(self) -> bool:
        return self.message.attributes.type is UMessageType.REQUEST


@dataclass
class ServicesDriver:
    """The state of one seed's run. ``forgets`` gives every start an empty file: the checks have to notice that."""

    directory: Path
    seed: int
    kills_inside_only: bool = False
    forgets: bool = False
    figures: Counter[str] = field(default_factory=Counter)
    process: ServicesProcess = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"dialogue {self.seed}")
        self.now_ms = START_MS
        self.remote = RemoteServices(self.chance)
        self.requests = RequestGenerator(self.chance)
        self.usubscription: PossibleStates[ModelState] = PossibleStates(after, {ModelState()}, passed)
        # and two of core.ustreamer
        self.rules: PossibleStates[tuple[str, ...]] = PossibleStates(rules_after, {()})
        self.receivers: PossibleStates[Receivers] = PossibleStates(receivers_after, {frozenset()})
        self.possible: dict[str, PossibleStates[Any]] = {
            requests.USUBSCRIPTION: self.usubscription,
            requests.RULES_HELD: self.rules,
            requests.RECEIVERS_HELD: self.receivers,
        }
        self.run_number = 0
        self.number = 0
        self.asked: dict[int, Asked] = {}
        self.again: list[Asked] = []
        self.updates = Updates(self.figures)
        self.commanded: list[Command] = []  # since the last look
        self.refusals: list[tuple[int, Answered]] = []  # when they came, and what may come of them after a time-out
        self.wants: dict[str, dict[UUri, dict[str, int]]] = {}
        self.checked_run = 0
        self.history: deque[str] = deque(maxlen=150)

    def finish_turn(self) -> None:
        """Wait for all that comes of what was sent: commands follow the end of what they come of."""
        self.until_quiet()
        self.send(requests.fetch_nothing(self.now_ms))
        self.until_quiet()

    def send(self, message: UMessage, event: Any = None, possible: PossibleStates[Any] | None = None) -> Asked:
        self.number += 1
        asked = self.asked[self.number] = Asked(message, None if possible is None else possible.add(event), possible)
        if event is not None:
            self.figures["asked"] += 1
            self.note(f"{self.number} {_brief(event)}")
        self.process.write(take=self.number, now_ms=self.now_ms, message=to_text(message))
        return asked

    def hear(self) -> None:
        frame = self.process.read()
        assert frame is not None
        self.take(frame)

    def take(self, frame: dict[str, Any]) -> None:
        if "want" in frame:
            wants = self.wants.setdefault(frame["owner"], {})
            topic = UUri.parse(frame["want"])
            wants[topic] = frame["interested"]
            if not frame["interested"]:
                del wants[topic]
        elif "done" in frame:
            asked = self.asked[frame["done"]]
            asked.is_done = True
            if frame["error"] is not None:
                raise BrokenError(f"{frame['error']}: {asked}")
        elif "said" in frame:
            self._said(frame["said"], from_text(frame["message"]))

    def _said(self, number: int, message: UMessage) -> None:
        attributes = message.attributes
        if attributes.sink is None:
            self.figures["published"] += 1
        elif attributes.type is UMessageType.NOTIFICATION:
            if not self.updates.say(number, message):
                return
        elif attributes.type is UMessageType.REQUEST:
            command = self.remote.take(message, self.run_number)
            self.commanded.append(command)
            self.note(f"command {'Subscribe' if command.subscribe else 'Unsubscribe'} {command.topic}")
        else:
            self._answered(message)
        self.process.write(safe=number)

    def _answered(self, message: UMessage) -> None:
        for number, asked in self.asked.items():
            if asked.is_request and asked.message.id == message.attributes.reqid and asked.answer is None:
                asked.answer = requests.answer_of(message, looks=asked.pending is None)
                if asked.pending is not None:
                    self.figures["answered"] += 1
                    self.note(f"{number} answered {asked.answer}")
                return

    def until_quiet(self) -> None:
        """All that was sent has been dealt with."""
        while not all(asked.is_done for asked in self.asked.values()):
            self.hear()
        for number, asked in self.asked.items():
            if asked.pending is not None:
                asked.pending.answer, asked.pending.has_happened = asked.answer, True
            if asked.is_request and asked.answer is None:
                raise BrokenError(f"{number} was not answered")
        self.asked.clear()
        self.cut()

    def cut(self) -> None:
        for possible in self.possible.values():
            before, events = possible.states, list(possible.events)
            if not possible.cut(self.now_ms):
                listed = "\n  ".join(f"{pending.event} {pending.answer} {pending.has_happened}" for pending in events)
                raise BrokenError(f"no state can have answered so:\n  {listed}\nfrom {before}")

    def note(self, line: str) -> None:
        self.history.append(line)


def _brief(event: Any) -> str:
    return " ".join(str(part) for part in event) if type(event) is tuple else str(event)
