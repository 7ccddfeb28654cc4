"""What a reload can change while the daemon runs, and what only a restart can."""

from streamer.config.models import Config, EndpointConfig


def beyond_reload(old: Config, new: Config) -> list[str]:
    """The changes that need a restart, a sentence each: what the files on disk and the port depend on."""
    found = []
    if old.authority != new.authority:
        found.append(f"authority: changed from {old.authority} to {new.authority}; restart to use it")
    fixed = {
        "journal": (old.journal, new.journal),
        "metrics": (_port(old), _port(new)),
        "state": (old.state, new.state),
        "usubscription": (_role(old), _role(new)),
    }
    found += [f"{key}: changed; restart to use it" for key, (before, after) in fixed.items() if before != after]
    return found


def rebuilt_endpoints(old: Config, new: Config) -> list[str]:
    """The endpoints that are new, or whose network is reached in another way. Those that are gone are not among them."""
    return [name for name, endpoint in new.endpoints.items() if not _is_reached_alike(old.endpoints.get(name), endpoint)]


def _is_reached_alike(before: EndpointConfig | None, after: EndpointConfig) -> bool:
    return before is not None and (before.transport, before.options) == (after.transport, after.options)


def _port(config: Config) -> str | None:
    return None if config.metrics is None else config.metrics.listen


def _role(config: Config) -> object:
    """Whether there is a uSubscription service, or which one is followed: it decides what the state file is about."""
    return None if config.usubscription is None else (config.usubscription.external, True)
