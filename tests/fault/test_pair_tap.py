"""The tap on the link of a pair reads what two real ends say to each other."""

from streamer.uprotocol.proto import pair_v1_pb2 as pb
from tests.fault.pair_tap import PairTap
from tests.fault.proxy import BACK, FORWARD, Proxy
from tests.ports import free_port
from tests.unit.features.pair.ends import End
from tests.waiting import until

IDS = [bytes([n]) * 16 for n in range(3)]


def settled(*ids: bytes, counts_as_seen: bool) -> pb.Frame:
    return pb.Frame(settled=pb.Settled(flows=[pb.Settled.Flow(ids=b"".join(ids), counts_as_seen=counts_as_seen)]))


async def test_it_knows_what_was_named_and_whether_the_copy_is_whole() -> None:
    tap, port = PairTap(), free_port()
    async with Proxy(port, tap) as proxy, End(listen=port).running() as first, End(connect=proxy.port).running() as second:
        await first.comes_up()
        await second.comes_up()
        first.link.send(settled(*IDS[:2], counts_as_seen=True))
        first.link.send(settled(IDS[2], counts_as_seen=False))
        first.link.send(pb.Frame(batch=pb.Batch(number=1, is_snapshot_begin=True)))
        first.link.send(pb.Frame(batch=pb.Batch(number=2, is_snapshot_end=True)))
        await second.gets(4)
        assert tap.named == set(IDS[:2])
        assert not tap.is_whole
        for number in (1, 2):
            second.link.send(pb.Frame(stored=pb.Stored(number=number)))
            await first.gets(number)
            assert tap.is_whole is (number == 2)
        assert tap.bytes[FORWARD] > 0
        assert tap.recorded[BACK].startswith(b"uS-pair\n")
        proxy.reset()
        await until(lambda: proxy.links == 2, "a new connection")
        await first.comes_up()
        assert not tap.is_whole
