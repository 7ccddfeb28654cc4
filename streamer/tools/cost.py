"""Adds up the bounds of a configuration on memory and on disk, as `docs/bounds.md` does. Pure."""

from collections.abc import Iterator, Mapping

from streamer.config.models import Config, QueuePolicy
from streamer.config.types import MIB

_PROCESS_BYTES = 70_000_000
_HELD_BYTES = 600  # what a message takes whose payload is only in the journal
_LANE_BYTES = 5000
_MANY_LANES = 4096
_UNCONFIRMED_BYTES = 64 * MIB  # of an endpoint, without a journal
_MISROUTED_BYTES = 16 * MIB
_FLOWS_BYTES = 30 * MIB
_ID_BYTES = 100
_MESSAGE_BYTES = 1024


def sum_line(config: Config) -> str:
    """Return the sentence of `check`: what all bounds add up to."""
    return f"its bounds add up to {_shown(memory_bytes(config))}B of memory and {_shown(disk_bytes(config))}B of disk"


def memory_hint(config: Config, allowed: Mapping[str, int]) -> Iterator[str]:
    """Yield a hint if one of these, by name, allows less memory than the bounds add up to."""
    needed = memory_bytes(config)
    limit, name = min(((limit, name) for name, limit in allowed.items()), default=(needed, ""))
    if needed > limit:
        yield f"memory: bounds add up to {_shown(needed)}B, and {name} allows {_shown(limit)}B: lower them, or raise that"


def memory_bytes(config: Config, message_bytes: int = _MESSAGE_BYTES) -> int:
    """Return what the bounds on memory add up to, with the process, and messages of this size where it counts."""
    journal = config.journal
    size = _PROCESS_BYTES + config.remember.ids * _ID_BYTES
    size += sum(_queue_bytes(route.queue_policy, journal is not None) for route in config.routes)
    for options in (endpoint.options for endpoint in config.endpoints.values()):
        size += options.receive_bytes(message_bytes) + _MISROUTED_BYTES + _FLOWS_BYTES + 2 * config.dead_letter.queue.bytes
        size += _UNCONFIRMED_BYTES if journal is None and options.longest_unconfirmed_s else 0
    size += 0 if journal is None else journal.memory
    return size + sum(section.memory_bytes for _, section in config.feature_sections())


def disk_bytes(config: Config) -> int:
    """Return what the bounds on disks add up to."""
    journal = 0 if config.journal is None else config.journal.disk_bytes
    return journal + sum(each.max_bytes for _, section in config.feature_sections() for each in section.folders())


def _queue_bytes(policy: QueuePolicy, has_journal: bool) -> int:
    queue = policy.queue
    size = queue.bytes + max(queue.bytes, _MANY_LANES * _LANE_BYTES)
    if has_journal and queue.on_full == "backpressure":
        size += _HELD_BYTES * queue.messages * queue.stalled_factor
    return size


def _shown(value: float) -> str:
    """Return a number with three digits and the beginning of its unit."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} "
