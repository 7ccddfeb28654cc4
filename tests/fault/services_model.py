"""What the services may have done: every state that is possible after what was asked and answered. Pure.

Written from requirement document 004 (§4 to §9) alone, and shares nothing with the service. A `ModelState` is one state
that the state machine allows. An event leads from one to one or more others: another device's answer may come too late to
count. What was not answered at a kill has happened or not, in the order in which it was asked: any number of the events
after the last one that was answered may have happened, and each number leads to a state of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from streamer.uprotocol.uri import UUri

UNSUBSCRIBED, PENDING, SUBSCRIBED, LEAVING = range(4)
"""States of 004 §6, by their numbers on the wire."""

EDGES = {
    False: {(UNSUBSCRIBED, SUBSCRIBED), (SUBSCRIBED, UNSUBSCRIBED)},
    True: {
        (UNSUBSCRIBED, PENDING),
        (UNSUBSCRIBED, SUBSCRIBED),  # a further subscriber of a topic that is subscribed
        (PENDING, SUBSCRIBED),
        (PENDING, UNSUBSCRIBED),
        (SUBSCRIBED, UNSUBSCRIBED),  # not the last one; or the other service says so; or Reset
        (SUBSCRIBED, LEAVING),
        (LEAVING, UNSUBSCRIBED),
        (LEAVING, PENDING),
    },
}
"""The transitions of local (False) and of remote topics (True) that an Update may tell."""

OK, NOT_FOUND, PERMISSION_DENIED = 0, 5, 7

LOCAL = {"gw1", "dev1"}
OWN = "gw1"
PAGE = 3


class Entry(NamedTuple):
    topic: UUri
    subscriber: UUri
    via: str
    state: int
    expire_ms: int | None
    period_ms: int | None


class Told(NamedTuple):
    """An Update: to ``sink``, from the service at ``via``."""

    sink: UUri
    via: str
    topic: UUri
    subscriber: UUri
    state: int


class ModelState(NamedTuple):
    """``owed``: remote topics that an Unsubscribe is repeated for. ``told``, ``farewells``: since the last look."""

    entries: tuple[Entry, ...] = ()
    observers: tuple[tuple[UUri, UUri, str], ...] = ()
    owed: frozenset[UUri] = frozenset()
    told: tuple[Told, ...] = ()
    farewells: frozenset[UUri] = frozenset()

    def listed(self) -> tuple[Entry, ...]:
        """What the Fetch calls show: everything but who is about to leave."""
        return tuple(entry for entry in self.entries if entry.state != LEAVING)

    def interested(self) -> dict[UUri, dict[str, int]]:
        """Who wants which topic, how often (ms)."""
        found: dict[UUri, dict[str, int]] = {}
        for entry in self.listed():
            if (authority := entry.subscriber.authority) != OWN:
                periods = found.setdefault(entry.topic, {})
                periods[authority] = min(periods.get(authority, 1 << 62), entry.period_ms or 0)
        return found

    def state_of(self, topic: UUri) -> int:
        """How we stand to a remote topic."""
        return next((entry.state for entry in self.entries if entry.topic == topic), UNSUBSCRIBED)

    def due(self) -> set[tuple[UUri, bool]]:
        """Subscribe (True) and Unsubscribe (False) commands that are repeated until they are answered."""
        pending = {(entry.topic, True) for entry in self.entries if entry.state == PENDING}
        return pending | {(topic, False) for topic in self.owed}


class Ask(NamedTuple):
    """A Request to core.usubscription. ``offset``: of Fetch."""

    method: str
    topic: UUri
    source: UUri
    via: str
    expire_ms: int | None = None
    period_ms: int | None = None
    offset: int = 0


class Answered(NamedTuple):
    """Another device's answer to our Subscribe or Unsubscribe. ``is_sure``: nothing allows us to disregard it."""

    topic: UUri
    subscribe: bool
    state: int | None
    is_delivered: bool
    is_sure: bool


class Hint(NamedTuple):
    """Another device's Update about us."""

    topic: UUri
    state: int
    is_sure: bool = False


Result = tuple[ModelState, Any]
"""A state, and what is answered in it: the code, and the state or the page."""


def after(model: ModelState, event: Ask | Answered | Hint, now_ms: int) -> list[Result]:
    """What may come of ``event``."""
    match event:
        case Ask():
            return [_asked(model, event, now_ms)]
        case Answered():
            return [(each, None) for each in _answered(model, event)]
        case Hint():
            return [(each, None) for each in _hinted(model, event)]


def passed(model: ModelState, now_ms: int) -> ModelState:
    """What has expired is over, in the order of the times."""
    due = [entry for entry in model.entries if entry.expire_ms is not None and entry.expire_ms <= now_ms]
    for entry in sorted((each for each in due if each.state != LEAVING), key=lambda each: each.expire_ms or 0):
        model = _leave(model, entry)
    return model


def is_remote(topic: UUri) -> bool:
    return topic.authority not in LOCAL


