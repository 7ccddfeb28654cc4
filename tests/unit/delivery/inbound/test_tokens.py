"""The token of a Request: the verifier is asked once for each, and no answer outlives its token."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.config.permissions import PermissionsConfig
from streamer.delivery.inbound import tokens as tokens_module
from streamer.delivery.inbound.tokens import Tokens
from streamer.tokens.base import GRACE_S, Grant, TokenRefusedError, TokenVerifier, VerifierOptions
from streamer.uprotocol.message import Attributes, UMessageType, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.tokens import AUDIENCE, ISSUER, token, write_keys

NOW_S = 1_700_000_000.0
DRIVER = UUri("phone1", 0xA, 1, 0)
DOORS = UUri("veh1", 0xB, 1, 7)
SECRET = "ey.secret.token"


class FakeVerifier(TokenVerifier):
    """A verifier that accepts the tokens in ``grants`` and refuses others. ``asked`` has all tokens."""

    Options = VerifierOptions

    def __init__(self, grants: dict[str, Grant] | None = None) -> None:
        self.grants = grants or {}
        self.asked: list[str] = []
        self.is_new = False
        self.error: Exception | None = None
        self.error_of_refresh: Exception | None = None
        self.wait: Callable[[], object] | None = None

    def verify(self, token: str, now_s: float) -> Grant:
        self.asked.append(token)
        if self.error is not None:
            raise self.error
        if token not in self.grants:
            raise TokenRefusedError("unknown")
        return self.grants[token]

    def refresh(self) -> bool:
        if self.wait is not None:
            self.wait()
        if error := self.error or self.error_of_refresh:
            raise error
        return self.is_new


def request(token: str | None = SECRET, source: UUri = DRIVER, sink: UUri = DOORS) -> Attributes:
    return Attributes(UMessageType.REQUEST, source, sink, UPriority.CS4, ttl=1000, token=token)


def granted(scope: tuple[str, ...] | None = None, authority: str | None = None, until_s: float = NOW_S + 60) -> FakeVerifier:
    return FakeVerifier({SECRET: Grant(until_s, scope, authority)})


async def refreshed(tokens: Tokens, now_s: float) -> None:
    """Have the verifier read, and use its result."""
    tokens.refresh(now_s)
    assert tokens._reading is not None
    await tokens._reading
    tokens.refresh(now_s)
    await tokens._reading


def code(tokens: Tokens, attributes: Attributes, now_s: float = NOW_S) -> UCode | None:
    refused = tokens.refusal(attributes, now_s)
    return None if refused is None else refused.code


# what is good


@pytest.mark.parametrize("token", [None, ""])
def test_a_request_without_a_token_is_not_permitted(token: str | None) -> None:
    assert Tokens(granted()).refusal(request(token), NOW_S) == (UCode.PERMISSION_DENIED, "it has no token")


def test_a_bad_token_does_not_authenticate_and_the_reason_is_the_verifier_s() -> None:
    assert Tokens(granted()).refusal(request("bad"), NOW_S) == (UCode.UNAUTHENTICATED, "its token: unknown")


def test_without_a_verifier_no_token_is_good() -> None:
    assert code(Tokens(), request()) is UCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("scope", "is_good"),
    [
        (None, True),
        ((), False),
        (("//veh1/B/1/7",), True),
        (("//veh1/B/1/8",), False),
        (("//veh1/C/1/7", "//veh1/B/1/FFFF"), True),
        (("//*/FFFFFFFF/FF/FFFF",), True),
        (("openid", "//veh1/B/1/7"), True),
        (("openid", "/B/1/7", "//veh1/B/1", "veh1"), False),
    ],
)
def test_the_method_has_to_be_in_the_scope(scope: tuple[str, ...] | None, is_good: bool) -> None:
    found = code(Tokens(granted(scope)), request())
    assert found is (None if is_good else UCode.PERMISSION_DENIED)


def test_a_scope_that_never_ends_is_read_so_far() -> None:
    long = tuple(f"//veh1/{n + 0x100:X}/1/7" for n in range(256))
    assert code(Tokens(granted((*long, str(DOORS)))), request()) is UCode.PERMISSION_DENIED
    assert code(Tokens(granted((*long[1:], str(DOORS)))), request()) is None


def test_a_token_is_of_use_only_to_the_authority_that_it_was_issued_to() -> None:
    tokens = Tokens(granted(authority="phone1"))
    assert code(tokens, request()) is None
    assert code(tokens, request(source=DRIVER._replace(authority="phone2"))) is UCode.UNAUTHENTICATED


# asked once


def test_the_verifier_is_asked_once_and_again_when_the_token_has_expired() -> None:
    verifier = granted(until_s=NOW_S + 60)
    tokens = Tokens(verifier)
    for now_s in (NOW_S, NOW_S + 30, NOW_S + 59.9):
        assert code(tokens, request(), now_s) is None
    assert verifier.asked == [SECRET]
    assert code(tokens, request(), NOW_S + 60) is UCode.UNAUTHENTICATED
    assert len(verifier.asked) == 2


def test_a_bad_token_is_remembered_for_a_while_only() -> None:
    verifier = FakeVerifier()
    tokens = Tokens(verifier)
    for now_s in (NOW_S, NOW_S + 9.9, NOW_S + 10):
        assert code(tokens, request("bad"), now_s) is UCode.UNAUTHENTICATED
    assert len(verifier.asked) == 2


def test_other_methods_and_sources_are_looked_up_in_the_same_answer() -> None:
    verifier = granted(("//veh1/B/1/7",))
    tokens = Tokens(verifier)
    assert code(tokens, request()) is None
    assert code(tokens, request(sink=DOORS._replace(resource=8))) is UCode.PERMISSION_DENIED
    assert verifier.asked == [SECRET]


def test_bad_tokens_push_out_no_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "_REMEMBER", 3)
    verifier = granted()
    tokens = Tokens(verifier)
    assert code(tokens, request()) is None
    for number in range(20):
        assert code(tokens, request(f"bad {number}")) is UCode.UNAUTHENTICATED
    assert code(tokens, request()) is None
    assert verifier.asked.count(SECRET) == 1
    assert (len(tokens._good), len(tokens._bad)) == (1, 3)


def test_no_token_is_kept() -> None:
    tokens = Tokens(granted(("//veh1/B/1/7",)))
    tokens.refusal(request(), NOW_S)
    tokens.refusal(request("another secret"), NOW_S)
    assert "secret" not in repr(vars(tokens))


async def test_after_a_change_of_keys_every_token_is_asked_for_again() -> None:
    verifier = granted()
    tokens = Tokens(verifier)
    tokens.refusal(request(), NOW_S)
    await refreshed(tokens, 1.0)
    tokens.refusal(request(), NOW_S)
    assert len(verifier.asked) == 1
    verifier.is_new = True
    await refreshed(tokens, 2.0)
    tokens.refusal(request(), NOW_S)
    assert len(verifier.asked) == 2


# verifiers that fail


async def test_a_verifier_that_fails_lets_nobody_in_and_its_text_goes_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    verifier = granted()
    verifier.error = RuntimeError(SECRET)
    caplog.set_level(logging.DEBUG)
    tokens = Tokens(verifier)
    await tokens.read()
    refused = tokens.refusal(request(), NOW_S)
    assert refused == (UCode.UNAUTHENTICATED, "its token: its verifier failed")
    assert SECRET not in caplog.text
    assert caplog.text.count("token_verifier_failed verifier=FakeVerifier error=RuntimeError") == 2


def test_a_verifier_that_takes_an_expired_token_for_good_is_not_believed() -> None:
    assert code(Tokens(granted(until_s=NOW_S)), request()) is UCode.UNAUTHENTICATED
    assert code(Tokens(granted(until_s=float("nan"))), request()) is UCode.UNAUTHENTICATED


# configuration


def test_every_use_of_a_section_begins_with_a_verifier_that_has_no_keys_from_before(tmp_path: Path) -> None:
    def section(issuer: str) -> PermissionsConfig:
        options = {"jwks_file": f"{tmp_path}/none.json", "issuer": issuer, "audience": "gateway"}
        return PermissionsConfig.model_validate({"tap": {"verifier": "jwt", "options": options}})

    tokens = Tokens()
    tokens.use(section("a"))
    first = tokens._verifier
    assert first is not None
    tokens.use(section("a"))
    assert tokens._verifier not in (None, first)
    tokens.use(None)
    assert (tokens._verifier, tokens.problem) == (None, None)


async def test_what_was_prepared_for_a_section_is_used_for_it_and_for_no_other(tmp_path: Path) -> None:
    write_keys(tmp_path / "jwks.json")
    options = {"jwks_file": str(tmp_path / "jwks.json"), "issuer": ISSUER, "audience": AUDIENCE}
    prepared = PermissionsConfig.model_validate({"tap": {"verifier": "jwt", "options": options}})
    other = PermissionsConfig.model_validate({"tap": {"verifier": "jwt", "options": options | {"issuer": "another"}}})
    good = request(token(NOW_S, scope=[str(DOORS)]))
    tokens = Tokens()
    await tokens.prepare(prepared)
    assert code(tokens, good) is UCode.UNAUTHENTICATED  # it is not in use yet
    tokens.use(prepared)
    assert code(tokens, good) is None
    await tokens.prepare(prepared)
    tokens.use(other)
    assert code(tokens, good) is UCode.UNAUTHENTICATED


# reading that hangs or fails


@pytest.mark.parametrize("how", ["hangs", "fails"])
async def test_what_was_read_last_counts_for_a_while_if_it_cannot_be_read_again(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()
    verifier = granted()
    tokens = Tokens(verifier)
    await refreshed(tokens, 0.0)
    verifier.wait = released.wait if how == "hangs" else None
    verifier.error_of_refresh = RuntimeError(SECRET) if how == "fails" else None
    tokens.refresh(1.0)
    await asyncio.sleep(0)
    tokens.refresh(1.0 + GRACE_S)
    assert (code(tokens, request()), tokens.problem) == (None, "")
    tokens.refresh(1.1 + GRACE_S)
    assert tokens.refusal(request(), NOW_S) == (
        UCode.UNAUTHENTICATED,
        "its token: what verifies it cannot tell whether it is still good",
    )
    assert tokens.problem == "it does not come back from reading"
    assert "token_verifier_silent" in caplog.text
    assert SECRET not in caplog.text
    verifier.wait = verifier.error_of_refresh = None
    released.set()
    await refreshed(tokens, 2.0 + GRACE_S)
    await refreshed(tokens, 3.0 + GRACE_S)
    assert (code(tokens, request()), tokens.problem) == (None, "")


YEARS_S = 20 * 365 * 86_400.0


def test_token_that_had_expired_by_a_clock_that_was_ahead_is_good_once_that_is_set_back() -> None:
    verifier = granted(until_s=NOW_S + 60)
    tokens = Tokens(verifier)
    assert code(tokens, request(), NOW_S + YEARS_S) is UCode.UNAUTHENTICATED
    assert code(tokens, request(), NOW_S) is None


def test_token_that_was_good_by_a_clock_that_was_ahead_is_asked_about_again() -> None:
    verifier = granted(until_s=NOW_S + YEARS_S + 60)
    tokens = Tokens(verifier)
    assert code(tokens, request(), NOW_S + YEARS_S) is None
    verifier.grants.clear()  # such as one that is not valid before a certain time
    assert code(tokens, request(), NOW_S) is UCode.UNAUTHENTICATED
