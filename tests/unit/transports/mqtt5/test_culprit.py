"""The search for the message over which the broker ends the connection, connection by connection."""

from streamer.transports.mqtt5.culprit import STAND_S, Search

A, B, C = b"a", b"b", b"c"
QUOTA = 10


def end(
    search: Search, *unconfirmed: bytes, waiting: int = 0, confirm: int = 0, stands: bool = True, lived_s: float = 0
) -> bool:
    """One connection that the broker ends, from its beginning. ``confirm``: how many messages it confirms before."""
    search.connected(QUOTA)
    if stands:
        search.is_suspended = False
    for _ in range(confirm):
        search.is_fruitful = True
        if search.suspects:
            search.confirmed(QUOTA)
    return search.ended(unconfirmed, waiting, lived_s)


def time_out(search: Search, oldest: bytes, *passed_over: bytes, confirm: int = 0, is_alive: bool = True) -> bool:
    """One connection that is ended because the oldest message is not confirmed."""
    search.connected(QUOTA)
    search.is_fruitful = confirm > 0
    return search.timed_out(oldest, passed_over, is_alive)


def searching(*unconfirmed: bytes) -> Search:
    search = Search()
    assert not any(end(search, *unconfirmed) for _ in range(3))
    assert search.suspects == len(unconfirmed)
    return search


def test_three_fruitless_connections_in_a_row_make_suspects_of_all_that_is_unconfirmed() -> None:
    search = Search()
    for suspects in (0, 0, 3):
        assert not end(search, A, B, waiting=1)
        assert search.suspects == suspects
    assert search.connected(QUOTA) == 1
    assert search.is_suspended


def test_a_confirmation_makes_a_connection_fruitful() -> None:
    search = Search()
    for _ in range(4):
        assert not any((end(search, A), end(search, A), end(search, B, confirm=1)))
    assert not search.suspects


def test_the_same_oldest_message_makes_a_connection_fruitless_whatever_was_confirmed() -> None:
    search = Search()
    for suspects in (0, 0, 0, 1):
        assert not end(search, A, confirm=1)
        assert search.suspects == suspects


def test_a_connection_on_which_all_was_confirmed_acquits_what_was_the_oldest() -> None:
    search = Search()
    for _ in range(4):
        assert not any((end(search, A, confirm=1), end(search, A, confirm=1), end(search, confirm=1)))
    assert not search.suspects


def test_a_connection_on_which_nothing_was_sent_tells_nothing() -> None:
    search = Search()
    assert not any((end(search, A), end(search), end(search), end(search, A)))
    assert not search.suspects
    end(search, A)
    assert search.suspects == 1


def test_the_message_over_which_two_connections_end_alone_is_the_culprit() -> None:
    search = searching(A, B, C)
    assert [end(search, A), end(search, A)] == [False, True]
    assert search.suspects == 2  # there may be another one
    assert [end(search, B), end(search, B)] == [False, True]
    assert search.confirmed(QUOTA) == QUOTA
    assert search.connected(QUOTA) == QUOTA
    assert not search.is_suspended


def test_suspects_that_are_confirmed_are_none_any_more() -> None:
    search = searching(A, B, C)
    assert [end(search, B, confirm=1), end(search, B)] == [False, True]
    assert search.suspects == 1


def test_one_ending_is_not_enough_and_another_message_begins_anew() -> None:
    search = searching(A, B, C)
    assert not any((end(search, A), end(search, B, confirm=1), end(search, C, confirm=1)))


def test_a_connection_that_ends_by_itself_acquits_all() -> None:
    search = searching(A, B)
    assert not end(search, A)
    assert not end(search, stands=False)
    assert search.connected(QUOTA) == QUOTA
    assert not any(end(search, A, B) for _ in range(3))
    assert not end(search, A)  # what was known of it before does not count
    assert end(search, A)


def test_a_connection_stands_twice_as_long_as_the_fruitless_ones_lived() -> None:
    search = Search()
    assert search.stand_s == STAND_S
    assert not any(end(search, A, lived_s=lived_s) for lived_s in (1, 7, 3))
    assert search.stand_s == 14


def test_a_connection_that_lived_long_was_not_ended_over_a_message() -> None:
    search = Search()
    assert not any(end(search, A, lived_s=31) for _ in range(5))
    assert not search.suspects


def test_a_message_that_others_pass_is_the_culprit_after_three_time_outs() -> None:
    search = Search()
    assert [time_out(search, A, A), time_out(search, A), time_out(search, A)] == [False, False, True]
    assert not search.is_overdue(A)


def test_one_that_is_passed_behind_another_is_known_when_it_is_the_oldest() -> None:
    search = Search()
    assert [time_out(search, A, A, B), time_out(search, A), time_out(search, A)] == [False, False, True]
    assert [time_out(search, B, is_alive=False) for _ in range(3)] == [False, False, True]


def test_without_a_confirmation_of_any_other_no_message_is_the_culprit() -> None:
    search = Search()
    assert not time_out(search, A, confirm=1)  # what was before it: then the broker may have stopped
    assert not any(time_out(search, A) for _ in range(10))
    assert search.is_overdue(A)


def test_a_confirmation_of_another_counts_once_the_message_was_overdue() -> None:
    search = Search()
    assert not any((time_out(search, A), time_out(search, A, confirm=1), time_out(search, A)))
    assert time_out(search, A)


def test_a_dead_link_does_not_count() -> None:
    search = Search()
    assert not any(time_out(search, A, confirm=1, is_alive=False) for _ in range(10))
    assert not search.is_overdue(A)


def test_overdue_messages_are_forgotten_beyond_a_bound() -> None:
    search = Search()
    for number in range(101):
        time_out(search, bytes([number]))
    assert [search.is_overdue(bytes([number])) for number in (0, 1, 100)] == [False, True, True]


def test_a_culprit_among_suspects_is_one_less() -> None:
    search = searching(A, B, C)
    assert [time_out(search, A, A), time_out(search, A), time_out(search, A)] == [False, False, True]
    assert search.suspects == 2