def _asked(model: ModelState, ask: Ask, now_ms: int) -> Result:
    if ask.method == "subscribe":
        return _subscribe(model, ask, now_ms)
    if ask.method == "unsubscribe":
        known = _find(model, ask.topic, ask.source)
        return (_leave(model, known) if known is not None else model), (OK, None)
    if ask.method == "register":
        return _observed(model, ask, {(ask.topic, ask.source, ask.via)}), (OK, None)
    if ask.method == "unregister":
        return _observed(model, ask, set()), (OK, None)
    if ask.method == "fetch":
        there = [entry.subscriber for entry in model.listed() if entry.topic == ask.topic]
        more = len(there) > ask.offset + PAGE
        return model, (OK, (tuple(there[ask.offset : ask.offset + PAGE]), more))
    assert ask.method == "reset"
    if ask.source.ue_id != 0:
        return model, (PERMISSION_DENIED, None)
    remote = {entry.topic for entry in model.entries if is_remote(entry.topic)} | model.owed
    for entry in model.entries:
        model = _tell(model, entry._replace(state=UNSUBSCRIBED))
    alone = [each for each in model.observers if each[0] not in {entry.topic for entry in model.entries}]
    dismissed = tuple(Told(uri, via, topic, uri, UNSUBSCRIBED) for topic, uri, via in alone)
    model = model._replace(told=(*model.told, *dismissed))
    return ModelState((), (), frozenset(), model.told, model.farewells | remote), (OK, None)


def _subscribe(model: ModelState, ask: Ask, now_ms: int) -> Result:
    known = _find(model, ask.topic, ask.source)
    has_expired = ask.expire_ms is not None and ask.expire_ms <= now_ms
    if known is not None:
        renewed = known._replace(via=ask.via, expire_ms=ask.expire_ms, period_ms=ask.period_ms)
        model = model._replace(entries=tuple(renewed if entry is known else entry for entry in model.entries))
        return (_leave(model, renewed), (OK, UNSUBSCRIBED)) if has_expired else (model, (OK, known.state))
    if has_expired:
        return model, (OK, UNSUBSCRIBED)
    state = SUBSCRIBED
    if is_remote(ask.topic):
        state = model.state_of(ask.topic)
        if state == LEAVING:
            leaving = next(entry for entry in model.entries if entry.topic == ask.topic)
            model = _without(model, leaving)
            if leaving.subscriber != ask.source:
                model = _tell(model, leaving._replace(state=UNSUBSCRIBED))
        if state in (LEAVING, UNSUBSCRIBED):
            state = PENDING
            model = model._replace(owed=model.owed - {ask.topic})
    entry = Entry(ask.topic, ask.source, ask.via, state, ask.expire_ms, ask.period_ms)
    return _tell(model._replace(entries=(*model.entries, entry)), entry), (OK, state)


def _leave(model: ModelState, entry: Entry) -> ModelState:
    is_last = sum(each.topic == entry.topic for each in model.entries) == 1
    if is_remote(entry.topic) and is_last:
        model = model._replace(owed=model.owed | {entry.topic})
        if entry.state == SUBSCRIBED:
            return _stand(model, entry, LEAVING)
    return _tell(_without(model, entry), entry._replace(state=UNSUBSCRIBED))


def _answered(model: ModelState, event: Answered) -> Iterable[ModelState]:
    """A late answer may not count; one that does puts all where the other service says (004 §4.1)."""
    topic, state = event.topic, model.state_of(event.topic)
    found = [] if event.is_sure else [model]
    if event.subscribe:
        if not event.is_delivered or state in (UNSUBSCRIBED, LEAVING) or event.state == PENDING:
            return [model]
        return [*found, _all_stand(model, topic, event.state or UNSUBSCRIBED)]
    if state in (PENDING, SUBSCRIBED):
        return [model]
    gone = _all_stand(model, topic, UNSUBSCRIBED)
    if not event.is_delivered:
        return [*found, gone]
    return [*found, gone._replace(owed=gone.owed - {topic})] + ([] if event.is_sure else [gone])


def _hinted(model: ModelState, event: Hint) -> Iterable[ModelState]:
    if model.state_of(event.topic) in (UNSUBSCRIBED, LEAVING):
        return [model]
    followed = _all_stand(model, event.topic, event.state)
    return [followed] if event.is_sure else [model, followed]


def _all_stand(model: ModelState, topic: UUri, state: int) -> ModelState:
    for entry in [entry for entry in model.entries if entry.topic == topic and entry.state != state]:
        if state == UNSUBSCRIBED:
            model = _tell(_without(model, entry), entry._replace(state=state))
        else:
            model = _stand(model, entry, state)
    return model


def _stand(model: ModelState, entry: Entry, state: int) -> ModelState:
    changed = entry._replace(state=state, expire_ms=None if state == LEAVING else entry.expire_ms)
    entries = tuple(changed if each is entry else each for each in model.entries)
    return _tell(model._replace(entries=entries), changed)


