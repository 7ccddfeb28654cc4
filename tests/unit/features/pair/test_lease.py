"""Which of two works: the rules of `streamer.features.pair.lease`, one at a time."""

import pytest

from streamer.features.pair.lease import ALONE_FACTOR, Changed, Heartbeat, Lease, Timing

TIMING = Timing()
ALONE_S = ALONE_FACTOR * TIMING.relies_s


class Two:
    """Two sides of a pair, on one clock, that hear each other after ``delays_s`` (to each, by name), at first at once."""

    def __init__(self, epochs: tuple[int, int] = (0, 0)) -> None:
        self.now_s = 100.0
        self.delays_s: dict[str, float] = {}
        self.is_old: set[str] = set()
        """Those that say nothing of how long they rely on an answer."""
        self._on_the_way: list[tuple[float, Lease, Heartbeat]] = []
        self.first = Lease("a", 1, epochs[0], self.now_s, TIMING)
        self.second = Lease("b", 2, epochs[1], self.now_s, TIMING)
        self.said: dict[str, list[Changed]] = {"a": [], "b": []}

    def beat(self, *speaking: Lease, deaf: bool | str = False) -> None:
        """One round: those who run tick, and say what they have to say. ``deaf``: both, or the one of that name."""
        self.now_s += TIMING.heartbeat_s
        for lease in speaking:
            self.note(lease, lease.tick(self.now_s))
            heartbeat = lease.heartbeat(self.now_s)
            if lease.name in self.is_old:
                heartbeat = heartbeat._replace(relies_s=0.0)
            other = self.second if lease is self.first else self.first
            if other in speaking and deaf not in (True, other.name):
                due_s = self.now_s + self.delays_s.get(other.name, 0.0)
                self._on_the_way.append((due_s, other, heartbeat))
            self.deliver()

    def deliver(self) -> None:
        """Deliver the heartbeats whose time has come."""
        due = [each for each in self._on_the_way if each[0] <= self.now_s]
        self._on_the_way = [each for each in self._on_the_way if each[0] > self.now_s]
        for _, lease, heartbeat in due:
            self.note(lease, lease.receive(heartbeat, self.now_s))

    def slow(self, seconds: float) -> None:
        """Have each direction take so long."""
        self.delays_s = dict.fromkeys("ab", seconds)

    def note(self, lease: Lease, changed: Changed | None) -> None:
        if changed is not None:
            self.said[lease.name].append(changed)

    def beats(self, seconds: float, *speaking: Lease, deaf: bool | str = False) -> None:
        for _ in range(round(seconds / TIMING.heartbeat_s)):
            self.beat(*speaking, deaf=deaf)

    def sending(self) -> list[str]:
        return [lease.name for lease in (self.first, self.second) if lease.may_send(self.now_s)]


def together(epochs: tuple[int, int] = (0, 0)) -> Two:
    two = Two(epochs)
    two.beats(1, two.first, two.second)
    return two


def test_of_two_that_start_together_the_one_that_has_worked_last_works() -> None:
    assert together().sending() == ["a"]
    assert together((4, 4)).sending() == ["a"]
    newer = together((4, 5))
    assert newer.sending() == ["b"]
    assert (newer.first.epoch, newer.second.epoch) == (6, 6)


def test_one_that_starts_alone_waits_for_the_other_and_then_works_alone() -> None:
    two = Two()
    two.beats(TIMING.wait_s - 0.5, two.first)
    assert two.sending() == []
    two.beats(1, two.first)
    assert two.sending() == ["a"]
    assert two.first.is_alone
    assert [change.epoch for change in two.said["a"]] == [1]


def test_one_that_comes_to_an_active_one_stays_on_standby_also_with_a_smaller_name() -> None:
    two = Two()
    two.beats(TIMING.wait_s + 1, two.second)
    two.first = Lease("a", 3, 0, two.now_s, TIMING)
    two.beats(TIMING.wait_s * 2, two.first, two.second)
    assert two.sending() == ["b"]
    assert not two.second.is_alone
    assert two.first.epoch == two.second.epoch == 1


