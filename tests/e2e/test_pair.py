"""Two streamers, one active and one on standby, with a real broker and real Zenoh."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from streamer.tools.running import user
from tests import preloaded
from tests.e2e.pairs import APP, EVERYTHING, Gateways
from tests.fault.hanging_disk import is_possible
from tests.fault.proxy import BACK, FORWARD, Direction
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.process import StreamerProcess
from tests.usubscription_client import SUBSCRIBED, Refused, UsubscriptionClient, until_heard
from tests.waiting import until

MESSAGES = 1500
STEP = 50


@contextmanager
def hanging(daemon: StreamerProcess) -> Iterator[None]:
    """No call of its disk returns."""
    hangs = daemon.path.parent / "hangs"
    hangs.touch()
    try:
        yield
    finally:
        hangs.unlink()


@pytest.fixture
async def gateways(tmp_path: Path) -> AsyncIterator[Gateways]:
    async with AsyncExitStack() as stack:
        yield Gateways(tmp_path, stack)


class Traffic:
    """Messages in both directions, and what has arrived of them."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways
        cloud_app = ("cloud", 0xC0, 1)
        self.down = [Plain(4, (*cloud_app, 0x8001), APP, b"%d" % number) for number in range(MESSAGES)]
        self.up = [Plain(4, ("veh1", 0xA8000, 2, 0x8002), (*cloud_app, 0), b"%d" % number) for number in range(MESSAGES)]

    async def run(self) -> None:
        for start in range(0, MESSAGES, STEP):
            await self._gateways.cloud.send(self.down[start : start + STEP])
            self._gateways.car._put_all(self.up[start : start + STEP])
            await asyncio.sleep(0.1)

    async def until_arrived(self) -> tuple[int, int]:
        """Everything has arrived, in order. Return how many came more than once, to the vehicle and to the cloud."""
        return await _twice(self.down, self._gateways.car), await _twice(self.up, self._gateways.cloud)


async def _twice(sent: list[Plain], side: ZenohSide | MqttSide) -> int:
    ids = [each.id for each in sent]
    wanted = set(ids)
    await until(lambda: wanted <= {each.id for each in side.arrived}, "all that was sent", within_s=60)
    arrived = [each.id for each in side.arrived if each.id in wanted]
    assert list(dict.fromkeys(arrived)) == ids, "out of order"
    return len(arrived) - len(ids)


async def under_way(gateways: Gateways) -> tuple[Traffic, StreamerProcess, asyncio.Task[None]]:
    """The traffic, of which some has arrived, the active one, and the task that sends the rest."""
    await gateways.start()
    traffic = Traffic(gateways)
    sending = asyncio.create_task(traffic.run())
    await until(lambda: len(gateways.car.arrived) > MESSAGES / 5, "some of them")
    return traffic, gateways.active, sending


@pytest.mark.long
async def test_after_a_kill_the_other_one_goes_on_and_nothing_is_lost(gateways: Gateways) -> None:
    traffic, killed, sending = await under_way(gateways)
    killed.signal(signal.SIGKILL)
    await sending
    twice_down, twice_up = await traffic.until_arrived()
    assert twice_up < MESSAGES / 4  # what it had not told the other one of
    assert twice_down < MESSAGES / 2  # what the vehicle's network had not confirmed
    assert gateways.other_than(killed).total("ustreamer_pair_epoch") == 2


@pytest.mark.long
async def test_one_that_is_stopped_hands_over_and_nothing_is_lost_or_comes_twice(gateways: Gateways) -> None:
    traffic, stopped, sending = await under_way(gateways)
    stopped.signal(signal.SIGTERM)
    assert await stopped.ended() == 0
    await sending
    assert await traffic.until_arrived() == (0, 0)
    assert "handed over" in stopped.log
    stopped.start()
    await gateways.until_both_ready()
    assert gateways.active is not stopped
    assert json.loads(stopped.get("/readyz")[1])["ready"] is True


