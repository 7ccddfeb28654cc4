"""Compares what two configurations cost: bounds on memory, disk and throughput, and quotas. Pure.

Memory is the sum in `docs/bounds.md`, beside which the process itself takes about 70 MB. Where the peaks of the last week
are known, each bound stands beside what was needed then.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from streamer.config.cost import Cost
from streamer.config.models import Config, QueuePolicy
from streamer.config.peaks import Peak, Peaks
from streamer.config.types import GIB, KIB, MIB, RateConfig

MEMORY, DISK = "memory, at most", "disk, at most"
EVIDENCE_S = 3.0
"""The longest time until links confirm a message, at the default lease of nodes."""

_HELD_BYTES = 600  # what a message takes whose payload is only in the journal
_LANE_BYTES = 5000
_MANY_LANES = 4096
_UNCONFIRMED_BYTES = 64 * MIB  # of an endpoint, without a journal
_MISROUTED_BYTES = 16 * MIB
_FLOWS_BYTES = 30 * MIB
_NOTIFICATION_BYTES = 128 * MIB
_ID_BYTES = 100
_WAITING_BYTES = 128 * MIB  # half of it in the link, half of it before
_OVERHEARD_BYTES = 64 * MIB
_SETTLED_IDS = 200_000
_ARROW_BYTES = 90_000_000 + 19 * MIB
_EXAMPLE_BYTES: Final = 1024
_NOTHING = Peak()
_SECTIONS = ("memory", "disk", "throughput", "quota")


class Bound(NamedTuple):
    """A bound of a configuration. ``key`` is its place in the file, empty for a sum; None: it bounds nothing.

    ``hour`` and ``minute`` are what the busiest hour and minute of the last week needed, ``largest`` the largest message.
    """

    key: str
    what: str
    unit: str
    value: float | None
    hour: float | None = None
    minute: float | None = None
    largest: float | None = None


def costs(before: Config | None, after: Config, peaks: Peaks | None = None) -> list[Cost]:
    """Return the bounds that differ, in the order of memory, disk, throughput and quotas; without ``before``, all of them.

    Equivalent configurations have none.
    """
    whose = (peaks or Peaks()).whose
    new = {(bound.key, bound.what): bound for bound in bounds(after, peaks)}
    if before is None:
        return [_cost(None, bound, whose) for bound in new.values()]
    old = {(bound.key, bound.what): bound for bound in bounds(before, peaks)}
    found = []
    for name in (*new, *(name for name in old if name not in new)):
        was, now = old.get(name), new.get(name)
        if (None if was is None else was.value) != (None if now is None else now.value):
            found.append(_cost(was, now or old[name]._replace(value=None), whose))
    order = {unit: position for position, unit in enumerate((MEMORY, DISK))}
    return sorted(found, key=lambda cost: order.get(cost.what, len(order)))


def cost_lines(found: Iterable[Cost]) -> Iterator[str]:
    """Yield the sentences of costs, those that fall short of a peak first."""
    listed = list(found)
    yield from (cost.text for cost in listed if cost.is_short)
    yield from (cost.text for cost in listed if not cost.is_short)


def bounds(config: Config, peaks: Peaks | None = None) -> Iterator[Bound]:
    """Yield every bound of a configuration, sums first."""
    memory = list(_memory(config, peaks))
    disk = list(_disk(config))
    yield Bound("", MEMORY, "bytes", sum(bound.value or 0 for bound in memory))
    yield from memory
    yield Bound("", DISK, "bytes", sum(bound.value or 0 for bound in disk))
    yield from disk
    yield from _throughput(config, peaks or Peaks())
    yield from _quotas(config, peaks or Peaks())


def sum_line(config: Config) -> str:
    """Return the sentence of `check`: what all bounds add up to."""
    memory, disk = (bound.value or 0 for bound in bounds(config) if not bound.key)
    return f"its bounds add up to {_decimal(memory)}B of memory and {_decimal(disk)}B of disk"


def unconfirmed_rooms(config: Config) -> dict[str, tuple[int, float]]:
    """Return, for each network that confirms nothing, its room in the journal in bytes, and how long a message stays there.

    Empty without a journal.
    """
    if config.journal is None:
        return {}
    each_s = {name: endpoint.options.longest_unconfirmed_s for name, endpoint in config.endpoints.items()}
    waits_s = {name: wait_s for name, wait_s in each_s.items() if wait_s}
    return {name: (config.journal.max_bytes // 2 // len(waits_s), wait_s) for name, wait_s in waits_s.items()}


# -- memory and disk


def _memory(config: Config, peaks: Peaks | None) -> Iterator[Bound]:
    for route in config.routes:
        size = _queue_bytes(route.queue_policy, config.journal is not None)
        yield Bound(f"routes.{route.name}.queue", f"memory of the queue of route {route.name}", "bytes", size)
    if config.journal is not None:
        yield Bound(
            "journal.memory", "payloads that are in memory although the journal has them", "bytes", config.journal.memory
        )
    for name, endpoint in config.endpoints.items():
        largest = _NOTHING if peaks is None else peaks.ingresses.get(name, _NOTHING)
        size = endpoint.options.receive_bytes(largest.largest_bytes or _EXAMPLE_BYTES) + _MISROUTED_BYTES + _FLOWS_BYTES
        size += 2 * config.dead_letter.queue.bytes
        if config.journal is None and endpoint.options.longest_unconfirmed_s:
            size += _UNCONFIRMED_BYTES
        yield Bound(f"endpoints.{name}", f"memory for what endpoint {name} has received", "bytes", size)
    if config.usubscription is not None and config.usubscription.external is None:
        yield Bound("usubscription", "memory for notifications of observers", "bytes", _NOTIFICATION_BYTES)
    if config.utwin is not None:
        yield Bound("utwin.max_bytes", "memory for the last messages of topics", "bytes", config.utwin.max_bytes)
    if config.pair is not None:
        yield Bound("pair", "memory for what the other one of the pair has not taken yet", "bytes", _WAITING_BYTES)
        size = _OVERHEARD_BYTES + _SETTLED_IDS * _ID_BYTES
        yield Bound("pair", "memory for what is overheard on standby", "bytes", size)
    yield Bound("remember.ids", "memory for ids of messages", "bytes", config.remember.ids * _ID_BYTES)
    if config.trace is not None:
        yield Bound("trace", "memory for traces", "bytes", _ARROW_BYTES)


def _queue_bytes(policy: QueuePolicy, has_journal: bool) -> int:
    queue = policy.queue
    size = queue.bytes + max(queue.bytes, _MANY_LANES * _LANE_BYTES)
    if has_journal and queue.on_full == "backpressure":
        size += _HELD_BYTES * queue.messages * queue.stalled_factor
    return size


def _disk(config: Config) -> Iterator[Bound]:
    if config.journal is not None:
        yield Bound("journal.max_bytes", "disk for the journal and its log", "bytes", config.journal.disk_bytes)
    if config.trace is not None:
        yield Bound("trace.max_bytes", "disk for traces", "bytes", config.trace.max_bytes)


# -- throughput


def _throughput(config: Config, peaks: Peaks) -> Iterator[Bound]:
    for route in config.routes:
        policy, key, what = route.queue_policy, f"routes.{route.name}", f"route {route.name}"
        yield from _rate(policy.rate, f"{key}.rate", f"the rate of {what}", peaks.routes.get(route.name))
        each = f"the rate of each source authority on {what}"
        yield from _rate(policy.rate_per_authority, f"{key}.rate_per_authority", each, None)
        yield Bound(f"{key}.flow_window", f"messages in flight of one flow on {what}", "messages", policy.flow_window)
    for name, endpoint in config.endpoints.items():
        yield from _window(config, name, endpoint.options.send_window, peaks)
    for name, (room, wait_s) in unconfirmed_rooms(config).items():
        peak = peaks.egresses.get(name, _NOTHING)
        for seconds, when in ((wait_s, "nothing confirms it"), (min(wait_s, EVIDENCE_S), "links confirm it")):
            yield Bound(
                "journal.max_bytes",
                f"what the journal lets through to {name} while {when}",
                "bytes/s",
                room / seconds,
                peak.hour_bytes_per_s or None,
                peak.minute_bytes_per_s or None,
            )
    for name, section in config.permissions.endpoints.items() if config.permissions is not None else ():
        for index, rule in enumerate(section.rules):
            if rule.allow is not None:
                key = f"permissions.endpoints.{name}.rules[{index}].allow.rate"
                yield from _rate(
                    rule.allow.rate, key, f"the rate of each source authority under rule {index} of {name}", None
                )


def _rate(rate: RateConfig | None, key: str, what: str, peak: Peak | None) -> Iterator[Bound]:
    known = peak or _NOTHING
    messages, size = (None, None) if rate is None else (rate.messages, rate.bytes)
    of_messages = known.hour_messages_per_s or None, known.minute_messages_per_s or None
    of_bytes = known.hour_bytes_per_s or None, known.minute_bytes_per_s or None
    yield Bound(f"{key}.messages", what, "messages/s", messages, *of_messages)
    yield Bound(f"{key}.bytes", what, "bytes/s", size, *of_bytes)


def _window(config: Config, endpoint: str, own: int | None, peaks: Peaks) -> Iterator[Bound]:
    """Yield how many messages may be in flight to an endpoint, and if it is known how long each is, their rate."""
    sizes = [route.queue_policy.window for route in config.routes if route.to == endpoint]
    window = min((*sizes, *([] if own is None else [own])), default=None)
    if not sizes or window is None:
        return
    yield Bound(f"endpoints.{endpoint}", f"messages in flight to {endpoint}", "messages", window)
    peak = peaks.egresses.get(endpoint, _NOTHING)
    if peak.confirm_s and not config.endpoints[endpoint].options.longest_unconfirmed_s:
        what = (
            f"what that window lets through to {endpoint}, at {peaks.whose} {peak.confirm_s * 1000:.3g} ms until confirmed"
        )
        rate = window / peak.confirm_s
        yield Bound(f"endpoints.{endpoint}", what, "messages/s", rate, peak.hour_messages_per_s, peak.minute_messages_per_s)


# -- quotas

_USUBSCRIPTION = (
    "max_subscriptions",
    "max_subscriptions_per_authority",
    "max_subscriptions_per_subscriber",
    "max_authorities_per_topic",
    "max_observers",
    "max_observers_per_authority",
    "max_observers_per_topic",
)


def _quotas(config: Config, peaks: Peaks) -> Iterator[Bound]:
    for route in config.routes:
        queue, key, what = route.queue_policy.queue, f"routes.{route.name}.queue", f"the queue of route {route.name}"
        yield Bound(f"{key}.messages", f"messages in {what}", "messages", queue.messages)
        largest = peaks.routes.get(route.name, _NOTHING).largest_bytes or None
        yield Bound(f"{key}.bytes", f"bytes in {what}", "bytes", queue.bytes, largest=largest)
        yield Bound(f"{key}.per_authority", f"the share of one source authority in {what}", "of it", queue.per_authority)
        yield Bound(
            f"{key}.strangers", f"the share of authorities that no endpoint lists in {what}", "of it", queue.strangers
        )
    for name, endpoint in config.endpoints.items():
        largest = peaks.ingresses.get(name, _NOTHING).largest_bytes or None
        size = endpoint.options.largest_message_bytes
        yield Bound(f"endpoints.{name}.options", f"the largest message from {name}", "bytes", size, largest=largest)
    store = config.dead_letter.store
    yield Bound("dead_letter.store.messages", "dead letters that are kept", "messages", store.messages)
    yield Bound("dead_letter.store.bytes", "bytes of dead letters that are kept", "bytes", store.bytes)
    yield Bound("remember.ids", "ids of messages that are remembered", "messages", config.remember.ids)
    yield Bound("control.max_rules", "pause rules of one uEntity", "rules", config.control.max_rules)
    if config.usubscription is not None:
        for name in _USUBSCRIPTION:
            value: Any = getattr(config.usubscription, name)
            yield Bound(f"usubscription.{name}", f"usubscription.{name}", "", value)
    if config.utwin is not None:
        yield Bound("utwin.max_topics", "topics whose last message is kept", "topics", config.utwin.max_topics)


# -- text


def _cost(before: Bound | None, bound: Bound, whose: str) -> Cost:
    """Return a bound as a cost. ``before``: None if there was no such bound; ``whose``: of `Peaks`."""
    was, now = None if before is None else before.value, bound.value
    peak, when = None, ""
    for value, name in ((bound.hour, "busiest hour"), (bound.minute, "busiest minute"), (bound.largest, "largest message")):
        if value is not None and (peak is None or (now is not None and now >= peak)):
            peak, when = value, name
    old, new = (_shown(value, bound.unit) for value in (was, now))
    if now is not None and peak is not None and now < peak:
        text = f"{bound.what} ({new}) is below {whose} {when} ({_shown(peak, bound.unit)}); before: {old}"
    else:
        text = f"{bound.what}: {old} → {new}"
        text += f"; {whose} {when}: {_shown(peak, bound.unit)}" if peak is not None else ""
    return Cost(bound.key, bound.what, bound.unit, was, now, peak, text)


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "none"
    if unit == "bytes":
        return _size(value)
    if unit == "bytes/s":
        return f"{_decimal(value)}B/s"
    return f"{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _decimal(value: float) -> str:
    """Return a number with three digits and the beginning of its unit."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} "


def _size(value: float) -> str:
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if value >= factor and value % factor == 0:
            return f"{value / factor:.0f} {unit}"
    return f"{_decimal(value)}B"
