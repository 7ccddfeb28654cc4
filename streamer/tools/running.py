"""Sends requests to a running daemon's HTTP port: that of a configuration file, or the one at ``--url``.

The file has the port's address, its certificate, and the path of the token, as for the daemon.
"""

import argparse
import functools
import json
import os
import pwd
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, RemoteDisconnected
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import BaseHandler, HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from streamer.config.load import load
from streamer.config.models import Config
from streamer.config.secrets import without_settings
from streamer.config.token import read_token, token_file, who_may_read
from streamer.tools.text import CONFIG_DEFAULT, EX_CONFIG, complain, parsed, reason_of

API = "/api/v1"

_ANSWER_BYTES = 32 << 20  # more than a thousand dead letters with the longest texts

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # how to reach a daemon that listens on all addresses
_ANOTHER_CERTIFICATE = (
    "it shows another certificate than metrics.tls.cert_file. It uses what is renewed there from the next connection on, "
    "unless it cannot be read or key_file does not belong to it: its log says so (http_certificate_unusable). A streamer "
    "that was started with another cert_file needs SIGHUP to read this file"
)
_EARLIER = "another authority or journal.path"
_END_OF_CERTIFICATE = "-----END CERTIFICATE-----"

UNFIT = ValueError, KeyError, TypeError, AttributeError, OverflowError
"""Errors of reading an answer that is not a streamer's: a part is missing, or has another type."""

T = TypeVar("T")


class NotAskedError(Exception):
    """There is no usable answer. The text gives the reason; ``status`` is the command's exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class NobodyThereError(NotAskedError):
    """No program answers at the daemon's address."""


class DaemonRefusedError(NotAskedError):
    """The daemon has refused a request. ``answer``: its body; ``code``: the HTTP status.

    An invalid request has the exit status of wrong usage, as if the command had found the mistake itself.
    """

    def __init__(self, text: str, answer: Any, code: int) -> None:
        super().__init__(text, 2 if code == HTTPStatus.BAD_REQUEST else 1)
        self.answer = answer
        self.code = code


@dataclass(frozen=True, slots=True)
class DaemonAddress:
    """Where to reach a daemon. ``named``: its name in messages; ``host``: the Host header, if not as in the URL.

    ``token``: returns the token, None if there is none; raises `NotAskedError`. ``token_file``: where the token is read.
    ``is_configured``: the address is from a configuration file, and the daemon may have been started with an earlier one;
    ``makes_token``: that file names no token file, so the daemon makes one beside its journal.
    """

    url: str
    named: str
    token: Callable[[], str | None]
    tls: ssl.SSLContext | None = None
    host: str | None = None
    token_file: Path | None = None
    is_configured: bool = False
    makes_token: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--config``, and the options for a daemon elsewhere, to a command."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"the configuration file that the daemon was started with; {CONFIG_DEFAULT}",
    )
    add_elsewhere(parser)


def add_elsewhere(parser: argparse.ArgumentParser) -> None:
    """Add the options for a daemon elsewhere to a command."""
    group = parser.add_argument_group("a daemon elsewhere", "Instead of --config, or overriding its values.")
    group.add_argument("--url", metavar="URL", help="the daemon's HTTP port, such as https://gateway:9464")
    group.add_argument("--token-file", type=Path, metavar="FILE", help="a file with the token that changes need")
    group.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="CA certificates for its certificate; default: the system's"
    )
    group.add_argument("--client-cert", type=Path, metavar="FILE", help="a client certificate, instead of a token")
    group.add_argument("--client-key", type=Path, metavar="FILE", help="the key of --client-cert")


def loaded(arguments: argparse.Namespace) -> Config | None:
    """Return the configuration; None: ``--url`` takes its place. Raises `ConfigError`."""
    return None if arguments.config is None else load(arguments.config, kind=arguments.kind)


def daemon_of(arguments: argparse.Namespace, config: Config | None) -> DaemonAddress:
    """Return the daemon that the options of a command name. Raises `NotAskedError`."""
    given = arguments.token_file
    token = (lambda: _token(given, "--token-file")) if given is not None else None
    if arguments.url is None:
        assert config is not None
        found = configured(arguments.config, config)
        if arguments.ca_file is None and arguments.client_cert is None and token is None:
            return found
        tls = found.tls if found.tls is None else _context(arguments, found.tls)
        makes_token = found.makes_token and given is None
        file = given or found.token_file
        return replace(found, token=token or found.token, tls=tls, token_file=file, makes_token=makes_token)
    parts = _base(arguments.url)
    tls = _context(arguments, None) if parts.scheme == "https" else None
    return DaemonAddress(f"{parts.scheme}://{parts.netloc}", parts.netloc, token or (lambda: None), tls, None, given)


