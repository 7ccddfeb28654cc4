"""Permissions: which rule speaks, who may speak for whom, what is believed of a message, and what methods demand."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.config.permissions import PermissionsConfig
from streamer.routing.outcome import Failure, Outcome
from streamer.routing.permissions import FirstMatch, Permissions, Permit
from streamer.uprotocol.message import Attributes, UMessageType, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri

PUBLISH, REQUEST = UMessageType.PUBLISH, UMessageType.REQUEST
RESPONSE, NOTIFICATION = UMessageType.RESPONSE, UMessageType.NOTIFICATION
BACKEND = UUri("backend", 0xC0, 1, 0)
DOORS = UUri("veh1", 0xB, 1, 7)
NEWS = UUri("backend", 0xC0, 1, 0x9000)


def permissions(*rules: dict[str, Any], methods: Iterable[dict[str, Any]] = (), **endpoint: Any) -> Permissions:
    """The rules of `cloud`."""
    section = {"endpoints": {"cloud": {"rules": list(rules), **endpoint}}, "methods": list(methods)}
    return Permissions(PermissionsConfig.model_validate(section))


def judge(
    asked: Permissions,
    kind: UMessageType = REQUEST,
    source: UUri = BACKEND,
    sink: UUri | None = DOORS,
    ingress: str = "cloud",
    identity: str | None = None,
) -> Permit | Failure:
    return asked.judge(kind, source, sink, ingress, identity)


def permit(verdict: Permit | Failure) -> Permit:
    assert isinstance(verdict, Permit), verdict
    return verdict


def denial(verdict: Permit | Failure) -> tuple[UCode, str]:
    assert isinstance(verdict, Failure), verdict
    assert verdict.outcome is Outcome.REJECTED
    return verdict.code, verdict.text


# rules


def test_what_no_rule_allows_is_denied_and_the_place_is_named() -> None:
    assert denial(judge(permissions())) == (
        UCode.PERMISSION_DENIED,
        "permissions.endpoints.cloud.rules: none of them allows it",
    )


def test_an_endpoint_that_is_not_named_lets_nothing_in() -> None:
    assert denial(judge(permissions({"allow": {}}), ingress="vehicle")) == (
        UCode.PERMISSION_DENIED,
        "permissions.endpoints has no vehicle: nothing is allowed there",
    )


def test_the_first_rule_that_matches_speaks() -> None:
    asked = permissions({"deny": {"to": "//veh1/B/1/8"}}, {"allow": {"to": "//veh1/B/1/FFFF"}}, {"deny": {}})
    assert permit(judge(asked)).name == "permissions.endpoints.cloud.rules[1]"
    assert denial(judge(asked, sink=DOORS._replace(resource=8)))[1] == "permissions.endpoints.cloud.rules[0] denies it"
    assert denial(judge(asked, sink=DOORS._replace(ue_id=0xC)))[1] == "permissions.endpoints.cloud.rules[2] denies it"


def test_an_earlier_rule_wins_whatever_its_wildcards_are() -> None:
    wide, narrow = {"deny": {"from": "//backend/FFFFFFFF/FF/FFFF"}}, {"allow": {"from": "//backend/C0/1/0"}}
    assert isinstance(judge(permissions(wide, narrow)), Failure)
    assert isinstance(judge(permissions(narrow, wide)), Permit)


def test_a_rule_is_found_behind_earlier_ones_of_its_form_and_of_others_that_do_not_match() -> None:
    other, wide = {"allow": {"from": "//other/C0/1/0"}}, {"allow": {"from": "//other/FFFFFFFF/FF/FFFF"}}
    asked = permissions(other, wide, {"deny": {"from": "//backend/C0/1/0"}})
    assert denial(judge(asked))[1] == "permissions.endpoints.cloud.rules[2] denies it"


def test_a_rule_is_about_its_types_only() -> None:
    asked = permissions({"allow": {"types": ["request"]}})
    assert isinstance(judge(asked), Permit)
    assert isinstance(judge(asked, NOTIFICATION, NEWS, UUri("veh1", 0xB, 1, 0)), Failure)
    assert isinstance(judge(asked, PUBLISH, NEWS, None), Failure)


def test_both_addresses_have_to_match() -> None:
    asked = permissions({"allow": {"from": "//backend/C0/1/0", "to": "//veh1/B/1/7"}})
    assert isinstance(judge(asked), Permit)
    assert isinstance(judge(asked, source=BACKEND._replace(ue_id=0xC1)), Failure)
    assert isinstance(judge(asked, sink=DOORS._replace(authority="veh2")), Failure)


@pytest.mark.parametrize("sink", [None, UUri("veh1", 0xFFFF_FFFF, 0xFF, 0xFFFF)], ids=["plain", "addressed"])
def test_to_is_the_topic_of_a_publish_whatever_its_network_addresses_it_to(sink: UUri | None) -> None:
    assert isinstance(judge(permissions({"allow": {"to": "//backend/C0/1/9000"}}), PUBLISH, NEWS, sink), Permit)
    assert isinstance(judge(permissions({"allow": {"to": "//veh1/FFFFFFFF/FF/FFFF"}}), PUBLISH, NEWS, sink), Failure)
    assert isinstance(judge(permissions({"allow": {"from": "//backend/C0/1/FFFF"}}), PUBLISH, NEWS, sink), Permit)


_AUTHORITIES = ["a", "b"]
_names = st.builds(
    UUri,
    st.sampled_from(_AUTHORITIES),
    st.builds(lambda instance, kind: instance << 16 | kind, st.sampled_from([0, 1]), st.sampled_from([1, 2])),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 1]),
)
_patterns = st.builds(
    UUri,
    st.sampled_from([*_AUTHORITIES, ANY_AUTHORITY]),
    st.builds(lambda instance, kind: instance << 16 | kind, st.sampled_from([0, 1, 0xFFFF]), st.sampled_from([1, 0xFFFF])),
    st.sampled_from([1, 0xFF]),
    st.sampled_from([0, 1, 0xFFFF]),
)
_kinds = st.sets(st.sampled_from([PUBLISH, REQUEST]), min_size=1)


@given(st.lists(st.tuples(_kinds, _patterns, _patterns), max_size=12), _names, _names)
def test_the_index_finds_what_a_look_at_every_rule_finds(
    rules: list[tuple[set[UMessageType], UUri, UUri]], source: UUri, sink: UUri
) -> None:
    index = FirstMatch((kinds, from_, to, number) for number, (kinds, from_, to) in enumerate(rules))
    matching = (
        number
        for number, (kinds, from_, to) in enumerate(rules)
        if REQUEST in kinds and from_.matches(source) and to.matches(sink)
    )
    assert index.find(REQUEST, source, sink) == next(matching, None)


def test_a_search_does_not_look_at_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 200 rules of four shapes it makes four look-ups, whether one matches or none."""
    rules = [{"allow": {"from": f"//peer{n}/FFFFFFFF/FF/FFFF", "to": f"//veh{n % 7}/B/1/7"}} for n in range(50)]
    rules += [{"allow": {"from": f"//peer/{n + 1:X}/1/0", "to": f"//veh{n % 7}/FFFFFFFF/FF/FFFF"}} for n in range(50)]
    rules += [{"deny": {"from": f"//peer/{n + 1:X}/2/FFFF"}} for n in range(50)]
    rules += [{"allow": {"to": f"//veh{n}/B/1/FFFF"}} for n in range(50)]
    asked = permissions(*rules)
    looked_up: list[object] = []

    class CountingDict(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            looked_up.append(key)
            return super().get(key, default)

    shapes = asked._endpoints["cloud"].rules._by_kind[REQUEST]._by_shape
    for shape, values in shapes.items():
        monkeypatch.setitem(shapes, shape, CountingDict(values))
    assert isinstance(judge(asked, source=BACKEND, sink=UUri("nobody", 1, 1, 1)), Failure)
    assert len(looked_up) == 4


# identities


@pytest.mark.parametrize(
    ("identities", "identity", "spoken_for"),
    [
        ({"b1": ["backend"]}, "b1", {"backend"}),
        ({"b1": ["backend"]}, "b2", set()),
        ({"b1": ["backend"]}, "backend", set()),
        ({"b1": ["backend", "tools"]}, "b1", {"backend", "tools"}),
        ({"b1": ["*"]}, "b1", {"backend", "tools"}),
        ({"*": ["tools"]}, "whoever", {"tools"}),
        ({"*": ["{identity}"]}, "backend", {"backend"}),
        ({"*": ["{identity}"], "tools": ["backend"]}, "tools", {"backend", "tools"}),
    ],
)
def test_an_identity_speaks_for_those_that_are_listed(
    identities: dict[str, list[str]], identity: str, spoken_for: set[str]
) -> None:
    asked = permissions({"allow": {}}, identities=identities)
    found = {
        authority
        for authority in ("backend", "tools")
        if isinstance(judge(asked, source=BACKEND._replace(authority=authority), identity=identity), Permit)
    }
    assert found == spoken_for


@pytest.mark.parametrize("identity", [None, ""])
def test_without_a_proven_identity_nobody_speaks_where_identities_are_listed(identity: str | None) -> None:
    assert denial(judge(permissions({"allow": {}}, identities={"*": ["*"]}), identity=identity)) == (
        UCode.UNAUTHENTICATED,
        "permissions.endpoints.cloud.identities: the network proves no identity of the sender",
    )


def test_whoever_speaks_for_another_is_unauthenticated_before_any_rule_is_asked() -> None:
    asked = permissions({"deny": {}}, identities={"mallory": ["tools"]})
    assert denial(judge(asked, identity="mallory")) == (
        UCode.UNAUTHENTICATED,
        "permissions.endpoints.cloud.identities: 'mallory' may not speak for 'backend'",
    )


def test_without_a_list_identities_do_not_matter() -> None:
    assert isinstance(judge(permissions({"allow": {}}), identity="whoever"), Permit)


# what is believed


CLAIMS = Attributes(REQUEST, BACKEND, DOORS, UPriority.CS6, ttl=1000, permission_level=3)


@pytest.mark.parametrize(("of_endpoint", "of_rule", "ceiling"), [("CS4", "CS6", 4), ("CS6", "CS2", 2), ("CS1", "CS2", 1)])
def test_the_lower_ceiling_counts_and_the_priority_on_the_wire_stays(of_endpoint: str, of_rule: str, ceiling: int) -> None:
    found = permit(judge(permissions({"allow": {"max_priority": of_rule}}, max_priority=of_endpoint)))
    applied = found.applied(CLAIMS)
    assert (applied.priority_class, applied.priority) == (ceiling, UPriority.CS6)


@pytest.mark.parametrize(("claimed", "passed_on"), [(None, None), (0, 0), (2, 2), (3, 2), (4_000_000_000, 2)])
def test_a_permission_level_is_passed_on_as_far_as_the_endpoint_may_claim_it(
    claimed: int | None, passed_on: int | None
) -> None:
    found = permit(judge(permissions({"allow": {}}, max_permission_level=2)))
    attributes = Attributes(REQUEST, BACKEND, DOORS, UPriority.CS4, ttl=1000, permission_level=claimed)
    assert found.applied(attributes).permission_level == passed_on


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, ""),
        ({"messages": 100}, ", at most 100 messages/s of each source authority"),
        ({"messages": 0.5, "bytes": 1000}, ", at most 0.5 messages/s and 1000 bytes/s of each source authority"),
    ],
)
def test_a_permit_says_its_rate(rate: Any, text: str) -> None:
    assert (
        str(permit(judge(permissions({"allow": {"rate": rate}})))) == f"permissions.endpoints.cloud.rules[0] allows it{text}"
    )


