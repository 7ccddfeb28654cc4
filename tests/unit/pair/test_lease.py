"""Which of two works: the rules of `streamer.pair.lease`, one at a time."""

from streamer.pair.lease import Changed, Heartbeat, Lease, Timing

TIMING = Timing()


class Two:
    """Two sides of a pair, on one clock, that hear each other at once."""

    def __init__(self, epochs: tuple[int, int] = (0, 0)) -> None:
        self.now_s = 100.0
        self.first = Lease("a", 1, epochs[0], self.now_s, TIMING)
        self.second = Lease("b", 2, epochs[1], self.now_s, TIMING)
        self.said: dict[str, list[Changed]] = {"a": [], "b": []}

    def beat(self, *speaking: Lease, deaf: bool = False) -> None:
        """One round: those who run tick, and say what they have to say."""
        self.now_s += TIMING.heartbeat_s
        for lease in speaking:
            self.note(lease, lease.tick(self.now_s))
            heartbeat = lease.heartbeat(self.now_s)
            other = self.second if lease is self.first else self.first
            if other in speaking and not deaf:
                self.note(other, other.receive(heartbeat, self.now_s))

    def note(self, lease: Lease, changed: Changed | None) -> None:
        if changed is not None:
            self.said[lease.name].append(changed)

    def beats(self, seconds: float, *speaking: Lease, deaf: bool = False) -> None:
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


def test_silence_ends_the_right_to_send_before_the_other_takes_over() -> None:
    two = together()
    ended_s = taken_s = 0.0
    silent_s = two.now_s
    while not taken_s:
        two.beat(two.first, two.second, deaf=True)
        ended_s = ended_s or (two.now_s if not two.first.may_send(two.now_s) else 0.0)
        taken_s = two.now_s if two.second.may_send(two.now_s) else 0.0
    assert silent_s < ended_s < taken_s <= silent_s + TIMING.take_over_s + 2 * TIMING.heartbeat_s


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
    two.beats(TIMING.alone_s - 0.3, two.first)
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
    two.beats(TIMING.alone_s + 0.3, two.first)
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


def test_whom_the_broker_throws_out_takes_over_nothing_for_longer_each_time() -> None:
    two = together()
    two.beats(1, two.first)
    waited = []
    for _ in range(3):
        two.note(two.first, two.first.thrown_out(two.now_s))
        since_s = two.now_s
        while not two.first.is_active:
            two.beat(two.first)
        waited.append(round(two.now_s - since_s))
    assert waited == [3, 6, 12]
    two.beats(1, two.first, two.second)
    two.beats(1, two.first)
    two.note(two.first, two.first.thrown_out(two.now_s))
    since_s = two.now_s
    while not two.first.is_active:
        two.beat(two.first)
    assert round(two.now_s - since_s) == 3


def test_one_that_starts_alone_on_a_machine_that_stalls_again_and_again_works_in_the_end() -> None:
    lease, now_s = Lease("a", 1, 7, 100.0, TIMING), 100.0
    while not lease.is_active and now_s < 200.0:
        for step_s in (*[TIMING.heartbeat_s] * 8, 2 * TIMING.pause_s):
            now_s += step_s
            lease.tick(now_s)
            lease.heartbeat(now_s)
    assert lease.is_active
    assert now_s < 100.0 + 2 * TIMING.wait_s


def test_a_session_that_a_broker_ends_without_a_word_was_taken_over_if_it_ends_again_at_once() -> None:
    two = together()
    two.beats(2, two.first)
    assert two.first.session_ended(False, 300.0, two.now_s) is None
    assert two.first.session_ended(False, 8.0, two.now_s + 8.1) is None  # a link that is lost now and then
    assert two.first.session_ended(False, 0.2, two.now_s + 30) is None
    assert two.first.is_active
    assert two.first.session_ended(False, 0.2, two.now_s + 30.3) is not None
    assert not two.first.is_active


def test_a_broker_that_says_so_is_believed_at_once() -> None:
    two = together()
    two.beats(2, two.first)
    assert two.first.session_ended(True, 300.0, two.now_s) is not None
    assert not two.first.is_active


def test_one_that_was_thrown_out_before_it_was_started_anew_still_stands_back() -> None:
    for times, stands_back_s in ((1, TIMING.wait_s), (4, 24), (5000, TIMING.longest_stand_back_s)):
        lease, now_s = Lease("a", 1, 7, 100.0, TIMING, times), 100.0
        while not lease.is_active:
            now_s += TIMING.heartbeat_s
            lease.tick(now_s)
            lease.heartbeat(now_s)
        assert round(now_s - 100.0) == stands_back_s


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


def test_one_that_knows_that_the_other_is_on_standby_was_thrown_out_by_a_stranger() -> None:
    two = together()
    assert two.first.thrown_out(two.now_s) is None
    assert two.sending() == ["a"]
    two.beats(0.6, two.first)
    assert two.first.is_active
    changed = two.first.thrown_out(two.now_s + TIMING.lease_s)
    assert changed is not None
    assert not changed.is_active


def test_two_that_differ_and_are_both_on_standby_still_work() -> None:
    two = Two((4, 5))
    two.first.is_ready = two.second.is_ready = False
    two.beats(1, two.first, two.second)
    assert two.sending() == ["b"]


def test_one_that_has_kept_its_session_for_long_has_not_been_thrown_out_again_and_again() -> None:
    lease, now_s = Lease("a", 1, 7, 100.0, TIMING, 6), 100.0
    while now_s < 100.0 + 2 * TIMING.longest_stand_back_s:
        now_s += TIMING.heartbeat_s
        lease.tick(now_s)
    assert lease.is_active
    assert lease.times_thrown_out == 0
