"""Finds what a valid configuration leaves open to attackers: on the network, at the HTTP port, in files with secrets.

The results are hints, not mistakes: each may be intended. This module opens and connects nothing; of files with secrets, it
reads only the mode.
"""

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamer.config.claims import paths
from streamer.config.models import Config
from streamer.config.secrets import dotted, is_secret_file
from streamer.transports.addresses import is_loopback
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri

_NOT_FOR_OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IXOTH | stat.S_IWGRP


def exposures(config: Config) -> Iterator[str]:
    """Yield a sentence for each exposure."""
    for name, endpoint in config.endpoints.items():
        for text in endpoint.options.exposures():
            yield f"endpoints.{name}.options.{text}"
    metrics, control = config.metrics, config.control
    if metrics is not None and metrics.tls is None and control.http == "any" and not is_loopback(metrics.host):
        yield (
            f"control.http: any, and metrics.listen is {metrics.listen}: the token goes there unencrypted; "
            "set metrics.tls, or use loopback"
        )
    yield from open_to_all("control.allow", control.allow)
    for location, path in paths(config):
        if is_secret_file(str(location[-1])):
            yield from _open_file(dotted(location), path)


def open_to_all(key: str, patterns: Iterable[UUri]) -> Iterator[str]:
    """Yield permissions for every authority: senders at an endpoint with ``*`` can invent authorities."""
    for pattern in patterns:
        if pattern.authority == ANY_AUTHORITY:
            yield f"{key}: {pattern}: open to every authority, also to one that somebody invents; name them"


def _open_file(key: str, path: Path) -> Iterator[str]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:  # absent or of another user: the part that needs the file reports that
        return
    if mode & _NOT_FOR_OTHERS:
        who = "others on this machine" if mode & stat.S_IRWXO else "its group"
        verb = "change" if mode & (stat.S_IWOTH | stat.S_IWGRP) else "read"
        yield (
            f"{key}: {path} has mode {mode:04o}, so {who} can {verb} it; expected 0600 or 0640. (Secrets that a container "
            "or systemd mounts often are 0444, which is fine as long as no other user can log in there.)"
        )
