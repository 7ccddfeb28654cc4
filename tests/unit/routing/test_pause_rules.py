"""Rules that stop flows: what they match, and which of them hold (see `streamer.routing.pause_rules`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.routing.pause_rules import MAX_RULES, PauseRule, PauseRuleError, PauseRules
from streamer.uprotocol.uri import UUri

SPEED = UUri.parse("//veh1/A8000/2/8A50")
TO_CLOUD = UUri.parse("//cloud/FFFFFFFF/FF/FFFF")  # what a streamer sets on a Publish where the network wants a sink
CLOUD_APP = UUri.parse("//cloud/C0/1/0")
METHOD = UUri.parse("//cloud/C0/1/9")
CALLER = UUri.parse("//veh1/A8000/2/0")


@pytest.mark.parametrize(
    ("rule", "flow", "pause_rules"),
    [
        (("//veh1/A8000/2/8A50", None), (SPEED, None), True),
        (("//veh1/A8000/2/8A50", None), (SPEED, TO_CLOUD), True),
        (("//veh1/A8000/2/8A50", None), (SPEED, CLOUD_APP), True),
        (("//veh1/A8000/2/8A51", None), (SPEED, None), False),
        (("//veh2/A8000/2/8A50", None), (SPEED, None), False),
        (("//veh1/A8000/1/8A50", None), (SPEED, None), False),
        (("//veh1/8000/2/8A50", None), (SPEED, None), False),  # another instance
        (("//veh1/FFFF8000/2/8A50", None), (SPEED, None), True),
        (("//veh1/AFFFF/2/8A50", None), (SPEED, None), True),
        (("//veh1/FFFF/2/8A50", None), (SPEED, None), False),  # any type of instance 0
        (("//veh1/FFFFFFFF/FF/FFFF", None), (SPEED, None), True),
        (("//*/A8000/2/8A50", None), (SPEED, None), True),
        (("//*/FFFFFFFF/FF/FFFF", None), (CALLER, METHOD), True),
        (("//veh1/A8000/2/0", None), (CALLER, METHOD), True),
        (("//veh1/A8000/2/0", None), (SPEED, CLOUD_APP), False),
        (("//veh1/A8000/2/8A50", "//cloud/C0/1/0"), (SPEED, CLOUD_APP), True),
        (("//veh1/A8000/2/8A50", "//cloud/C1/1/0"), (SPEED, CLOUD_APP), False),
        (("//veh1/A8000/2/8A50", "//cloud/FFFFFFFF/FF/FFFF"), (SPEED, CLOUD_APP), True),
        (("//*/FFFFFFFF/FF/FFFF", "//cloud/C0/1/9"), (CALLER, METHOD), True),
        (("//*/FFFFFFFF/FF/FFFF", "//cloud/C0/1/8"), (CALLER, METHOD), False),
        (("//veh1/A8000/2/8A50", "//cloud/FFFFFFFF/FF/FFFF"), (SPEED, None), False),  # a Publish is for nobody in particular
        (("//veh1/A8000/2/8A50", "//*/FFFFFFFF/FF/FFFF"), (SPEED, None), False),
        (("//veh1/A8000/2/8A50", "//*/FFFFFFFF/FF/FFFF"), (SPEED, TO_CLOUD), True),
        (("//veh1/A8000/2/8A50", "//cloud/C0/1/0"), (SPEED, TO_CLOUD), True),  # by the authority alone
        (("//veh1/A8000/2/8A50", "//phone1/C0/1/0"), (SPEED, TO_CLOUD), False),
    ],
    ids=lambda value: "-".join(str(part) for part in value) if isinstance(value, tuple) else str(value),
)
def test_rule_stops_the_flows_that_it_names_and_no_others(
    rule: tuple[str, str | None], flow: tuple[UUri, UUri | None], pause_rules: bool
) -> None:
    given_rule = PauseRule.parse(*rule)
    assert given_rule.matches(*flow) is pause_rules
    assert PauseRules([given_rule]).rule_for(*flow) == (given_rule if pause_rules else None)


def test_a_rule_may_have_the_scheme_of_its_addresses() -> None:
    rule = PauseRule.parse("up://veh1/A8000/2/8A50", "UP://cloud/FFFFFFFF/FF/FFFF")
    assert rule == PauseRule.parse("//veh1/A8000/2/8A50", "//cloud/FFFFFFFF/FF/FFFF")


@pytest.mark.parametrize(
    ("source", "sink", "expected"),
    [
        ("nonsense", None, "topic 'nonsense': expected up://"),
        ("//veh1/A8000/2", None, "expected exactly three path segments"),
        ("/A8000/2/8A50", None, "expected an authority, or * for any"),
        ("//veh1/A8000/2/7", None, "a method is a sink"),
        ("//veh1/A8000/2/7FFF", None, "a method is a sink"),
        ("//veh1/A8000/2/8A50", "nonsense", "sink 'nonsense': expected up://"),
        ("//veh1/A8000/2/8A50", "/C0/1/0", "sink /C0/1/0: expected an authority"),
        ("//veh1/A8000/2/8A50", "//cloud/C0/1/8000", "sink //cloud/C0/1/8000: expected a uEntity"),
        ("//veh1/A8000/2/8A50", "//cloud/C0/1/FFFE", "sink //cloud/C0/1/FFFE: expected a uEntity"),
    ],
)
def test_what_can_stop_nothing_is_refused_with_what_was_expected(source: str, sink: str | None, expected: str) -> None:
    with pytest.raises(PauseRuleError, match="expected") as caught:
        PauseRule.parse(source, sink)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "rule",
    [
        PauseRule(UUri("veh1", 1, 256, 0x8000)),
        PauseRule(UUri("VEH 1", 1, 1, 0x8000)),
        PauseRule(SPEED, UUri("c", 1 << 32, 1, 0)),
    ],
)
def test_numbers_that_are_no_uri_are_refused(rule: PauseRule) -> None:
    with pytest.raises(PauseRuleError, match="expected at most"):
        rule.check()


def test_the_same_rule_counts_once_and_one_start_takes_it_away() -> None:
    pause_rules = PauseRules()
    assert pause_rules.add(PauseRule(SPEED))
    assert not pause_rules.add(PauseRule(SPEED))
    assert pause_rules.rules == (PauseRule(SPEED),)
    assert pause_rules.remove(PauseRule(SPEED))
    assert not pause_rules.remove(PauseRule(SPEED))
    assert pause_rules.rules == ()
    assert pause_rules.rule_for(SPEED, None) is None


def test_flow_is_stopped_while_one_of_several_rules_holds() -> None:
    wide, narrow = PauseRule.parse("//veh1/FFFFFFFF/FF/FFFF"), PauseRule(SPEED)
    pause_rules = PauseRules([wide, narrow])
    assert set(pause_rules.rules_for(SPEED, None)) == {wide, narrow}
    pause_rules.remove(wide)
    assert pause_rules.rule_for(SPEED, None) == narrow
    pause_rules.remove(narrow)
    assert pause_rules.rule_for(SPEED, None) is None


def test_only_the_exact_words_of_a_rule_take_it_away() -> None:
    pause_rules = PauseRules([PauseRule(SPEED, CLOUD_APP)])
    assert not pause_rules.remove(PauseRule(SPEED))
    assert not pause_rules.remove(PauseRule.parse("//*/A8000/2/8A50", str(CLOUD_APP)))
    assert pause_rules.rule_for(SPEED, CLOUD_APP) == PauseRule(SPEED, CLOUD_APP)


def test_rules_are_listed_in_the_order_in_which_they_came() -> None:
    rules = [PauseRule(UUri("veh1", 1, 1, 0x8000 + number % 7), None if number < 7 else CLOUD_APP) for number in range(14)]
    pause_rules = PauseRules(rules)
    pause_rules.remove(rules[3])
    pause_rules.add(rules[3])
    assert pause_rules.rules == (*rules[:3], *rules[4:], rules[3])
    assert len(pause_rules) == 14


def test_full_with_a_thousand_rules_and_not_before() -> None:
    pause_rules = PauseRules(PauseRule(UUri("veh1", number, 1, 0x8000)) for number in range(MAX_RULES - 1))
    assert not pause_rules.is_full
    pause_rules.add(PauseRule(SPEED))
    assert pause_rules.is_full
    assert len(pause_rules) == 1000


AUTHORITIES, NUMBERS = st.sampled_from(["a", "b"]), st.sampled_from([1, 2])


@st.composite
def sources(draw: st.DrawFn) -> UUri:
    return UUri(draw(AUTHORITIES), draw(NUMBERS) << 16 | draw(NUMBERS), draw(NUMBERS), 0x8000 + draw(NUMBERS))


@st.composite
def sinks(draw: st.DrawFn) -> UUri | None:
    kind = draw(st.sampled_from(["none", "authority", "entity"]))
    if kind == "none":
        return None
    return UUri(draw(AUTHORITIES), *((0xFFFF_FFFF, 0xFF, 0xFFFF) if kind == "authority" else (draw(NUMBERS), 1, 0)))


@st.composite
def rules(draw: st.DrawFn) -> PauseRule:
    source, sink = draw(sources()), draw(sinks())
    wild = draw(st.tuples(*[st.booleans()] * 5))
    source = UUri(
        "*" if wild[0] else source.authority,
        (0xFFFF if wild[1] else source.instance_id) << 16 | (0xFFFF if wild[2] else source.type_id),
        0xFF if wild[3] else source.version,
        0xFFFF if wild[4] else source.resource,
    )
    if sink is not None and draw(st.booleans()):
        sink = sink._replace(authority="*")
    return PauseRule(source, sink).check()


@given(st.lists(rules(), max_size=12), st.data())
def test_finding_by_source_gives_what_asking_every_rule_gives(given_rules: list[PauseRule], data: st.DataObject) -> None:
    """Whatever was added and taken away before."""
    pause_rules, left = PauseRules(given_rules), dict.fromkeys(given_rules)
    for rule in data.draw(st.lists(st.sampled_from(given_rules), unique=True) if given_rules else st.just([])):
        assert pause_rules.remove(rule)
        del left[rule]
    assert pause_rules.rules == tuple(left)
    for _ in range(5):
        flow = (data.draw(sources()), data.draw(sinks()))
        asked = {rule for rule in left if rule.matches(*flow)}
        assert set(pause_rules.rules_for(*flow)) == asked
        found = pause_rules.rule_for(*flow)
        assert found in asked if asked else found is None
