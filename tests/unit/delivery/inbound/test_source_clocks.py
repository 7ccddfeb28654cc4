"""How far the clocks of sources are behind, estimated from the ages of their messages."""

from streamer.delivery.inbound.source_clocks import MOST, SourceClock, SourceClocks, about
from streamer.uprotocol.uri import UUri

VEH1, VEH2, VEH3 = ("veh1", 0xA), ("veh2", 0xA), ("veh3", 0xA)


def behind_s(clocks: SourceClocks) -> dict[str, float]:
    return {clock.authority: clock.behind_s for clock in clocks.read(0.0)}


def test_the_youngest_message_counts() -> None:
    clocks = SourceClocks()
    clocks.observe([(VEH1, 3_600_900), (VEH2, 40), (VEH1, 3_600_020)], 0.0)
    clocks.observe([(VEH1, 3_600_500), (VEH3, -5_000)], 1.0)
    assert behind_s(clocks) == {"veh1": 3600.02, "veh2": 0.04, "veh3": -5.0}


def test_a_clock_that_is_set_is_noticed_after_two_windows() -> None:
    clocks = SourceClocks()
    clocks.observe([(VEH1, 10)], 0.0)
    clocks.observe([(VEH1, 60_000)], 300.0)
    assert behind_s(clocks) == {"veh1": 0.01}
    clocks.observe([(VEH1, 60_000)], 600.0)
    assert behind_s(clocks) == {"veh1": 60.0}


def test_a_source_that_is_silent_is_forgotten() -> None:
    clocks = SourceClocks()
    clocks.observe([(VEH1, 10)], 0.0)
    clocks.observe([(VEH2, 20)], 10_000.0)
    assert behind_s(clocks) == {"veh2": 0.02}


def test_sources_are_bounded_and_those_that_are_known_stay() -> None:
    clocks = SourceClocks()
    clocks.observe(((("veh", number), number) for number in range(3 * MOST)), 0.0)
    assert {clock.ue_id: clock.behind_s for clock in clocks.read(0.0)} == {number: number / 1000 for number in range(MOST)}
    clocks.observe([(("other", 0), 1), (("veh", 0), 2)], 300.0)
    assert len(clocks.read(300.0)) == MOST
    assert "other" not in behind_s(clocks)
    clocks.observe([(("other", 0), 1)], 600.0)
    assert behind_s(clocks) == {"other": 0.001, "veh": 0.002}


def test_a_right_clock_does_not_hide_a_wrong_one_at_the_same_authority() -> None:
    clocks = SourceClocks()
    clocks.observe([(("veh1", 0xA), 3_600_000), (("veh1", 0xB), 10)], 0.0)
    assert {clock.ue_id: clock.behind_s for clock in clocks.read(0.0)} == {0xA: 3600.0, 0xB: 0.01}


def test_the_oldest_message_is_kept_beside_the_youngest_over_two_windows() -> None:
    clocks = SourceClocks()
    clocks.observe([(VEH1, 10), (VEH1, 3_600_000)], 0.0)
    clocks.observe([(VEH1, 20), (VEH1, 5000)], 310.0)
    assert clocks.read(320.0) == [SourceClock("veh1", 0xA, 0.01, 3600.0, 320.0)]
    clocks.observe([(VEH1, 30)], 620.0)
    assert clocks.read(620.0) == [SourceClock("veh1", 0xA, 0.02, 5.0, 310.0)]


def clock(ue_id: int, behind_s: float, oldest_s: float | None = None) -> SourceClock:
    return SourceClock("veh1", ue_id, behind_s, behind_s if oldest_s is None else oldest_s, 12.0)


def test_the_sentence_about_a_clock() -> None:
    source = UUri("veh1", 0xA, 1, 0x8000)
    for fine in (1.9, -1.9):
        assert about(source, [clock(0xA, fine)]) == []
    assert about(source, [clock(0xA, 3600.2)])[0].startswith("the clock of //veh1/A is 3 600 s behind ours")
    assert about(source, [clock(0xA, -5.0)])[0].startswith("the clock of //veh1/A is 5 s ahead of ours")


def test_the_sentence_is_about_the_source_or_else_about_the_worst_at_its_authority() -> None:
    clocks = [clock(0xA, 0.0), clock(0xB, 3600.0), clock(0xC, -7200.0), SourceClock("veh2", 0xA, 9999.0, 9999.0, 0.0)]
    assert about(UUri("veh1", 0xA, 1, 0x8000), clocks) == []
    assert about(UUri("veh1", 0xB, 1, 0x8000), clocks)[0].startswith("the clock of //veh1/B is 3 600 s behind")
    assert about(UUri("veh1", 0xD, 1, 0x8000), clocks)[0].startswith("the clock of //veh1/C is 7 200 s ahead")
    assert about(UUri("veh3", 0xA, 1, 0x8000), clocks) == []


def test_the_sentence_about_two_programs_with_one_address() -> None:
    (text,) = about(UUri("veh1", 0xA, 1, 0x8000), [clock(0xA, 0.003, 3600.0)])
    assert text.startswith("a message of //veh1/A was 3 600 s old when it arrived, 12 s ago; others were not")
