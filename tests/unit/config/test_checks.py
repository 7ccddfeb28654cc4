"""What has to fit between the parts of a configuration: found in raw values, also where other parts are wrong."""

from typing import Any

import pytest

from streamer.config.checks import findings, nearest
from streamer.config.models import Config

ENDPOINTS = {"vehicle": {"authorities": ["veh1"]}, "cloud": {"authorities": ["*"]}, "phone": {"authorities": ["phone1"]}}


def found(endpoints: Any = ENDPOINTS, routes: Any = (), **parts: Any) -> list[tuple[tuple[str | int, ...], str]]:
    raw = {"authority": "gateway", "endpoints": endpoints, "routes": list(routes), **parts}
    return [(finding.location, finding.message) for finding in findings(raw)]


def test_parts_that_fit_are_not_mentioned() -> None:
    assert found(routes=[{"from": "vehicle", "to": "cloud", "publish": ["//veh1/A/1/8000"]}]) == []


@pytest.mark.parametrize("name", ["origin", "core"])
def test_names_of_endpoints_that_mean_something_else_are_refused(name: str) -> None:
    assert [location for location, _ in found(ENDPOINTS | {name: {"authorities": ["x"]}})] == [("endpoints", name)]


def test_an_authority_is_listed_once_at_an_endpoint_and_is_not_our_own() -> None:
    endpoints = {"vehicle": {"authorities": ["veh1", "veh1", "gateway"]}}
    assert found(endpoints) == [
        (("endpoints", "vehicle", "authorities", 1), "'veh1' is listed twice; expected each authority once"),
        (
            ("endpoints", "vehicle", "authorities", 2),
            "'gateway' is the streamer's own authority; expected those reached through here",
        ),
    ]


def test_routes_and_dead_letters_name_endpoints_that_exist() -> None:
    mistakes = found(routes=[{"from": "vehicel", "to": "cloud"}], dead_letter={"endpoints": ["origin", "clud"]})
    assert [location for location, _ in mistakes] == [("dead_letter", "endpoints", 1), ("routes", 0, "from")]
    assert mistakes[0][1].endswith("found 'clud'; did you mean 'cloud'?")
    assert mistakes[1][1] == (
        "expected one of the endpoints (vehicle, cloud, phone), found 'vehicel'; did you mean 'vehicle'?"
    )


def test_a_route_leads_elsewhere() -> None:
    ((location, message),) = found(routes=[{"from": "cloud", "to": "cloud"}])
    assert location == ("routes", 0, "to")
    assert "leads back to 'cloud'" in message


def test_there_is_one_route_for_each_direction_and_each_has_a_name_of_its_own() -> None:
    routes = [
        {"from": "vehicle", "to": "cloud"},
        {"from": "vehicle", "to": "cloud", "name": "second"},
        {"from": "cloud", "to": "vehicle", "name": "vehicle-cloud"},
    ]
    assert [location for location, _ in found(routes=routes)] == [("routes", 1), ("routes", 2, "name")]


def test_a_pattern_can_match_where_its_route_starts() -> None:
    patterns = ["//veh1/A/1/8000", "//*/A/1/8000", "//phone1/A/1/8000", "//stranger/A/1/8000", "not a pattern"]
    ((location, message),) = found(routes=[{"from": "vehicle", "to": "cloud", "publish": patterns}])
    assert location == ("routes", 0, "publish", 2)
    assert message.startswith("'phone1' lives at 'phone', so nothing from it arrives at 'vehicle'")


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "text",
        {"endpoints": None, "routes": {}},
        {"endpoints": {"vehicle": None, 3: {}}, "routes": [None, 7, {"from": 1, "to": []}], "dead_letter": []},
        {"endpoints": ENDPOINTS, "routes": [{"from": "vehicle", "to": "cloud", "publish": [None, 7]}]},
    ],
)
def test_values_that_are_wrong_in_themselves_are_left_to_their_models(raw: Any) -> None:
    assert list(findings(raw)) == []


def test_models_are_checked_like_raw_values() -> None:
    config = Config.model_validate(
        {
            "authority": "gateway",
            "endpoints": {name: {"transport": "memory"} | endpoint for name, endpoint in ENDPOINTS.items()},
            "routes": [{"from": "vehicle", "to": "cloud"}],
        }
    )
    assert list(findings(config)) == []
    twice = config.model_copy(update={"routes": [*config.routes, *config.routes]})
    assert [finding.location for finding in findings(twice)] == [("routes", 1)]


def test_the_nearest_name_is_suggested_and_none_if_none_is_near() -> None:
    assert nearest("widnow", ["window", "retry"]) == "; did you mean 'window'?"
    assert nearest("que", ["queue_policy", "window"]) == "; did you mean 'queue_policy'?"
    assert nearest("zzz", ["window"]) == nearest("", ["window"]) == nearest(None, []) == ""


def permitted(rules: Any = (), identities: Any = None, endpoint: str = "vehicle", endpoints: Any = ENDPOINTS) -> Any:
    section = {"endpoints": {endpoint: {"rules": list(rules), "identities": identities}}}
    return found(endpoints, permissions=section)


def test_permissions_name_endpoints_that_exist() -> None:
    ((location, message),) = permitted(endpoint="vehicel")
    assert location == ("permissions", "endpoints", "vehicel")
    assert message == "expected one of the endpoints (vehicle, cloud, phone), found 'vehicel'; did you mean 'vehicle'?"


def test_a_rule_is_about_sources_that_live_behind_its_endpoint() -> None:
    rules = [
        {"allow": {"from": "//veh1/A/1/0"}},
        {"deny": {"from": "//phone1/A/1/0"}},
        {"allow": {"from": "//*/A/1/0", "to": "//phone1/A/1/7"}},
        {"allow": {"from": "//veh2/A/1/0"}},
        {"allow": {"from": "not an address"}},
        {"allow": None},
        5,
    ]
    here = ("permissions", "endpoints", "vehicle", "rules")
    assert permitted(rules) == [
        (
            (*here, 1, "deny", "from"),
            "'phone1' lives at 'phone', so nothing from it comes in through 'vehicle'; expected an authority of 'vehicle' "
            "(veh1), or *",
        ),
        (
            (*here, 3, "allow", "from"),
            "'veh2' lives at no endpoint, so nothing from it comes in through 'vehicle'; expected an authority of 'vehicle' "
            "(veh1), or *",
        ),
    ]


def test_where_everybody_else_lives_a_rule_may_name_anybody_else() -> None:
    rules = [{"allow": {"from": "//veh2/A/1/0"}}, {"allow": {"from": "//veh1/A/1/0"}}]
    assert [location[-3:] for location, _ in permitted(rules, endpoint="cloud")] == [(1, "allow", "from")]


def test_an_identity_speaks_for_authorities_that_live_behind_its_endpoint() -> None:
    identities = {"a": ["veh1", "*", "{identity}"], "b": ["phone1"], "c": 5}
    ((location, message),) = permitted(identities=identities)
    assert location == ("permissions", "endpoints", "vehicle", "identities", "b", 0)
    assert message.startswith("'phone1' lives at 'phone', so nothing from it comes in through 'vehicle'")


@pytest.mark.parametrize(
    "section", [5, [], {"endpoints": 5}, {"endpoints": {"vehicle": 5}}, {"endpoints": {5: {}}}], ids=str
)
def test_permissions_that_cannot_be_read_are_left_to_their_models(section: Any) -> None:
    assert [location for location, _ in found(permissions=section)] in ([], [("permissions", "endpoints", 5)])
