"""Finds out why no other node is there, by connecting to the configured addresses: Zenoh itself only says that it is so.

Nothing is sent. Another node sees a connection that ends at once.
"""

import contextlib
import json
import re
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import zenoh

from streamer.transports.link_error import LinkFailure, failure_of
from streamer.transports.probe import connect
from streamer.transports.zenoh.options import TLS, endpoints_of, shown_endpoint, tls_files

LOOK_S = 10.0
"""The seconds between two looks while no other node is there."""

_ADDRESS = re.compile(r"(?P<protocol>tcp|tls|ws)/(?P<host>\[[^\]]*\]|[^:?#]*):(?P<port>\d{1,5})")
_USER = "transport/auth/usrpwd"
_ALERT_S = 0.5  # for an alert about our certificate, which comes after the handshake


class Absence(NamedTuple):
    """Why there is no node behind an address, as `UTransport.link_failed` takes it.

    ``is_accepted``: the address accepts connections, so that a session may just be about to begin.
    """

    reason: LinkFailure
    text: str
    address: str
    is_accepted: bool = False


def why_absent(config: zenoh.Config, mode: str) -> Absence | None:
    """Return the failure of the first address to which a session connects. None: there is no such address. Blocks."""
    for endpoint in endpoints_of(config, "connect", mode):
        if (match := _ADDRESS.match(endpoint)) is None:
            continue
        address, host = shown_endpoint(endpoint), match["host"].strip("[]")
        try:
            with connect(host, int(match["port"])) as link:
                if match["protocol"] == "tls":
                    is_name_checked = json.loads(config.get_json(TLS))["verify_name_on_connect"] is not False
                    _shake_hands(link, host, tls_files(config, endpoint), is_name_checked)
        except _UnreadableError as exc:
            return Absence(LinkFailure.FILES, str(exc), address)
        except OSError as exc:
            return Absence(*failure_of(exc), address)
        user = json.loads(config.get_json(_USER))["user"]
        reason = LinkFailure.PROTOCOL if user is None else LinkFailure.AUTHENTICATION
        text = "it accepts connections, but no session of ours: wrong user or password (transport/auth), or no Zenoh node"
        return Absence(reason, text, address, is_accepted=True)
    return None


class _UnreadableError(Exception):
    """A certificate that cannot be used. The text names the option, never the content."""


def _shake_hands(link: socket.socket, host: str, files: Mapping[str, Path], is_name_checked: bool) -> None:
    """Make a TLS handshake as Zenoh would. Raises OSError, or `_UnreadableError`."""
    try:
        context = ssl.create_default_context(cafile=files.get("root_ca_certificate"))
        context.check_hostname = is_name_checked
        if "root_ca_certificate" not in files:  # Zenoh has other roots, or a certificate that it does not show
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "connect_certificate" in files:
            context.load_cert_chain(files["connect_certificate"], files.get("connect_private_key"), password="")
    except OSError as exc:
        raise _UnreadableError(f"{TLS}: {failure_of(exc)[1]}") from exc
    with context.wrap_socket(link, server_hostname=host) as secure:
        secure.settimeout(_ALERT_S)
        with contextlib.suppress(TimeoutError):
            secure.recv(1)