@pytest.mark.long
async def test_one_that_wakes_and_steps_back_hands_over_what_only_it_has_heard(gateways: Gateways) -> None:
    """It wakes in another one's epoch, and messages of the vehicle wait in its sockets: they come late."""
    await gateways.start()
    stopped = gateways.active
    standby = gateways.other_than(stopped)
    await gateways.ways[standby.path.parent.name].sever()
    await until(lambda: standby.total("ustreamer_endpoint_up", endpoint="vehicle") == 0, "the standby hears nothing")
    stopped.signal(signal.SIGSTOP)
    await until(lambda: standby.total("ustreamer_pair_active") == 1, "the other one is active")
    messages = [Plain(4, ("veh1", 0xA8000, 2, 0x8002), ("cloud", 0xC0, 1, 0), b"%d" % number) for number in range(200)]
    gateways.car._put_all(messages)
    stopped.signal(signal.SIGCONT)
    assert await _twice(messages, gateways.cloud) == 0
    assert "the other works" in stopped.log


def subscriptions(daemon: StreamerProcess) -> float:
    return daemon.total("ustreamer_transport_figure", endpoint="vehicle", figure="subscriptions")


@pytest.mark.long
async def test_after_a_kill_the_other_one_has_every_subscription_and_delivers(gateways: Gateways) -> None:
    topic, other = ("veh1", 0xA8000, 2, 0x8003), ("veh1", 0xA8000, 2, 0x8004)
    permitted = [{"from": "//cloud/C0/1/0", "topics": [f"//veh1/{EVERYTHING}"]}]
    routes = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]
    await gateways.start({"usubscription": {"local": ["veh1"], "subscribe": permitted}, "routes": routes})
    client = UsubscriptionClient(gateways.cloud, ("cloud", 0xC0, 1, 0), "gw")
    killed = gateways.active
    standby = gateways.other_than(killed)
    for each in (other, topic):
        assert await client.subscribe(each) == SUBSCRIBED
    assert await client.unsubscribe(other) is None
    await until(lambda: subscriptions(standby) == subscriptions(killed), "the standby listens as well")
    killed.signal(signal.SIGKILL)
    await gateways.car.send([Plain(1, topic, payload=b"while nobody is active")])
    await until(lambda: standby.total("ustreamer_pair_active") == 1, "the other one is active")
    await standby.until_up()
    assert await client.topics_of(client.entity) == {topic: SUBSCRIBED}
    value, unwanted = Plain(1, topic, payload=b"delivered"), Plain(1, other, payload=b"nobody has subscribed")
    await until_heard(gateways.car, value, zenoh_key)
    await gateways.car.send([unwanted, value])
    await until(lambda: client.payloads(topic) == [b"while nobody is active", b"delivered"], "the subscribed topic")
    assert client.payloads(other) == []
    killed.start()
    await gateways.until_both_ready()
    assert gateways.active is standby
    assert await client.unsubscribe(topic) is None
    standby.signal(signal.SIGKILL)
    await until(lambda: killed.total("ustreamer_pair_active") == 1, "the first one is active again")
    await killed.until_up()
    assert await client.topics_of(client.entity) == {}


@pytest.mark.long
async def test_the_command_hands_over_under_traffic_and_back_again(gateways: Gateways) -> None:
    traffic, first, sending = await under_way(gateways)
    second = gateways.other_than(first)
    pid = first.process.pid  # type: ignore[union-attr]
    refused = await preloaded.command("handover", "--config", second.path)
    assert (refused.returncode, refused.stderr) == (1, "not handed over: this one is on standby\n")
    for active, standby in ((first, second), (second, first)):
        await gateways.until_protected()
        done = await preloaded.command("handover", "--config", active.path, "--wait", within_s=120)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("handed over: the other one is active")
        assert [each.total("ustreamer_pair_active") for each in (active, standby)] == [0, 1]
        assert active.get("/readyz")[0] == 200
    await sending
    assert await traffic.until_arrived() == (0, 0)
    assert first.process.poll() is None  # type: ignore[union-attr]
    assert first.process.pid == pid  # type: ignore[union-attr]
    logs = [[json.loads(line) for line in each.log.splitlines()] for each in (first, second)]
    acts = [[line for line in lines if line.get("event") == "handover"] for lines in logs]
    assert [[act["who"] for act in each] for each in acts] == [[user()], [user()]]


def from_standby(gateways: Gateways) -> Direction:
    """The second one connects, so what it says goes forward through the proxy."""
    return BACK if gateways.active is gateways.daemons[1] else FORWARD


