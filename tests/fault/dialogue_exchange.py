"""One side of a dialogue: sends messages to the services, hears what they say, and knows when all has been dealt with."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.uri import UUri
from tests.fault import dialogue_asking as asking
from tests.fault.dialogue_asking import Asking
from tests.fault.dialogue_child import from_text, to_text
from tests.fault.dialogue_life import Nursery
from tests.fault.dialogue_model import Chain, Link, Receivers, World, after, passed, receivers_after, rules_after
from tests.fault.dialogue_remote import Command, Remote
from tests.fault.dialogue_updates import BrokenError, Updates

START_MS = 1_700_000_000_000


@dataclass(eq=False)
class Asked:
    """A message for the services, until they are done with it. ``link`` is None for what only looks."""

    message: UMessage
    link: Link | None
    chain: Chain[Any] | None
    answer: Any = None
    is_done: bool = False

    @property
    def is_request(self) -> bool:
        return self.message.attributes.type is UMessageType.REQUEST


@dataclass
class Exchange:
    """What one seed's dialogue consists of. ``forgets`` gives every life an empty file: the checks have to notice that."""

    directory: Path
    seed: int
    kills_inside_only: bool = False
    forgets: bool = False
    figures: Counter[str] = field(default_factory=Counter)
    nursery: Nursery = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"dialogue {self.seed}")
        self.now_ms = START_MS
        self.remote = Remote(self.chance)
        self.asking = Asking(self.chance)
        self.worlds: Chain[World] = Chain(after, {World()}, passed)  # and two more, for core.ustreamer
        self.rules: Chain[tuple[str, ...]] = Chain(rules_after, {()})
        self.receivers: Chain[Receivers] = Chain(receivers_after, {frozenset()})
        self.chains: dict[str, Chain[Any]] = {
            asking.WORLDS: self.worlds,
            asking.RULES_HELD: self.rules,
            asking.RECEIVERS_HELD: self.receivers,
        }
        self.life = 0
        self.number = 0
        self.asked: dict[int, Asked] = {}
        self.again: list[Asked] = []
        self.updates = Updates(self.figures)
        self.commanded: list[Command] = []  # since the last look
        self.wants: dict[str, dict[UUri, dict[str, int]]] = {}
        self.checked_life = 0
        self.story: deque[str] = deque(maxlen=150)

    def finish_turn(self) -> None:
        """What came of all that was sent has been heard; commands are said after the end of what they come of."""
        self.until_quiet()
        self.send(asking.fetch_nothing(self.now_ms))
        self.until_quiet()

    def send(self, message: UMessage, event: Any = None, chain: Chain[Any] | None = None) -> Asked:
        self.number += 1
        asked = self.asked[self.number] = Asked(message, None if chain is None else chain.add(event), chain)
        if event is not None:
            self.figures["asked"] += 1
            self.note(f"{self.number} {_brief(event)}")
        self.nursery.write(take=self.number, now_ms=self.now_ms, message=to_text(message))
        return asked

    def hear(self) -> None:
        frame = self.nursery.read()
        assert frame is not None
        self.take(frame)

    def take(self, frame: dict[str, Any]) -> None:
        if "want" in frame:
            wants = self.wants.setdefault(frame["owner"], {})
            topic = UUri.parse(frame["want"])
            wants[topic] = frame["askers"]
            if not frame["askers"]:
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
        assert attributes.sink is not None
        if attributes.type is UMessageType.NOTIFICATION:
            if not self.updates.say(number, message):
                return
        elif attributes.type is UMessageType.REQUEST:
            command = self.remote.take(message, self.life)
            self.commanded.append(command)
            self.note(f"command {'Subscribe' if command.subscribe else 'Unsubscribe'} {command.topic}")
        else:
            self._answered(message)
        self.nursery.write(safe=number)

    def _answered(self, message: UMessage) -> None:
        for number, asked in self.asked.items():
            if asked.is_request and asked.message.id == message.attributes.reqid and asked.answer is None:
                asked.answer = asking.answer_of(message, looks=asked.link is None)
                if asked.link is not None:
                    self.figures["answered"] += 1
                    self.note(f"{number} answered {asked.answer}")
                return

    def until_quiet(self) -> None:
        """All that was sent has been dealt with."""
        while not all(asked.is_done for asked in self.asked.values()):
            self.hear()
        for number, asked in self.asked.items():
            if asked.link is not None:
                asked.link.answer, asked.link.has_happened = asked.answer, True
            if asked.is_request and asked.answer is None:
                raise BrokenError(f"{number} was not answered")
        self.asked.clear()
        self.cut()

    def cut(self) -> None:
        for chain in self.chains.values():
            before, links = chain.states, list(chain.links)
            if not chain.cut(self.now_ms):
                events = "\n  ".join(f"{link.event} {link.answer} {link.has_happened}" for link in links)
                raise BrokenError(f"no state can have answered so:\n  {events}\nfrom {before}")

    def note(self, line: str) -> None:
        self.story.append(line)


def _brief(event: Any) -> str:
    return " ".join(str(part) for part in event) if type(event) is tuple else str(event)
