"""JSON Web Tokens: only one that the issuer has signed, for us and for now, is good. No reason repeats a part of one."""

import base64
import json
import logging
import os
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamer.tokens.base import GRACE_S, Grant, TokenRefusedError
from streamer.tokens.jwt import JwtOptions, JwtVerifier
from tests.constants import with_constants
from tests.examples import characters
from tests.tokens import AUDIENCE, DOORS_URI, ISSUER, OTHER_KEY, jwk, private_key, token, write_keys

NOW_S = 1_700_000_000.0
ALL = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "jwks.json")


def verifier(keys: Path, **options: Any) -> JwtVerifier:
    made = JwtVerifier(with_constants(JwtOptions, jwks_file=keys, issuer=ISSUER, audience=AUDIENCE, **options))
    made.refresh()
    return made


def why(asked: JwtVerifier, text: str, now_s: float = NOW_S) -> str:
    """Why it is refused. The reason repeats nothing of it."""
    with pytest.raises(TokenRefusedError) as caught:
        asked.verify(text, now_s)
    reason = str(caught.value)
    assert not any(part in reason for part in text.split(".") if len(part) > 3)
    return reason


def part(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


# good ones


@pytest.mark.parametrize("algorithm", ALL)
def test_a_token_that_the_issuer_has_signed_is_good_until_it_expires(keys: Path, algorithm: str) -> None:
    grant = verifier(keys, algorithms=ALL, leeway_s=0).verify(token(NOW_S, algorithm), NOW_S)
    assert grant == Grant(NOW_S + 60, (DOORS_URI,), None)


def test_without_a_key_id_the_only_key_that_fits_is_taken(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "jwks.json", jwk(private_key("ES256")), jwk(private_key("RS256"), kid="other"))
    assert verifier(keys).verify(token(NOW_S, kid=None), NOW_S)


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ([DOORS_URI, "//veh1/C/1/FFFF"], (DOORS_URI, "//veh1/C/1/FFFF")),
        (f"openid {DOORS_URI}", ("openid", DOORS_URI)),
        ([], ()),
        ("", ()),
    ],
)
def test_a_scope_is_a_list_or_a_text(keys: Path, scope: object, expected: tuple[str, ...]) -> None:
    assert verifier(keys).verify(token(NOW_S, scope=scope), NOW_S).scope == expected


def test_a_scope_may_be_left_out_where_that_is_configured(keys: Path) -> None:
    assert why(verifier(keys), token(NOW_S, scope=None)) == "it has no scope"
    assert verifier(keys, require_scope=False).verify(token(NOW_S, scope=None), NOW_S).scope is None


def test_the_claims_may_have_other_names(keys: Path) -> None:
    asked = verifier(keys, scope_claim="upas", authority_claim="sub")
    grant = asked.verify(token(NOW_S, scope=None, upas=[DOORS_URI], sub="backend"), NOW_S)
    assert (grant.scope, grant.authority) == ((DOORS_URI,), "backend")


def test_one_of_several_audiences_is_enough(keys: Path) -> None:
    assert verifier(keys).verify(token(NOW_S, aud=["other", AUDIENCE]), NOW_S)


# time


def test_the_clocks_may_be_apart_by_the_leeway(keys: Path) -> None:
    asked, good = verifier(keys), token(NOW_S, nbf=int(NOW_S), iat=int(NOW_S))
    asked.verify(good, NOW_S - 30)
    asked.verify(good, NOW_S + 89)
    assert why(asked, good, NOW_S - 31) == "it is not good yet (by its nbf)"
    assert why(asked, good, NOW_S + 90) == "it has expired"


