"""The interface of token verifiers, which uProtocol leaves to each vendor (token-based access permissions, TAP).

A verifier is a class in any installed package, with a name in the entry point group `ustreamer.token_verifiers`. It is
called once for each new token, on the event loop, so it must not block. What it needs (keys, lists of revoked tokens) it
reads in `TokenVerifier.refresh`, which is called on a thread.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict

from streamer.described import Described

GRACE_S = 60.0
"""How long what was read last counts while it cannot be read again. After that no token is good until it can."""


class TokenRefusedError(Exception):
    """The token is not good. The text says why, for operators: it repeats nothing of the token."""


class Grant(NamedTuple):
    """What a good token says.

    ``until_s``: from this Unix time on it is no longer good. ``scope``: the uPA URIs that its owner may access, as texts and
    possibly with wildcards; None means all. ``authority``: only sources at this authority may use it; None means all.
    """

    until_s: float
    scope: tuple[str, ...] | None = None
    authority: str | None = None


class VerifierOptions(Described):
    """The base of every verifier's ``Options``: ``permissions.tap.options`` in the configuration file.

    Validation errors do not repeat values: somebody may have put a key there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TokenVerifier(ABC):
    """Verifies tokens. Nothing that it logs or raises may contain any part of one."""

    Options: ClassVar[type[VerifierOptions]]
    """The model of the verifier's options in the configuration file."""

    problem: str = ""
    """Why it may not know what counts now; empty if nothing is wrong. It may be read on any thread, and holds no secret."""

    @abstractmethod
    def __init__(self, options: VerifierOptions) -> None:
        """``options`` is an instance of the class's own ``Options``. What is missing now may come with `refresh`."""

    @abstractmethod
    def verify(self, token: str, now_s: float) -> Grant:
        """What this token grants at the Unix time ``now_s``. Raises `TokenRefusedError`."""

    def refresh(self) -> bool:
        """Read again what may have changed. Called once before the first token, and then about once a second.

        True if it did: then everything that was said of tokens before is forgotten. It runs on a thread, beside `verify` and
        never twice at a time, and may block. If it does not return or raises for `GRACE_S`, no token is good any more.
        """
        return False
