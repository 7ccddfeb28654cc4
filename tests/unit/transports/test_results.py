"""Results of sends: parcels that share a result are told in one call, in order."""

from collections.abc import Sequence
from typing import Any

import pytest

from streamer.transports.base import UNCONFIRMED, MessageParcel, SendResult
from streamer.transports.errors import LinkLostError, PermanentError, RefusedError
from streamer.transports.results import ResultRuns, are_alike
from streamer.uprotocol.message import publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri

BUSY = RefusedError(UCode.UNAVAILABLE, "busy")


class Owner:
    """A caller of submit. Notes every call with the payloads and the result."""

    def __init__(self) -> None:
        self.told: list[tuple[str, SendResult]] = []

    def done(self, parcels: Sequence[Any], result: SendResult) -> None:
        self.told.append((b"".join(parcel.message.payload or b"" for parcel in parcels).decode(), result))


def parcel(name: str) -> MessageParcel:
    return MessageParcel(publish(1, UUri.parse("//veh1/1/1/8000"), name.encode()))


def test_neighbours_with_one_result_are_told_together_and_order_is_kept() -> None:
    owner, runs = Owner(), ResultRuns()
    for name, result in (("a", None), ("b", None), ("c", BUSY), ("d", None), ("e", UNCONFIRMED), ("f", UNCONFIRMED)):
        runs.add(owner.done, parcel(name), result)
    assert owner.told == []
    runs.report()
    assert owner.told == [("ab", None), ("c", BUSY), ("d", None), ("ef", UNCONFIRMED)]


def test_each_owner_is_told_of_its_own() -> None:
    one, other, runs = Owner(), Owner(), ResultRuns()
    runs.add(one.done, parcel("a"), None)
    runs.add(other.done, parcel("b"), None)
    runs.report()
    assert (one.told, other.told) == ([("a", None)], [("b", None)])


def test_what_is_added_while_results_are_told_waits_for_the_next_call() -> None:
    owner, runs = Owner(), ResultRuns()
    runs.add(lambda parcels, result: runs.add(owner.done, parcels[0], result), parcel("a"), None)
    runs.report()
    assert owner.told == []
    runs.report()
    runs.report()
    assert owner.told == [("a", None)]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (None, None, True),
        (UNCONFIRMED, UNCONFIRMED, True),
        (None, UNCONFIRMED, False),
        (None, BUSY, False),
        (UNCONFIRMED, LinkLostError(), False),
        (LinkLostError(), LinkLostError(), True),
        (LinkLostError(), LinkLostError("the session is closed"), False),
        (BUSY, RefusedError(UCode.UNAVAILABLE, "busy"), True),
        (BUSY, RefusedError(UCode.INTERNAL, "busy"), False),
        (BUSY, PermanentError(UCode.UNAVAILABLE, "busy"), False),
    ],
)
def test_results_are_alike_if_class_code_and_text_are(one: SendResult, other: SendResult, alike: bool) -> None:
    assert are_alike(one, other) is are_alike(other, one) is alike
