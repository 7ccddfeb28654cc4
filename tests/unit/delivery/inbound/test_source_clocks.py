"""How far the clocks of sources are behind, estimated from the ages of their messages."""

from streamer.delivery.inbound.source_clocks import MOST, SourceClocks, as_text


def test_the_youngest_message_counts() -> None:
    clocks = SourceClocks()
    clocks.observe([("veh1", 3_600_900), ("veh2", 40), ("veh1", 3_600_020)], 0.0)
    clocks.observe([("veh1", 3_600_500), ("veh3", -5_000)], 1.0)
    assert clocks.behind_s() == {"veh1": 3600.02, "veh2": 0.04, "veh3": -5.0}


def test_a_clock_that_is_set_is_noticed_after_two_windows() -> None:
    clocks = SourceClocks()
    clocks.observe([("veh1", 10)], 0.0)
    clocks.observe([("veh1", 60_000)], 300.0)
    assert clocks.behind_s() == {"veh1": 0.01}
    clocks.observe([("veh1", 60_000)], 600.0)
    assert clocks.behind_s() == {"veh1": 60.0}


def test_a_source_that_is_silent_is_forgotten() -> None:
    clocks = SourceClocks()
    clocks.observe([("veh1", 10)], 0.0)
    clocks.observe([("veh2", 20)], 10_000.0)
    assert clocks.behind_s() == {"veh2": 0.02}


def test_sources_are_bounded_and_those_that_are_known_stay() -> None:
    clocks = SourceClocks()
    clocks.observe(((f"veh{number}", number) for number in range(3 * MOST)), 0.0)
    assert clocks.behind_s() == {f"veh{number}": number / 1000 for number in range(MOST)}
    clocks.observe([("other", 1), ("veh0", 2)], 300.0)
    assert len(clocks.behind_s()) == MOST
    assert "other" not in clocks.behind_s()
    clocks.observe([("other", 1)], 600.0)
    assert clocks.behind_s() == {"other": 0.001, "veh0": 0.002}


def test_the_sentence_about_a_clock() -> None:
    assert as_text("veh1", 1.9) == as_text("veh1", -1.9) == ""
    assert as_text("veh1", 3600.2).startswith("the clock of veh1 is 3 600 s behind ours")
    assert as_text("veh1", -5.0).startswith("the clock of veh1 is 5 s ahead of ours")
