"""A long dialogue with the services of a streamer that is killed again and again: does every answer still hold?

Clients ask, other devices answer or do not, time jumps, and the process is killed with SIGKILL: from outside, or by itself
between two statements of a transaction, between commit and answer, right after a command was sent. After each restart all
that the services say about themselves has to fit one of the worlds that `dialogue_model` holds possible.

    python -m tests.fault.dialogues --seeds 100
"""

import sys
from collections import Counter
from typing import Any

from streamer.uprotocol.uri import UUri
from tests.fault import dialogue_asking as asking
from tests.fault.dialogue_asking import COVERS, SUBSCRIBERS, TOPICS, WATCHERS
from tests.fault.dialogue_exchange import START_MS, Asked, Exchange
from tests.fault.dialogue_life import KilledError, Nursery
from tests.fault.dialogue_model import (
    SUBSCRIBED,
    UNSUBSCRIBED,
    Answered,
    Hint,
    flows,
    is_remote,
    passed,
    receiving,
)
from tests.fault.dialogue_remote import TIMEOUT_MS, Command, Post
from tests.fault.dialogue_updates import BrokenError

STALE_MS = TIMEOUT_MS + 61_000
"""After this long, what was not answered has been sent again: its time-out and the longest pause have passed."""


class Dialogue(Exchange):
    """One seed's."""

    def play(self, steps: int) -> Counter[str]:
        """All of it. Raises `BrokenError`."""
        try:
            with Nursery(self.directory) as self.nursery:
                self._restart()
                for _ in range(steps):
                    try:
                        self._step()
                    except KilledError:
                        self._ended()
                        self._restart()
                self._heal()
        except AssertionError as exc:
            story = "\n  ".join(self.story)
            raise BrokenError(f"seed {self.seed}, life {self.life}: {exc}\nbefore that:\n  {story}") from exc
        return self.figures

    def _step(self) -> None:
        kind = self.chance.choices(("burst", "there", "jump", "lane", "kill"), (50, 25, 12, 6, 7))[0]
        if kind == "burst":
            self._burst()
        elif kind == "there":
            for _ in range(self.chance.randint(1, 4)):
                self.now_ms += self.chance.randint(1, 400)
                self._happen_there()
        elif kind == "jump":
            self._jump(self.chance.choice((1_000, 30_000, TIMEOUT_MS - 1, TIMEOUT_MS, STALE_MS, 3_600_000)))
        elif kind == "lane":
            self._change_lane()
        else:
            self._kill()
        self._look()

    def _burst(self) -> None:
        if self.chance.random() < 0.3:
            self._arm()
        self.now_ms += 1
        for _ in range(self.chance.randint(1, 7)):
            if self.chance.random() < 0.2 and (post := self.remote.act(self.now_ms)) is not None:
                self._post(post, is_alone=False)
            else:
                message, event, chain = self.asking.something(self.now_ms)
                self.send(message, event, self.chains[chain])
        if not self.kills_inside_only and self.chance.random() < 0.15:
            self._kill()

    def _arm(self) -> None:
        crossings = self.chance.randint(1, 60)
        self.note(f"ends at crossing {crossings}")
        self.nursery.write(crossings=crossings)

    def _kill(self) -> None:
        if self.kills_inside_only:
            self._arm()
            return
        moment_s = self.chance.choice((0.0, self.chance.uniform(0, 0.004)))
        while (frame := self.nursery.read(moment_s)) is not None:
            self.take(frame)
            if self.chance.random() < 0.2:
                break
        self.nursery.kill()
        self.note("kill")
        while True:
            self.hear()

    def _jump(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.note(f"jump {by_ms} ms")
        before = len(self.commanded)
        self.finish_turn()
        if by_ms >= STALE_MS:
            self._check_repeats(self.commanded[before:], "time has passed")

    def _change_lane(self) -> None:
        if self.updates.lanes and self.chance.random() < 0.6:
            self._open_lane(self.chance.choice(sorted(self.updates.lanes)))
        else:
            self.updates.hold(self.chance.choice(SUBSCRIBERS + WATCHERS))

    def _open_lane(self, sink: UUri) -> None:
        for number in self.updates.let_through(sink):
            self.nursery.write(safe=number)

    def _restart(self) -> None:
        """Up again, with whatever luck, and fit for use."""
        while True:
            try:
                self._begin()
                return
            except KilledError:
                self._ended()

    def _begin(self) -> None:
        self.life += 1
        down_ms = self.chance.choice((1, 1, 500, 5_000, STALE_MS)) if self.life > 1 else 1
        self.now_ms += down_ms
        if down_ms > TIMEOUT_MS:  # the Unsubscribes of a Reset are not repeated: they may have expired before they were said
            self.worlds.states = {world._replace(farewells=frozenset()) for world in self.worlds.states}
        crossings = self.chance.randint(1, 60) if self.chance.random() < 0.1 else None
        self.note(f"life {self.life} at +{self.now_ms - START_MS} ms, ends at crossing {crossings}")
        self.wants = {}
        path = None if self.forgets else self.directory / "state.db"
        frames = self.nursery.begin(path, self.now_ms, crossings)
        for frame in frames:
            self.take(frame)
        stopped = frames[-1]["ready"]
        if all(sorted(stopped) != sorted(rules) for rules in self.rules.states):
            raise BrokenError(f"stopped from the start: {stopped}; possible: {self.rules.states}")
        if self.chance.random() < 0.7:
            self._look()
        again, self.again = self.again, []
        for asked in again:
            self._ask_again(asked)
        self._look()

    def _ended(self) -> None:
        """The kill has come: what was not said is not known, and what was not safe may be lost."""
        self.figures["kills"] += 1
        for asked in self.asked.values():
            if asked.answer is not None and not asked.is_done and self.chance.random() < 0.5:
                asked.answer = None  # lost on its way to the client
            if asked.link is not None:
                asked.link.answer = asked.answer
                asked.link.has_happened = asked.answer is not None or asked.is_done
                if not asked.link.has_happened:
                    self.again.append(asked)
        self.asked.clear()
        self.cut()
        self.updates.lose(self.chance)

    def _ask_again(self, asked: Asked) -> None:
        assert asked.link is not None
        assert asked.chain is not None
        event = asked.link.event
        if isinstance(event, Answered | Hint):
            if not asked.message.is_expired(self.now_ms):
                self.send(asked.message, event._replace(is_sure=False), asked.chain)
            return
        if self.chance.random() < 0.1:
            return  # the client has gone
        message = asked.message
        if self.chance.random() < 0.2 or message.is_expired(self.now_ms):
            message = asking.asked_anew(self.now_ms, message)
        self.send(message, event, asked.chain)

    def _heal(self) -> None:
        """No more harm: both sides come to the same view, and what was said has arrived."""
        while True:
            self.nursery.write(crossings=None)
            try:
                for sink in sorted(self.updates.lanes):
                    self._open_lane(sink)
                self._settle()
                break
            except KilledError:  # it had reached its end before it read that there is none
                self._ended()
                self._restart()
        worlds = self.worlds.states
        if any(world.due() for world in worlds):
            raise BrokenError(f"not settled in the end: {worlds}")
        for topic in [topic for topic in TOPICS if is_remote(topic)]:
            [state] = {world.state_of(topic) for world in worlds}
            truth = self.remote.truth.get(topic, UNSUBSCRIBED)
            if state == SUBSCRIBED and truth != SUBSCRIBED:
                raise BrokenError(f"{topic} is SUBSCRIBED here, and the other service says {truth}")
            if state == SUBSCRIBED:
                self.now_ms += 1
                self._post(self.remote.hint(topic, UNSUBSCRIBED, self.now_ms, is_sure=True), is_alone=True)
                self._look()
        self._look()
        self.updates.settle()
        self.nursery.kill()
        try:
            while True:
                self.hear()
        except KilledError:
            self._ended()
        self._restart()

    def _settle(self) -> None:
        for _ in range(40):
            self._jump(STALE_MS)
            commands = self.remote.open(self.now_ms)
            if not commands and not self.remote.late:
                self._look()
                return
            for command in commands:
                self.now_ms += 1
                self._post(self.remote.carry_out(command, self.now_ms), is_alone=True)
            self.remote.late.clear()  # older than their TTL
            self._look()
        raise BrokenError("commands are sent for ever")

    # What is sent

    def _happen_there(self) -> None:
        post = self.remote.act(self.now_ms)
        if post is not None:
            self._post(post, is_alone=True)

    def _post(self, post: Post, is_alone: bool) -> None:
        message, meaning = post
        if message.is_expired(self.now_ms):
            return
        if not is_alone:
            meaning = meaning._replace(is_sure=False)
        self.send(message, meaning, self.worlds)
        if is_alone:
            self.finish_turn()

    # What is to be seen

    def _look(self) -> None:
        """Ask the services for everything, and keep the worlds that look like that."""
        self.until_quiet()
        self.figures["looks"] += 1
        about = [("topic", topic) for topic in TOPICS] + [("subscriber", uri) for uri in SUBSCRIBERS]
        pages = {key: [self.send(each) for each in asking.fetch_pages(self.now_ms, *key)] for key in about}
        rules = self.send(asking.fetch_rules(self.now_ms))
        self.until_quiet()
        seen = {key: asking.joined([page.answer[1] for page in listed]) for key, listed in pages.items()}
        commanded, self.commanded = self.commanded, []
        said_farewell = {command.topic for command in commanded if not command.subscribe}
        decided = flows(self.updates.decided)
        fitting = {
            world._replace(told=(), farewells=frozenset())
            for world in (passed(world, self.now_ms) for world in self.worlds.states)
            if flows(world.told) == decided
            and world.farewells <= said_farewell
            and world.interested() == self.wants.get("subscription", {})
            and seen == {key: asking.rows_of(world, *key) for key in about}
        }
        if not fitting:
            raise BrokenError(
                f"no possible world looks like this:\n{_text(seen)}\n"
                f"wanted {self.wants.get('subscription')}\nUpdates {_text(decided)}\nUnsubscribes {said_farewell}\n"
                "possible:\n" + "\n".join(f"{world}" for world in self.worlds.states)
            )
        self.worlds.states = fitting
        self.updates.decided.clear()
        self.rules.states &= {rules.answer[1]}
        self.receivers.states = {
            held for held in self.receivers.states if receiving(held, COVERS) == self.wants.get("multicast", {})
        }
        if not self.rules.states or not self.receivers.states:
            raise BrokenError(f"stopped: {rules.answer}, wanted for multicast: {self.wants.get('multicast')}")
        if self.life != self.checked_life:
            self.checked_life = self.life
            self._check_repeats([command for command in commanded if command.life == self.life], "it was started again")

    def _check_repeats(self, commanded: list[Command], why: str) -> None:
        """What is not answered has been sent again (004 §8); worlds in which something was not are none."""
        said = {(command.topic, command.subscribe) for command in commanded}
        worlds = {passed(world, self.now_ms) for world in self.worlds.states}
        fitting = {world for world in worlds if world.due() <= said}
        if not fitting:
            raise BrokenError(f"after {why}, commands that were sent are {said}, and not {[w.due() for w in worlds]}")
        self.worlds.states = fitting


def _text(found: dict[Any, list[Any]]) -> str:
    return "\n".join(f"  {key}: {each}" for key, listed in found.items() for each in listed)


def main() -> int:
    from tests.fault import run  # noqa: PLC0415  # that one lists all faults, this one among them

    sys.argv[1:1] = ["--only", "services killed in a dialogue"]
    return run.main()


if __name__ == "__main__":
    sys.exit(main())
