"""The rules of the audit, one by one, on hand-made signatures of a chain A → B → C."""

from collections.abc import Sequence

import pytest

from spark_jobs.verdict import Sighting, Signature, Verdict, judge, leads, rank, rank_crowded


def saw(
    streamer: str,
    at_us: int,
    outcome: str = "delivered",
    route: str = "r",
    egress: str | None = "out",
    kinds: tuple[str | None, str | None] = (None, None),
) -> Sighting:
    return Sighting(streamer, route, egress, outcome, "OK" if outcome == "delivered" else "UNAVAILABLE", at_us, *kinds)


A, B, C = saw("A", 0), saw("B", 1000), saw("C", 2000)


def verdicts(
    *kinds: tuple[int, Sequence[Sighting]], source: str = "car", is_publish: bool = False, trusted: bool = True
) -> list[Verdict]:
    signatures = [Signature(key, messages, tuple(seen)) for key, (messages, seen) in enumerate(kinds)]
    order = rank(signatures, source, lambda x, y: trusted)
    return judge(signatures, order, is_publish, leads(signatures, order))


def findings(verdict: Verdict) -> dict[str, str | None]:
    return {each.finding: each.missing_at for each in verdict.findings}


def test_seen_by_all_is_delivered_and_not_a_finding() -> None:
    (clean,) = verdicts((100, [A, B, C]))
    assert (clean.status, clean.findings) == ("delivered", ())


def test_handed_over_and_never_seen_again_is_lost_at_the_next() -> None:
    _, at_b, at_c = verdicts((100, [A, B, C]), (1, [A]), (1, [A, B]))
    assert (at_b.status, findings(at_b)) == ("lost", {"lost": "B"})
    assert (at_c.status, findings(at_c)) == ("lost", {"lost": "C"})
    assert at_c.findings[0].last_streamer == "B"
    assert at_c.findings[0].streamers == "A,B"


def test_a_loss_waits_for_the_records_of_the_streamer_that_lacks_it() -> None:
    _, lost = verdicts((100, [A, B, C]), (1, [A, B]))
    assert lost.missing_at == (("C",),)


def test_seen_before_and_after_is_untraced_not_lost() -> None:
    _, gap = verdicts((100, [A, B, C]), (1, [A, C]))
    assert (gap.status, findings(gap)) == ("delivered", {"untraced": "B"})


def test_not_seen_by_the_first_is_nothing() -> None:
    _, late = verdicts((100, [A, B, C]), (1, [B, C]))
    assert (late.status, late.findings) == ("delivered", ())


def test_gaps_of_the_middle_do_not_put_it_last() -> None:
    """By the number of messages seen, B would come after C, and 5 messages be lost there."""
    for trusted in (True, False):
        *_, gap = verdicts((1, [A]), (3, [A, saw("B", 1000, "expired")]), (90, [A, B, C]), (5, [A, C]), trusted=trusted)
        assert findings(gap) == {"untraced": "B"}


def test_clocks_that_are_not_trusted_do_not_decide_who_was_first() -> None:
    behind = saw("B", -45_000_000)
    _, lost = verdicts((100, [A, behind]), (1, [A]), trusted=False)
    assert findings(lost) == {"lost": "B"}


def test_the_streamer_that_made_the_message_is_first() -> None:
    """One direction only, and a clock that is behind: without a loss there is no other sign."""
    _, lost = verdicts((100, [A, saw("B", -45_000_000)]), (1, [saw("A", 0)]), source="A", trusted=False)
    assert findings(lost) == {"lost": "B"}


Z, Y, X = saw("Z", 0), saw("Y", 1000), saw("X", 2000)
BEHIND = saw("Y", -45_000_000)


def ranked(*kinds: tuple[int, Sequence[Sighting]], source: str = "car", trusted: bool = False) -> list[str]:
    signatures = [Signature(key, messages, tuple(seen)) for key, (messages, seen) in enumerate(kinds)]
    order = rank(signatures, source, lambda x, y: trusted)
    return sorted(order, key=order.__getitem__)


def test_clocks_order_streamers_whatever_their_names() -> None:
    for trusted in (True, False):
        assert ranked((1, [Z, Y, X]), trusted=trusted) == ["Z", "Y", "X"]
    assert ranked((3, [Z, Y]), (2, [saw("Z", 5000), Y]), trusted=True) == ["Z", "Y"], "most messages count"
    assert ranked((3, [Z, Y, saw("Z", 5000, "duplicate", "none", None)]), trusted=True) == ["Z", "Y"], "the first one counts"


