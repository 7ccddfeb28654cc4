"""Reports the results of sends: one call of `Done` for each run of parcels with the same result. Pure."""

from typing import Any

from streamer.transports.base import Done, Parcel, SendResult
from streamer.transports.errors import SendError


class ResultRuns:
    """Collects results in order. Call `report` once the caller's state is consistent: `Done` may call it."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[Done, SendResult, list[Any]]] = []

    def add(self, done: Done, parcel: Parcel, result: SendResult) -> None:
        """Add the result of one parcel, to be reported to ``done``."""
        if self._runs:
            last_done, last_result, parcels = self._runs[-1]
            if (last_done is done or last_done == done) and are_alike(last_result, result):
                parcels.append(parcel)
                return
        self._runs.append((done, result, [parcel]))

    def report(self) -> None:
        """Report the collected results, and clear them."""
        if not self._runs:
            return
        runs, self._runs = self._runs, []
        for done, result, parcels in runs:
            done(parcels, result)


def are_alike(one: SendResult, other: SendResult) -> bool:
    """Return whether two results are the same: both confirmed, both unconfirmed, or errors with one class and status."""
    if one is other:
        return True
    if not isinstance(one, SendError) or not isinstance(other, SendError):
        return False
    return type(one) is type(other) and one.code is other.code and one.message == other.message
