"""What a reload can change while the daemon runs, and what only a restart can."""

from streamer.config.models import Config, EndpointConfig
from streamer.config.services import StateConfig
from streamer.config.stores import JournalConfig
from streamer.config.types import Section


def beyond_reload(old: Config, new: Config) -> list[str]:
    """The changes that need a restart, a sentence each: what the files on disk and the port depend on."""
    found = []
    if old.authority != new.authority:
        found.append(f"authority: changed from {old.authority} to {new.authority}; restart to use it")
    changed = (
        *_changed("journal", old.journal, new.journal, *JournalConfig.model_fields),
        *_changed("metrics", old.metrics, new.metrics, "listen"),
        *_changed("state", old.state, new.state, *StateConfig.model_fields),
        # It decides what the state file is about.
        *_changed("usubscription", old.usubscription, new.usubscription, "external"),
    )
    return [*found, *(f"{key}: changed; restart to use it" for key in changed)]


def rebuilt_endpoints(old: Config, new: Config) -> list[str]:
    """The endpoints that are new, or whose network is reached in another way. Those that are gone are not among them."""
    return [name for name, endpoint in new.endpoints.items() if not _is_reached_alike(old.endpoints.get(name), endpoint)]


def _is_reached_alike(before: EndpointConfig | None, after: EndpointConfig) -> bool:
    return before is not None and (before.transport, before.options) == (after.transport, after.options)


def _changed(section: str, before: Section | None, after: Section | None, *keys: str) -> list[str]:
    """The section if it came or went, else those of its keys that have changed."""
    if before is None or after is None:
        return [] if before is after else [section]
    return [f"{section}.{key}" for key in keys if getattr(before, key) != getattr(after, key)]
