"""``streamer check --probe`` beside a running streamer: what that one uses is no problem if it is of this configuration."""

import socket
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from streamer.features.check import probe
from streamer.journal.lock import FileLock
from streamer.journal.sqlite import FileError
from streamer.tools.running import DaemonAddress, NotAskedError
from streamer.transports.memory import MemoryTransport
from streamer.transports.probe import Probe, blocking, ok, problem
from tests.unit.features.check.probing import checked, lines

T = TypeVar("T")


@pytest.mark.parametrize(
    ("authority", "verdicts"),
    [("gw", ("ok", "ok", "ok")), ("other", ("problem", "problem", "problem")), (None, ("problem", "problem", "problem"))],
    ids=["it runs", "another one runs", "nothing that answers"],
)
def test_what_the_running_streamer_of_this_configuration_uses_is_no_problem(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    authority: str | None,
    verdicts: tuple[str, ...],
) -> None:
    journal = {"path": str(tmp_path / "journal.db"), "max_bytes": "1MiB"}
    (tmp_path / "journal.db").touch()

    def ask(daemon: DaemonAddress, page: str, read: Callable[[Any], T], **_: Any) -> T:
        if authority is None:
            raise NotAskedError("nobody")
        endpoints = {"vehicle": {"options": {"listen": ["tcp/127.0.0.1:7447"]}}}
        return read({"config": {"authority": authority, "endpoints": endpoints, "journal": journal}})

    def probes(options: Any, held: Collection[str]) -> Iterable[Probe]:
        is_held = "tcp/127.0.0.1:7447" in held
        return (blocking("listen", lambda: ok("ours") if is_held else problem("taken")),)

    monkeypatch.setattr(probe, "ask", ask)
    monkeypatch.setattr(MemoryTransport.tools, "probes", probes, raising=False)
    lock = FileLock(tmp_path / "journal.db", FileError)
    lock.take()
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            checked(tmp_path, metrics={"listen": f"127.0.0.1:{taken.getsockname()[1]}"}, journal=journal)
    finally:
        lock.release()
    told = lines(capsys)
    assert tuple(told[key][0] for key in ("metrics.listen", "journal.path", "endpoints.vehicle.options.listen")) == verdicts


def test_without_a_port_nobody_can_tell_which_streamer_uses_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journal.db").touch()
    lock = FileLock(tmp_path / "journal.db", FileError)
    lock.take()
    try:
        checked(tmp_path, journal={"path": str(tmp_path / "journal.db"), "max_bytes": "1MiB"})
    finally:
        lock.release()
    assert lines(capsys)["journal.path"][0] == "cannot tell"
