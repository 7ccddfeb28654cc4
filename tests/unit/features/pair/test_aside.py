"""What the two sides hear of each other beside the link."""

import asyncio
import hmac
from pathlib import Path

from streamer.uprotocol.proto import pair_v1_pb2 as pb
from tests.unit.features.pair.stations import TIMING, Stations
from tests.waiting import until


async def test_while_they_hear_each_other_beside_the_link_no_role_changes_without_it(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    first.aside.append(second.member.hear_aside)
    second.aside.append(first.member.hear_aside)
    await first.cut()
    await until(lambda: first.mirrored.is_alone, "nothing waits for the other one")
    await first.write(2)
    silent_since_s = asyncio.get_running_loop().time()
    await until(lambda: asyncio.get_running_loop().time() > silent_since_s + 3 * TIMING.silence_s, "some time")
    assert first.works
    assert not first.member.lease.is_alone
    assert not second.works
    assert second.member.why_not_ready() == "there is no link to the other one"
    first.aside.clear()
    await until(lambda: second.works, "silence everywhere")


async def test_what_strangers_say_beside_the_link_and_what_is_replayed_changes_nothing(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.lease.epoch == 1, "one works")
    said: list[bytes] = []
    second.aside.append(said.append)
    await until(lambda: len(said) > 2, "something is said")
    heard = second.member.lease.is_active, first.member.lease.epoch
    packed = pb.Aside(heartbeat=pb.Heartbeat(name="b", run=1, number=1, epoch=99, is_active=True)).SerializeToString()
    forged = (
        b"",
        b"x" * 40,
        packed,
        said[-1][:16] + packed,
        said[-1][:-1],
        hmac.digest(b"another", packed, "sha256")[:16] + packed,
    )
    for each in forged:
        first.member.hear_aside(each)
    assert first.member.beside.refused == len(forged)
    first.member.hear_aside(said[0])  # authentic, and an answer to nothing
    assert (second.member.lease.is_active, first.member.lease.epoch) == heard
    assert first.works


async def test_a_pair_of_another_authority_with_the_same_key_is_not_heard(stations: Stations, tmp_path: Path) -> None:
    """All pairs of a fleet may be on one network."""
    first = stations.first
    (tmp_path / "others").mkdir()
    others = Stations(tmp_path / "others")
    for each in (others.first, others.second):
        each.authority = "another"
        await each.start()
    await until(lambda: first.works and others.first.works, "both pairs work")
    said: list[bytes] = []
    others.second.aside.append(said.append)
    await until(lambda: len(said) > 2, "something is said")
    for payload in said:
        first.member.hear_aside(payload)
    assert first.member.beside.refused == len(said)
    assert first.works
    for each in (others.first, others.second):
        await each.kill()