@pytest.mark.long
async def test_a_standby_whose_answers_do_not_arrive_is_not_ready_and_has_a_copy_again_soon(gateways: Gateways) -> None:
    """Its own copy is complete, and the active one does without it: what it accepts meanwhile is on one disk."""
    await gateways.start()
    active = gateways.active
    standby = gateways.other_than(active)
    gateways.link.stall([from_standby(gateways)])
    await gateways.until_not_ready(standby, "the active one does not rest on the copy here")
    assert (active.total("ustreamer_pair_protected"), standby.total("ustreamer_pair_protected")) == (0, 0)
    gateways.link.heal_flow()
    await until(lambda: standby.get("/readyz")[0] == 200, "the standby is ready again", within_s=20)
    assert gateways.active is active
    await until(lambda: active.total("ustreamer_pair_protected") == 1, "what is accepted is on both disks")


def down(count: int) -> list[Plain]:
    return [Plain(4, ("cloud", 0xC0, 1, 0x8001), APP, b"%d" % number) for number in range(count)]


takes_a_compiler = pytest.mark.skipif(not is_possible(), reason="it takes a C compiler")
HANGS = "the disk has not ended a transaction within 5 s"


async def start_on_disks_that_can_hang(gateways: Gateways) -> tuple[StreamerProcess, StreamerProcess]:
    """Return the active one and the standby."""
    gateways.disks_can_hang = True
    await gateways.start()
    return gateways.active, gateways.other_than(gateways.active)


@pytest.mark.long
@takes_a_compiler
async def test_an_active_one_whose_disk_hangs_hands_over(gateways: Gateways) -> None:
    """No call fails: a transaction just does not end."""
    first, second = await start_on_disks_that_can_hang(gateways)
    messages = down(400)
    with hanging(first):
        for start in range(0, len(messages), 10):
            await gateways.cloud.send(messages[start : start + 10])
            await asyncio.sleep(0.1)
        await until(lambda: second.total("ustreamer_pair_active") == 1, "the other one works", within_s=60)
        assert HANGS in first.log
        assert "pair_hands_over" in first.log
        await second.until_up()
        await _twice(messages, gateways.car)
    await gateways.until_both_ready()


@pytest.mark.long
@takes_a_compiler
async def test_a_standby_whose_disk_hangs_is_not_ready_and_holds_nothing_up(gateways: Gateways) -> None:
    active, standby = await start_on_disks_that_can_hang(gateways)
    messages = down(100)
    with hanging(standby):
        await gateways.cloud.send(messages)
        await gateways.car.send([Plain(4, ("veh1", 0xA8000, 2, 0x8002), ("cloud", 0xC0, 1, 0), b"up")])
        await gateways.until_not_ready(standby, HANGS)
        await _twice(messages, gateways.car)
        assert gateways.active is active
    await gateways.until_both_ready()


@pytest.mark.long
@takes_a_compiler
async def test_a_subscriber_is_answered_while_the_disk_hangs(gateways: Gateways) -> None:
    """Also by one that works alone: it says so, and takes the next one once the disk answers."""
    permitted = [{"from": "//cloud/C0/1/0", "topics": [f"//veh1/{EVERYTHING}"]}]
    routes = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]
    alone = {"usubscription": {"local": ["veh1"], "subscribe": permitted}, "routes": routes, "pair": None}
    gateways.disks_can_hang, gateways.names = True, ("a",)
    await gateways.start(alone)
    (streamer,) = gateways.daemons
    client = UsubscriptionClient(gateways.cloud, ("cloud", 0xC0, 1, 0), "gw")
    topic = ("veh1", 0xA8000, 2, 0x8003)
    with hanging(streamer):
        answer = await client.subscribe(topic)
        assert isinstance(answer, Refused)
        assert HANGS in answer.text
        await gateways.until_not_ready(streamer, HANGS)
        await until(lambda: "journal_failing" in streamer.log, "it is logged")
    await until(lambda: streamer.get("/readyz")[0] == 200, "it is ready again")
    assert await client.subscribe(topic) == SUBSCRIBED