@pytest.mark.parametrize("exp", [float("nan"), float("inf"), 1e300, -1, "1900000000", True, [1], {}], ids=str)
def test_an_expiry_that_is_no_time_is_not_for_ever(keys: Path, exp: object) -> None:
    """PyJWT writes NaN and Infinity as JSON has no words for them, and reads them, too."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "scope": [DOORS_URI], "exp": exp}
    assert (
        why(verifier(keys), jwt.encode(claims, private_key("ES256"), "ES256", {"kid": "ES256"})) == "its exp is not a time"
    )


# bad ones


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://mallory.example"}, "it is from another issuer"),
        ({"iss": [ISSUER]}, "it is from another issuer"),
        ({"aud": "other"}, "it is for another audience"),
        ({"aud": None}, "it has no aud"),
        ({"iss": None}, "it has no iss"),
        ({"exp": None}, "it has no exp"),
        ({"scope": 5}, "its scope is neither a text nor a list of texts"),
        ({"scope": [DOORS_URI, 5]}, "its scope is neither a text nor a list of texts"),
    ],
    ids=str,
)
def test_claims_that_are_missing_or_wrong(keys: Path, claims: dict[str, Any], reason: str) -> None:
    made = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(NOW_S) + 60, "scope": [DOORS_URI]} | claims
    unsigned = f"{part({'alg': 'ES256', 'kid': 'ES256'})}.{part({k: v for k, v in made.items() if v is not None})}"
    signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(unsigned.encode(), private_key("ES256"))
    signed = f"{unsigned}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert why(verifier(keys), signed) == reason


def test_a_signature_with_another_key_is_wrong(keys: Path) -> None:
    assert why(verifier(keys), token(NOW_S, key=OTHER_KEY)) == "its signature is wrong"


def test_a_changed_token_is_not_good(keys: Path) -> None:
    header, _, signature = token(NOW_S).split(".")
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(NOW_S) + 60, "scope": ["//*/FFFFFFFF/FF/FFFF"]}
    assert why(verifier(keys), f"{header}.{part(claims)}.{signature}") == "its signature is wrong"


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "ES256K", "RS1", 5, None, ["ES256"]], ids=str)
def test_an_algorithm_that_is_not_listed_is_refused(keys: Path, algorithm: object) -> None:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(NOW_S) + 60, "scope": [DOORS_URI]}
    for signature in ("", "AAAA"):
        reason = why(verifier(keys), f"{part({'alg': algorithm, 'kid': 'ES256'})}.{part(claims)}.{signature}")
        assert reason == "its algorithm is not among permissions.tap.options.algorithms"


def test_a_public_key_is_no_shared_secret(keys: Path) -> None:
    """The confusion of algorithms: an HMAC with the issuer's public key, which everybody knows."""
    public = private_key("RS256").public_key()
    for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER):
        secret = public.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
        unsigned = f"{part({'alg': 'HS256', 'kid': 'RS256'})}.{part({'iss': ISSUER, 'aud': AUDIENCE, 'exp': NOW_S + 60})}"
        signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(unsigned.encode(), secret)
        forged = f"{unsigned}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        assert why(verifier(keys), forged) == "its algorithm is not among permissions.tap.options.algorithms"


def test_an_algorithm_of_another_kind_of_key_is_refused(keys: Path) -> None:
    assert why(verifier(keys), token(NOW_S, "RS256", kid="ES256")) == "no key that we know is for it"
    assert why(verifier(keys, algorithms=["RS256"]), token(NOW_S, "PS256")).startswith("its algorithm is not among ")


def test_a_key_that_names_its_algorithm_is_for_no_other(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "jwks.json", jwk(private_key("RS256"), kid="RS256", alg="RS256"))
    asked = verifier(keys)
    asked.verify(token(NOW_S, "RS256"), NOW_S)
    assert why(asked, token(NOW_S, "PS256")) == "no key that we know is for it"


def test_the_key_in_a_token_is_not_used(keys: Path) -> None:
    own = jwk(OTHER_KEY, kid="own")
    forged = jwt.encode(
        {"iss": ISSUER, "aud": AUDIENCE, "exp": int(NOW_S) + 60, "scope": [DOORS_URI]},
        OTHER_KEY,
        "ES256",
        {"jwk": own, "jku": "file:///etc/passwd", "kid": "own"},
    )
    assert why(verifier(keys), forged) == "no key that we know is for it"


