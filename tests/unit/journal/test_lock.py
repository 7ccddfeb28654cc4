"""One daemon for each file: the lock is held by one, seen by others, and ends with its holder."""

import fcntl
import os
import time
from pathlib import Path

import pytest

from streamer.journal.entries import JournalError
from streamer.journal.lock import FileLock, identity, is_in_use


def lock(path: Path) -> FileLock:
    return FileLock(path, JournalError)


def test_a_file_that_nobody_locked_is_not_in_use(path: Path) -> None:
    assert not is_in_use(path)


def test_a_second_holder_is_refused_until_the_first_has_released(path: Path) -> None:
    first, second = lock(path), lock(path)
    first.take()
    assert is_in_use(path)
    with pytest.raises(JournalError, match="another streamer uses it"):
        second.take()
    first.release()
    assert not is_in_use(path)
    second.take()
    second.release()


def test_a_lock_that_is_held_can_be_taken_again_and_released_twice(path: Path) -> None:
    held = lock(path)
    held.take()
    held.take()
    held.release()
    held.release()
    assert not is_in_use(path)


def test_who_looks_whether_a_file_is_in_use_does_not_keep_a_daemon_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = os.open(path.with_name("journal.db.lock"), os.O_CREAT | os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_SH)

    def wait(wait_s: float) -> None:
        if wait_s:
            fcntl.flock(looking, fcntl.LOCK_UN)

    monkeypatch.setattr(time, "sleep", wait)
    held = lock(path)
    held.take()
    held.release()
    os.close(looking)


def test_a_refused_attempt_does_not_leave_anything_open(path: Path) -> None:
    first, second = lock(path), lock(path)
    first.take()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with pytest.raises(JournalError):
            second.take()
    assert len(os.listdir("/proc/self/fd")) == before
    first.release()


def test_a_lock_whose_file_was_removed_is_taken_anew(path: Path) -> None:
    held = lock(path)
    held.take()
    path.with_name("journal.db.lock").unlink()
    held.take()
    assert is_in_use(path)
    held.release()


def test_the_lock_file_stays_and_only_its_owner_may_read_it(path: Path) -> None:
    held = lock(path)
    held.take()
    held.release()
    assert path.with_name("journal.db.lock").stat().st_mode & 0o777 == 0o600


def test_a_file_keeps_its_identity_when_it_is_renamed_and_another_one_has_another(path: Path) -> None:
    assert identity(path) == (0, 0)
    path.touch()
    first = identity(path)
    moved = path.rename(path.with_name("moved"))
    path.touch()
    assert identity(moved) == first != identity(path)


@pytest.fixture(params=["symbolic", "hard"])
def other_name(request: pytest.FixtureRequest, path: Path) -> Path:
    """Another name of the same file, in another folder."""
    path.touch()
    (path.parent / "elsewhere").mkdir()
    other = path.parent / "elsewhere" / "other.db"
    other.symlink_to(path) if request.param == "symbolic" else other.hardlink_to(path)
    return other


def test_a_file_that_is_locked_is_locked_by_each_of_its_names(path: Path, other_name: Path) -> None:
    first, second = lock(path), lock(other_name)
    first.take()
    assert is_in_use(other_name)
    with pytest.raises(JournalError, match=r"other\.db: another streamer uses it"):
        second.take()
    first.release()
    assert not is_in_use(other_name)
    second.take()
    with pytest.raises(JournalError, match=r"journal\.db: another streamer uses it"):
        first.take()
    second.release()


def test_a_link_to_a_file_that_is_not_there_yet_is_locked_as_well(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    first, second = lock(link), lock(path)
    first.take()
    with pytest.raises(JournalError):
        second.take()
    first.release()


def test_the_file_that_takes_the_place_of_another_is_locked_anew(path: Path) -> None:
    path.touch()
    held, moved = lock(path), path.with_name("moved.db")
    held.take()
    path.rename(moved)
    path.touch()
    held.take()
    other = path.with_name("other.db")
    other.hardlink_to(path)
    with pytest.raises(JournalError):
        lock(other).take()
    assert not is_in_use(moved)
    held.release()