def test_one_that_has_just_started_waits_for_the_first_heartbeat_of_a_peer_that_is_linked() -> None:
    two = Two()
    two.first.epoch = 7
    two.beats(TIMING.wait_s - 0.2, two.second)
    two.second.linked(two.now_s)
    two.slow(1.0)
    two.beats(0.8, two.first, two.second)  # the peer's heartbeats are on their way
    assert two.said["b"] == []
    two.beats(20, two.first, two.second)
    assert (two.first.is_active, two.second.is_active) == (True, False)


def test_a_peer_that_is_linked_and_says_nothing_is_not_waited_for_for_ever() -> None:
    two = Two()
    two.beats(TIMING.wait_s - 0.2, two.second)
    two.second.linked(two.now_s)
    two.beats(TIMING.longest_relies_s + 0.4, two.second)
    assert two.second.is_active


def test_silence_ends_the_right_to_send_before_the_other_takes_over() -> None:
    two = together()
    ended_s = taken_s = 0.0
    silent_s = two.now_s
    while not taken_s:
        two.beat(two.first, two.second, deaf=True)
        ended_s = ended_s or (two.now_s if not two.first.may_send(two.now_s) else 0.0)
        taken_s = two.now_s if two.second.may_send(two.now_s) else 0.0
    assert silent_s < ended_s < taken_s <= silent_s + TIMING.silence_s + 2 * TIMING.heartbeat_s


def test_cut_off_both_work_in_the_end_and_the_one_that_took_over_later_goes_on() -> None:
    two = together()
    two.beats(3, two.first, two.second, deaf=True)
    assert two.sending() == ["a", "b"]
    two.beats(1, two.first, two.second)
    assert two.sending() == ["b"]
    assert two.said["a"][-1] == Changed(False, 2, "the other works in epoch 2")


def test_a_process_that_did_not_run_sends_nothing_before_it_has_listened() -> None:
    two = together()
    two.beats(3, two.second)  # the first one is stopped
    assert two.sending() == ["b"]
    assert not two.first.may_send(two.now_s)  # it wakes
    two.note(two.first, two.first.tick(two.now_s))
    assert not two.first.may_send(two.now_s)
    two.beats(1, two.first, two.second)
    assert two.sending() == ["b"]
    assert not two.said["a"][-1].is_active


def test_a_process_that_did_not_run_goes_on_alone_if_the_other_is_gone() -> None:
    two = together()
    two.now_s += 30
    two.note(two.first, two.first.tick(two.now_s))
    two.beats(ALONE_S - 0.3, two.first)
    assert two.sending() == []
    two.beats(0.6, two.first)
    assert two.sending() == ["a"]


def test_one_that_is_alone_and_did_not_run_has_to_listen_again() -> None:
    two = Two()
    two.beats(TIMING.wait_s + 1, two.first)
    assert two.sending() == ["a"]
    two.now_s += 1
    assert two.sending() == []
    two.note(two.first, two.first.tick(two.now_s))
    assert two.sending() == []
    two.beats(ALONE_S + 0.3, two.first)
    assert two.sending() == ["a"]


def test_nothing_is_sent_before_the_other_one_knows_who_works() -> None:
    two = Two()
    two.beat(two.first, two.second)
    assert two.first.is_active
    assert two.sending() == []
    assert two.second.epoch < two.first.epoch
    two.beat(two.first, two.second)
    assert two.sending() == ["a"]
    assert two.second.epoch == two.first.epoch


def test_heartbeats_that_waited_while_it_did_not_run_are_no_news() -> None:
    two = Two()
    two.beat(two.first, two.second, deaf=True)
    early = two.second.heartbeat(two.now_s)._replace(heard_run=1, heard_number=1)
    two.now_s += 5
    two.note(two.first, two.first.tick(two.now_s))
    two.note(two.first, two.first.receive(early, two.now_s))
    assert not two.first.is_active


def test_old_doubled_and_own_heartbeats_change_nothing_and_are_counted() -> None:
    two = together()
    stolen = two.second.heartbeat(two.now_s)
    assert two.first.receive(stolen._replace(is_active=True, epoch=99, number=1), two.now_s) is None
    assert two.first.receive(Heartbeat("a", 9, 9, 99, True), two.now_s) is None
    assert two.first.ignored == 2
    assert two.sending() == ["a"]


