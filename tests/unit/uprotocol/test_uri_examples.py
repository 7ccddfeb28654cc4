"""The examples of the specification: addresses as text, and what patterns match (`uri.adoc`, its feature files)."""

import pytest

from streamer.uprotocol.uri import UriError, UUri

SERIALIZED = {
    "/0/3/8000": UUri("", 0, 3, 0x8000),
    "//192.168.1.10/0/FF/8000": UUri("192.168.1.10", 0, 0xFF, 0x8000),
    "/1/1/A1FB": UUri("", 1, 1, 0xA1FB),
    "//my_vin/10000001/2/1A": UUri("my_vin", 0x1000_0001, 2, 0x1A),
    "//*/101/A0/A1FB": UUri("*", 0x101, 0xA0, 0xA1FB),
    "//mcu1/FFFF/1/A1FB": UUri("mcu1", 0xFFFF, 1, 0xA1FB),
    "//vcu.my_vin/1A40101/1/8000": UUri("vcu.my_vin", 0x01A4_0101, 1, 0x8000),
    "//vcu.my_vin/FFFFFFFF/1/A1FB": UUri("vcu.my_vin", 0xFFFF_FFFF, 1, 0xA1FB),
    "//vcu.my_vin/101/0/0": UUri("vcu.my_vin", 0x101, 0, 0),
    "//[2001:db8:7aa::8]/101/FF/FFFF": UUri("[2001:db8:7aa::8]", 0x101, 0xFF, 0xFFFF),
}


@pytest.mark.parametrize(("text", "uri"), SERIALIZED.items())
def test_a_uri_is_written_as_in_the_examples_and_read_back(text: str, uri: UUri) -> None:
    assert str(uri) == text
    assert UUri.parse(text) == UUri.parse(f"up:{text}") == uri


@pytest.mark.parametrize("scheme", ["xy:", "http:", "upp:", "up ", "up:up:"])
def test_no_other_scheme_is_read(scheme: str) -> None:
    with pytest.raises(UriError):
        UUri.parse(f"{scheme}//vcu.my_vin/101/1/A")


@pytest.mark.parametrize("rest", ["?foo=bar", "?", "#foo", "#"])
def test_neither_a_query_nor_a_fragment_is_read(rest: str) -> None:
    with pytest.raises(UriError):
        UUri.parse(f"//vcu.my_vin/101/1/A{rest}")


@pytest.mark.parametrize(
    "authority", ["VCU", "user:pwd@vcu", "user@vcu", "vcu:1516", "[::1]:1516", "reg_based:1516", "v%63u", "[2001:db87aa::8]"]
)
def test_an_authority_is_a_host_and_nothing_else(authority: str) -> None:
    with pytest.raises(UriError):
        UUri.parse(f"//{authority}/101/1/A")


@pytest.mark.parametrize(
    "path", ["1G1/1/A", "123456789/1/A", "101/G/A", "101/123/A", "101/1/G", "101/1/12345", "101/1", "101/1/A/B"]
)
def test_a_path_is_three_numbers_in_their_ranges(path: str) -> None:
    for start in ("/", "//vcu.my_vin/", "up:/"):
        with pytest.raises(UriError):
            UUri.parse(start + path)


def test_an_authority_is_written_if_there_is_one() -> None:
    assert str(UUri("", 1, 1, 1)) == "/1/1/1"
    assert str(UUri("vcu", 1, 1, 1)) == "//vcu/1/1/1"


def test_numbers_are_written_in_upper_case_without_leading_zeros_and_read_in_either() -> None:
    assert str(UUri("vcu", 0xABC, 0x0F, 0x00A)) == "//vcu/ABC/F/A"
    assert UUri.parse("//vcu/abc/0f/000a") == UUri.parse("//vcu/ABC/F/A")


MATCHES = [
    ("//192.168.1.100/FFFFFFFF/FF/FFFF", "//192.168.1.100/0/3/8000", True),
    ("//192.168.1.100/FFFFFFFF/FF/FFFF", "//192.168.1.100/1/3/8", True),
    ("//192.168.1.100/FFFFFFFF/FF/FFFF", "//192.168.1.100/1A/2/2", True),
    ("//192.168.1.100/FFFFFFFF/FF/FFFF", "//192.168.1.200/0/3/8000", False),
    ("//192.168.1.100/FFFFFFFF/FF/FFFF", "/1/3/8", False),
    ("//*/FFFF0000/3/FFFF", "//other-vcu.my-vehicle/0/3/8000", True),
    ("//*/FFFF0000/3/FFFF", "/20000/3/2", True),
    ("//*/FFFF0000/3/FFFF", "//vcu.other.device/1/3/8000", False),
    ("//*/FFFF0000/3/FFFF", "/20010/3/2", False),
    ("/0/FF/1", "/0/3/1", True),
    ("/0/FF/1", "/0/2/1", True),
    ("/0/FF/1", "//vcu.other.device/0/3/1", False),
    ("/0/FF/1", "/0/3/3", False),
    ("/1FFFF/1/A1FB", "/100AA/1/A1FB", True),
    ("//*/1FFFF/1/A1FB", "/100AA/1/A1FB", True),
    ("/100AA/FF/A1FB", "/100AA/1/A1FB", True),
    ("/100AA/1/FFFF", "/100AA/1/A1FB", True),
    ("//mcu1/100AA/1/A1FB", "/100AA/1/A1FB", False),
    ("//vc/FFFFFFFF/FF/FFFF", "//vcu/1B1A5/1/A1FB", False),
    ("//*/125B1/FF/FFFF", "/1B1A5/1/A1FB", False),
    ("//*/FFFFFFFF/2/FFFF", "/1B1A5/1/A1FB", False),
    ("//*/FFFFFFFF/FF/ABCD", "/1B1A5/1/A1FB", False),
    ("/2B1A5/1/A1FB", "/1B1A5/1/A1FB", False),
]


@pytest.mark.parametrize(("pattern", "candidate", "is_match"), MATCHES)
def test_a_pattern_matches_as_in_the_examples(pattern: str, candidate: str, is_match: bool) -> None:
    assert UUri.parse(pattern).matches(UUri.parse(candidate)) is is_match
