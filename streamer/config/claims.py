"""Finds what a configuration gives to two: a port, a file, a session at a broker. Nothing is opened or looked up."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamer.config.checks import Finding
from streamer.config.secrets import dotted
from streamer.transports.claims import Claim


def path_claim(key: tuple[str | int, ...], path: Path) -> Claim:
    """The claim of who writes to a file or a folder."""
    return Claim(key, f"the path {os.path.abspath(path)}")


def conflicts(claims: Iterable[Claim]) -> Iterator[Finding]:
    """A mistake for each claim that an earlier one excludes. Their keys begin at the top of the file."""
    seen: dict[str, list[Claim]] = {}
    for claim in claims:
        earlier = seen.setdefault(claim.thing, [])
        taken = next((each for each in earlier if each.excludes(claim)), None)
        if taken is None:
            earlier.append(claim)
        else:
            where = "" if claim.host is None else f" at {claim.host}"
            by = dotted(taken.key) + ("" if taken.host in (None, claim.host) else f" ({taken.host})")
            yield Finding(claim.key, f"{claim.thing}{where} is taken by {by} already; expected another")
