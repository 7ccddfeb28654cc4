"""The interface of token verifiers, which uProtocol leaves to each vendor (token-based access permissions, TAP).

A verifier is a class in any installed package, with a name in the entry point group `ustreamer.token_verifiers`. `verify` is
called once for each new token, on the event loop, so it must not block. `refresh`, which is called on a thread, reads keys
and lists of revoked tokens.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict

from streamer.plugins import Settings

GRACE_S = 60.0
"""How many seconds the last keys count while they cannot be read again. After that no token is valid until they can."""


class TokenRefusedError(Exception):
    """The token is not valid. The text says why, for operators, without any part of the token."""


class Grant(NamedTuple):
    """The rights that a valid token grants.

    ``until_s``: the Unix time from which it is no longer valid. ``scope``: the uPA URIs that its owner may access, as texts
    and possibly with wildcards; None means all. ``authority``: only sources at this authority may use it; None means all.
    """

    until_s: float
    scope: tuple[str, ...] | None = None
    authority: str | None = None


class VerifierOptions(Settings):
    """The base of every verifier's ``Options``: ``permissions.tap.options`` in the configuration file.

    Validation errors do not contain values, which may be keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)


class TokenVerifier(ABC):
    """Verifies tokens. Its logs and errors must not contain any part of a token."""

    Options: ClassVar[type[VerifierOptions]]
    """The model of the verifier's options in the configuration file."""

    problem: str = ""
    """Why its keys may be outdated; empty if they are not. It may be read on any thread, and contains no secret."""

    @abstractmethod
    def __init__(self, options: VerifierOptions) -> None:
        """``options`` is an instance of the class's own ``Options``. Missing keys may come with `refresh`."""

    @abstractmethod
    def verify(self, token: str, now_s: float) -> Grant:
        """Return what a token grants at the Unix time ``now_s``. Raises `TokenRefusedError`."""

    def refresh(self) -> bool:
        """Read keys again that may have changed. Return whether they did: then cached results of `verify` are dropped.

        Called once before the first token, and then about once a second, on a thread, beside `verify` and never twice at a
        time. It may block. If it does not return, or raises, for `GRACE_S`, no token is valid any more.
        """
        return False
