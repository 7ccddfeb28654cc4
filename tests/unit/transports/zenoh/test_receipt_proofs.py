"""Tokens and receipts prove who has made them, and nothing that was changed or made for somebody else does."""

import pytest

from streamer.transports.zenoh.receipt_proofs import MOST_IDS, ReceiptKey, Streamer, giver_of

KEY, OTHER_KEY = ReceiptKey(b"k" * 16), ReceiptKey(b"o" * 16)
GIVER, RECEIVER = Streamer("gateway", "1" * 32), Streamer("cloud-gateway", "2" * 32)
RESTARTED = Streamer("cloud-gateway", "3" * 32)
IDS = b"i" * 16 + b"j" * 16


def test_tokens_read_as_they_were_made() -> None:
    assert KEY.read_hello(KEY.hello(GIVER)) == GIVER
    assert KEY.read_serves(KEY.serves(GIVER, RECEIVER, "veh1"), RECEIVER) == (GIVER, "veh1")


def test_receipt_reads_as_it_was_made() -> None:
    key, payload = KEY.receipt(GIVER, RECEIVER, 7, IDS)
    assert giver_of(key) == GIVER
    assert KEY.read_receipt(key, payload) == (7, IDS)


def test_other_key_proves_nothing() -> None:
    assert KEY.read_hello(OTHER_KEY.hello(GIVER)) is None
    assert KEY.read_serves(OTHER_KEY.serves(GIVER, RECEIVER, "veh1"), RECEIVER) is None
    assert KEY.read_receipt(*OTHER_KEY.receipt(GIVER, RECEIVER, 7, IDS)) is None


def test_token_for_an_earlier_session_of_the_receiver_proves_nothing() -> None:
    assert KEY.read_serves(KEY.serves(GIVER, RECEIVER, "veh1"), RESTARTED) is None


@pytest.mark.parametrize("number", range(3, 8))
def test_token_with_a_changed_part_proves_nothing(number: int) -> None:
    parts = KEY.serves(GIVER, RECEIVER, "veh1").split("/")
    parts[number] = "x"
    claims = Streamer(parts[5], parts[6])
    assert KEY.read_serves("/".join(parts), claims) is None


def test_token_of_one_kind_is_none_of_another() -> None:
    hello = KEY.hello(GIVER)
    assert KEY.read_serves(hello, RECEIVER) is None
    assert KEY.read_hello(KEY.serves(GIVER, RECEIVER, "veh1")) is None


@pytest.mark.parametrize(
    "text", ["", "/", "x", "ustreamer/2/hello", "ustreamer/2/hello/a/b/\u00e9", "ustreamer/2/hello/a/b/" + "0" * 64]
)
def test_text_that_is_no_token_proves_nothing(text: str) -> None:
    assert KEY.read_hello(text) is None
    assert KEY.read_serves(text, RECEIVER) is None
    assert giver_of(text) is None


def test_receipt_that_was_made_for_another_receiver_or_giver_proves_nothing() -> None:
    key, payload = KEY.receipt(GIVER, RECEIVER, 7, IDS)
    for old, new in ((RECEIVER.session, RESTARTED.session), (GIVER.session, "9" * 32), (GIVER.authority, "veh2")):
        assert KEY.read_receipt(key.replace(old, new), payload) is None


def test_receipt_with_any_changed_byte_proves_nothing() -> None:
    key, payload = KEY.receipt(GIVER, RECEIVER, 7, IDS)
    for position in range(len(payload)):
        changed = bytearray(payload)
        changed[position] ^= 1
        assert KEY.read_receipt(key, bytes(changed)) is None


@pytest.mark.parametrize("size", [0, 8, 39, 40, 55, 57, 40 + 16 * MOST_IDS + 16])
def test_receipt_of_a_wrong_size_proves_nothing(size: int) -> None:
    key, _ = KEY.receipt(GIVER, RECEIVER, 7, IDS)
    assert KEY.read_receipt(key, bytes(size)) is None


def test_key_is_not_shown() -> None:
    assert "kkkk" not in repr(KEY)
