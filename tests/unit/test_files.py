"""Files that a configuration names: regular ones are read, to a bound; others and those that hang hold up nobody."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from streamer.files import Files, digest, read_file


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def test_a_file_is_read_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_file(path, most=5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_file(path, most=4)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pipe(tmp_path / "pipe"))
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            read_file(path)
        assert digest(path) == b""
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "nothing")


def test_a_file_that_is_read_leaves_no_descriptor_open(tmp_path: Path) -> None:
    pipe(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        digest(tmp_path / "pipe")
        digest(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_what_work_returns_and_raises_comes_back() -> None:
    files = Files()
    assert await files.run(lambda: 7) == 7
    with pytest.raises(KeyError):
        await files.run(lambda: dict[str, int]()["x"])
    with pytest.raises(TimeoutError, match="its own"):
        await files.run(lambda: (_ for _ in ()).throw(TimeoutError("its own")))


async def test_work_that_hangs_costs_one_thread_and_what_comes_later_waits_for_it() -> None:
    released, files = threading.Event(), Files(patience_s=0.05)
    begun: list[str] = []

    def hang() -> None:
        begun.append(threading.current_thread().name)
        released.wait()

    for _ in range(3):
        with pytest.raises(OSError, match="does its file system hang"):
            await files.run(hang)
    assert begun == ["files"]
    released.set()
    patient = Files()
    patient._running = files._running
    assert await patient.run(lambda: "again") == "again"


async def test_calls_run_one_after_the_other_and_all_of_them() -> None:
    files, inside, most = Files(), [0], [0]

    def work() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        inside[0] -= 1

    await asyncio.gather(*(files.run(work) for _ in range(20)))
    assert most == [1]


async def test_who_does_not_wait_any_more_is_told_nothing_of_what_fails_later(caplog: pytest.LogCaptureFixture) -> None:
    released, files = threading.Event(), Files()

    def fail_late() -> None:
        released.wait()
        raise KeyError("late")

    task = asyncio.create_task(files.run(fail_late))
    while files._running is None:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    released.set()
    assert await files.run(lambda: 1) == 1
    assert caplog.text == ""