def test_the_source_comes_before_what_clocks_say() -> None:
    assert ranked((9, [Z, Y]), source="Y", trusted=True) == ["Y", "Z"]
    assert ranked((9, [Z, Y]), source="Z", trusted=True) == ["Z", "Y"]


def test_where_messages_stopped_orders_streamers_whose_clocks_are_not_trusted() -> None:
    behind_z = {
        "at the second": (1, [Z, saw("Y", -45_000_000, "expired")]),
        "at the first": (1, [saw("Z", 0, "expired")]),
        "between them": (1, [Z]),
    }
    for stop in behind_z.values():
        assert ranked((100, [Z, BEHIND]), stop) == ["Z", "Y"]
        assert ranked((100, [Z, BEHIND]), stop, trusted=True) == ["Y", "Z"]
    # what stopped is better evidence than what was not seen, of which a gap in the traces is a cause
    assert ranked((100, [Z, BEHIND]), behind_z["at the second"], (5, [BEHIND])) == ["Z", "Y"]


def test_a_branch_is_not_expected_where_another_one_is_proven_to_lead() -> None:
    local = saw("A", 0, route="local", egress="here")
    *_, branch = verdicts((100, [A, local, B]), (1, [A, B]), (1, [local]))
    assert (branch.status, branch.findings) == ("delivered", ())
    _, both = verdicts((100, [A, local, B]), (1, [A, local]))
    assert findings(both) == {"lost": "B"}, "nothing proves which of the two leads to B"


def test_of_failures_at_two_streamers_the_furthest_is_the_status() -> None:
    elsewhere = saw("A", 0, "expired", "local", "here")
    _, failed = verdicts((100, [A, B]), (1, [elsewhere, A, saw("B", 1000, "rejected")]))
    assert (failed.status, findings(failed)) == ("rejected", {"expired": None, "rejected": None})


def test_gaps_at_two_streamers_are_named_in_the_order_of_the_way() -> None:
    w = saw("W", 3000)
    _, gap = verdicts((100, [Z, Y, X, w]), (1, [Z, w]))
    assert findings(gap) == {"untraced": "Y,X"}
    assert gap.findings[0].last_streamer == "W"


def test_the_furthest_failure_is_the_status() -> None:
    for outcome in ("expired", "rejected", "dead_lettered"):
        _, failed = verdicts((100, [A, B, C]), (1, [A, saw("B", 1000, outcome)]))
        assert (failed.status, findings(failed)) == (outcome, {outcome: None})
        assert failed.findings[0].last_streamer == "B"
        assert failed.findings[0].ucode == "UNAVAILABLE"


def test_of_two_destinations_one_is_enough_and_the_other_a_finding() -> None:
    failed = saw("C", 2000, "expired", "other", "elsewhere")
    (both,) = verdicts((5, [A, B, C, failed]))
    assert (both.status, findings(both)) == ("delivered", {"expired": None})


def test_a_branch_that_is_lost_is_a_finding_of_a_delivered_message() -> None:
    local = saw("A", 0, route="local", egress="here")
    *_, branch = verdicts((100, [A, local, B]), (1, [A, B]), (1, [A, local]))
    assert (branch.status, findings(branch)) == ("delivered", {"lost": "B"})


def test_a_branch_that_failed_at_once_is_not_lost_at_the_next() -> None:
    local, refused = saw("A", 0, route="local", egress="here"), saw("A", 0, "rejected")
    *_, branch = verdicts((100, [A, local, B]), (1, [A, B]), (1, [refused, local]))
    assert (branch.status, findings(branch)) == ("delivered", {"rejected": None})


def test_each_branch_has_its_own_way() -> None:
    """Dead letters of A go to where the message came from: to B on one side, to C on the other."""
    left, right = saw("A", 0, "delivered", "dead-letter", "left"), saw("A", 0, "delivered", "dead-letter", "right")
    unwanted = [saw("B", 900, "unwanted", "none", None), saw("C", 900, "unwanted", "none", None)]
    to_b, to_c, lost = verdicts(
        (10, [left, unwanted[0]]), (4, [right, unwanted[1]]), (1, [right]), source="A", is_publish=True
    )
    assert [each.status for each in (to_b, to_c, lost)] == ["unwanted", "unwanted", "lost"]
    assert [findings(each) for each in (to_b, to_c, lost)] == [{}, {}, {"lost": "C"}]


