"""Posts a verdict to a URL. The URL may be a secret: no error, log line or command line has any of it.

An answer of 2xx is success. Redirects are not followed. Everything is bounded: a try takes `_LIMIT_S`, there are `_TRIES`.
"""

import http.client
import json
import os
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

VARIABLE = "USTREAMER_WEBHOOK_URL"
_LIMIT_S = 10.0
_TRIES = 3
_PAUSE_S = 2.0
_GIVE_UP = range(400, 500)
_ASKED_FOR_PATIENCE = (408, 425, 429)


class WebhookError(OSError):
    """The URL cannot be used, or nobody has taken what was posted; the text says why, without the URL."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def url(file: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The URL in a file, or else in the environment; None if there is none. Raises WebhookError."""
    where, text = f"${VARIABLE}", environment.get(VARIABLE)
    if file is not None:
        where = file
        try:
            with open(file, encoding="utf-8") as content:
                text = content.read()
        except (OSError, UnicodeDecodeError) as error:
            raise WebhookError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    if not (text := (text or "").strip()) and file is None:
        return None
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or not text.isascii() or not text.isprintable() or " " in text:
        raise WebhookError(f"{where}: expected one URL that begins with https:// or http://")
    return text


def post(to: str, content: Mapping[str, Any], sleep: Callable[[float], None] = time.sleep) -> None:
    """Post JSON. Raises WebhookError after the last try."""
    body = json.dumps(content, ensure_ascii=False, allow_nan=False).encode(errors="replace")
    for left in reversed(range(_TRIES)):
        fault = _tried(to, body)
        if fault is None:
            return
        is_final = isinstance(fault, int) and fault in _GIVE_UP and fault not in _ASKED_FOR_PATIENCE
        if is_final or not left:
            raise WebhookError(f"it answers with status {fault}" if isinstance(fault, int) else fault)
        sleep(_PAUSE_S)


def _tried(to: str, body: bytes) -> int | str | None:
    """One try, on a thread: a time limit of a socket's is for each of its operations. Returns the status or the reason why
    it failed; None if it did not."""
    answers: queue.SimpleQueue[int | str | None] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(_answer(to, body)), name="webhook", daemon=True).start()
    try:
        return answers.get(timeout=_LIMIT_S)
    except queue.Empty:
        return _no_answer()


def _no_answer() -> str:
    return f"no answer within {_LIMIT_S:.0f} s"


def _answer(to: str, body: bytes) -> int | str | None:
    request = urllib.request.Request(to, body, {"Content-Type": "application/json", "User-Agent": "ustreamer-nightly"})
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_LIMIT_S) as answer:
            status = int(answer.status)
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):  # the limit of one operation, which may be noticed before that of all
            return _no_answer()
        return (isinstance(cause, OSError) and cause.strerror) or type(cause).__name__  # other texts can have the URL
    return None if 200 <= status < 300 else status
