"""A disk that hangs: no call fails, and none ends. Somebody else than the thread that waits for it has to say so."""

import threading
from collections.abc import Iterator

import pytest

from streamer.journal import file
from streamer.journal.entries import Batch, JournalError
from streamer.journal.journal import JournalState
from streamer.journal.letters import LetterChange
from tests.unit.journal.conftest import MakeHarness
from tests.unit.journal.harness import JournalHarness, row, wait_until


class Hanging:
    """A journal whose next transaction waits until it may go on."""

    def __init__(self, harness: JournalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.harness = harness
        self.may_go_on = threading.Event()
        apply, begun = harness.journal._store.apply, threading.Event()

        def slow(batch: Batch) -> None:
            def work(connection: object) -> None:
                begun.set()
                self.may_go_on.wait(60)

            harness.journal._store._file.use(work)
            apply(batch)

        monkeypatch.setattr(harness.journal._store, "apply", slow)
        self.done = harness.hand_over(Batch(rows=[row(1)]))
        assert begun.wait(10)


@pytest.fixture
def hanging(harness: MakeHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    found = Hanging(harness().open(), monkeypatch)
    yield found
    found.may_go_on.set()


def test_a_transaction_that_does_not_end_counts_as_one_that_cannot_be_written(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = hanging.harness.journal
    journal.tick()
    assert (journal.state, caplog.text) == (JournalState.OK, "")
    monkeypatch.setattr(file, "HANGS_AFTER_S", 0.0)
    for _ in range(2):
        journal.tick()
    assert journal.state is JournalState.FAILING
    assert journal.problem == journal.hangs == f"{journal.path}: the disk has not ended a transaction within 0 s"
    with pytest.raises(JournalError, match="has not ended"):
        journal.change_letters(LetterChange([1]))
    hanging.may_go_on.set()
    hanging.harness.loop.run_until(lambda: bool(hanging.done))
    wait_until(lambda: journal.state is JournalState.OK)
    journal.tick()
    assert [record.getMessage().split()[0] for record in caplog.records] == ["journal_failing", "journal_healed"]
