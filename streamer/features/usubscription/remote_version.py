"""Chooses the version of core.usubscription for commands to the services of other devices. Pure.

The law of this file:

- A service gets commands in the version in which it answered last, or the newest one if it has never answered. An OK that
  cannot be parsed counts as a failure, not as an answer.
- While a service has never answered, or if the last attempt failed, its version is unknown: a command goes out in the other
  version, too, after a short wait, or at once if it fails.
- A service that answers only an older version gets a command in the newest once a day, too: it may have been upgraded.
- The versions are not on disk: after a restart they are learned again within seconds.
"""

from typing import NamedTuple

NEWEST, OLDEST = 4, 3

PATIENCE_MS = 10_000
"""How long a service may take to answer before a command goes out in the other version as well."""

TRY_NEWEST_MS = 24 * 3_600_000

MAX_SERVICES = 10_000

_TIMEOUT_MS = 300_000


class _Known(NamedTuple):
    version: int
    learned_ms: int
    is_sure: bool


class RemoteVersions:
    """The known version of each service, by authority. Beyond a bound, the least recently used one is forgotten."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def order(self, authority: str, now_ms: int) -> tuple[int, int]:
        """Return the versions to try, in this order."""
        known = self._known.get(authority)
        if known is None or known.version == NEWEST:
            return NEWEST, OLDEST
        if not 0 <= now_ms - known.learned_ms < TRY_NEWEST_MS:
            self._keep(authority, _Known(known.version, now_ms, False))
            return NEWEST, OLDEST
        return OLDEST, NEWEST

    def is_sure(self, authority: str) -> bool:
        """Whether only the first version of `order` has to be tried."""
        known = self._known.get(authority)
        return known is not None and known.is_sure

    def learn(self, authority: str, version: int, now_ms: int) -> None:
        """Note that the service has answered in this version."""
        known = self._known.get(authority)
        if version < NEWEST and known is not None and known.is_sure and known.version == NEWEST:
            return  # the command went out in both
        self._keep(authority, _Known(version, now_ms, True))

    def mark_unsure(self, authority: str) -> None:
        """Note that a command to the service has failed."""
        known = self._known.get(authority)
        if known is not None:
            self._known[authority] = known._replace(is_sure=False)

    def timeout_ms(self, version: int, configured_ms: int) -> int:
        """Return the ms that a command waits for its response: version 4 prescribes them, version 3 a minimum."""
        return configured_ms if version == OLDEST else _TIMEOUT_MS

    def _keep(self, authority: str, known: _Known) -> None:
        self._known.pop(authority, None)
        self._known[authority] = known
        if len(self._known) > MAX_SERVICES:
            del self._known[next(iter(self._known))]
