"""A long dialogue with the services of a streamer that is killed again and again: does every answer still hold?

Clients ask, other devices answer or do not, time jumps, and the process is killed with SIGKILL: from outside, or by itself
between two statements of a transaction, between commit and answer, right after a command was sent. After each restart all
that the services say about themselves has to fit one of the worlds that `dialogue_model` holds possible.

    python -m tests.fault.dialogues --seeds 100
"""

import random
import sys
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from streamer.uprotocol.message import Options, UMessage, UMessageType, UPayloadFormat, request
from streamer.uprotocol.proto import ustreamer_v1_pb2 as us
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.uri import UUri
from tests.fault.dialogue_child import BROADCAST, PARTITIONS, PROVIDER, from_text, to_text
from tests.fault.dialogue_life import KilledError, Nursery
from tests.fault.dialogue_model import (
    EDGES,
    OK,
    OWN,
    PAGE,
    SUBSCRIBED,
    UNSUBSCRIBED,
    Answered,
    Ask,
    Chain,
    Hint,
    Link,
    Receivers,
    Told,
    World,
    after,
    flows,
    is_remote,
    passed,
    receivers_after,
    receiving,
    rules_after,
)
from tests.fault.dialogue_remote import TIMEOUT_MS, Command, Post, Remote

START_MS = 1_700_000_000_000
TTL_MS = 10_000
STALE_MS = TIMEOUT_MS + 61_000
"""After this long, what was not answered has been sent again: its time-out and the longest pause have passed."""

TOPICS = [UUri.parse(text) for text in ("//dev1/B0/1/8001", "//dev1/B0/1/8002", "//gw1/B1/1/8001")]
TOPICS += [UUri.parse(text) for text in ("//dev2/B0/1/8001", "//dev2/B0/1/8002", "//dev4/B0/1/8001")]
APPS = [UUri.parse(text) for text in ("//dev1/A1/1/0", "//dev1/A2/1/0", "//dev1/A3/1/0", "//gw1/A4/1/0", "//dev3/A5/1/0")]
SERVICE = UUri.parse("//dev2/0/3/0")
SUBSCRIBERS = [*APPS, SERVICE]
WATCHERS = [UUri.parse("//dev1/EE/1/0"), UUri.parse("//dev3/EF/1/0"), APPS[0]]
RULES = ["//dev1/B0/1/8001", "//dev1/B0/1/FFFF", "//*/FFFFFFFF/FF/8002", "//dev2/B0/1/8001"]
FIRED = UUri.parse(PROVIDER)
_COVERED = {"front": ["front"], "front/left": ["front/left"], "+": ["front", "rear"], "front/*": ["front", "front/left"]}
COVERS = {
    f"{PROVIDER}/{BROADCAST}/{pattern}": [FIRED._replace(resource=PARTITIONS[name]) for name in names]
    for pattern, names in _COVERED.items()
}
METHODS = {"subscribe": 1, "unsubscribe": 2, "register": 6, "unregister": 7, "fetch": 8, "reset": 9}
PLAIN = Options(payload_format=UPayloadFormat.PROTOBUF)


