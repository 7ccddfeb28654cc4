"""The statements of docs/once-in-your-store.md, on DuckDB: each message is stored once, whatever comes again, and when."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime

import duckdb
import pytest

from tests.pages import DOCS

MIDNIGHT_MS = round(datetime(2026, 11, 29, tzinfo=UTC).timestamp()) * 1000
A, B = "//veh1/A8000/2/8A50", "//veh2/A8000/2/8A50"


class Store:
    """A consumer that has not acknowledged what it has not stored. ``rows``: source and payload of each message."""

    def __init__(self) -> None:
        (text,) = re.findall(r"```sql\n(.*?)```", (DOCS / "once-in-your-store.md").read_text(), re.DOTALL)
        self._create, self._store = text.split("\n\n", 1)
        self.database = duckdb.connect()

    def arrived(self, messages: Iterable[tuple[str, str, bytes]]) -> None:
        self.database.execute(self._create)
        for source, text, payload in messages:
            row = day_of(text), source, text, payload
            self.database.execute("INSERT INTO batch VALUES (?, ?, ?, ?)", row)

    def commit(self) -> None:
        self.database.execute(self._store)

    @property
    def rows(self) -> list[tuple[str, bytes]]:
        return self.database.execute("SELECT source, payload FROM messages ORDER BY day, id, source").fetchall()


@pytest.fixture
def store() -> Iterator[Store]:
    found = Store()
    yield found
    found.database.close()


def day_of(text: str) -> date:
    return datetime.fromtimestamp(int(text.replace("-", "")[:12], 16) / 1000, UTC).date()


def message(at_ms: int, payload: bytes, source: str = A) -> tuple[str, str, bytes]:
    digits = f"{at_ms:012x}"
    return source, f"{digits[:8]}-{digits[8:]}-7000-8000-{payload.hex():0>12}", payload


def test_copies_in_a_batch_and_in_later_ones_are_stored_once(store: Store) -> None:
    late, early = message(MIDNIGHT_MS - 1, b"late"), message(MIDNIGHT_MS, b"early")
    store.arrived([late, late, early])
    store.commit()
    assert store.rows == [(A, b"late"), (A, b"early")]
    store.arrived([early, message(MIDNIGHT_MS + 1, b"new"), late])
    store.commit()
    assert store.rows == [(A, b"late"), (A, b"early"), (A, b"new")]


def test_the_same_id_of_another_source_is_another_message(store: Store) -> None:
    _, text, _ = first = message(MIDNIGHT_MS, b"a")
    store.arrived([first, (B, text, b"b")])
    store.commit()
    assert store.rows == [(A, b"a"), (B, b"b")]


def test_what_was_not_committed_is_stored_once_it_comes_again(store: Store) -> None:
    unacknowledged = [message(MIDNIGHT_MS + number, b"%d" % number) for number in range(3)]
    store.arrived(unacknowledged)
    store.database.execute("DROP TABLE batch")  # the consumer dies before the commit
    store.arrived(unacknowledged)
    store.commit()
    store.arrived(unacknowledged)  # it dies after the commit, before the acknowledgement
    store.commit()
    assert [payload for _, payload in store.rows] == [b"0", b"1", b"2"]
