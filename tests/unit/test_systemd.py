"""sd_notify, with a socket as systemd would open it."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.systemd import notify, watchdog_interval_s


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """systemd's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield sock


def test_assignments_arrive_as_lines_of_one_datagram(systemd: socket.socket) -> None:
    notify("READY=1", "STATUS=all endpoints connected")
    notify("WATCHDOG=1")
    assert systemd.recv(1000) == b"READY=1\nSTATUS=all endpoints connected"
    assert systemd.recv(1000) == b"WATCHDOG=1"


def test_text_with_line_ends_assigns_nothing(systemd: socket.socket) -> None:
    notify("STATUS=the broker says\nSTOPPING=1\r\nMAINPID=1")
    assert systemd.recv(1000) == b"STATUS=the broker says STOPPING=1 MAINPID=1"


@pytest.mark.timeout(10)
def test_systemd_that_does_not_read_holds_nothing_up(systemd: socket.socket) -> None:
    for number in range(1000):
        notify(f"STATUS={number}")
    assert systemd.recv(1000) == b"STATUS=0"


def test_abstract_socket_is_reached_too(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"ustreamer-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("READY=1")
        assert sock.recv(1000) == b"READY=1"


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")


@pytest.mark.parametrize("address", ["/nonexistent/notify", "@nobody-listens-here", "/tmp", "x" * 200])
def test_socket_that_cannot_be_reached_does_not_stop_the_daemon(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")


@pytest.mark.parametrize(
    ("limit_us", "pid", "interval_s"),
    [
        ("10000000", None, 5.0),
        ("10000000", "own", 5.0),
        ("10000000", "1", None),  # meant for another process
        (None, None, None),
        ("", None, None),
        ("0", None, None),
        ("-5", None, None),
        ("soon", None, None),
        ("²", None, None),
    ],
)
def test_watchdog_is_told_at_half_of_its_limit(
    limit_us: str | None, pid: str | None, interval_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WATCHDOG_USEC", limit_us), ("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert watchdog_interval_s() == interval_s


def test_a_systemd_that_does_not_read_holds_up_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))

        def send() -> None:
            for _ in range(20):
                notify("WATCHDOG=1")

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        sending.join(30)
        assert not sending.is_alive()
        manager.setblocking(False)
        assert manager.recv(4096) == b"WATCHDOG=1"
