"""How much of the journal the unconfirmed messages of each endpoint may take."""

from pathlib import Path

import pytest

from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from tests.unit.delivery.custody_harness import ROOMY, CustodyHarness, journaled


def add(harness: CustodyHarness, name: str, unconfirmed_s: float = 10.0) -> UnconfirmedStore:
    store = UnconfirmedStore(name, unconfirmed_s, ROOMY, harness.custody, harness.seen)
    harness.custody.add_store(store)
    return store


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_endpoints_together_have_half_of_the_journal(tmp_path: Path, count: int) -> None:
    with journaled(tmp_path / "journal.db") as harness:
        stores = [harness.store, *(add(harness, f"vehicle{number}") for number in range(1, count))]
        assert {store.max_bytes for store in stores} == {harness.journal.max_bytes // 2 // count}


def test_networks_that_confirm_need_none_and_what_goes_is_divided(tmp_path: Path) -> None:
    with journaled(tmp_path / "journal.db") as harness:
        half = harness.journal.max_bytes // 2
        add(harness, "broker", unconfirmed_s=0.0)
        assert harness.store.max_bytes == half
        other = add(harness, "vehicle")
        assert (harness.store.max_bytes, other.max_bytes) == (half // 2, half // 2)
        harness.custody.remove_store(other)
        assert harness.store.max_bytes == half


def test_without_a_journal_each_keeps_its_own_bound() -> None:
    harness = CustodyHarness()
    other = add(harness, "vehicle")
    assert (harness.store.max_bytes, other.max_bytes) == (ROOMY, ROOMY)
