"""What a report says is so for a while, and what a report and its answer tell of the link and of the clocks."""

from streamer.features.pair.reports import GRACE_S, STALE_S, Lacking, Reports, nodes_of
from streamer.uprotocol.proto import pair_v1_pb2 as pb

HOUR_MS = 3_600_000


def exchanged(one: Reports, other: Reports, sent_s: float, way_s: float, back_s: float, ahead_ms: int = 0) -> None:
    """One reports, and the other one answers at once; the other one's clock is ahead by so much."""
    report = one.numbered(pb.Report(), sent_s, int(sent_s * 1000))
    other.heard(report, sent_s + way_s)
    answered_s = sent_s + way_s
    answer = other.numbered(pb.Report(), answered_s, int(answered_s * 1000) + ahead_ms)
    one.heard(answer, answered_s + back_s)


def test_what_was_said_is_not_known_for_ever() -> None:
    reports = Reports()
    assert not reports.is_known(0.0)
    reports.heard(pb.Report(unshared="so"), 10.0)
    assert reports.is_known(10.0 + STALE_S - 0.1)
    assert not reports.is_known(10.0 + STALE_S)
    reports.heard(pb.Report(), 20.0)
    reports.expire()
    assert not reports.is_known(20.0)


def test_a_link_that_carries_one_way_is_heard_and_not_answered() -> None:
    one, other = Reports(), Reports()
    exchanged(one, other, 10.0, 0.1, 0.1)
    assert one.is_answered(10.3)
    for at_s in range(11, 20):
        one.heard(other.numbered(pb.Report(), at_s, at_s * 1000), at_s)
    assert one.is_known(19.0)
    assert not one.is_answered(19.0)


def test_a_link_with_a_long_round_trip_is_answered_and_one_that_names_an_old_report_again_is_not() -> None:
    one, other = Reports(), Reports()
    exchanged(one, other, 10.0, 2.0, 2.0)
    assert one.is_answered(14.0)
    assert one.is_answered(16.9)
    for at_s in (14.2, 15.0, 17.1):  # only one direction carries anything
        one.heard(other.numbered(pb.Report(), at_s, int(at_s * 1000)), at_s)
    assert not one.is_answered(17.1)


def test_a_link_whose_answer_took_very_long_counts_as_answered_for_no_longer_than_one_of_a_lease() -> None:
    one, other = Reports(), Reports()
    exchanged(one, other, 10.0, 6.0, 4.0)
    assert not one.is_answered(20.0)


def test_an_earlier_version_answers_by_what_it_says() -> None:
    reports = Reports()
    reports.heard(pb.Report(), 10.0)
    assert reports.is_answered(10.0)
    assert reports.clocks is None


def test_clocks_are_compared_up_to_half_of_the_way_there_and_back() -> None:
    one, other = Reports(), Reports()
    exchanged(one, other, 10.0, 0.5, 0.1, ahead_ms=HOUR_MS)
    assert one.clocks is not None
    assert abs(one.clocks.ahead_s - 3600) <= one.clocks.error_s
    assert abs(one.clocks.error_s - 0.3) < 1e-6


def test_an_answer_to_another_link_proves_nothing() -> None:
    one, other = Reports(), Reports()
    exchanged(one, other, 10.0, 0.1, 0.1)
    late = other.numbered(pb.Report(), 10.2, 10_200)
    one.forget()
    one.heard(late, 10.3)
    assert not one.is_answered(10.3)


def test_a_node_that_the_active_one_had_already_is_lacking_at_once_and_a_new_one_after_a_while() -> None:
    nodes = Lacking()
    nodes.look({"vehicle": {"a"}}, {"vehicle": set()}, 10.0)
    assert nodes.text.endswith("connected to: a at endpoint vehicle")
    nodes.look({"vehicle": {"a", "b"}}, {"vehicle": {"a"}}, 11.0)
    assert nodes.text == ""
    nodes.look({"vehicle": {"a", "b"}}, {"vehicle": {"a"}}, 11.0 + GRACE_S)
    assert nodes.text.endswith("connected to: b at endpoint vehicle")
    nodes.look({"vehicle": {"a", "b"}}, {"vehicle": {"a"}}, 12.0 + GRACE_S)
    nodes.look({"vehicle": {"a"}}, {"vehicle": {"a"}}, 13.0 + GRACE_S)
    assert nodes.text == ""


def test_what_one_of_the_two_does_not_know_is_not_lacking() -> None:
    nodes = Lacking()
    nodes.look({"vehicle": {"a"}, "trailer": {"b"}}, {"trailer": {"b", "c"}}, 10.0)
    assert nodes.text == ""
    cut_short = pb.Report(nodes=[pb.Nodes(endpoint="vehicle", ids=["a"], count=2), pb.Nodes(endpoint="trailer", count=0)])
    assert nodes_of(cut_short) == {"trailer": set()}


def test_a_node_that_both_have_had_is_lacking_although_the_standby_has_a_stranger_instead() -> None:
    nodes = Lacking()
    nodes.look({"vehicle": {"a"}}, {"vehicle": {"a"}}, 10.0)
    nodes.forget()  # the standby has started anew
    nodes.look({"vehicle": {"a"}}, {"vehicle": {"laptop"}}, 20.0)
    assert nodes.text.endswith("connected to: a at endpoint vehicle")
    assert nodes.separate == 0


def test_more_nodes_here_than_there_are_no_sessions_of_the_same_programs() -> None:
    nodes = Lacking()
    nodes.look({"vehicle": {"a1", "b1"}, "trailer": {"c1"}}, {"vehicle": {"a2"}, "trailer": {"c2"}}, 10.0)
    assert nodes.text.endswith("connected to: a1 at endpoint vehicle, b1 at endpoint vehicle")
    assert (len(nodes), nodes.separate) == (2, 1)


def test_many_nodes_are_named_in_part() -> None:
    nodes = Lacking()
    nodes.look({"vehicle": {f"{number:02}" for number in range(20)}}, {"vehicle": ()}, 10.0)
    assert nodes.text.endswith("04 at endpoint vehicle and 15 more")
