"""Which ids of nodes count as a streamer's own."""

import re

from streamer.transports.own_nodes import OwnNodes


def test_ids_are_recognised_by_whoever_has_the_key_and_by_nobody_else() -> None:
    one, other, stranger = OwnNodes(b"k" * 32), OwnNodes(b"k" * 32), OwnNodes(b"x" * 32)
    ids = [one.new_id() for _ in range(50)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[1-9a-f][0-9a-f]{31}", each) for each in ids)
    assert all(one.has(each) and other.has(each) for each in ids)
    assert not any(stranger.has(each) for each in ids)


def test_another_pair_with_the_same_key_is_foreign() -> None:
    one, same, other = (OwnNodes(b"k" * 32, authority) for authority in ("gateway.veh1", "gateway.veh1", "gateway.veh2"))
    made = one.new_id()
    assert same.has(made)
    assert not other.has(made)


def test_without_a_key_an_id_is_recognised_in_this_process_only() -> None:
    one, other = OwnNodes(), OwnNodes()
    made = one.new_id()
    assert one.has(made)
    assert not other.has(made)


def test_what_is_no_id_of_ours_is_foreign() -> None:
    one = OwnNodes(b"k" * 32)
    made = one.new_id()
    changed = f"{made[:-1]}{'0' if made[-1] != '0' else '1'}"
    for foreign in ("", "0", "é" * 32, made[:-1], f"{made}0", made[:16], changed, made.upper().replace("0", "O")):
        assert not one.has(foreign)