def test_a_short_rsa_key_is_refused(tmp_path: Path) -> None:
    short = rsa.generate_private_key(65537, 1024)
    keys = write_keys(tmp_path / "jwks.json", jwk(short, kid="short"))
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        signed = token(NOW_S, "RS256", key=short, kid="short")
    assert why(verifier(keys), signed) == "it is not a JWT that can be verified (InvalidKeyError)"


def test_headers_that_have_to_be_understood_are_refused(keys: Path) -> None:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(NOW_S) + 60, "scope": [DOORS_URI]}
    critical = jwt.encode(claims, private_key("ES256"), "ES256", {"kid": "ES256", "crit": ["exp"], "exp": 1})
    assert why(verifier(keys), critical).startswith("it is not a JWT that can be verified")


@given(
    st.one_of(
        st.text(characters, max_size=200), st.binary(max_size=90).map(lambda raw: base64.urlsafe_b64encode(raw).decode())
    )
)
def test_whatever_the_text_it_is_refused(keys_of_module: JwtVerifier, text: str) -> None:
    for hostile in (text, f"{text}.{text}.{text}", f"{part({'alg': 'ES256', 'kid': 'ES256'})}.{text}.{text}"):
        with pytest.raises(TokenRefusedError):
            keys_of_module.verify(hostile, NOW_S)


@pytest.fixture(scope="module")
def keys_of_module(tmp_path_factory: pytest.TempPathFactory) -> JwtVerifier:
    return verifier(write_keys(tmp_path_factory.mktemp("keys") / "jwks.json"))


@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_deep_token_is_refused(keys: Path, depth: int) -> None:
    deep = base64.urlsafe_b64encode(b"[" * depth).rstrip(b"=").decode()
    for hostile in (f"{deep}.{deep}.AAAA", f"{part({'alg': 'ES256', 'kid': 'ES256'})}.{deep}.AAAA"):
        with pytest.raises(TokenRefusedError):
            verifier(keys).verify(hostile, NOW_S)


# keys


def test_keys_are_read_again_when_the_file_changes(keys: Path) -> None:
    asked = verifier(keys)
    fresh = token(NOW_S, key=OTHER_KEY, kid="new")
    assert why(asked, fresh) == "no key that we know is for it"
    assert not asked.refresh()
    write_keys(keys, jwk(OTHER_KEY, kid="new"))
    assert asked.refresh()
    asked.verify(fresh, NOW_S)
    assert why(asked, token(NOW_S)) == "no key that we know is for it"


