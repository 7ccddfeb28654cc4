"""Asks a running daemon over its HTTP port. Who configures that port is the same file that the daemon was started from."""

import json
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from streamer.cli.text import EX_CONFIG, plain
from streamer.config.models import Config, MetricsConfig
from streamer.config.token import read_token

_ANSWER_BYTES = 1 << 20  # a thousand rules with the longest names take half of that

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where to reach a daemon that listens there


T = TypeVar("T")


class NotAskedError(Exception):
    """There is no answer that can be used. The text says why; ``status`` is the command's exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(plain(text))
        self.status = status


class DaemonRefusedError(NotAskedError):
    """The daemon refused. ``answer`` is all that it says, ``code`` the status of HTTP."""

    def __init__(self, text: str, answer: Any, code: int) -> None:
        super().__init__(text)
        self.answer = answer
        self.code = code


def ask(
    path: Path,
    config: Config,
    page: str,
    read: Callable[[Any], T],
    asked: dict[str, str] | None = None,
    within_s: float = 10.0,
) -> T:
    """What ``read`` makes of the answer of a page: to a GET, or to a POST of ``asked``. Raises `NotAskedError`.

    ``config`` is what the file at ``path`` contains. ``read`` may raise KeyError and TypeError: no streamer answers that.
    """
    with opened(path, config, page, asked, within_s, with_token=asked is not None) as answer:
        try:
            return read(json.loads(answer.read(_ANSWER_BYTES)))
        except (OSError, ValueError, KeyError, TypeError, HTTPException) as exc:
            raise NotAskedError(f"{_where(config)}: what answers there is not a streamer") from exc


def opened(
    path: Path, config: Config, page: str, asked: dict[str, str] | None, within_s: float, with_token: bool
) -> HTTPResponse:
    """The answer of a page, to be read and closed. Raises `NotAskedError`."""
    metrics, token_file = config.metrics, config.control.http_token_file
    if metrics is None:
        raise NotAskedError(f"{path}: metrics: null: the daemon is told over that port", EX_CONFIG)
    if not metrics.port:
        raise NotAskedError(f"{path}: metrics.listen: {metrics.listen}: the port is not known", EX_CONFIG)
    headers = {"Content-Type": "application/json", "Host": "localhost"}  # the daemon may not know its other names
    if token_file is not None and with_token:
        try:
            headers["Authorization"] = f"Bearer {read_token(token_file).decode()}"
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            raise NotAskedError(f"{path}: control.http_token_file: {token_file}: {reason}") from exc
    try:
        request = Request(_url(metrics, page), _body(asked), headers)
        answer: HTTPResponse = build_opener(ProxyHandler({})).open(request, timeout=within_s)
        return answer
    except HTTPError as exc:
        raise _refusal(exc) from exc
    except (URLError, OSError) as exc:
        text = f"{_where(config)}: no streamer answers there ({getattr(exc, 'reason', None) or exc})"
        raise NotAskedError(text) from exc
    except HTTPException as exc:
        raise NotAskedError(f"{_where(config)}: what answers there is not a streamer") from exc


def _where(config: Config) -> str:
    return f"{config.metrics.listen if config.metrics else None} (metrics.listen)"


def _url(metrics: MetricsConfig, page: str) -> str:
    host = _ANY_ADDRESS.get(metrics.host, metrics.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{metrics.port}{page}"


def _body(asked: dict[str, str] | None) -> bytes | None:
    return None if asked is None else json.dumps(asked).encode()


def _refusal(error: HTTPError) -> DaemonRefusedError:
    try:
        answer = json.loads(error.read(_ANSWER_BYTES))
        return DaemonRefusedError(str(answer["error"]), answer, error.code)
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return DaemonRefusedError(
            f"it answers {error.code} {error.reason}; is it a streamer, and of this version?", None, error.code
        )
