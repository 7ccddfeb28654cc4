"""Unconfirmed messages, when the process did not run for a time."""

from tests.unit.delivery.custody.unconfirmed_harness import ABSENT_S, UNCONFIRMED_S, StoreHarness


def test_time_in_which_the_process_did_not_run_makes_no_batch_older() -> None:
    harness = StoreHarness()
    harness.send_some(1)
    harness.flush()
    harness.send_some(1, 1)
    harness.clock.advance(60_000)
    harness.store.extend_waits(60)
    assert harness.confirmed_messages(UNCONFIRMED_S - 0.001) == 0
    assert harness.confirmed_messages(0.001) == 1
    harness.flush()
    assert harness.confirmed_messages(UNCONFIRMED_S) == 1


def test_nor_does_it_count_for_what_was_set_aside() -> None:
    harness = StoreHarness()
    harness.send_some(1)
    harness.flush()
    harness.store.node_lost(harness.clock.s)
    harness.clock.advance(60_000)
    harness.store.extend_waits(60)
    assert harness.confirmed_messages(ABSENT_S - 0.001) == 0
    assert harness.confirmed_messages(0.001) == 1
