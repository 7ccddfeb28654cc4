"""The section ``permissions``: what it may say, and what is said about rules that can do nothing."""

from typing import Any

import pytest
from pydantic import ValidationError

from streamer.config import permissions as permissions_module
from streamer.config.permissions import PermissionsConfig, fits, hints
from streamer.tokens.jwt import JwtVerifier
from streamer.uprotocol.uri import UUri, everything_at


def parsed(*rules: dict[str, Any], **endpoint: Any) -> PermissionsConfig:
    return PermissionsConfig.model_validate({"endpoints": {"cloud": {"rules": list(rules), **endpoint}}})


def mistakes(*rules: dict[str, Any], **endpoint: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        parsed(*rules, **endpoint)
    return [error["msg"] for error in caught.value.errors()]


def test_an_empty_section_allows_nothing() -> None:
    assert PermissionsConfig.model_validate({}).model_dump() == {"endpoints": {}, "methods": [], "tap": None}


def test_an_endpoint_believes_every_priority_no_permission_level_and_any_sender_unless_it_says_otherwise() -> None:
    (cloud,) = parsed().endpoints.values()
    assert cloud.model_dump() == {"rules": [], "identities": None, "max_priority": "CS6", "max_permission_level": 0}


def test_a_rule_that_says_nothing_is_about_everything() -> None:
    (rule,) = parsed({"allow": {}}).endpoints["cloud"].rules
    assert rule.allow is not None
    assert (rule.allow.from_, rule.allow.to, rule.allow.max_priority) == (everything_at("*"), everything_at("*"), "CS6")
    assert rule.allow.types == ["publish", "request", "response", "notification"]


@pytest.mark.parametrize("rule", [{}, {"allow": None}, {"allow": {}, "deny": {}}])
def test_a_rule_allows_or_denies(rule: dict[str, Any]) -> None:
    assert mistakes(rule) == ["expected either allow or deny; deny: {} is about everything"]


@pytest.mark.parametrize(
    "about",
    [
        {"from": "/C0/1/0"},
        {"from": "backend"},
        {"to": "//veh1/B/1"},
        {"to": 5},
        {"types": []},
        {"types": ["message"]},
        {"too": "//veh1/B/1/7"},
    ],
    ids=str,
)
def test_what_is_no_address_or_type_is_refused(about: dict[str, Any]) -> None:
    assert len(mistakes({"allow": about})) == 1
    assert len(mistakes({"deny": about})) == 1


@pytest.mark.parametrize("rate", [{}, {"messages": 0}, {"bytes": 0}, {"messages": 1, "burst_s": 5}, 5], ids=str)
def test_a_rate_limits_something_and_lets_something_pass(rate: object) -> None:
    assert len(mistakes({"allow": {"rate": rate}})) == 1


def test_a_deny_has_no_rate_and_no_ceiling() -> None:
    assert mistakes({"deny": {"rate": {"messages": 1}}}) == ["Extra inputs are not permitted"]
    assert mistakes({"deny": {"max_priority": "CS3"}}) == ["Extra inputs are not permitted"]


@pytest.mark.parametrize(
    "about",
    [
        {"types": ["publish"], "to": "//veh1/B/1/7"},
        {"types": ["request"], "from": "//backend/C0/1/9000"},
        {"types": ["response"], "from": "//backend/C0/1/0"},
        {"types": ["request", "publish"], "to": "//veh1/B/1/0"},
        {"from": "//backend/C0/1/0", "to": "//veh1/B/1/0"},
    ],
    ids=str,
)
def test_a_rule_that_no_message_can_match_is_refused(about: dict[str, Any]) -> None:
    (mistake,) = mistakes({"allow": about})
    assert mistake.startswith("no ")
    assert "a Request goes from 0 to a method (1 to 7FFF)" in mistake


@pytest.mark.parametrize(
    ("kind", "source", "target", "expected"),
    [
        ("request", 0, 7, True),
        ("request", 7, 0, False),
        ("response", 7, 0, True),
        ("response", 0x8000, 0, False),
        ("notification", 0x8000, 0, True),
        ("notification", 7, 0, False),
        ("notification", 0, 0, False),
        ("publish", 0x8000, 0x8000, True),
        ("publish", 0, 0x8000, False),
        ("request", 0xFFFF, 0xFFFF, True),
        ("publish", 0xFFFF, 0xFFFF, True),
    ],
)
def test_types_fit_their_resources(kind: Any, source: int, target: int, expected: bool) -> None:
    assert fits(kind, UUri("a", 1, 1, source), UUri("b", 1, 1, target)) is expected


@pytest.mark.parametrize(
    "identities", [{}, {"backend-1": []}, {"backend-1": ["Backend"]}, {"backend-1": ["{name}"]}, ["backend-1"]], ids=str
)
def test_identities_speak_for_authorities(identities: object) -> None:
    assert len(mistakes(identities=identities)) == 1


def test_a_method_has_the_resource_of_one() -> None:
    for method in ("//veh1/B/1/0", "//veh1/B/1/8000", "/B/1/7"):
        with pytest.raises(ValidationError):
            PermissionsConfig.model_validate({"methods": [{"method": method}]})
    PermissionsConfig.model_validate({"methods": [{"method": "//*/FFFFFFFF/FF/FFFF", "permission_level": 0}]})


@pytest.mark.parametrize("level", [-1, 1 << 32, "2"])
def test_a_permission_level_has_32_bits(level: object) -> None:
    assert len(mistakes(max_permission_level=level)) == 1


JWT = {"jwks_file": "/keys.json", "issuer": "https://issuer.example", "audience": "gateway"}


def of_tap(tap: object, **section: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        PermissionsConfig.model_validate({"tap": tap, **section})
    return [error["msg"] for error in caught.value.errors()]


def test_a_method_wants_a_token_only_if_something_verifies_it() -> None:
    methods = [{"method": "//veh1/B/1/7", "tap": True}]
    assert of_tap(None, methods=methods) == [
        "expected the key tap as well: a method demands a token, and nothing says what verifies it"
    ]
    PermissionsConfig.model_validate({"methods": methods, "tap": {"verifier": "jwt", "options": JWT}})


def test_a_verifier_is_installed_and_has_options_of_its_own() -> None:
    assert of_tap({"verifier": "paseto"}) == ["expected one of the installed token verifiers (jwt)"]
    assert of_tap({"verifier": "jwt"}) == ["Field required"] * 3
    assert of_tap({"verifier": "jwt", "options": JWT | {"algorithms": ["HS256"]}})
    section = PermissionsConfig.model_validate({"tap": {"verifier": "jwt", "options": JWT}})
    assert section.tap is not None
    assert isinstance(section.tap.new_verifier(), JwtVerifier)


def test_a_verifier_that_cannot_be_loaded_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError("no module named x")

    monkeypatch.setattr(permissions_module, "load_verifier", broken)
    assert of_tap({"verifier": "jwt"}) == ["expected a token verifier that can be loaded (ImportError: no module named x)"]


# hints


def test_a_file_without_the_section_is_called_open() -> None:
    (hint,) = hints(None, {"vehicle": False})
    assert hint.startswith("permissions: null: open; ")


def test_endpoints_that_the_section_does_not_name_are_told() -> None:
    assert list(hints(parsed({"allow": {}}), {"vehicle": False, "cloud": False})) == [
        "permissions.endpoints: no vehicle; nothing that comes in there is allowed"
    ]


@pytest.mark.parametrize(("is_proven", "told"), [(True, 0), (False, 1)])
def test_identities_that_no_network_proves_are_told(is_proven: bool, told: int) -> None:
    found = list(hints(parsed({"allow": {}}, identities={"a": ["*"]}), {"cloud": is_proven}))
    text = "the network of cloud proves no identity, so nothing that comes in there is allowed"
    assert found == [f"permissions.endpoints.cloud.identities: {text}"] * told


@pytest.mark.parametrize(
    ("rules", "forgotten"),
    [
        ([{"deny": {"to": "//veh1/0/3/FFFF"}}, {"allow": {}}], "//veh1/0/4/FFFF"),
        ([{"allow": {"to": "//veh1/0/4/1"}}], "//veh1/0/3/1"),
        ([{"deny": {"to": "//veh1/0/FF/FFFF"}}, {"allow": {}}], None),
        ([{"allow": {"to": "//veh1/0/3/FFFF"}}, {"allow": {"to": "//veh1/0/4/FFFF"}}], None),
    ],
)
def test_a_rule_for_one_version_of_usubscription_is_told(rules: list[dict[str, Any]], forgotten: str | None) -> None:
    text = f"permissions.endpoints.cloud.rules[0]: about one version of uSubscription; no rule is about {forgotten}"
    assert list(hints(parsed(*rules), {"cloud": False})) == ([text] if forgotten else [])


@pytest.mark.parametrize(
    "rules",
    [
        ({"deny": {}}, {"allow": {"to": "//veh1/B/1/7"}}),
        ({"allow": {"to": "//veh1/FFFFFFFF/FF/FFFF"}}, {"deny": {"to": "//veh1/B/1/7", "from": "//backend/C0/1/0"}}),
        ({"allow": {"types": ["request"]}}, {"deny": {"types": ["request", "publish"], "to": "//veh1/B/1/7"}}),
        ({"allow": {}}, {"allow": {}}),
    ],
    ids=["catch-all", "wider", "type that cannot be", "twice"],
)
def test_a_rule_behind_one_that_matches_all_of_it_is_told(rules: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert list(hints(parsed(*rules), {"cloud": False})) == [
        "permissions.endpoints.cloud.rules[1]: never reached; rules[0] matches everything that it matches"
    ]


@pytest.mark.parametrize(
    "rules",
    [
        ({"allow": {"to": "//veh1/B/1/7"}}, {"deny": {}}),
        ({"allow": {"types": ["request"]}}, {"deny": {}}),
        ({"allow": {"from": "//backend/FFFFFFFF/FF/FFFF"}}, {"deny": {"to": "//veh1/B/1/7"}}),
        ({"allow": {"to": "//veh1/1FFFF/1/7"}}, {"deny": {"to": "//veh1/2FFFF/1/7"}}),
    ],
    ids=["narrower", "types", "other address", "instance"],
)
def test_a_rule_that_may_speak_is_not_told(rules: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert list(hints(parsed(*rules), {"cloud": False})) == []


def test_patterns_are_read_as_addresses() -> None:
    (rule,) = parsed({"deny": {"from": "//backend/C0/1/0"}}).endpoints["cloud"].rules
    assert rule.deny is not None
    assert rule.deny.from_ == UUri("backend", 0xC0, 1, 0)