def test_a_file_that_was_put_in_place_of_the_other_is_noticed_at_the_same_time_and_size(keys: Path, tmp_path: Path) -> None:
    asked = verifier(keys)
    other = tmp_path / "other.json"
    other.write_bytes(keys.read_bytes())
    at = keys.stat()
    os.utime(other, ns=(at.st_atime_ns, at.st_mtime_ns))
    other.replace(keys)
    assert asked.refresh()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic time of the verifiers, in its only element."""
    now = [0.0]
    monkeypatch.setattr("streamer.tokens.jwt._now_s", lambda: now[0])
    return now


NO_SET = {
    "empty": ("", "not JSON"),
    "deep": ("[" * 100_000, "not JSON"),
    "list": ("[]", 'expected {"keys": [...]}'),
    "no keys": ("{}", 'expected {"keys": [...]}'),
    "half": ('{"keys": [{"kty": "EC"', "not JSON"),
    "large": (" " * (1024 * 1024 + 1), "larger than 1048576 bytes"),
    "gone": (None, "No such file or directory"),
    "a pipe": ("pipe", "not a regular file"),
    "a folder": ("folder", "Is a directory"),
}


@pytest.mark.parametrize(("content", "problem"), NO_SET.values(), ids=NO_SET)
def test_what_is_no_set_leaves_the_keys_from_before_for_a_while_and_then_none(
    keys: Path, content: str | None, problem: str, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    asked = verifier(keys)
    keys.unlink()
    match content:
        case "pipe":
            os.mkfifo(keys)
        case "folder":
            keys.mkdir()
        case str():
            keys.write_text(content)
    caplog.set_level(logging.ERROR, "ustreamer.tokens")
    for clock[0] in (0.0, GRACE_S - 0.1):
        assert not asked.refresh()
        asked.verify(token(NOW_S), NOW_S)
    assert asked.problem == problem
    clock[0] = GRACE_S
    assert asked.refresh()
    assert why(asked, token(NOW_S)) == "no key that we know is for it"
    assert not asked.refresh()
    consequence = "the keys from before are used for 60 s more, then every token is refused"
    assert [record.getMessage() for record in caplog.records] == [
        f"token_keys_unusable file={keys} problem={problem} consequence={consequence}",
        f"token_keys_dropped file={keys} problem={problem} consequence=every token is refused",
    ]
    keys.rmdir() if keys.is_dir() else keys.unlink(missing_ok=True)
    write_keys(keys)
    assert asked.refresh()
    asked.verify(token(NOW_S), NOW_S)
    assert asked.problem == ""


def test_another_problem_gives_the_keys_from_before_no_more_time(keys: Path, clock: list[float]) -> None:
    asked = verifier(keys)
    keys.unlink()
    assert not asked.refresh()
    clock[0] = GRACE_S - 1
    keys.write_text("half of it")
    assert not asked.refresh()
    clock[0] = GRACE_S
    assert asked.refresh()
    assert why(asked, token(NOW_S)) == "no key that we know is for it"


@pytest.mark.parametrize(
    "content",
    [
        '{"keys": []}',
        json.dumps({"keys": [jwk(private_key("ES384"))]}),
        json.dumps({"keys": [jwk(private_key("RS256"), alg="RS512")]}),
        '{"keys": [{"kty": ["RSA"]}, {"kty": "EC", "crv": {}}, {"kty": "AKP"}]}',
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
    ],
    ids=["none", "not listed", "named and not listed", "unknown", "symmetric"],
)
def test_a_set_without_a_key_that_counts_withdraws_every_key_at_once(
    keys: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = verifier(keys)
    keys.write_text(content)
    assert asked.refresh()
    assert why(asked, token(NOW_S)) == "no key that we know is for it"
    assert f"token_keys_read file={keys} keys=0 consequence=every token is refused" in caplog.text
    assert asked.problem == ""


PRIVATE = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(private_key("ES256")))


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (5, "not a key"),
        ({"kty": "oct", "k": "c2VjcmV0", "kid": "ES256"}, "a secret key; expected public ones only"),
        ({"kty": "oct", "k": "c2VjcmV0", "use": "enc"}, "a secret key; expected public ones only"),
        (PRIVATE, "a secret key; expected public ones only"),
        ({"kty": "RSA", "n": "c2VjcmV0"}, "not a public key"),
        ({"kty": "EC", "crv": "P-256", "x": "c2VjcmV0", "y": "AQ"}, "not a public key"),
        ({"kty": "EC", "crv": "P-256", "kid": 5}, "its kid is not a text"),
    ],
    ids=["number", "symmetric", "symmetric, to encrypt", "private", "half", "curve", "kid"],
)
def test_an_entry_that_cannot_be_used_is_left_out_and_told_and_the_others_are_the_set(
    keys: Path, entry: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = verifier(keys)
    write_keys(keys, entry, jwk(OTHER_KEY, kid="new"))
    assert asked.refresh()
    asked.verify(token(NOW_S, key=OTHER_KEY, kid="new"), NOW_S)
    assert why(asked, token(NOW_S)) == "no key that we know is for it"  # it is not in the set any more
    assert f"token_keys_left_out file={keys} number=1 problems=keys[0]: {problem}" in caplog.text
    assert "c2VjcmV0" not in caplog.text


def test_keys_beyond_the_bound_are_left_out_and_told(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_keys(keys, *[{"use": "enc"}] * 99, jwk(OTHER_KEY, kid="new"), jwk(private_key("ES256"), kid="ES256"))
    asked = verifier(keys)
    asked.verify(token(NOW_S, key=OTHER_KEY, kid="new"), NOW_S)
    assert why(asked, token(NOW_S)) == "no key that we know is for it"
    assert "number=1 problems=keys[100] and later ones: more than 100 keys" in caplog.text


ODD = st.one_of(
    st.sampled_from(["RSA", "EC", "OKP", "P-256", "Ed25519", "RS256", "sig", "AQAB", "", "\ud800", "\N{ROCKET}"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(), lambda inner: st.lists(inner, max_size=2), max_leaves=3
    ),
    st.dictionaries(st.text(characters, max_size=2), st.none(), max_size=1),
    st.binary(max_size=70).map(lambda raw: base64.urlsafe_b64encode(raw).decode()),
)
FIELDS = st.sampled_from(["kty", "crv", "alg", "use", "kid", "n", "e", "x", "y", "oth", "key_ops"])


@given(
    st.dictionaries(FIELDS, ODD), st.sampled_from(["RSA", "EC", "OKP", None]), st.sampled_from(["P-256", "Ed25519", None])
)
def test_whatever_a_key_is_made_of_the_set_is_used(
    tmp_path_factory: pytest.TempPathFactory, odd: dict[str, Any], kty: str | None, crv: str | None
) -> None:
    named = {name: value for name, value in (("kty", kty), ("crv", crv)) if value is not None}
    asked = verifier(write_keys(tmp_path_factory.mktemp("keys") / "jwks.json", odd | named))
    assert asked.problem == ""
    assert len(asked._keys) <= len(JwtOptions.model_fields["algorithms"].default)


def test_a_key_of_a_kind_that_is_not_known_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "jwks.json", {"kty": ["EC"], "crv": {}}, {"kty": "AKP"}, jwk(private_key("ES256")))
    assert verifier(keys).verify(token(NOW_S, kid=None), NOW_S)


def test_a_private_key_is_not_taken_for_a_public_one(tmp_path: Path) -> None:
    private = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(private_key("ES256")))
    asked = verifier(write_keys(tmp_path / "jwks.json", private | {"kid": "ES256"}))
    assert why(asked, token(NOW_S)) == "no key that we know is for it"


def test_two_keys_of_the_same_name_are_both_not_used_by_it(tmp_path: Path) -> None:
    same = jwk(private_key("ES256"), kid="a"), jwk(OTHER_KEY, kid="a")
    asked = verifier(write_keys(tmp_path / "jwks.json", *same, jwk(private_key("RS256"), kid="RS256")))
    assert why(asked, token(NOW_S, kid="a")) == "it does not say which of our keys is for it"
    asked.verify(token(NOW_S, "RS256"), NOW_S)


def test_without_a_file_every_token_is_refused_until_there_is_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "jwks.json"
    asked = verifier(path)
    assert why(asked, token(NOW_S)) == "no key that we know is for it"
    assert "problem=No such file or directory consequence=every token is refused" in caplog.text
    write_keys(path)
    assert asked.refresh()
    asked.verify(token(NOW_S), NOW_S)


# options


@pytest.mark.parametrize(
    "options",
    [
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": []},
        {"issuer": ""},
        {"audience": None},
        {"leeway_s": 3600},
        {"secret": "x"},
    ],
    ids=str,
)
def test_options_that_would_let_anybody_in_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JwtOptions.model_validate({"jwks_file": "/k.json", "issuer": ISSUER, "audience": AUDIENCE} | options)
