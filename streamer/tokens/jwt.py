"""Verifies JSON Web Tokens (RFC 7519, RFC 8725) with public keys from a file.

The law of this file:
- Only signatures with a public key count. `none` and HS256 are refused: a program that can verify HS256 can also sign.
- The key determines its possible algorithms, the configuration those that count; the token's header has to agree.
- Issuer, audience and expiry are required, and checked. The time is passed in.
- A readable set replaces the keys, even an empty one: a key that is not in it is withdrawn. An entry that cannot be used is
  left out, and logged.
- A file that is missing or unreadable may be about to be replaced: the earlier keys count for `GRACE_S` more, then no key
  does. A new verifier, as after a start or a reload, has no earlier keys.
- No text that leaves this file contains a part of a token.
"""

import base64
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jwt
from jwt.types import Options
from pydantic import Field

from streamer.files import open_to_read
from streamer.tokens.base import GRACE_S, Grant, TokenRefusedError, TokenVerifier, VerifierOptions

logger = logging.getLogger("ustreamer.tokens")

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]

_MAX_FILE_BYTES = 1024 * 1024
_MAX_KEYS = 100
_LATEST_S = 253_402_300_800  # the year 10000; infinity and NaN are not before it either

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_FITTING = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}

_RULES: Options = {
    "require": ["exp", "iss", "aud"],
    "enforce_minimum_key_length": True,
    "verify_exp": False,  # times are compared here, with the time that is passed in
    "verify_nbf": False,
    "verify_iat": False,
    "verify_sub": False,
    "verify_jti": False,
}

_now_s = time.monotonic


class _Key(NamedTuple):
    """A public key, for one algorithm."""

    kid: str | None
    algorithm: str
    key: jwt.PyJWK


class JwtOptions(VerifierOptions):
    """Options of the verifier ``jwt``."""

    jwks_file: Annotated[Path, Field(strict=False)]
    """A JSON Web Key Set (RFC 7517) with the public keys of the issuer. It is read again when it changes."""
    issuer: Annotated[str, Field(min_length=1)]
    """The claim `iss` that a token has to have."""
    audience: Annotated[str, Field(min_length=1)]
    """A value that the claim `aud` has to have."""
    algorithms: Annotated[list[Algorithm], Field(min_length=1)] = ["RS256", "PS256", "ES256", "EdDSA"]
    """The signature algorithms that count."""
    leeway_s: ClassVar[float] = 30
    """How far the issuer's clock may be from ours."""
    scope_claim: Annotated[str, Field(min_length=1)] = "scope"
    """The claim with the uPA URIs that the token is for: a list, or one text with spaces in between."""
    require_scope: bool = True
    """Whether a token without this claim is refused. If not, it is for every method."""
    authority_claim: str | None = None
    """The claim with the authority whose uEntities may use the token. None: every uEntity that has the token may."""


class JwtVerifier(TokenVerifier):
    """Verifies JWTs with the keys of one issuer."""

    Options = JwtOptions

    def __init__(self, options: VerifierOptions) -> None:
        assert isinstance(options, JwtOptions)
        self._options = options
        self._keys: list[_Key] = []
        self._seen: tuple[int, ...] | None = None  # the identity of the file that was read last, usable or not
        self._until_s = 0.0  # if there is a problem: until when the earlier keys count

    def refresh(self) -> bool:
        path = self._options.jwks_file
        try:
            if _identity(os.stat(path)) == self._seen:
                return self._is_over()
            with open_to_read(path) as file:
                self._seen = _identity(os.fstat(file.fileno()))
                content = file.read(_MAX_FILE_BYTES + 1)
            self._keys, left_out = _read(content, self._options.algorithms)
        except OSError as exc:
            self._seen = None
            self._complain(exc.strerror or type(exc).__name__)
            return self._is_over()
        except ValueError as exc:
            self._complain(str(exc))
            return self._is_over()
        self.problem = ""
        keys = len({each.kid for each in self._keys})
        state = {"state": (f"token keys {path}", self._seen)}
        if keys:
            logger.info("token_keys_read file=%s keys=%d", path, keys, extra=state)
        else:
            text = "token_keys_read file=%s keys=%d consequence=%s"
            logger.warning(text, path, keys, "every token is refused", extra=state)
        if left_out:
            logger.error("token_keys_left_out file=%s number=%d problems=%s", path, len(left_out), "; ".join(left_out))
        return True

    def _is_over(self) -> bool:
        """Drop the earlier keys if their grace is over. Return whether they were dropped now."""
        if not self.problem or not self._keys or _now_s() < self._until_s:
            return False
        self._keys = []
        self._say("token_keys_dropped", "every token is refused")
        return True

    def _complain(self, problem: str) -> None:
        if not self.problem:
            self._until_s = _now_s() + GRACE_S
        if problem != self.problem:
            self.problem = problem
            left_s = self._until_s - _now_s()
            kept = f"the keys from before are used for {max(0.0, left_s):.0f} s more, then every token is refused"
            self._say("token_keys_unusable", kept if self._keys else "every token is refused")

    def _say(self, event: str, consequence: str) -> None:
        file = self._options.jwks_file
        state = {"state": (f"token keys {file}", f"{event} {self.problem}")}
        logger.error(event + " file=%s problem=%s consequence=%s", file, self.problem, consequence, extra=state)

    def verify(self, token: str, now_s: float) -> Grant:
        options = self._options
        claims = self._signed(token)
        until_s = _time(claims, "exp") + options.leeway_s
        if now_s >= until_s:
            raise TokenRefusedError("it has expired")
        for name in ("nbf", "iat"):
            if name in claims and now_s < _time(claims, name) - options.leeway_s:
                raise TokenRefusedError(f"it is not good yet (by its {name})")
        return Grant(until_s, self._scope(claims), self._authority(claims))

    def _signed(self, token: str) -> dict[str, Any]:
        """Return the claims of a token with the right signature, issuer and audience. Raises `TokenRefusedError`."""
        options = self._options
        try:
            key = self._key_for(_header(token))
            claims: dict[str, Any] = jwt.decode(
                token,
                key=key,
                algorithms=[key.algorithm_name],
                audience=options.audience,
                issuer=options.issuer,
                options=_RULES,
            )
        except jwt.PyJWTError as exc:
            raise TokenRefusedError(_reason(exc)) from None  # the text and the frames of the cause may show the token
        except (ValueError, TypeError, RecursionError) as exc:  # not handled by the library
            raise TokenRefusedError(f"it cannot be read ({type(exc).__name__})") from None
        return claims

    def _key_for(self, header: Mapping[str, Any]) -> jwt.PyJWK:
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._options.algorithms:
            raise TokenRefusedError("its algorithm is not among permissions.tap.options.algorithms")
        found = [each.key for each in self._keys if each.algorithm == algorithm and kid in (None, each.kid)]
        if not found:
            raise TokenRefusedError("no key that we know is for it")
        if len(found) > 1:
            raise TokenRefusedError("it does not say which of our keys is for it")
        return found[0]

    def _scope(self, claims: Mapping[str, Any]) -> tuple[str, ...] | None:
        name = self._options.scope_claim
        value = claims.get(name)
        if value is None:
            if self._options.require_scope:
                raise TokenRefusedError("it has no scope")
            return None
        if isinstance(value, str):
            return tuple(value.split())
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        raise TokenRefusedError("its scope is neither a text nor a list of texts")

    def _authority(self, claims: Mapping[str, Any]) -> str | None:
        name = self._options.authority_claim
        if name is None:
            return None
        value = claims.get(name)
        if not isinstance(value, str) or not value:
            raise TokenRefusedError("it does not say which authority it was issued to")
        return value