def _base(url: str) -> SplitResult:
    """Return the parts of a URL without path and query. Raises `NotAskedError`."""
    try:
        parts = urlsplit(url)
        is_base = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # of the host in brackets, or of the port
        is_base = False
    if not is_base or parts.path.strip("/") or parts.query or parts.fragment:
        raise NotAskedError(f"--url: {without_settings(url)}: expected http://host:port or https://host:port", 2)
    return parts


def configured(path: Path, config: Config) -> DaemonAddress:
    """Return the daemon that was started from the file at ``path``, which contains ``config``. Raises `NotAskedError`."""
    metrics = config.metrics
    if metrics is None:
        raise NotAskedError(f"{path}: metrics: null: commands need the daemon's HTTP port", EX_CONFIG)
    if not metrics.port:
        raise NotAskedError(f"{path}: metrics.listen: {metrics.listen}: the port is not known", EX_CONFIG)
    host = _ANY_ADDRESS.get(metrics.host, metrics.host)
    scheme = "http" if metrics.tls is None else "https"
    tls = None if metrics.tls is None else _trusting(metrics.tls.cert_file, f"{path}: metrics.tls.cert_file")
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{metrics.port}"
    named = f"{metrics.listen} (metrics.listen)"
    token = functools.partial(_configured_token, path, config)
    makes_token = config.control.http_token_file is None
    # The daemon may not accept other names than localhost.
    return DaemonAddress(
        url, named, token, tls, "localhost", token_file(config), is_configured=True, makes_token=makes_token
    )


def ask(
    daemon: DaemonAddress,
    page: str,
    read: Callable[[Any], T],
    asked: dict[str, Any] | None = None,
    within_s: float = 10.0,
    is_secret: bool = False,
) -> T:
    """Return a page's answer to a GET, or to a POST of ``asked``, as ``read`` converts it. Raises `NotAskedError`.

    ``is_secret``: reading the page needs the token, too. ``read`` may raise the errors in `UNFIT`.
    """
    with opened(daemon, page, asked, within_s, is_secret) as answer:
        try:
            return read(parsed(answer.read(_ANSWER_BYTES)))
        except (OSError, HTTPException, *UNFIT) as exc:
            raise unfit(daemon) from exc


def opened(
    daemon: DaemonAddress,
    page: str,
    asked: dict[str, Any] | None = None,
    within_s: float = 10.0,
    is_secret: bool = False,
    below: str = API,
) -> HTTPResponse:
    """Return the response of a page, as for `ask`, for the caller to read and close. ``below``: the prefix of its path."""
    headers = {"Content-Type": "application/json"}
    if (name := user()).isascii() and name.isprintable():  # a header cannot hold others
        headers["Ustreamer-User"] = name
    if daemon.host is not None:
        headers["Host"] = daemon.host
    token = daemon.token() if is_secret or asked is not None else None
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    handlers: list[BaseHandler] = [ProxyHandler({}), _NoRedirects()]
    if daemon.tls is not None:
        handlers.append(HTTPSHandler(context=daemon.tls))
    try:
        body = None if asked is None else json.dumps(asked).encode()
        request = Request(f"{daemon.url}{below}{page}", body, headers)
        answer: HTTPResponse = build_opener(*handlers).open(request, timeout=within_s)
        return answer
    except HTTPError as exc:
        raise _refusal(exc, _about_token(daemon, token)) from exc
    except (URLError, OSError) as exc:
        reason = getattr(exc, "reason", None) or exc
        reason = reason_of(reason) if isinstance(reason, OSError) else reason
        if isinstance(exc, RemoteDisconnected) and daemon.tls is None:
            reason = f"{reason}; does it speak TLS, https://?"
        if isinstance(getattr(exc, "reason", None), ssl.SSLCertVerificationError) and daemon.is_configured:
            reason = f"{reason}; {_ANOTHER_CERTIFICATE}"
        text = f"{daemon.named}: no streamer answers there ({reason})"
        raise NobodyThereError(text + _about_restart(daemon.is_configured, "another metrics.listen")) from exc
    except HTTPException as exc:
        raise unfit(daemon) from exc


