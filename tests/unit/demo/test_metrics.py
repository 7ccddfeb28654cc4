"""The demonstration reads the daemon's metrics: each route's books, and each endpoint's state."""

from demo.metrics import Snapshot, read

TEXT = """\
# TYPE ustreamer_accepted_messages counter
ustreamer_accepted_messages_total{route="up",ingress="vehicle",egress="cloud"} 7
ustreamer_accepted_messages_total{route="none",ingress="cloud",egress=""} 2
# TYPE ustreamer_outcomes counter
ustreamer_outcomes_total{route="up",ingress="vehicle",egress="cloud",outcome="delivered",code="OK"} 4
ustreamer_outcomes_total{route="up",ingress="vehicle",egress="cloud",outcome="expired",code="UNAVAILABLE"} 1
ustreamer_outcomes_total{route="up",ingress="vehicle",egress="cloud",outcome="expired",code="DEADLINE_EXCEEDED"} 1
ustreamer_outcomes_total{route="none",ingress="cloud",egress="",outcome="rejected",code="UNAUTHENTICATED"} 1
# TYPE ustreamer_queue_messages gauge
ustreamer_queue_messages{route="up",ingress="vehicle",egress="cloud"} 1
# TYPE ustreamer_queue_oldest_age_seconds gauge
ustreamer_queue_oldest_age_seconds{route="up",ingress="vehicle",egress="cloud"} 1.5
# TYPE ustreamer_endpoint_up gauge
ustreamer_endpoint_up{endpoint="cloud",transport="mqtt5"} 1
ustreamer_endpoint_up{endpoint="vehicle",transport="zenoh"} 0
# TYPE ustreamer_received_messages counter
ustreamer_received_messages_total{endpoint="cloud",transport="mqtt5"} 9
# TYPE ustreamer_in_flight_messages gauge
ustreamer_in_flight_messages{endpoint="cloud",transport="mqtt5"} 3
"""


def test_the_books_of_a_route_balance_if_nothing_is_missing() -> None:
    up, none = read(TEXT).books
    assert (up.route, up.accepted, up.queued, up.oldest_s) == ("up", 7, 1, 1.5)
    assert up.outcomes == {"delivered": 4, "expired": 2}
    assert up.balance
    assert (none.route, none.accepted, none.outcomes) == ("none (from cloud)", 2, {"rejected": 1})
    assert not none.balance


def test_endpoints_have_their_state() -> None:
    cloud, vehicle = read(TEXT).endpoints
    assert (cloud.name, cloud.transport, cloud.is_up, cloud.received, cloud.in_flight) == ("cloud", "mqtt5", True, 9, 3)
    assert not vehicle.is_up
    assert [read(TEXT).is_up(name) for name in ("cloud", "vehicle", "nobody")] == [True, False, False]


def test_everything_that_is_queued_adds_up() -> None:
    assert read(TEXT).queued == 1
    assert Snapshot().queued == 0
