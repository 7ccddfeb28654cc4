"""Reports the service's state to systemd (sd_notify(3)), by a datagram to $NOTIFY_SOCKET, if that is set."""

import os
import socket


def notify(*assignments: str) -> None:
    """Send ``KEY=value`` lines such as ``READY=1``. Errors are ignored.

    A datagram for which the socket has no room is dropped: a systemd that does not read must not block the event loop.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
        try:
            # One line each, whatever the text in it: a second one would be an assignment of its own.
            sock.sendto("\n".join(" ".join(each.splitlines()) for each in assignments).encode(), address)
        except OSError:
            return


def watchdog_interval_s() -> float | None:
    """Return the seconds between two ``WATCHDOG=1``: half of systemd's limit. None: systemd does not watch this process."""
    limit_us = os.environ.get("WATCHDOG_USEC", "")
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not limit_us.isdecimal():
        return None
    return int(limit_us) / 2_000_000 or None
