"""004 §6: the state machine, against a model that only knows the set of subscriptions.

A local and a remote topic, two subscribers, of which the configuration permits one only sometimes. The other service grants
everything. Messages to and from it may be late, lost, repeated, reordered, or refused by a dispatcher. We may be restarted.
Whatever happens:

- a subscriber that has not left or expired is listed, and no other;
- every Update is a transition that the diagram allows, and the last one has the current state;
- the rows on disk give the same registry;
- once the network works and time passes, the other service has the state that we want, and nothing more is sent.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamer.features.host.access import Access, SubscribeRule
from streamer.features.host.state import Entry, Row, Statement
from streamer.features.usubscription import rows
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.features.usubscription.entries import (
    Cause,
    Change,
    Command,
    CommandResponse,
    ReceivedUpdate,
    SubscribeAttributes,
    SubscriptionState,
)
from streamer.features.usubscription.quotas import Limits
from streamer.features.usubscription.registry import SubscriptionRegistry
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.constants import with_constants
from tests.unit.features.host.patterns import entities_at

UNSUBSCRIBED, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING = SubscriptionState

ALLOWED = {
    (UNSUBSCRIBED, SUBSCRIBED),
    (UNSUBSCRIBED, SUBSCRIBE_PENDING),
    (SUBSCRIBE_PENDING, SUBSCRIBED),
    (SUBSCRIBE_PENDING, UNSUBSCRIBED),
    (SUBSCRIBED, UNSUBSCRIBED),
    (SUBSCRIBED, UNSUBSCRIBE_PENDING),
    (UNSUBSCRIBE_PENDING, UNSUBSCRIBED),
    (UNSUBSCRIBE_PENDING, SUBSCRIBE_PENDING),
}

TIMEOUT_MS = 300_000
NARROW = Access("gw1", frozenset({"gw1", "dev1"}))
WIDE = replace(NARROW, subscribe=(SubscribeRule(entities_at("dev3"), (everything_at("*"),)),))
"""The configuration permits the subscriber at dev3, or not."""

LIMITS = Limits.of(with_constants(UsubscriptionConfig, max_subscriptions=100, max_observers=100))
TOPICS = [UUri(authority, 0xB0, 1, 0x8001) for authority in ("dev1", "dev2")]
APPS = [UUri(authority, 1, 1, 0) for authority in ("dev1", "dev3")]
WATCHER = UUri("dev1", 0xEE, 1, 0)

topics = st.sampled_from(TOPICS)
apps = st.sampled_from(APPS)
SELDOM = ["register", "unregister", "restart", "restart", "reload", "reload", "change", "heal", "reset", ""]
picks = st.integers(0, 3)
periods = st.sampled_from([None, 0, 10, 20])


class MemoryState:
    """Stands in for `StateFile`: the tables in memory."""

    path = None

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        for sql in rows.TABLES.values():
            self._connection.execute(sql)

    def read(self, sql: str, entry_of: Callable[[Row], Entry]) -> list[Entry]:
        return [entry_of(row) for row in self._connection.execute(sql)]

    def write(self, statements: list[Statement]) -> None:
        for sql, parameters in statements:
            self._connection.execute(sql, parameters)


def loaded(file: Any, access: Access = WIDE) -> SubscriptionRegistry:
    registry = SubscriptionRegistry(access, LIMITS)
    registry.load(rows.subscriptions(file), rows.observers(file), rows.remotes(file, TIMEOUT_MS))
    return registry


def dump(registry: SubscriptionRegistry) -> object:
    """Everything that has to survive a restart."""
    remotes = {
        topic: (
            remote.wanted,
            remote.state,
            remote.is_confirmed,
            remote.epoch,
            remote.period_ms,
            remote.answered_ms,
            list(remote.open_commands.values()),
        )
        for topic, remote in registry.remotes.items()
    }
    interested = {topic: registry.interested(topic) for topic in registry.topics}
    return list(registry.subscriptions), sorted(registry.observers), remotes, interested


class TwoDevices(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_700_000_000_000
        self.ahead_ms = 0  # of the other device's clock
        self.file = MemoryState()
        self.registry = loaded(self.file)
        self.access = WIDE
        self.inside: dict[tuple[UUri, UUri], int | None] = {}  # until when
        self.aside: dict[tuple[UUri, UUri], int | None] = {}  # the same, of what is not permitted
        self.heard: dict[tuple[UUri, UUri], SubscriptionState] = {}
        self.watched: list[tuple[UUri, UUri, SubscriptionState]] = []
        self.expected: list[tuple[UUri, UUri, SubscriptionState]] = []
        self.watches: set[UUri] = set()
        self.there: dict[UUri, bool] = {}  # whether the other service has us subscribed
        self.commands: list[Command] = []  # on their way there
        self.responses: list[CommandResponse] = []  # on their way back
        self.updates_to_us: list[ReceivedUpdate] = []

    def follow(self, change: Change, is_reset: bool = False) -> None:
        self.file.write(rows.statements(change, self.registry.remotes.get))
        self.commands += change.commands
        for update in change.updates:
            relation = update.topic, update.subscriber
            is_dismissed = update.sink == update.subscriber == WATCHER
            if update.sink is None or update.cause is Cause.TERMS or is_dismissed:
                continue
            if update.sink == update.subscriber:
                before = self.heard.get(relation, UNSUBSCRIBED)
                assert is_reset or (before, update.state) in ALLOWED
                self.heard[relation] = update.state
                if update.topic in self.watches:
                    self.expected.append((*relation, update.state))
            else:
                assert update.sink == WATCHER
                self.watched.append((*relation, update.state))

    def pass_to(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.commands = [command for command in self.commands if _deadline_ms(command) > now_ms]
        self.inside = {key: end for key, end in self.inside.items() if end is None or end > now_ms}
        self.aside = {key: end for key, end in self.aside.items() if end is None or end > now_ms}
        self.follow(self.registry.tick(now_ms))

    @initialize(ahead_ms=st.sampled_from([0, -3_600_000, 3_600_000]))
    def set_other_clock(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    # Few rules with many variants: with many rules, most runs would leave out most of them.

    @rule(topic=topics, app=apps, lasts_ms=st.sampled_from([None, None, -5, 500, 100_000, 1_000_000]), period_ms=periods)
    def subscribe(self, topic: UUri, app: UUri, lasts_ms: int | None, period_ms: int | None) -> None:
        if not self.access.may_subscribe(app, topic):
            return
        end = None if lasts_ms is None else self.now_ms + lasts_ms
        state, change = self.registry.subscribe(self.now_ms, topic, app, "dev1", SubscribeAttributes(end, period_ms))
        self.follow(change)
        if end is not None and end <= self.now_ms:
            self.inside.pop((topic, app), None)
            assert state is UNSUBSCRIBED
            return
        self.inside[topic, app] = end
        assert state is self.heard[topic, app]

    @rule(topic=topics, app=apps, comes_back=st.booleans())
    def unsubscribe(self, topic: UUri, app: UUri, comes_back: bool) -> None:
        self.follow(self.registry.unsubscribe(self.now_ms, topic, app))
        self.inside.pop((topic, app), None)
        self.aside.pop((topic, app), None)
        if comes_back:
            self.subscribe(topic, app, None, None)

    @rule(
        action=st.sampled_from(["exchange", "exchange", "deliver", "deliver", "answer", "tell", "tell", "bounce", "lose"]),
        pick=picks,
    )
    def network(self, action: str, pick: int) -> None:
        """One of the messages in transit arrives, or is lost."""
        if self.commands and action in ("exchange", "deliver"):
            self.deliver(pick)
            if action == "exchange":
                self.answer(-1)
        elif self.commands and action == "bounce":
            self.bounce(pick)
        elif self.responses and action == "answer":
            self.answer(pick)
        elif self.updates_to_us and action == "tell":
            self.tell(pick)
        elif action == "lose" and (queue := self.commands or self.responses):
            del queue[pick % len(queue)]

    @rule(ms=st.sampled_from([1, 1, 1, 1_000, 299_999, 300_000]))
    def pass_time(self, ms: int) -> None:
        self.pass_to(self.now_ms + ms)

    @rule(action=st.sampled_from(SELDOM), topic=topics)
    def seldom(self, action: str, topic: UUri) -> None:
        match action:
            case "register":
                self.follow(self.registry.register(topic, WATCHER, "dev1"))
                self.watches.add(topic)
            case "unregister":
                self.follow(self.registry.unregister(topic, WATCHER))
                self.watches.discard(topic)
            case "restart":
                before = dump(self.registry)
                self.registry = loaded(self.file, self.access)
                assert dump(self.registry) == before
                self.follow(self.registry.begin(self.now_ms))
            case "reload":
                self.change_permissions()
                self.follow(self.registry.permit(self.now_ms, self.access))
            case "change":
                self.change_permissions()
                self.registry = loaded(self.file, self.access)
                self.follow(self.registry.begin(self.now_ms))
            case "heal":
                self.heal()
            case "reset":
                self.follow(self.registry.reset(self.now_ms), is_reset=True)
                self.inside.clear()
                self.aside.clear()
                self.watches.clear()
                # Its Unsubscribes are sent once: if they are lost or overtaken, nothing is repeated.
                self.commands.clear()
                self.there.clear()

    def change_permissions(self) -> None:
        if self.access is NARROW:
            self.access, self.inside, self.aside = WIDE, self.inside | self.aside, {}
        else:
            self.access = NARROW
            self.aside = {key: end for key, end in self.inside.items() if not NARROW.may_subscribe(key[1], key[0])}
            self.inside = {key: end for key, end in self.inside.items() if key not in self.aside}

    def deliver(self, pick: int) -> None:
        """The other service receives a command, in any order, and answers."""
        command = self.commands.pop(pick % len(self.commands))
        state = SUBSCRIBED if command.subscribe else UNSUBSCRIBED
        created_ms = self.now_ms + self.ahead_ms
        told = state if command.subscribe else None
        self.responses.append(CommandResponse(command.id, UCode.OK, told, "", created_ms))
        if self.there.get(command.topic, False) is not command.subscribe:
            self.there[command.topic] = command.subscribe
            self.updates_to_us.append(ReceivedUpdate(command.topic, state, "", created_ms))

    def bounce(self, pick: int) -> None:
        """A dispatcher in between cannot deliver a command."""
        command = self.commands.pop(pick % len(self.commands))
        code = [UCode.UNAVAILABLE, UCode.DEADLINE_EXCEEDED, UCode.RESOURCE_EXHAUSTED][pick % 3]
        self.responses.append(CommandResponse(command.id, code, None, "", self.now_ms))

    def answer(self, pick: int) -> None:
        self.follow(self.registry.answered(self.now_ms, self.responses.pop(pick % len(self.responses))))

    def tell(self, pick: int) -> None:
        self.follow(self.registry.update_received(self.now_ms, self.updates_to_us.pop(pick % len(self.updates_to_us))))

    def heal(self) -> None:
        """From now on everything arrives, and time passes until nothing is left to do."""
        for _ in range(2000):
            if self.commands:
                self.deliver(0)
            elif self.responses:
                self.answer(0)
            elif self.updates_to_us:
                self.tell(0)
            elif any(not remote.is_confirmed or remote.open_commands for remote in self.registry.remotes.values()):
                times = (self.registry._book.expiries.next(), self.registry._remotes._repeats.next())
                self.pass_to(min(int(time_ms) for time_ms in times if time_ms is not None))
            else:
                break
        assert not self.commands
        assert not self.responses
        assert not self.updates_to_us
        wanted = {topic for topic, _ in self.inside if topic.authority == "dev2"}
        assert set(self.registry.remotes) == wanted
        assert {topic for topic, subscribed in self.there.items() if subscribed} == wanted
        assert {self.heard[relation] for relation in self.inside} <= {SUBSCRIBED}
        assert UNSUBSCRIBE_PENDING not in self.heard.values()

    @invariant()
    def the_listed_subscriptions_are_those_of_the_model(self) -> None:
        found = {(entry.topic, entry.subscriber): entry for entry in self.registry.subscriptions}
        inside = {key: entry.attributes.expire_ms for key, entry in found.items() if entry.state is not UNSUBSCRIBE_PENDING}
        assert inside == self.inside
        for key, entry in found.items():
            assert self.heard[key] is entry.state
            assert entry.topic.authority == "dev2" or entry.state is SUBSCRIBED
        assert {key for key, state in self.heard.items() if state is not UNSUBSCRIBED} == set(found)

    @invariant()
    def pages_list_the_subscriptions(self) -> None:
        for topic in TOPICS:
            listed = self.registry.matching(topic, None)
            assert {entry.subscriber for entry in listed} == {app for name, app in self.inside if name == topic}
        for app in APPS:
            listed = self.registry.matching(None, app)
            assert {entry.topic for entry in listed} == {topic for topic, name in self.inside if name == app}

    @invariant()
    def interest_is_what_is_subscribed(self) -> None:
        for topic in TOPICS:
            assert bool(self.registry.interested(topic)) is any(name == topic for name, _ in self.inside)

    @invariant()
    def observers_are_notified_of_the_same(self) -> None:
        assert self.watched == self.expected

    def teardown(self) -> None:
        self.heal()


def _deadline_ms(command: Command) -> int:
    return int.from_bytes(command.id[:6], "big") + command.ttl_ms


TestStates = TwoDevices.TestCase
TestStates.settings = settings(stateful_step_count=60, deadline=None)