def test_nothing_is_copied_for_a_message_that_claims_no_more_than_it_may() -> None:
    found = permit(judge(permissions({"allow": {"max_priority": "CS6"}}, max_permission_level=3)))
    assert found.applied(CLAIMS) is CLAIMS


# methods


def test_the_first_method_that_matches_says_what_is_demanded() -> None:
    asked = permissions(
        {"allow": {}},
        methods=[{"method": "//veh1/B/1/7", "permission_level": 2}, {"method": "//veh1/B/1/FFFF", "permission_level": 1}],
    )
    assert str(permit(judge(asked)).demand) == "permissions.methods[0] demands permission level 2"
    assert str(permit(judge(asked, sink=DOORS._replace(resource=8))).demand).startswith("permissions.methods[1] ")
    assert permit(judge(asked, sink=DOORS._replace(ue_id=0xC))).demand is None


@pytest.mark.parametrize(
    ("claimed", "max_level", "is_allowed"),
    [(2, 2, True), (3, 2, True), (2, 5, True), (1, 5, False), (None, 5, False), (5, 1, False)],
)
def test_a_request_calls_a_method_with_the_level_that_is_believed(
    claimed: int | None, max_level: int, is_allowed: bool
) -> None:
    asked = permissions(
        {"allow": {}}, methods=[{"method": "//veh1/B/1/7", "permission_level": 2}], max_permission_level=max_level
    )
    attributes = Attributes(REQUEST, BACKEND, DOORS, UPriority.CS4, ttl=1000, permission_level=claimed)
    refused = permit(judge(asked)).refusal(attributes)
    assert (refused is None) is is_allowed
    if refused is not None:
        assert denial(refused) == (
            UCode.PERMISSION_DENIED,
            f"permissions.methods[0] demands permission level 2: it claims {claimed or 0}, and its endpoint may claim "
            f"{max_level}",
        )


def test_only_a_request_is_asked_for_a_level() -> None:
    asked = permissions({"allow": {}}, methods=[{"method": "//*/FFFFFFFF/FF/FFFF", "permission_level": 9}])
    method = UUri("backend", 0xC0, 1, 7)
    assert permit(judge(asked, RESPONSE, method, UUri("veh1", 0xB, 1, 0))).demand is None
    assert permit(judge(asked, PUBLISH, NEWS, None)).demand is None