def _header(token: str) -> Mapping[str, Any]:
    """Return a token's header, for a cheap search of its key. The library parses it once more, strictly.

    Raises ValueError or RecursionError.
    """
    text = token.partition(".")[0]
    found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    if not isinstance(found, dict):
        raise ValueError("a header that is no object")
    return found


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_S:
        raise TokenRefusedError(f"its {name} is not a time")
    return float(value)


def _reason(exc: jwt.PyJWTError) -> str:
    match exc:
        case jwt.InvalidSignatureError():
            return "its signature is wrong"
        case jwt.InvalidAudienceError():
            return "it is for another audience"
        case jwt.InvalidIssuerError():
            return "it is from another issuer"
        case jwt.MissingRequiredClaimError():
            return f"it has no {exc.claim}"
    return f"it is not a JWT that can be verified ({type(exc).__name__})"


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(content: bytes, algorithms: list[Algorithm]) -> tuple[list[_Key], list[str]]:
    """Return the keys of a set, one per key and usable algorithm, and why entries are left out.

    Raises ValueError if the content is not a set. No text contains a part of the content.
    """
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"larger than {_MAX_FILE_BYTES} bytes")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    listed = data.get("keys") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        raise ValueError('expected {"keys": [...]}')
    found: list[_Key] = []
    left_out: list[str] = []
    for number, each in enumerate(listed[:_MAX_KEYS]):
        try:
            found += _usable(each, algorithms)
        except ValueError as exc:
            left_out.append(f"keys[{number}]: {exc}")
    if len(listed) > _MAX_KEYS:
        left_out.append(f"keys[{_MAX_KEYS}] and later ones: more than {_MAX_KEYS} keys")
    return found, left_out


def _usable(entry: Any, algorithms: list[Algorithm]) -> list[_Key]:
    """Return a public key for each of its algorithms that counts; none for a key of another kind. Raises ValueError."""
    if not isinstance(entry, dict):
        raise ValueError("not a key")
    if "d" in entry or entry.get("kty") == "oct":
        raise ValueError("a secret key; expected public ones only")
    if entry.get("use", "sig") != "sig":
        return []
    kid = entry.get("kid")
    if not isinstance(kid, str | None):
        raise ValueError("its kid is not a text")
    try:
        fitting = [name for name in _fitting(entry) if name in algorithms]
        return [_Key(kid, name, jwt.PyJWK.from_dict(entry, name)) for name in fitting]
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise ValueError("not a public key") from None


def _fitting(key: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the algorithms of a key."""
    of_key = key.get("kty"), key.get("crv")  # may be any JSON, also of a type that cannot be hashed
    kinds = _RSA if of_key[0] == "RSA" else next((kinds for form, kinds in _FITTING.items() if form == of_key), ())
    named = key.get("alg")
    return kinds if named is None else tuple(kind for kind in kinds if kind == named)