def test_one_that_starts_alone_on_a_machine_that_stalls_again_and_again_works_in_the_end() -> None:
    lease, now_s = Lease("a", 1, 7, 100.0, TIMING), 100.0
    while not lease.is_active and now_s < 200.0:
        for step_s in (*[TIMING.heartbeat_s] * 8, 2 * TIMING.pause_s):
            now_s += step_s
            lease.tick(now_s)
            lease.heartbeat(now_s)
    assert lease.is_active
    assert now_s < 100.0 + 2 * TIMING.wait_s


def test_one_that_is_not_ready_takes_over_nothing() -> None:
    two = together()
    two.second.is_ready = False
    two.beats(60, two.second)
    assert two.said["b"] == []


def test_one_at_work_that_hears_of_later_work_goes_on_in_a_later_epoch() -> None:
    two = together()
    two.note(two.first, two.first.receive(Heartbeat("b", 7, 1, 8, False), two.now_s))
    assert (two.first.is_active, two.first.epoch) == (True, 9)


def test_one_that_hands_over_sends_nothing_more_and_the_other_works_at_once() -> None:
    two = together()
    two.note(two.first, two.first.hand_over(two.now_s))
    assert two.sending() == []
    two.beat(two.first, two.second)
    assert (two.first.is_active, two.second.is_active) == (False, True)
    two.beats(2 * TIMING.stand_back_s, two.first, two.second)
    assert two.sending() == ["b"]
    assert two.first.epoch == two.second.epoch == 2
    assert not two.first.is_yielding


def test_one_that_hands_over_to_one_that_does_not_take_over_works_again_after_a_while() -> None:
    two = together()
    two.second.is_ready = False
    two.note(two.first, two.first.hand_over(two.now_s))
    two.beats(TIMING.stand_back_s - 0.5, two.first, two.second)
    assert two.sending() == []
    two.beats(1.5, two.first, two.second)
    assert two.sending() == ["a"]


def test_two_that_differ_and_are_both_on_standby_still_work() -> None:
    two = Two((4, 5))
    two.first.is_ready = two.second.is_ready = False
    two.beats(1, two.first, two.second)
    assert two.sending() == ["b"]


@pytest.mark.parametrize("each_way_s", [0.3, 0.4, 0.6, 1.0, 1.5])
def test_messages_go_on_whatever_the_round_trip_within_the_bound(each_way_s: float) -> None:
    two = together()
    two.slow(each_way_s)
    two.beats(15, two.first, two.second)
    for _ in range(50):
        two.beat(two.first, two.second)
        assert len(two.sending()) == 1
    assert not two.first.is_alone
    assert not two.second.is_alone
    assert two.first.epoch <= 2


def test_two_that_start_with_a_long_round_trip_find_out_who_works() -> None:
    two = Two()
    two.slow(1.2)
    two.beats(TIMING.wait_s, two.first, two.second)
    assert two.sending() == ["a"]
    assert not two.first.is_alone


def test_a_jump_of_the_round_trip_and_back_costs_no_change_of_roles_and_a_pause_of_at_most_two_round_trips() -> None:
    two = together()
    two.slow(0.5)
    paused_s = []
    for _ in range(100):
        two.beat(two.first, two.second)
        paused_s += [two.now_s] * (not two.sending())
    assert paused_s[-1] - paused_s[0] < 2 * (2 * 0.5 + TIMING.heartbeat_s)
    two.slow(0.0)
    for _ in range(100):
        two.beat(two.first, two.second)
        assert two.sending() == ["a"]
    assert (two.first.epoch, two.first.relies_s) == (1, TIMING.relies_s)


def test_beyond_the_bound_the_active_one_is_alone_and_the_standby_stays() -> None:
    two = together()
    two.slow(3.0)
    two.beats(60, two.first, two.second)
    active, standby = (two.first, two.second) if two.first.is_active else (two.second, two.first)
    assert active.is_alone
    assert not standby.is_active
    assert active.round_trip_s > TIMING.longest_relies_s


def test_two_on_standby_beyond_the_bound_do_not_wait_for_each_other_for_ever() -> None:
    two = Two((4, 5))
    two.slow(3.0)
    two.beats(60, two.first, two.second)
    assert two.sending() == ["b"]
    assert two.second.is_alone


def test_one_that_hears_the_standby_and_is_not_heard_is_alone_if_the_standby_may_not_take_over() -> None:
    """As with two configurations that differ, while one direction carries nothing."""
    two = together()
    two.second.is_ready = False
    two.beats(ALONE_S + 0.4, two.first, two.second, deaf="b")
    assert two.sending() == ["a"]
    assert two.first.is_alone


