"""Checks whether the token of a Request is valid for its method, and remembers the answers.

An answer is remembered by the digest of the token, never with the token. Nothing that is logged or returned contains a
token.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from streamer.config.permissions import PermissionsConfig, TapConfig
from streamer.tokens.base import TokenRefusedError, TokenVerifier
from streamer.uprotocol.message import Attributes
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UriError, UUri

logger = logging.getLogger("ustreamer.tokens")

_REMEMBER = 4096
"""How many tokens are remembered: so many valid and as many invalid ones, so that the latter displace none of the former."""
_BAD_FOR_S = 10.0
_MAX_SCOPE = 256

T = TypeVar("T")


class Refusal(NamedTuple):
    """Why a token is not accepted. ``because`` is for operators."""

    code: UCode
    because: str


class _Good(NamedTuple):
    until_s: float
    scope: tuple[UUri, ...] | None
    authority: str | None


class _Bad(NamedTuple):
    until_s: float
    because: str


class Tokens:
    """Asks the verifier, once for each token. Without a verifier no token is good."""

    def __init__(self, verifier: TokenVerifier | None = None) -> None:
        self._verifier = verifier
        self._tap: TapConfig | None = None
        self._good: dict[bytes, _Good] = {}
        self._bad: dict[bytes, _Bad] = {}

    def use(self, section: PermissionsConfig | None) -> None:
        """Ask the verifier that is configured from now on."""
        tap = None if section is None else section.tap
        if tap != self._tap:
            self._tap = tap
            self._verifier = None if tap is None else tap.new_verifier()
            self._forget()
            self.refresh()

    def refresh(self) -> None:
        """Have the verifier read what may have changed. To be called about once a second."""
        if self._verifier is not None and self._guarded(self._verifier.refresh):
            self._forget()

    def refusal(self, attributes: Attributes, now_s: float) -> Refusal | None:
        """Why this Request may not call its method with its token; None if it may. ``now_s`` is Unix time."""
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
        if found is not None and now_s < found.until_s:
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
            return _Bad(now_s, "permissions.tap is not configured")
        verifier = self._verifier
        try:
            grant = self._guarded(lambda: verifier.verify(token, now_s))
        except TokenRefusedError as exc:
            return _Bad(now_s + _BAD_FOR_S, str(exc))
        if grant is None:
            return _Bad(now_s + _BAD_FOR_S, "its verifier failed")
        if not now_s < grant.until_s:
            return _Bad(now_s + _BAD_FOR_S, "it has expired")
        scope = None if grant.scope is None else tuple(_patterns(grant.scope))
        return _Good(grant.until_s, scope, grant.authority)

    def _guarded(self, call: Callable[[], T]) -> T | None:
        """A verifier of another package may fail in any way; then no token is good. Its text may contain the token."""
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
    """What of a scope is a uPA URI with an authority: a token may be for other systems as well."""
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
