"""Requests to the services of a streamer that is killed again and again: does every answer still hold?

Clients ask, other devices answer or do not, time jumps, and the process is killed with SIGKILL: from outside, or by itself
between two statements of a transaction, between commit and answer, right after a command was sent. After each restart all
that the services say about themselves has to fit one of the states that `services_model` holds possible.

    python -m tests.fault.killed_services --seeds 100
"""

import sys
from collections import Counter
from typing import Any

from streamer.uprotocol.uri import UUri
from tests.fault import services_requests as requests
from tests.fault.services_driver import START_MS, Asked, ServicesDriver
from tests.fault.services_model import SUBSCRIBED, UNSUBSCRIBED, Answered, Hint, is_remote, is_said, passed, receiving
from tests.fault.services_process import KilledError, ServicesProcess
from tests.fault.services_remote import TIMEOUT_MS, Command, Post
from tests.fault.services_requests import COVERS, SUBSCRIBERS, TOPICS, WATCHERS
from tests.fault.services_updates import BrokenError

STALE_MS = TIMEOUT_MS + 61_000
"""After this long, what was not answered has been sent again: its time-out and the longest pause have passed."""


class KilledServices(ServicesDriver):
    """One seed's run: random Requests, answers, jumps of time and kills."""

    def play(self, steps: int) -> Counter[str]:
        """The whole run. Raises `BrokenError`."""
        try:
            with ServicesProcess(self.directory) as self.process:
                self._restart()
                for _ in range(steps):
                    try:
                        self._step()
                    except KilledError:
                        self._ended()
                        self._restart()
                self._heal()
        except AssertionError as exc:
            history = "\n  ".join(self.history)
            raise BrokenError(f"seed {self.seed}, run {self.run_number}: {exc}\nbefore that:\n  {history}") from exc
        return self.figures

    def _step(self) -> None:
        self._let_refusals_hold()
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
                message, event, possible = self.requests.next_request(self.now_ms)
                self.send(message, event, self.possible[possible])
        if not self.kills_inside_only and self.chance.random() < 0.15:
            self._kill()

    def _arm(self) -> None:
        crossings = self.chance.randint(1, 60)
        self.note(f"ends at crossing {crossings}")
        self.process.write(crossings=crossings)

    def _kill(self) -> None:
        if self.kills_inside_only:
            self._arm()
            return
        moment_s = self.chance.choice((0.0, self.chance.uniform(0, 0.004)))
        while (frame := self.process.read(moment_s)) is not None:
            self.take(frame)
            if self.chance.random() < 0.2:
                break
        self.process.kill()
        self.note("kill")
        while True:
            self.hear()

    def _jump(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.note(f"jump {by_ms} ms")
        self._let_refusals_hold()
        before = len(self.commanded)
        self.finish_turn()
        if by_ms >= STALE_MS:
            self._check_repeats(self.commanded[before:], "time has passed")

    def _let_refusals_hold(self, topic: UUri | None = None) -> None:
        """A refusal by one version of a service may hold from when the other one has failed, or not answered in time.

        ``topic``: the other one has failed.
        """
        for at_ms, refusal in list(self.refusals):
            if refusal.topic == topic or self.now_ms - at_ms >= TIMEOUT_MS:
                self.refusals.remove((at_ms, refusal))
                self.usubscription.add(refusal)

    def _change_lane(self) -> None:
        if self.updates.lanes and self.chance.random() < 0.6:
            self._open_lane(self.chance.choice(sorted(self.updates.lanes)))
        else:
            self.updates.hold(self.chance.choice(SUBSCRIBERS + WATCHERS))

    def _open_lane(self, sink: UUri) -> None:
        for number in self.updates.let_through(sink):
            self.process.write(safe=number)

    def _restart(self) -> None:
        """Start until a start survives."""
        while True:
            try:
                self._begin()
                return
            except KilledError:
                self._ended()

    def _begin(self) -> None:
        self.run_number += 1
        self.refusals.clear()  # they are not on disk
        down_ms = self.chance.choice((1, 1, 500, 5_000, STALE_MS)) if self.run_number > 1 else 1
        self.now_ms += down_ms
        if down_ms > TIMEOUT_MS:  # the Unsubscribes of a Reset are not repeated: they may have expired before they were said
            self.usubscription.states = {model._replace(farewells=frozenset()) for model in self.usubscription.states}
        crossings = self.chance.randint(1, 60) if self.chance.random() < 0.1 else None
        self.note(f"run {self.run_number} at +{self.now_ms - START_MS} ms, ends at crossing {crossings}")
        self.wants = {}
        path = None if self.forgets else self.directory / "journal.db"
        frames = self.process.begin(path, self.now_ms, crossings)
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
        """After a kill: what was not sent is unknown, and what was not safe may be lost."""
        self.figures["kills"] += 1
        for asked in self.asked.values():
            if asked.answer is not None and not asked.is_done and self.chance.random() < 0.5:
                asked.answer = None  # lost on its way to the client
            if asked.pending is not None:
                asked.pending.answer = asked.answer
                asked.pending.has_happened = asked.answer is not None or asked.is_done
                if not asked.pending.has_happened:
                    self.again.append(asked)
        self.asked.clear()
        self.cut()
        self.updates.lose(self.chance)

    def _ask_again(self, asked: Asked) -> None:
        assert asked.pending is not None
        assert asked.possible is not None
        event = asked.pending.event
        if isinstance(event, Answered | Hint):
            if not asked.message.is_expired(self.now_ms, 0):
                self.send(asked.message, event._replace(is_sure=False), asked.possible)
            return
        if self.chance.random() < 0.1:
            return  # the client has gone
        message = asked.message
        if self.chance.random() < 0.2 or message.is_expired(self.now_ms, 0):
            message = requests.asked_anew(self.now_ms, message)
        self.send(message, event, asked.possible)

    def _heal(self) -> None:
        """No more harm: both sides come to the same view, and what was said has arrived."""
        while True:
            self.process.write(crossings=None)
            try:
                for sink in sorted(self.updates.lanes):
                    self._open_lane(sink)
                self._settle()
                break
            except KilledError:  # it had reached its end before it read that there is none
                self._ended()
                self._restart()
        models = self.usubscription.states
        if any(model.due() for model in models):
            raise BrokenError(f"not settled in the end: {models}")
        for topic in [topic for topic in TOPICS if is_remote(topic)]:
            [state] = {model.state_of(topic) for model in models}
            truth = self.remote.truth.get(topic, UNSUBSCRIBED)
            if state == SUBSCRIBED and truth != SUBSCRIBED:
                raise BrokenError(f"{topic} is SUBSCRIBED here, and the other service says {truth}")
            if state == SUBSCRIBED:
                self.now_ms += 1
                self._post(self.remote.hint(topic, UNSUBSCRIBED, self.now_ms, is_sure=True), is_alone=True)
                self._look()
        self._look()
        self.updates.settle()
        self.process.kill()
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
            known = [topic for topic, state in self.remote.truth.items() if state == SUBSCRIBED]
            # What is confirmed is asked for again for ever.
            is_over = not self.remote.late and all(each.subscribe and each.topic in known for each in commands)
            for command in commands:
                self.now_ms += 1
                self._post(self.remote.carry_out(command, self.now_ms), is_alone=True)
            self.remote.late.clear()  # older than their TTL
            self._look()
            if is_over:
                return
        raise BrokenError("commands are sent for ever")

    # What is sent

    def _happen_there(self) -> None:
        post = self.remote.act(self.now_ms)
        if post is not None:
            self._post(post, is_alone=True)

    def _post(self, post: Post, is_alone: bool) -> None:
        message, meaning = post
        if message.is_expired(self.now_ms, 0):
            return
        if not is_alone:
            meaning = meaning._replace(is_sure=False)
        if isinstance(meaning, Answered) and meaning.subscribe and meaning.is_delivered and meaning.state is None:
            self.refusals.append((self.now_ms, meaning))
        self.send(message, meaning, self.usubscription)
        if isinstance(meaning, Answered) and not meaning.is_delivered:
            self._let_refusals_hold(meaning.topic)
        if is_alone:
            self.finish_turn()

    # What is to be seen

    def _look(self) -> None:
        """Ask the services for everything, and keep the possible states that agree."""
        self.until_quiet()
        self.figures["looks"] += 1
        about = [("topic", topic) for topic in TOPICS] + [("subscriber", uri) for uri in SUBSCRIBERS]
        pages = {key: [self.send(each) for each in requests.fetch_pages(self.now_ms, *key)] for key in about}
        rules = self.send(requests.fetch_rules(self.now_ms))
        self.until_quiet()
        seen = {key: requests.joined([page.answer[1] for page in listed]) for key, listed in pages.items()}
        commanded, self.commanded = self.commanded, []
        said_farewell = {command.topic for command in commanded if not command.subscribe}
        fitting = {
            model._replace(told=(), farewells=frozenset())
            for model in (passed(model, self.now_ms) for model in self.usubscription.states)
            if is_said(model.told, self.updates.decided)
            and model.farewells <= said_farewell
            and model.interested() == self.wants.get("subscription", {})
            and seen == {key: requests.rows_of(model, *key) for key in about}
        }
        if not fitting:
            raise BrokenError(
                f"no possible model looks like this:\n{_text(seen)}\n"
                f"wanted {self.wants.get('subscription')}\nUpdates {self.updates.decided}\nUnsubscribes {said_farewell}\n"
                "possible:\n" + "\n".join(f"{model}" for model in self.usubscription.states)
            )
        self.usubscription.states = fitting
        self.updates.decided.clear()
        self.rules.states &= {rules.answer[1]}
        self.receivers.states = {
            held for held in self.receivers.states if receiving(held, COVERS) == self.wants.get("multicast", {})
        }
        if not self.rules.states or not self.receivers.states:
            raise BrokenError(f"stopped: {rules.answer}, wanted for multicast: {self.wants.get('multicast')}")
        if self.run_number != self.checked_run:
            self.checked_run = self.run_number
            self._check_repeats(
                [command for command in commanded if command.run_number == self.run_number], "it was started again"
            )

    def _check_repeats(self, commanded: list[Command], why: str) -> None:
        """What is not answered has been sent again (004 §8); states in which something was not are impossible."""
        said = {(command.topic, command.subscribe) for command in commanded}
        models = {passed(model, self.now_ms) for model in self.usubscription.states}
        fitting = {model for model in models if model.due() <= said}
        if not fitting:
            raise BrokenError(f"after {why}, commands that were sent are {said}, and not {[w.due() for w in models]}")
        self.usubscription.states = fitting


def _text(found: dict[Any, list[Any]]) -> str:
    return "\n".join(f"  {key}: {each}" for key, listed in found.items() for each in listed)


def main() -> int:
    from tests.fault import run  # noqa: PLC0415  # that one lists all faults, this one among them

    sys.argv[1:1] = ["--only", "services killed in a dialogue"]
    return run.main()


if __name__ == "__main__":
    sys.exit(main())