@pytest.mark.long
async def test_nothing_is_handed_over_to_one_that_does_not_hear_the_vehicle(gateways: Gateways) -> None:
    """Its copy is complete. What programs send after a handover would be lost."""
    await gateways.start()
    active = gateways.active
    standby = gateways.other_than(active)
    way = gateways.ways[standby.path.parent.name]
    await way.sever()
    await gateways.until_not_ready(standby, "no link to nodes that the active one is connected to")
    await gateways.until_both_lack(1)
    refused = await preloaded.command("handover", "--config", active.path)
    assert refused.returncode == 1
    assert "no link to nodes that the active one is connected to" in refused.stderr
    assert gateways.active is active
    await way.heal()
    await gateways.until_both_ready()
    await gateways.until_protected()
    done = await preloaded.command("handover", "--config", active.path, "--wait", within_s=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert gateways.active is standby


@pytest.mark.long
async def test_nothing_is_handed_over_to_one_that_cannot_connect_to_the_broker(gateways: Gateways) -> None:
    """Its copy is complete, and it hears the vehicle. What goes to the cloud would wait."""
    await gateways.start()
    active = gateways.active
    standby = gateways.other_than(active)
    notes = json.loads(standby.get("/readyz")[1])["notes"]
    assert "this one was never connected to the broker of endpoint cloud, which accepts connections" in notes
    way = gateways.ways_to_broker[standby.path.parent.name]
    await way.sever()
    standby.signal(signal.SIGKILL)  # it tries at its start
    await standby.ended()
    standby.start()
    await gateways.until_not_ready(standby, "connected to: the broker at endpoint cloud")
    await gateways.until_both_lack(1)
    refused = await preloaded.command("handover", "--config", active.path)
    assert refused.returncode == 1
    assert "connected to: the broker at endpoint cloud" in refused.stderr
    await way.heal()
    await gateways.until_both_ready()
    await gateways.until_protected()
    done = await preloaded.command("handover", "--config", active.path, "--wait", within_s=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert gateways.active is standby
    await gateways.until_up()
    assert json.loads(standby.get("/readyz")[1])["notes"] == []


@pytest.mark.long
async def test_client_ids_that_differ_are_named_and_keep_nobody_from_taking_over(gateways: Gateways) -> None:
    gateways.client_ids = {"b": "another"}
    await gateways.start()
    for each in gateways.daemons:
        await until(lambda each=each: "different client ids at cloud" in each.get("/readyz")[1], "a note")  # type: ignore[misc]
        assert each.get("/readyz")[0] == 200
        assert each.total("ustreamer_pair_difference", what="client id") == 1
        assert each.total("ustreamer_pair_difference", what="clock") == 0
        assert "pair_differs" in each.log


@pytest.mark.long
async def test_a_standby_with_an_empty_disk_has_everything_while_messages_come_over_a_long_way(gateways: Gateways) -> None:
    """100 ms each way, and what waits for the vehicle grows all the time."""
    await gateways.start()
    first = gateways.active
    second = gateways.other_than(first)
    second.signal(signal.SIGKILL)
    await second.ended()
    for path in second.path.parent.glob("journal*"):
        path.unlink()
    gateways.link.delay(0.1)
    gateways.ways[first.path.parent.name].stall()
    messages: list[Plain] = []

    async def send() -> None:
        while True:
            await gateways.cloud.send(more := down(10))
            messages.extend(more)
            await asyncio.sleep(0.1)

    sending = asyncio.create_task(send())
    await until(lambda: len(messages) > 100, "some of them")
    second.start()
    await until(lambda: first.total("ustreamer_pair_protected") == 1, "a whole copy", within_s=60)
    sending.cancel()
    first.signal(signal.SIGKILL)
    await first.ended()
    await until(lambda: second.total("ustreamer_pair_active") == 1, "the other one is active")
    wanted = {each.id for each in messages}
    await until(lambda: wanted <= {each.id for each in gateways.car.arrived}, "all that was sent", within_s=60)


@pytest.mark.long
async def test_who_insists_hands_over_to_one_that_does_not_hear_the_vehicle(gateways: Gateways) -> None:
    await gateways.start()
    active = gateways.active
    standby = gateways.other_than(active)
    await gateways.ways[standby.path.parent.name].sever()
    await gateways.until_not_ready(standby, "no link to nodes")
    await gateways.until_both_lack(1)
    done = await preloaded.command("handover", "--config", active.path, "--anyway")
    assert (done.returncode, done.stderr) == (0, "")
    await until(lambda: standby.total("ustreamer_pair_active") == 1, "the other one is active", within_s=60)
    assert "pair_handed_over_to_less" in active.log