def test_one_that_is_not_heard_steps_back_before_it_would_be_alone() -> None:
    two = together()
    for _ in range(20):
        two.beat(two.first, two.second, deaf="b")
        assert two.sending() != ["a", "b"]
    assert two.sending() == ["b"]
    assert not two.first.is_active


def test_one_that_is_heard_and_hears_nothing_is_alone_and_the_standby_stays() -> None:
    two = together()
    two.beats(60, two.first, two.second, deaf="a")
    assert two.sending() == ["a"]
    assert two.first.is_alone
    assert two.said["b"] == []


def test_a_shorter_reliance_does_not_shorten_an_earlier_one() -> None:
    two = together()
    standby, last = two.second, two.first.heartbeat(two.now_s)
    assert standby.receive(last._replace(number=last.number + 1, relies_s=4.0), two.now_s) is None
    assert standby.receive(last._replace(number=last.number + 2, relies_s=0.8), two.now_s) is None
    until_s = two.now_s + 4.0 * 1.25
    while two.now_s < until_s:
        assert not standby.is_active
        two.beat(standby)
    two.beats(0.4, standby)
    assert standby.is_active


def test_with_a_peer_of_an_earlier_version_both_rely_as_that_version_does() -> None:
    two = together()
    two.is_old = {"b"}
    two.slow(0.3)
    two.beats(20, two.first, two.second)
    assert two.first.relies_s == TIMING.relies_s
    assert two.sending() == ["a"]
    two.is_old = {"a"}
    two.beats(1, two.first, two.second)
    silent_s = two.now_s
    while not two.second.is_active:
        two.beat(two.second)
    assert two.now_s - silent_s < TIMING.silence_s + 3 * TIMING.heartbeat_s


def test_an_answer_of_an_earlier_version_ends_a_longer_reliance() -> None:
    """The peer was downgraded: it has promised nothing, and takes over sooner."""
    two = together()
    two.slow(0.5)
    two.beats(15, two.first, two.second)
    two.beats(0.6, two.first)  # until nothing is on its way any more
    asked = two.first.heartbeat(two.now_s)
    assert asked.relies_s > 2.0
    answer = Heartbeat("b", 9, 1, two.first.epoch, False, asked.run, asked.number)
    two.note(two.first, two.first.receive(answer, two.now_s))
    assert two.sending() == ["a"]
    for _ in range(3):  # 0.6 s
        two.beat(two.first)
        assert two.sending() == ["a"]
    two.beats(0.4, two.first)
    assert two.sending() == []


def test_one_that_was_stopped_answers_nothing_before_it_has_heard_something_new() -> None:
    """Or the pause would be taken for a round trip."""
    two = together()
    two.now_s += 3
    two.note(two.second, two.second.tick(two.now_s))
    assert two.second.heartbeat(two.now_s).heard_number == 0
    two.beats(3, two.first, two.second)
    assert max(two.first.relies_s, two.second.relies_s) < 1.0


def test_of_two_that_start_together_the_one_whose_disk_has_more_works() -> None:
    two = Two((9, 4))  # the epoch outlives the journal
    two.first.content, two.second.content = (0, 0), (3, 7)
    two.beats(1, two.first, two.second)
    assert two.sending() == ["b"]
    behind = Two()
    behind.first.content, behind.second.content = (3, 7), (3, 8)
    behind.beats(1, behind.first, behind.second)
    assert behind.sending() == ["b"]


def test_both_wait_for_a_journal_that_is_not_open_yet_but_not_for_ever() -> None:
    two = Two()
    two.first.content, two.second.content = (0, 0), None
    two.beats(2, two.first, two.second)
    assert two.sending() == []
    two.second.content = (3, 7)
    two.beats(1, two.first, two.second)
    assert two.sending() == ["b"]
    hanging = Two()
    hanging.second.content = None
    hanging.beats(TIMING.wait_s + 1, hanging.first, hanging.second)
    assert hanging.sending() == ["a"]


def test_one_of_an_earlier_version_does_not_say_what_its_disk_has_and_the_epoch_decides() -> None:
    two = Two((4, 5))
    two.is_old.add("b")
    two.first.content = (4, 100)
    two.beats(1, two.first, two.second)
    assert two.first.is_active is False