def _tell(model: ModelState, entry: Entry) -> ModelState:
    about = entry.topic, entry.subscriber, entry.state
    told = [Told(entry.subscriber, entry.via, *about)]
    observers = [each for each in model.observers if each[0] == entry.topic and each[1] != entry.subscriber]
    told += [Told(uri, via, *about) for _, uri, via in observers]
    return model._replace(told=(*model.told, *told))


def _find(model: ModelState, topic: UUri, subscriber: UUri) -> Entry | None:
    return next((each for each in model.listed() if (each.topic, each.subscriber) == (topic, subscriber)), None)


def _without(model: ModelState, entry: Entry) -> ModelState:
    return model._replace(entries=tuple(each for each in model.entries if each is not entry))


def _observed(model: ModelState, ask: Ask, now: set[tuple[UUri, UUri, str]]) -> ModelState:
    others = {each for each in model.observers if each[:2] != (ask.topic, ask.source)}
    return model._replace(observers=tuple(sorted(others | now)))


def is_said(told: Iterable[Told], said: Iterable[Told]) -> bool:
    """Whether ``said`` is what a service may say of the changes ``told``.

    A subscriber hears of each change, in order. An observer hears the last of those of one subscription, and of the others
    as many as the service has not handled together: nothing is said about the order between subscriptions.
    """
    there, here = _by_flow(told), _by_flow(said)
    if there.keys() != here.keys():
        return False
    return all(
        here[flow] == changes if flow.is_own else here[flow][-1] == changes[-1] and _is_part(here[flow], changes)
        for flow, changes in there.items()
    )


class _Flow(NamedTuple):
    is_own: bool
    about: tuple[Any, ...]


def _by_flow(told: Iterable[Told]) -> dict[_Flow, list[Told]]:
    found: dict[_Flow, list[Told]] = {}
    for each in told:
        is_own = each.sink == each.subscriber
        about = (each.sink, each.via) if is_own else (each.sink, each.topic, each.subscriber)
        found.setdefault(_Flow(is_own, about), []).append(each)
    return found


def _is_part(part: list[Told], whole: list[Told]) -> bool:
    """Whether ``part`` is ``whole`` with some left out."""
    left = iter(whole)
    return all(each in left for each in part)


def rules_after(rules: tuple[str, ...], event: tuple[str, str], now_ms: int) -> list[tuple[tuple[str, ...], Any]]:
    """Dispatch rules, oldest first. ``event``: stop or start, and the words."""
    verb, rule = event
    if verb == "stop":
        return [(rules, (OK, False)) if rule in rules else ((*rules, rule), (OK, True))]
    if rule not in rules:
        return [(rules, (NOT_FOUND, None))]
    return [(tuple(each for each in rules if each != rule), (OK, None))]


Receivers = frozenset[tuple[UUri, str]]


def receivers_after(held: Receivers, event: tuple[str, UUri, str], now_ms: int) -> list[tuple[Receivers, Any]]:
    """Multicast registrations. ``event``: receive or leave, who, and the id."""
    verb, uri, pattern = event
    if verb == "receive":
        return [(held | {(uri, pattern)}, (OK, None))]
    if (uri, pattern) not in held:
        return [(held, (NOT_FOUND, None))]
    return [(held - {(uri, pattern)}, (OK, None))]


def receiving(held: Receivers, covers: Mapping[str, Iterable[UUri]]) -> dict[UUri, dict[str, int]]:
    """As `ModelState.interested`."""
    found: dict[UUri, dict[str, int]] = {}
    for uri, pattern in held:
        for topic in covers[pattern]:
            found.setdefault(topic, {})[uri.authority] = 0
    return found


State = TypeVar("State")


@dataclass(eq=False)
class PendingEvent:
    """An event on its way to a service. ``has_happened``: its effect is certain; ``answer``: what was given, if anything."""

    event: Any
    answer: Any = None
    has_happened: bool = False


@dataclass
class PossibleStates(Generic[State]):
    """The states that one service may be in, and the events since they were last known, in the order of being asked."""

    step: Callable[[State, Any, int], list[tuple[State, Any]]]
    states: set[State]
    pass_time: Callable[[State, int], State] = lambda state, now_ms: state
    events: list[PendingEvent] = field(default_factory=list)

    def add(self, event: Any) -> PendingEvent:
        pending = PendingEvent(event)
        self.events.append(pending)
        return pending

    def cut(self, now_ms: int) -> bool:
        """The service was killed, or all has happened: False if no state is possible any more."""
        certain = max((n for n, pending in enumerate(self.events, 1) if pending.has_happened), default=0)
        states = {self.pass_time(state, now_ms) for state in self.states} if self.events else self.states
        possible = set(states) if certain == 0 else set()
        for n, pending in enumerate(self.events, 1):
            results = [result for state in states for result in self.step(state, pending.event, now_ms)]
            states = {state for state, answer in results if pending.answer is None or answer == pending.answer}
            if n >= certain:
                possible |= states
        if certain == 0:
            possible |= self.states
        self.events = []
        self.states = possible
        return bool(possible)