def test_one_of_two_gateways_is_enough() -> None:
    """A vehicle that moves: behind A its messages go through B or through C, never through both."""
    via_b, via_c, lost = verdicts((50, [A, B]), (40, [A, C]), (1, [A]))
    assert [via_b.findings, via_c.findings] == [(), ()]
    assert lost.status == "lost"


def test_delivered_more_than_once_over_the_same_route() -> None:
    _, twice, thrice = verdicts((100, [A, B, C]), (1, [A, B, C, C]), (1, [A, B, C, C, C]))
    assert [(each.status, findings(each)) for each in (twice, thrice)] == [("delivered", {"delivered_twice": None})] * 2
    assert twice.findings[0].last_streamer == "C"


def test_delivered_over_two_routes_is_not_twice() -> None:
    (fan_out,) = verdicts((100, [A, saw("A", 0, route="s", egress="elsewhere")]))
    assert fan_out.findings == ()


def test_a_copy_set_aside_leaves_the_status_alone() -> None:
    again = saw("B", 5000, "duplicate", "none", None)
    _, aside, lost = verdicts((100, [A, B, C]), (1, [A, B, C, again]), (1, [A, B, again]))
    assert (aside.status, findings(aside)) == ("delivered", {"duplicate": None})
    assert (lost.status, findings(lost)) == ("lost", {"lost": "C", "duplicate": None})


def test_only_copies_recorded_means_that_it_was_there_before() -> None:
    _, copy = verdicts((100, [A, B, C]), (1, [A, B, saw("C", 3000, "duplicate", "none", None)]))
    assert (copy.status, findings(copy)) == ("delivered", {"duplicate": None})


def test_a_failure_made_good_is_not_a_finding() -> None:
    _, redriven = verdicts((100, [A, B, C]), (1, [A, B, saw("C", 2000, "dead_lettered"), C]))
    assert (redriven.status, redriven.findings) == ("delivered", ())
    copy = saw("B", 3000, "duplicate", "none", None)
    _, arrived_before = verdicts((100, [A, B]), (1, [saw("A", 0, "rejected"), A, copy]))
    assert (arrived_before.status, findings(arrived_before)) == ("delivered", {"duplicate": None})


def test_a_publish_that_a_streamer_subscribed_to_late_is_not_lost() -> None:
    before, _ = verdicts((60, [A]), (40, [A, B]), is_publish=True)
    assert (before.status, before.findings) == ("delivered", ())
    for missed, seen in ((40, 60), (50, 50)):
        lost, _ = verdicts((missed, [A]), (seen, [A, B]), is_publish=True)
        assert lost.status == "lost"


def test_what_no_message_of_the_flow_got_to_is_not_expected() -> None:
    (alone,) = verdicts((3, [A]))
    assert (alone.status, alone.findings) == ("delivered", ())


def test_an_unwanted_message_is_not_a_finding() -> None:
    for outcome in ("unwanted", "unheard", "sampled_out", "local"):
        (kind,) = verdicts((3, [saw("A", 0, outcome, "none", None)]))
        assert (kind.status, kind.findings) == (outcome, ())


DOWN, UP = ("mqtt5", "zenoh"), ("zenoh", "mqtt5")


def test_of_two_side_by_side_neither_has_to_have_it() -> None:
    """Half of the time one of them was down, and what it would have had was not handed to it by the other."""
    a, b = saw("A", 0, kinds=DOWN), saw("B", 10, kinds=DOWN)
    for is_publish in (True, False):
        kinds = verdicts((60, [a, b]), (40, [a]), (1, [b]), is_publish=is_publish)
        assert [(each.status, each.findings) for each in kinds] == [("delivered", ())] * 3


def test_a_network_of_unknown_kind_may_lead_to_any_other() -> None:
    for left, entered in ((None, "zenoh"), ("mqtt5", None), (None, None)):
        a, b = saw("A", 0, kinds=("mqtt5", left)), saw("B", 10, kinds=(entered, "mqtt5"))
        _, lost = verdicts((60, [a, b]), (1, [a]))
        assert findings(lost) == {"lost": "B"}


