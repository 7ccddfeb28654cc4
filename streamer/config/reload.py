"""Finds the changes of a configuration that a reload can apply, and those that need a restart."""

from streamer.config.models import Config, EndpointConfig
from streamer.config.stores import JournalConfig
from streamer.config.types import Section


def beyond_reload(old: Config, new: Config) -> list[str]:
    """Return a sentence for each change that needs a restart: files on disk, or the port, depend on it."""
    found = []
    if old.authority != new.authority:
        found.append(f"authority: changed from {old.authority} to {new.authority}; restart to use it")
    before, after = dict(old.feature_sections()), dict(new.feature_sections())
    changed = (
        *_changed("journal", old.journal, new.journal, *JournalConfig.model_fields),
        *_changed("metrics", old.metrics, new.metrics, "listen"),
        *(
            each
            for key, section in (before | after).items()
            if (fixed := section.fixed_keys()) is not None
            for each in _changed(key, before.get(key), after.get(key), *fixed)
        ),
    )
    return [*found, *(f"{key}: changed; restart to use it" for key in changed)]


def rebuilt_endpoints(old: Config, new: Config) -> list[str]:
    """Return the endpoints that are new, or have another transport or other options; not those that were removed."""
    return [name for name, endpoint in new.endpoints.items() if not _is_reached_alike(old.endpoints.get(name), endpoint)]


def reconnected_endpoints(old: Config, new: Config) -> list[str]:
    """Return the endpoints that disconnect, and connect with another transport or other options."""
    return [name for name in rebuilt_endpoints(old, new) if name in old.endpoints]


def _is_reached_alike(before: EndpointConfig | None, after: EndpointConfig) -> bool:
    return before is not None and (before.transport, before.options) == (after.transport, after.options)


def _changed(section: str, before: Section | None, after: Section | None, *keys: str) -> list[str]:
    """Return the section if it was added or removed, else those of its keys that have changed."""
    if before is None or after is None:
        return [] if before is after else [section]
    return [f"{section}.{key}" for key in keys if getattr(before, key) != getattr(after, key)]