def unfit(daemon: DaemonAddress) -> NotAskedError:
    """Return the error for an answer that is not a streamer's."""
    return NotAskedError(f"{daemon.named}: what answers there is not a streamer")


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirects: a daemon sends none, and the token is only for the daemon."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, which makes a redirect an error."""


def answered(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Wrap a command so that it prints a `NotAskedError` and returns its exit status."""

    @functools.wraps(command)
    def run(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except NotAskedError as exc:
            return complain(str(exc), exc.status)

    return run


def user() -> str:
    """Return the user who runs the command, and the one behind sudo."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid-{os.getuid()}"
    return f"{name} for {os.environ['SUDO_USER']}" if "SUDO_USER" in os.environ else name


def _configured_token(path: Path, config: Config) -> str | None:
    file = token_file(config)
    if file is None:
        return None
    if config.control.http_token_file is not None:
        return _token(file, f"{path}: control.http_token_file")
    try:
        return _token(file, f"{path}: the token that the daemon has made")
    except NotAskedError:
        if file.exists() or not _can_tell(file):
            raise
        return None  # no token: the daemon's refusal names what is missing


def _can_tell(file: Path) -> bool:
    """Whether this user can tell that a file does not exist."""
    return os.access(file.parent, os.X_OK) or not file.parent.exists()


def _token(file: Path, what: str) -> str:
    try:
        return read_token(file).decode()
    except PermissionError as exc:
        text = f"{what}: {file}: only {who_may_read(file)} may read it; run the command as one of them (sudo)"
        raise NotAskedError(text) from exc
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise NotAskedError(f"{what}: {file}: {reason}") from exc


def _trusting(cert_file: Path, what: str) -> ssl.SSLContext:
    """Return a TLS context that trusts only the port's own certificate, whatever names that has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        first, end, _ = cert_file.read_text(errors="replace").partition(_END_OF_CERTIFICATE)
        context.load_verify_locations(cadata=first + end)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and not isinstance(exc, ssl.SSLError) else "not a certificate"
        raise NotAskedError(f"{what}: {cert_file}: {reason}") from exc
    return context


def _context(arguments: argparse.Namespace, found: ssl.SSLContext | None) -> ssl.SSLContext:
    """Return the TLS context of the options. ``found``: that of the configuration."""
    try:
        if arguments.ca_file is not None or found is None:
            found = ssl.create_default_context(cafile=arguments.ca_file)
        if arguments.client_cert is not None:
            found.load_cert_chain(arguments.client_cert, arguments.client_key)
    except (ssl.SSLError, OSError) as exc:
        reason = exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
        raise NotAskedError(f"--ca-file, --client-cert, --client-key: cannot be used ({reason})", 2) from exc
    return found


def _about_token(daemon: DaemonAddress, sent: str | None) -> str:
    """Return, for a refusal, why the token was wrong or missing, and what to do."""
    if sent is not None:
        text = f"; the token in {daemon.token_file} is not the one of this streamer"
        return text + _about_restart(daemon.makes_token, _EARLIER)
    if daemon.token_file is None:
        return "; none was sent: --token-file names the file with it"
    text = f"; none was sent: {daemon.token_file}: no such file; the streamer makes it at its start, and at SIGHUP"
    return text + _about_restart(daemon.makes_token, _EARLIER)


def _about_restart(may_matter: bool, other: str) -> str:
    """Return what to do if the daemon was started with an earlier file with other values of these keys."""
    return f"; a streamer that was started with {other} has to be restarted to use this file" if may_matter else ""


def _refusal(error: HTTPError, about_token: str) -> DaemonRefusedError:
    try:
        answer = parsed(error.read(_ANSWER_BYTES))
        text = f"{answer['error']}{about_token if error.code == HTTPStatus.UNAUTHORIZED else ''}"
        return DaemonRefusedError(text, answer, error.code)
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        text = f"it answers {error.code} {error.reason}; is it a streamer, and of this version?"
        return DaemonRefusedError(text, None, error.code)
