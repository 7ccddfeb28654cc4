"""Checks whether the token of a Request is valid for its method, and remembers the answers.

An answer is remembered under the digest of the token, never with the token. Nothing that is logged or returned contains a
token. A verifier reads its files on a thread. If reading does not end, or fails, its answers count for at most `GRACE_S`
longer.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from streamer.config.permissions import PermissionsConfig, TapConfig
from streamer.files import Files
from streamer.tokens.base import GRACE_S, TokenRefusedError, TokenVerifier
from streamer.uprotocol.message import Attributes
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UriError, UUri

logger = logging.getLogger("ustreamer.tokens")

_REMEMBER = 4096
"""How many valid tokens are remembered, and as many invalid ones, which displace no valid ones."""
_BAD_FOR_S = 10.0
_MAX_SCOPE = 256

T = TypeVar("T")


class Refusal(NamedTuple):
    """Why a token is not accepted. ``because`` is for operators."""

    code: UCode
    because: str


class _Good(NamedTuple):
    since_s: float
    until_s: float
    scope: tuple[UUri, ...] | None
    authority: str | None


class _Bad(NamedTuple):
    since_s: float
    until_s: float
    because: str


class Tokens:
    """Asks the verifier, once for each token. Without a verifier no token is valid."""

    def __init__(self, verifier: TokenVerifier | None = None) -> None:
        self._verifier = verifier
        self._files = Files()
        self._prepared: tuple[TapConfig, TokenVerifier, Files] | None = None
        self._reading: asyncio.Task[bool | None] | None = None
        self._answered_s: float | None = None  # when the verifier last ended reading (monotonic)
        self._is_silent = False  # it has not ended reading for longer than `GRACE_S`
        self._good: dict[bytes, _Good] = {}
        self._bad: dict[bytes, _Bad] = {}

    @property
    def problem(self) -> str | None:
        """Why the verifier may not know which tokens are valid; empty if nothing is wrong, None without a verifier."""
        if self._verifier is None:
            return None
        return "it does not come back from reading" if self._is_silent else self._verifier.problem

    async def prepare(self, section: PermissionsConfig | None) -> None:
        """Have the verifier of a configuration read its files, for `use`. One that takes too long accepts no token yet."""
        self._prepared = None
        if section is not None and section.tap is not None:
            verifier, files = section.tap.new_verifier(), Files()
            await self._read(verifier, files)
            self._prepared = section.tap, verifier, files

    def use(self, section: PermissionsConfig | None) -> None:
        """Ask the configured verifier from now on: the one that `prepare` has made, else a new one that has read nothing."""
        prepared, self._prepared = self._prepared, None
        tap = None if section is None else section.tap
        if prepared is not None and prepared[0] == tap:
            _, self._verifier, self._files = prepared
        else:
            self._verifier, self._files = None if tap is None else tap.new_verifier(), Files()
        self._reading, self._answered_s, self._is_silent = None, None, False
        self._forget()

    async def read(self) -> None:
        """Have the verifier read its files, before the first token."""
        if self._verifier is not None and await self._read(self._verifier, self._files):
            self._forget()

    def refresh(self, now_s: float) -> None:
        """Have the verifier read changed files, on a thread; to be called about once a second."""
        if self._verifier is None:
            return
        if self._reading is None or self._reading.done():
            answer = None if self._reading is None or self._reading.cancelled() else self._reading.result()
            if answer is not None:
                self._answered_s = now_s
            if answer:
                self._forget()
            self._reading = asyncio.create_task(self._read(self._verifier, self._files), name="tokens")
        if self._answered_s is None:
            self._answered_s = now_s
        is_silent = now_s - self._answered_s > GRACE_S
        if is_silent != self._is_silent:
            self._is_silent = is_silent
            self._forget()
            state = {"state": ("token verifier", is_silent)}
            if is_silent:
                text = "token_verifier_silent seconds=%.0f consequence=%s"
                logger.error(text, now_s - self._answered_s, "every token is refused", extra=state)
            else:
                logger.info("token_verifier_answers", extra=state)

    async def _read(self, verifier: TokenVerifier, files: Files) -> bool | None:
        """Have a verifier read its files; return whether they have changed, or None if that failed or takes too long."""
        try:
            return await files.run(lambda: self._guarded(verifier.refresh))
        except OSError as exc:
            state = ("token verifier reading", exc.strerror)
            logger.error("token_verifier_not_read reason=%s", exc.strerror, extra={"state": state})
            return None

    def refusal(self, attributes: Attributes, now_s: float) -> Refusal | None:
        """Return why a Request may not call its method with its token; None if it may. ``now_s`` is Unix time."""
        if not attributes.token:
            return Refusal(UCode.PERMISSION_DENIED, "it has no token")
        found = self._known(attributes.token, now_s)
        if isinstance(found, _Bad):
            return Refusal(UCode.UNAUTHENTICATED, f"its token: {found.because}")
        if found.authority is not None and found.authority != attributes.source.authority:
            return Refusal(UCode.UNAUTHENTICATED, "its token was issued to another authority")
        sink = attributes.sink
        if found.scope is not None and (sink is None or not any(each.matches(sink) for each in found.scope)):
            return Refusal(UCode.PERMISSION_DENIED, "the method is not in the scope of its token")
        return None

    def _known(self, token: str, now_s: float) -> _Good | _Bad:
        digest = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        found = self._good.get(digest) or self._bad.get(digest)
        if found is not None and found.since_s <= now_s < found.until_s:  # the clock may have been set back
            return found
        self._good.pop(digest, None)
        self._bad.pop(digest, None)
        found = self._asked(token, now_s)
        if isinstance(found, _Good):
            _remember(self._good, digest, found)
        else:
            _remember(self._bad, digest, found)
        return found

    def _asked(self, token: str, now_s: float) -> _Good | _Bad:
        if self._verifier is None:
            return _Bad(now_s, now_s, "permissions.tap is not configured")
        if self._is_silent:
            return _Bad(now_s, now_s, "what verifies it cannot tell whether it is still good")
        verifier = self._verifier
        try:
            grant = self._guarded(lambda: verifier.verify(token, now_s))
        except TokenRefusedError as exc:
            return _Bad(now_s, now_s + _BAD_FOR_S, str(exc))
        if grant is None:
            return _Bad(now_s, now_s + _BAD_FOR_S, "its verifier failed")
        if not now_s < grant.until_s:
            return _Bad(now_s, now_s + _BAD_FOR_S, "it has expired")
        scope = None if grant.scope is None else tuple(_patterns(grant.scope))
        return _Good(now_s, grant.until_s, scope, grant.authority)

    def _guarded(self, call: Callable[[], T]) -> T | None:
        """Call a verifier, which may fail in any way: return None then, without its text, which may contain the token."""
        try:
            return call()
        except TokenRefusedError:
            raise
        except Exception as exc:  # noqa: BLE001  # around a plugin
            logger.error("token_verifier_failed verifier=%s error=%s", type(self._verifier).__name__, type(exc).__name__)
            return None

    def _forget(self) -> None:
        self._good.clear()
        self._bad.clear()


def _patterns(scope: Iterable[str]) -> Iterator[UUri]:
    """Yield the UUris with an authority in a scope. It may have other entries, for other systems."""
    for text in islice(scope, _MAX_SCOPE):
        try:
            found = UUri.parse(text)
        except UriError:
            continue
        if found.authority:
            yield found


def _remember(known: dict[bytes, T], digest: bytes, found: T) -> None:
    if len(known) >= _REMEMBER:
        del known[next(iter(known))]  # the oldest
    known[digest] = found
