"""Which numbers of closed subscriptions are held. Without Zenoh's network."""

from typing import Any

from streamer.transports.zenoh.subscription import OpenKeys

AT_MOST = 512
WIDE = "up/veh1/*/*/*/*/{}/{}/{}/{}/{}"
ELSEWHERE = "up/veh2/*/*/*/*/{}/{}/{}/{}/{}"
ENTITY = "up/veh1/8000/A/2/*/{}/{}/{}/{}/{}"


class FakeSession:
    def __init__(self) -> None:
        self.declared: list[str] = []

    def declare_keyexpr(self, key: str) -> str:
        self.declared.append(key)
        return key


def closed(*keys: str, beside: tuple[str, ...]) -> list[str]:
    """What is declared when these are closed one after the other, while others are open."""
    session: Any = FakeSession()
    open_keys = OpenKeys(session)
    for key in (*beside, *keys):
        open_keys.opening(key)
    for key in keys:
        open_keys.closing(key)
    declared: list[str] = session.declared
    return declared


def topic(number: int) -> str:
    return f"up/veh1/8000/A/2/{number:X}/{{}}/{{}}/{{}}/{{}}/{{}}"


def test_the_number_of_what_another_subscription_can_need_is_held() -> None:
    assert closed(ENTITY, topic(1), beside=(WIDE,)) == ["up/veh1/8000/A/2", topic(1)]


def test_nothing_is_held_for_subscriptions_that_match_something_else_or_one_topic() -> None:
    assert closed(ENTITY, beside=(ELSEWHERE, topic(1))) == []
    assert closed(WIDE, ENTITY, topic(1), beside=()) == ["up/veh1"]  # the uEntity's was open until then


def test_a_subscription_that_comes_and_goes_is_held_once_and_no_more_than_some_are() -> None:
    assert closed(*[topic(1)] * 3, beside=(WIDE,)) == [topic(1)]
    assert closed(*map(topic, range(2 * AT_MOST)), beside=(WIDE,)) == [topic(number) for number in range(AT_MOST)]
