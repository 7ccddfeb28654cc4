"""The HTTP session of OpenTelemetry's exporters: limits where requests go and how much of an answer is read."""

from typing import Any, NamedTuple

import requests

_ANSWER_BYTES = 65_536


class CollectorAnswer(NamedTuple):
    """The result of a request: the HTTP status, or why there is none."""

    status: int | None
    reason: str
    retry_after_s: float = 0

    @property
    def is_final(self) -> bool:
        """Whether repeating the request is useless. A missing permission or path may be corrected meanwhile."""
        return self.status is not None and 300 <= self.status < 500 and self.status not in (401, 403, 404, 408, 429)


class CollectorSession(requests.Session):
    """Sends requests only to the collector: redirects count as refusals; no proxy. ``answer``: to the last request."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.answer: CollectorAnswer | None = None

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request as `requests.Session` does. Raises `requests.RequestException` for a redirect, too."""
        try:
            with super().request(*args, **{**kwargs, "allow_redirects": False, "stream": True}) as response:
                response.raw.read(_ANSWER_BYTES, decode_content=False)
        except Exception as exc:
            self.answer = CollectorAnswer(None, _reason(exc))
            raise
        after = response.headers.get("Retry-After", "")
        is_seconds = after.isascii() and after.isdecimal() and len(after) < 10
        self.answer = CollectorAnswer(
            response.status_code, f"status {response.status_code}", float(after) if is_seconds else 0
        )
        if 300 <= response.status_code < 400:  # the exporters would count this as a success
            raise requests.TooManyRedirects("redirected")
        return response


def _reason(exc: BaseException) -> str:
    """Return the innermost error as a text. The texts of those that wrap it may contain secrets."""
    while exc.__context__ is not None:
        exc = exc.__context__
    return getattr(exc, "strerror", None) or type(exc).__name__
