"""Tells systemd how we are (sd_notify(3)): one datagram to the socket that it named, nothing if it named none."""

import os
import socket


def notify(*assignments: str) -> None:
    """Send ``KEY=value`` lines such as ``READY=1``. Failure to tell is no reason to stop working."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.sendto("\n".join(assignments).encode(), address)
        except OSError:
            return


def watchdog_interval_s() -> float | None:
    """How often systemd wants to hear ``WATCHDOG=1``: half of its limit; None if it does not watch us."""
    limit_us = os.environ.get("WATCHDOG_USEC", "")
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not limit_us.isdecimal():
        return None
    return int(limit_us) / 2_000_000 or None
