"""A broker that has lost the session: everything is subscribed to again before the link is up."""

import mqtt5

from tests.e2e.mqtt_connection import OTHER, subscribed
from tests.e2e.mqtt_messages import TOPIC
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint, FakeBroker
from tests.waiting import until


async def lose_a_link_with_two_filters(fake: FakeBroker, endpoint: Endpoint, inbox: RecordingListener) -> None:
    """The broker has granted both `TOPIC` and `OTHER`, and closes the connection."""
    peer = await subscribed(fake, endpoint, inbox)
    await endpoint.transport.register_listener(OTHER, None, inbox)
    await peer.grant()
    peer.drop()


async def test_without_a_session_every_filter_is_subscribed_to_again_before_the_link_is_up(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener()
    async with endpoint.running():
        await lose_a_link_with_two_filters(fake, endpoint, inbox)
        again = await fake.peer()
        await again.accept(session_present=False)
        subscribe = await again.next(mqtt5.SubscribePacket)
        assert [item.pattern for item in subscribe.topic_filters] == ["veh1/8000/A/2/8A50", "veh1/8000/A/2/8A51"]
        assert not endpoint.is_up
        again.write(mqtt5.SubAckPacket(subscribe.packet_id, [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE] * 2))
        await endpoint.up()
        assert endpoint.reconnects == 1


async def test_without_a_session_what_was_closed_meanwhile_is_not_subscribed_to_again(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener()
    async with endpoint.running():
        await lose_a_link_with_two_filters(fake, endpoint, inbox)
        await until(lambda: not endpoint.is_up)
        await endpoint.transport.unregister_listener(TOPIC, None, inbox)
        again = await fake.peer()
        await again.accept(session_present=False)
        assert await again.grant() == ["veh1/8000/A/2/8A51"]
        await endpoint.up()