class BrokenError(AssertionError):
    """The services have done what they must not; the text says what, and what went before."""


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
class Dialogue:
    """One seed's. ``forgets`` gives every life an empty file: the checks have to notice that."""

    directory: Path
    seed: int
    kills_inside_only: bool = False
    forgets: bool = False
    figures: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"dialogue {self.seed}")
        self.now_ms = START_MS
        self.remote = Remote(self.chance)
        self.worlds: Chain[World] = Chain(after, {World()}, passed)
        self.rules: Chain[tuple[str, ...]] = Chain(rules_after, {()})
        self.receivers: Chain[Receivers] = Chain(receivers_after, {frozenset()})
        self.life = 0
        self.number = 0
        self.asked: dict[int, Asked] = {}
        self.again: list[Asked] = []
        self.updates: dict[bytes, bytes | None] = {}  # payload of every Update that was ever said
        self.decided: list[Told] = []  # since the last look
        self.commanded: list[Command] = []  # since the last look
        self.arrived: set[bytes] = set()
        self.last: dict[tuple[UUri, UUri, UUri], int] = {}  # what each sink heard last of a topic and a subscriber
        self.lanes: dict[UUri, deque[tuple[int, UMessage]]] = {}  # of sinks that nothing gets through to now
        self.wants: dict[str, dict[UUri, dict[str, int]]] = {}
        self.ends: set[int] = set()
        self.story: deque[str] = deque(maxlen=150)

    # The course

    def play(self, steps: int) -> Counter[str]:
        """All of it. Raises `BrokenError`."""
        with Nursery(self.directory) as self.nursery:
            self._restart()
            for _ in range(steps):
                try:
                    self._step()
                except KilledError:
                    self._ended()
                    self._restart()
            self._heal()
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
                self._ask_something()
        if not self.kills_inside_only and self.chance.random() < 0.15:
            self._kill()

    def _arm(self) -> None:
        crossings = self.chance.randint(1, 60)
        self._note(f"ends at crossing {crossings}")
        self.nursery.write(crossings=crossings)

    def _kill(self) -> None:
        if self.kills_inside_only:
            self._arm()
            return
        moment_s = self.chance.choice((0.0, self.chance.uniform(0, 0.004)))
        while (frame := self.nursery.read(moment_s)) is not None:
            self._take(frame)
            if self.chance.random() < 0.2:
                break
        self.nursery.kill()
        self._note("kill")
        while True:
            self._hear()

    def _jump(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self._note(f"jump {by_ms} ms")
        before = len(self.commanded)
        self._finish_turn()
        if by_ms >= STALE_MS:
            self._check_repeats(self.commanded[before:], "time has passed")

    def _change_lane(self) -> None:
        if self.lanes and self.chance.random() < 0.6:
            self._open_lane(self.chance.choice(sorted(self.lanes)))
        else:
            self.lanes.setdefault(self.chance.choice(SUBSCRIBERS + WATCHERS), deque())

    def _open_lane(self, sink: UUri) -> None:
        for number, message in self.lanes.pop(sink):
            self._arrive(message)
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
        self._note(f"life {self.life} at +{self.now_ms - START_MS} ms, ends at crossing {crossings}")
        self.wants = {}
        path = None if self.forgets else self.directory / "state.db"
        frames = self.nursery.begin(path, self.now_ms, crossings)
        for frame in frames:
            self._take(frame)
        stopped = frames[-1]["ready"]
        if all(sorted(stopped) != sorted(rules) for rules in self.rules.states):
            raise self._broken(f"stopped from the start: {stopped}; possible: {self.rules.states}")
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
        self._cut()
        for sink, lane in self.lanes.items():
            for _, message in list(lane)[: self.chance.randint(0, len(lane))]:  # what a journal has kept of it
                self._arrive(message)
            self.lanes[sink] = deque()

    def _ask_again(self, asked: Asked) -> None:
        assert asked.link is not None
        assert asked.chain is not None
        event = asked.link.event
        if isinstance(event, Answered | Hint):
            if not asked.message.is_expired(self.now_ms):
                self._send(asked.message, event._replace(is_sure=False), asked.chain)
            return
        if self.chance.random() < 0.1:
            return  # the client has gone
        message = asked.message
        if self.chance.random() < 0.2 or message.is_expired(self.now_ms):
            attributes = message.attributes
            assert attributes.sink is not None
            message = request(self.now_ms, attributes.source, attributes.sink, TTL_MS, message.payload, PLAIN)
        self._send(message, event, asked.chain)

    def _heal(self) -> None:
        """No more harm: both sides come to the same view, and what was said has arrived."""
        self.nursery.write(crossings=None)
        while True:
            try:
                for sink in sorted(self.lanes):
                    self._open_lane(sink)
                self._settle()
                break
            except KilledError:  # it had set an end to itself before
                self._ended()
                self._restart()
        worlds = self.worlds.states
        if any(world.due() for world in worlds):
            raise self._broken(f"not settled in the end: {worlds}")
        for topic in [topic for topic in TOPICS if is_remote(topic)]:
            [state] = {world.state_of(topic) for world in worlds}
            truth = self.remote.truth.get(topic, UNSUBSCRIBED)
            if state == SUBSCRIBED and truth != SUBSCRIBED:
                raise self._broken(f"{topic} is SUBSCRIBED here, and the other service says {truth}")
            if state == SUBSCRIBED:
                self.now_ms += 1
                self._post(self.remote.hint(topic, UNSUBSCRIBED, self.now_ms, is_sure=True), is_alone=True)
                self._look()
        if missing := self.updates.keys() - self.arrived:
            raise self._broken(f"{len(missing)} Updates have never arrived")

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
        raise self._broken("commands are sent for ever")

    # What is asked

    def _ask_something(self) -> None:
        pick = self.chance.choice
        match self.chance.choices(
            ("subscribe", "unsubscribe", "fetch", "register", "unregister", "reset", "rule", "receiver"),
            (42, 24, 8, 6, 4, 1.5, 7, 7),
        )[0]:
            case "rule":
                self._ask_rule(pick(("stop", "start")), pick(RULES))
            case "receiver":
                self._ask_receiver(pick(("receive", "leave")), pick([APPS[0], APPS[4]]), pick(list(COVERS)))
            case "subscribe":
                period_ms = pick((None, None, 100, 250, 1000))
                ask = Ask("subscribe", pick(TOPICS), pick(SUBSCRIBERS), pick(("dev1", OWN)), self._end(), period_ms)
                self._ask(ask)
            case "unsubscribe":
                self._ask(Ask("unsubscribe", pick(TOPICS), pick(SUBSCRIBERS), "dev1"))
            case "fetch":
                self._ask(Ask("fetch", pick(TOPICS), pick(APPS), "dev1", offset=pick((0, 0, 1, 3, 9))))
            case "reset":
                self._ask(Ask("reset", TOPICS[0], pick((SERVICE, SERVICE, APPS[0])), "dev1"))
            case method:
                self._ask(Ask(method, pick(TOPICS), pick(WATCHERS), pick(("dev1", OWN))))

    def _end(self) -> int | None:
        """When a subscription ends; no two end at the same time, which would leave the order open."""
        if self.chance.random() < 0.6:
            return None
        end_ms = self.now_ms + self.chance.choice((-5, 2_000, 60_000, 400_000)) + self.chance.randrange(1000)
        while end_ms in self.ends:
            end_ms += 1
        self.ends.add(end_ms)
        return end_ms

    def _ask(self, ask: Ask) -> None:
        topic = uri_to_proto(ask.topic)
        proto: Message
        match ask.method:
            case "subscribe":
                proto = pb.SubscriptionRequest(topic=topic)
                if ask.expire_ms is not None:
                    seconds, ms = divmod(ask.expire_ms, 1000)
                    proto.attributes.expire.CopyFrom(Timestamp(seconds=seconds, nanos=ms * 1_000_000))
                if ask.period_ms is not None:
                    proto.attributes.sample_period_ms = ask.period_ms
            case "unsubscribe":
                proto = pb.UnsubscribeRequest(topic=topic)
            case "fetch":
                proto = pb.FetchSubscribersRequest(topic=topic, offset=ask.offset)
            case "reset":
                proto = pb.ResetRequest()
            case _:
                proto = pb.NotificationsRequest(topic=topic)
        self._request(ask.source, UUri(ask.via, 0, 3, METHODS[ask.method]), proto, ask, self.worlds)

    def _ask_rule(self, verb: str, rule: str) -> None:
        topic = us.DispatchRule(topic=uri_to_proto(UUri.parse(rule)))
        kind = us.StopDispatchRequest if verb == "stop" else us.StartDispatchRequest
        method = UUri(OWN, 4, 1, 1 if verb == "stop" else 2)
        self._request(self.chance.choice(APPS[:3]), method, kind(rule=topic), (verb, rule), self.rules)

    def _ask_receiver(self, verb: str, source: UUri, pattern: str) -> None:
        kind = us.RegisterMulticastReceiverRequest if verb == "receive" else us.UnregisterMulticastReceiverRequest
        method = UUri(OWN, 4, 1, 0x10 if verb == "receive" else 0x11)
        self._request(source, method, kind(multicast_id=pattern), (verb, source, pattern), self.receivers)

    def _request(self, source: UUri, method: UUri, proto: Message, event: Any, chain: Chain[Any]) -> None:
        self._send(request(self.now_ms, source, method, TTL_MS, proto.SerializeToString(), PLAIN), event, chain)

    def _fetch(self, method: int, proto: Message, ue_id: int = 0) -> Asked:
        """A look that is in no chain."""
        version = 3 if ue_id == 0 else 1
        message = request(self.now_ms, APPS[0], UUri(OWN, ue_id, version, method), TTL_MS, proto.SerializeToString(), PLAIN)
        return self._send(message, None, None)

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
        self._send(message, meaning, self.worlds)
        if is_alone:
            self._finish_turn()

    def _finish_turn(self) -> None:
        """What came of all that was sent has been heard; commands are said after the end of what they come of."""
        self._until_quiet()
        self._fetch(8, pb.FetchSubscribersRequest(topic=uri_to_proto(TOPICS[0])))  # the turn that it begins ticks first
        self._until_quiet()

    def _send(self, message: UMessage, event: Any, chain: Chain[Any] | None) -> Asked:
        self.number += 1
        asked = self.asked[self.number] = Asked(message, None if chain is None else chain.add(event), chain)
        if event is not None:
            self.figures["asked"] += 1
            self._note(f"{self.number} {_brief(event)}")
        self.nursery.write(take=self.number, now_ms=self.now_ms, message=to_text(message))
        return asked

    # What is heard

    def _hear(self) -> None:
        frame = self.nursery.read()
        assert frame is not None
        self._take(frame)

    def _take(self, frame: dict[str, Any]) -> None:
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
                raise self._broken(f"{frame['error']}: {asked}")
        elif "said" in frame:
            self._said(frame["said"], from_text(frame["message"]))

    def _said(self, number: int, message: UMessage) -> None:
        attributes = message.attributes
        assert attributes.sink is not None
        if attributes.type is UMessageType.NOTIFICATION:
            told = self._told(message)
            if message.id not in self.updates:
                self.updates[message.id] = message.payload
                self.decided.append(told)
            elif self.updates[message.id] != message.payload:
                raise self._broken(f"the same id with another payload: {told}")
            if attributes.sink in self.lanes:
                self.lanes[attributes.sink].append((number, message))
                return
            self._arrive(message)
        elif attributes.type is UMessageType.REQUEST:
            command = self.remote.take(message, self.life)
            self.commanded.append(command)
            self._note(f"command {'Subscribe' if command.subscribe else 'Unsubscribe'} {command.topic}")
        else:
            self._answered(message)
        self.nursery.write(safe=number)

    def _answered(self, message: UMessage) -> None:
        for number, asked in self.asked.items():
            if asked.is_request and asked.message.id == message.attributes.reqid and asked.answer is None:
                asked.answer = _answer(message, looks=asked.link is None)
                if asked.link is not None:
                    self.figures["answered"] += 1
                    self._note(f"{number} answered {asked.answer}")
                return

    def _told(self, message: UMessage) -> Told:
        update = pb.Update.FromString(message.payload or b"")
        source, sink = message.attributes.source, message.attributes.sink
        assert sink is not None
        assert source == UUri(source.authority, 0, 3, 0x8000)
        about = uri_from_proto(update.subscriber.uri)
        return Told(sink, source.authority, uri_from_proto(update.topic), about, update.status.state)

    def _arrive(self, message: UMessage) -> None:
        if message.id in self.arrived:
            self.figures["repeats"] += 1
            return
        self.arrived.add(message.id)
        self.figures["updates"] += 1
        told = self._told(message)
        if told.sink != told.subscriber:
            return  # an observer does not hear what was before and after
        key = told.sink, told.topic, told.subscriber
        edge = self.last.get(key, UNSUBSCRIBED), told.state
        if edge not in EDGES[is_remote(told.topic)]:
            raise self._broken(f"no transition of the state machine: {edge[0]} to {edge[1]} in {told}")
        self.last[key] = told.state

    def _until_quiet(self) -> None:
        """All that was sent has been dealt with."""
        while not all(asked.is_done for asked in self.asked.values()):
            self._hear()
        for number, asked in self.asked.items():
            if asked.link is not None:
                asked.link.answer, asked.link.has_happened = asked.answer, True
            if asked.is_request and asked.answer is None:
                raise self._broken(f"{number} was not answered")
        self.asked.clear()
        self._cut()

    def _cut(self) -> None:
        for chain in (self.worlds, self.rules, self.receivers):
            before, links = chain.states, list(chain.links)
            if not chain.cut(self.now_ms):
                events = "\n  ".join(f"{link.event} {link.answer} {link.has_happened}" for link in links)
                raise self._broken(f"no state can have answered so:\n  {events}\nfrom {before}")

    # What is to be seen

    def _look(self) -> None:
        """Ask the services for everything, and keep the worlds that look like that."""
        self._until_quiet()
        self.figures["looks"] += 1
        by_topic = {topic: self._pages("topic", topic) for topic in TOPICS}
        by_subscriber = {uri: self._pages("subscriber", uri) for uri in SUBSCRIBERS}
        rules = self._fetch(3, us.FetchStopsRequest(), ue_id=4)
        self._until_quiet()
        seen_topics = {topic: _joined(pages) for topic, pages in by_topic.items()}
        seen_subscribers = {uri: _joined(pages) for uri, pages in by_subscriber.items()}
        commanded, self.commanded = self.commanded, []
        said_farewell = {command.topic for command in commanded if not command.subscribe}
        decided = flows(self.decided)
        fitting = {
            world._replace(told=(), farewells=frozenset())
            for world in (passed(world, self.now_ms) for world in self.worlds.states)
            if flows(world.told) == decided
            and world.farewells <= said_farewell
            and world.askers() == self.wants.get("subscription", {})
            and seen_topics == {topic: _rows(world, "topic", topic) for topic in TOPICS}
            and seen_subscribers == {uri: _rows(world, "subscriber", uri) for uri in SUBSCRIBERS}
        }
        if not fitting:
            raise self._broken(
                f"no possible world looks like this:\n{_text(seen_topics)}\n{_text(seen_subscribers)}\n"
                f"wanted {self.wants.get('subscription')}\nUpdates {_text(decided)}\nUnsubscribes {said_farewell}\n"
                "possible:\n" + "\n".join(f"{world}" for world in self.worlds.states)
            )
        self.worlds.states = fitting
        self.decided = []
        self.rules.states &= {rules.answer[1]}
        self.receivers.states = {
            held for held in self.receivers.states if receiving(held, COVERS) == self.wants.get("multicast", {})
        }
        if not self.rules.states or not self.receivers.states:
            raise self._broken(f"stopped: {rules.answer}, wanted for multicast: {self.wants.get('multicast')}")
        if self.life != self._checked_life:
            self._checked_life = self.life
            self._check_repeats([command for command in commanded if command.life == self.life], "it was started again")

    _checked_life = 0

    def _check_repeats(self, commanded: list[Command], why: str) -> None:
        """What is not answered has been sent again (004 §8); worlds in which something was not are none."""
        said = {(command.topic, command.subscribe) for command in commanded}
        worlds = {passed(world, self.now_ms) for world in self.worlds.states}
        fitting = {world for world in worlds if world.due() <= said}
        if not fitting:
            raise self._broken(f"after {why}, commands that were sent are {said}, and not {[w.due() for w in worlds]}")
        self.worlds.states = fitting

    def _pages(self, kind: str, uri: UUri) -> list[Asked]:
        """All pages that there may be, asked for at once."""
        most = len(SUBSCRIBERS if kind == "topic" else TOPICS)
        named: dict[str, Any] = {kind: uri_to_proto(uri)}
        if kind == "subscriber":
            named = {kind: pb.SubscriberInfo(uri=uri_to_proto(uri))}
        return [
            self._fetch(3, pb.FetchSubscriptionsRequest(offset=offset, **named)) for offset in range(0, most + PAGE, PAGE)
        ]

    def _note(self, line: str) -> None:
        self.story.append(line)

    def _broken(self, text: str) -> BrokenError:
        story = "\n  ".join(self.story)
        return BrokenError(f"seed {self.seed}, life {self.life}: {text}\nbefore that:\n  {story}")


def _answer(message: UMessage, looks: bool) -> Any:
    """Code, and the state, the page, or the rules."""
    attributes = message.attributes
    payload, code = message.payload or b"", int(attributes.commstatus or OK)
    if code != OK:
        return code, None
    if attributes.source.ue_id == 4:
        if attributes.source.resource == 1:
            return code, us.StopDispatchResponse.FromString(payload).changed
        if attributes.source.resource == 3:
            stops = us.FetchStopsResponse.FromString(payload).stops
            return code, tuple(str(uri_from_proto(each.rule.topic)) for each in stops)
        return code, None
    if attributes.source.resource == 1:
        return code, pb.SubscriptionResponse.FromString(payload).status.state
    if attributes.source.resource == 3:
        return code, pb.FetchSubscriptionsResponse.FromString(payload)
    if attributes.source.resource == 8 and not looks:
        found = pb.FetchSubscribersResponse.FromString(payload)
        return code, (tuple(uri_from_proto(each.uri) for each in found.subscribers), found.has_more_records)
    return code, None


Row = tuple[UUri, UUri, int, int | None, int | None]


def _rows(world: World, of: str, uri: UUri) -> list[Row]:
    chosen = [each for each in world.listed() if getattr(each, of) == uri]
    return [(each.topic, each.subscriber, each.state, each.expire_ms, each.period_ms) for each in chosen]


def _joined(pages: list[Asked]) -> list[Row]:
    """The entries of all pages, which have to be full but for the last, and to say whether more follow."""
    rows: list[Row] = []
    answers = [page.answer[1] for page in pages]
    total = sum(len(answer.subscriptions) for answer in answers)
    for n, answer in enumerate(answers):
        expected = min(PAGE, max(0, total - n * PAGE))
        assert (len(answer.subscriptions), answer.has_more_records) == (expected, total > (n + 1) * PAGE), answers
        for each in answer.subscriptions:
            attributes = each.attributes
            expire_ms = attributes.expire.ToMilliseconds() if attributes.HasField("expire") else None
            period_ms = attributes.sample_period_ms if attributes.HasField("sample_period_ms") else None
            about = uri_from_proto(each.topic), uri_from_proto(each.subscriber.uri)
            rows.append((*about, each.status.state, expire_ms, period_ms))
    return rows


def _text(found: dict[Any, list[Any]]) -> str:
    return "\n".join(f"  {key}: {each}" for key, listed in found.items() for each in listed)


def _brief(event: Any) -> str:
    return " ".join(str(part) for part in event) if type(event) is tuple else str(event)


def main() -> int:
    from tests.fault import run  # noqa: PLC0415  # that one lists all faults, this one among them

    sys.argv[1:1] = ["--only", "services killed in a dialogue"]
    return run.main()


if __name__ == "__main__":
    sys.exit(main())