def test_a_copy_that_comes_back_from_the_other_side_makes_no_way() -> None:
    """B hears on the network of the sink what A has brought there; it takes the flow in from the other one."""
    a, b = saw("A", 0, kinds=DOWN), saw("B", 10, kinds=DOWN)
    echo = saw("B", 900, "duplicate", "none", None, kinds=("zenoh", None))
    _, copied, alone = verdicts((60, [a, b]), (30, [a, b, echo]), (10, [a]))
    assert (copied.status, findings(copied)) == ("delivered", {"duplicate": None})
    assert (alone.status, alone.findings) == ("delivered", ())


def test_behind_two_side_by_side_it_is_still_lost() -> None:
    a, b = saw("A", 0, kinds=DOWN), saw("B", 10, kinds=DOWN)
    c = saw("C", 2000, kinds=UP)
    _, by_one, lost, lost_by_one = verdicts((60, [a, b, c]), (40, [a, c]), (2, [a, b]), (1, [a]))
    assert (by_one.status, by_one.findings) == ("delivered", ())
    assert [(each.status, findings(each)) for each in (lost, lost_by_one)] == [("lost", {"lost": "C"})] * 2


def test_the_way_to_a_far_streamer_may_change_its_kind() -> None:
    """What is behind B is behind A, too, though A and C share no network: B has a gap, and the loss is at B all the same."""
    a, b, c = saw("A", 0, kinds=DOWN), saw("B", 1000, kinds=UP), saw("C", 2000, kinds=DOWN)
    d = saw("D", 3000, kinds=("zenoh", "zenoh"))
    _, gap, lost = verdicts((100, [a, b, c, d]), (2, [a, c, d]), (1, [a]))
    assert (gap.status, findings(gap)) == ("delivered", {"untraced": "B"})
    assert (lost.status, findings(lost)) == ("lost", {"lost": "B"})


def test_what_stops_at_a_streamer_shows_how_it_came_there() -> None:
    """C passes nothing on; it is behind B by what it turned away."""
    b, c = saw("B", 0, kinds=DOWN), saw("C", 1000, "unwanted", "none", None, kinds=("zenoh", None))
    _, lost = verdicts((100, [b, c]), (1, [b]))
    assert (lost.status, findings(lost)) == ("lost", {"lost": "C"})


@pytest.mark.parametrize("hole", [10, 12, 404])
def test_a_hole_in_the_middle_does_not_hide_the_losses_behind_it(hole: int) -> None:
    """One-way flows: nothing is known of the clocks but that every message was seen in one order."""
    _, gap, lost = verdicts((900, [A, B, C]), (hole, [A, C]), (11, [A, B]), trusted=False)
    assert (gap.status, findings(gap)) == ("delivered", {"untraced": "B"})
    assert (lost.status, findings(lost)) == ("lost", {"lost": "C"})


@pytest.mark.parametrize("hole", [10, 12, 404])
def test_a_hole_at_the_first_does_not_put_it_behind_the_second(hole: int) -> None:
    _, gap, lost = verdicts((900, [A, B]), (hole, [B]), (11, [A]), trusted=False)
    assert (gap.status, gap.findings) == ("delivered", ())
    assert (lost.status, findings(lost)) == ("lost", {"lost": "B"})


@pytest.mark.parametrize("is_behind", [False, True])
def test_of_two_streamers_the_one_that_can_hand_over_to_the_other_is_first(is_behind: bool) -> None:
    """Whatever their clocks say, and though only the first one lacks some."""
    b, c = saw("B", 1000, kinds=("mqtt5", "mqtt5")), saw("C", -9000 if is_behind else 2000, kinds=("mqtt5", "zenoh"))
    _, gap = verdicts((90, [A, b, c]), (12, [A, c]), trusted=False)
    assert (gap.status, findings(gap)) == ("delivered", {"untraced": "B"})


def test_streamers_of_crowded_flows_stand_in_the_order_of_most_messages() -> None:
    signatures = [Signature(key, 1, tuple(seen)) for key, seen in enumerate(([A, B], [B, C], [A, A, C]))]
    assert rank_crowded(signatures) == {"A": 0, "B": 1, "C": 2}
