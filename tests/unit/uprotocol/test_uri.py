"""UUri: the text form, the ranges, and what a pattern matches (`uri.adoc`)."""

from ipaddress import IPv6Address

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamer.uprotocol.uri import UriError, UUri, everything_at, is_authority
from tests.examples import characters
from tests.unit.uprotocol.strategies import anyone, authorities, ip_literals, named, patterns, uint16

ANYTHING = UUri("*", 0xFFFF_FFFF, 0xFF, 0xFFFF)
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


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("up://veh1/A8000/2/8A50", UUri("veh1", 0xA8000, 2, 0x8A50)),
        ("//veh1/A8000/2/8A50", UUri("veh1", 0xA8000, 2, 0x8A50)),
        ("//veh1/a8000/2/8a50", UUri("veh1", 0xA8000, 2, 0x8A50)),
        ("/3BA/3/9876", UUri("", 0x3BA, 3, 0x9876)),
        ("up:/3BA/3/9876", UUri("", 0x3BA, 3, 0x9876)),
        ("//veh1/00A8/02/0000", UUri("veh1", 0xA8, 2, 0)),
        ("//*/FFFFFFFF/FF/FFFF", ANYTHING),
        ("//[2001:db8::1]/1/1/0", UUri("[2001:db8::1]", 1, 1, 0)),
        ("//[v1.fe:a~b]/1/1/0", UUri("[v1.fe:a~b]", 1, 1, 0)),
        ("//[::ffff:192.168.1.1]/1/1/0", UUri("[::ffff:192.168.1.1]", 1, 1, 0)),
        ("//[::]/1/1/0", UUri("[::]", 1, 1, 0)),
        ("//[2001:DB8::A]/1/1/0", UUri("[2001:db8::a]", 1, 1, 0)),
        ("//[V1.FE]/1/1/0", UUri("[v1.fe]", 1, 1, 0)),
        ("//192.168.1.1/1/1/0", UUri("192.168.1.1", 1, 1, 0)),
        ("//192.168.1.999/1/1/0", UUri("192.168.1.999", 1, 1, 0)),
        ("//1.2.3/1/1/0", UUri("1.2.3", 1, 1, 0)),
        ("UP://veh1/1/1/1", UUri("veh1", 1, 1, 1)),
        ("Up:/1/1/1", UUri("", 1, 1, 1)),
        ("up:///3BA/3/9876", UUri("", 0x3BA, 3, 0x9876)),
        ("///3BA/3/9876", UUri("", 0x3BA, 3, 0x9876)),
        ("//a-b._~9/FFFFFFFF/FF/FFFF", UUri("a-b._~9", 0xFFFF_FFFF, 0xFF, 0xFFFF)),
        (f"//{'a' * 128}/0/0/0", UUri("a" * 128, 0, 0, 0)),
    ],
)
def test_every_text_form_is_read(text: str, uri: UUri) -> None:
    assert UUri.parse(text) == uri


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        (UUri("veh1", 0x000A_8000, 2, 0x8A50), "//veh1/A8000/2/8A50"),
        (UUri("", 0x3BA, 3, 0x9876), "/3BA/3/9876"),
        (UUri("veh1", 0, 0, 0), "//veh1/0/0/0"),
        (ANYTHING, "//*/FFFFFFFF/FF/FFFF"),
    ],
)
def test_text_is_upper_case_hex_without_leading_zeros_and_without_scheme(uri: UUri, text: str) -> None:
    assert str(uri) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "//",
        "///",
        "up:",
        "up://",
        "up:///",
        "up:////1/1/1",
        "up:///1/1",
        "veh1/1/1/1",
        "http://veh1/1/1/1",
        "up:up://veh1/1/1/1",
        "uP//veh1/1/1/1",
        "//veh1",
        "//veh1/1",
        "//veh1/1/1",
        "//veh1/1/1/1/",
        "//veh1/1/1/1/1",
        "//veh1//1/1",
        "//veh1/1/1/",
        "//veh1/1/1/1?query=1",
        "//veh1/1/1/1#fragment",
        "//user@veh1/1/1/1",
        "//veh1:8080/1/1/1",
        "//VEH1/1/1/1",
        "//vehé/1/1/1",
        "//veh 1/1/1/1",
        "//veh1*/1/1/1",
        "//**/1/1/1",
        "//[]/1/1/1",
        "//[2001:db8::1/1/1/1",
        "//[2001:db87aa::8]/1/1/1",
        "//[1:2:3:4:5:6:7:8:9]/1/1/1",
        "//[1:2:3:4:5:6:7]/1/1/1",
        "//[1::2::3]/1/1/1",
        "//[12345::1]/1/1/1",
        "//[:::]/1/1/1",
        "//[::192.168.1.999]/1/1/1",
        "//[::192.168.01.1]/1/1/1",
        "//[192.168.1.1]/1/1/1",
        "//[veh1]/1/1/1",
        "//[fe80::1%eth0]/1/1/1",
        "//[fe80::1%25eth0]/1/1/1",
        "//[fe80::1/64]/1/1/1",
        "//[::1]:8080/1/1/1",
        "//user@[::1]/1/1/1",
        "//[::1]x/1/1/1",
        "//[[::1]]/1/1/1",
        "//[v1.a+b]/1/1/1",
        "//[v1.]/1/1/1",
        "//[vg.a]/1/1/1",
        f"//{'a' * 129}/1/1/1",
        "//veh1/100000000/1/1",
        "//veh1/1/100/1",
        "//veh1/1/1/10000",
        "//veh1/-1/1/1",
        "//veh1/+1/1/1",
        "//veh1/0x1/1/1",
        "//veh1/1_0/1/1",
        "//veh1/G/1/1",
        "//veh1/ 1/1/1",
        "//veh1/1/1/1\n",
        "//veh1/\u0661/1/1",
        "//veh1/*/1/1",
        f"//veh1/{'F' * 5000}/1/1",
    ],
)
def test_malformed_text_is_a_uri_error_that_shows_it(text: str) -> None:
    with pytest.raises(UriError, match="expected"):
        UUri.parse(text)


@given(st.text(st.sampled_from("up:/*.-~[]0123456789abcdefABCDEFG?#@ \n"), max_size=40) | st.text(characters, max_size=40))
def test_no_text_raises_anything_but_a_uri_error_and_what_is_read_is_valid(text: str) -> None:
    try:
        uri = UUri.parse(text)
    except UriError:
        return
    assert uri.check() == uri
    assert UUri.parse(str(uri)) == uri


@given(patterns)
def test_format_then_parse_is_the_identity(uri: UUri) -> None:
    assert UUri.parse(str(uri)) == uri
    assert UUri.parse(f"up:{uri}") == UUri.parse(f"UP:{uri}") == uri
    assert UUri.parse(str(uri)[: len(uri.authority) + 2] + str(uri)[len(uri.authority) + 2 :].lower()) == uri


@pytest.mark.parametrize(
    "uri",
    [
        UUri("veh1", 1 << 32, 1, 1),
        UUri("veh1", -1, 1, 1),
        UUri("veh1", 1, 1 << 8, 1),
        UUri("veh1", 1, -1, 1),
        UUri("veh1", 1, 1, 1 << 16),
        UUri("veh1", 1, 1, -1),
        UUri("Veh1", 1, 1, 1),
        UUri("a" * 129, 1, 1, 1),
        UUri("a/b", 1, 1, 1),
    ],
)
def test_field_out_of_range_is_a_uri_error(uri: UUri) -> None:
    with pytest.raises(UriError, match="expected"):
        uri.check()


@pytest.mark.parametrize(
    "uri", [UUri("veh1", 0xFFFF_FFFF, 0xFF, 0xFFFF), UUri("", 0, 0, 0), UUri("*", 1, 1, 1), UUri("a" * 128, 1, 1, 1)]
)
def test_largest_and_smallest_values_are_in_range(uri: UUri) -> None:
    assert uri.check() is uri


def test_instance_and_type_are_the_two_halves_of_the_entity() -> None:
    uri = UUri("veh1", 0x0040_3BA1, 1, 0)
    assert (uri.instance_id, uri.type_id) == (0x40, 0x3BA1)


@given(patterns)
def test_every_pattern_matches_itself(uri: UUri) -> None:
    assert uri.matches(uri)


@given(patterns)
def test_pattern_of_wildcards_matches_everything_even_without_an_authority(uri: UUri) -> None:
    assert ANYTHING.matches(uri)


@given(named(uint16), named(uint16))
def test_pattern_without_wildcards_matches_only_itself(uri: UUri, other: UUri) -> None:
    assume(0xFFFF not in (uri.resource, other.resource))
    assert uri.matches(other) == (uri == other)
    for name in UUri._fields:
        value = getattr(other, name)
        if value != getattr(uri, name):
            assert not uri.matches(uri._replace(**{name: value}))


@given(named(st.integers(0, 0xFFFE)), anyone, st.integers(0, 0xFFFE), st.integers(0, 0xFFFE))
def test_each_wildcard_matches_any_value_of_its_field_only(uri: UUri, authority: str, type_id: int, instance: int) -> None:
    assume((authority, type_id, instance) != (uri.authority, uri.type_id, uri.instance_id))
    moved = uri._replace(authority=authority)
    assert uri._replace(authority="*").matches(moved)
    assert uri._replace(resource=0xFFFF).matches(moved) == (uri.authority == authority)
    any_type = uri._replace(ue_id=uri.instance_id << 16 | 0xFFFF)
    any_instance = uri._replace(ue_id=0xFFFF << 16 | uri.type_id)
    other = uri._replace(ue_id=instance << 16 | type_id)
    assert any_type.matches(other) == (instance == uri.instance_id)
    assert any_instance.matches(other) == (type_id == uri.type_id)
    assert uri._replace(version=0xFF).matches(uri._replace(version=uri.version ^ 1))
    assert not uri.matches(uri._replace(version=uri.version ^ 1))


def test_ffff_alone_matches_any_type_of_the_default_instance_only() -> None:
    pattern = UUri.parse("//veh1/FFFF/1/8000")
    assert pattern.matches(UUri("veh1", 0x0000_0003, 1, 0x8000))
    assert not pattern.matches(UUri("veh1", 0x0001_0003, 1, 0x8000))


@pytest.mark.parametrize("text", ["//*/1/1/1", "//a/FFFF/1/1", "//a/FFFF0001/1/1", "//a/1/FF/1", "//a/1/1/FFFF"])
def test_each_wildcard_makes_a_pattern(text: str) -> None:
    assert UUri.parse(text).has_wildcard


@given(named(st.integers(0, 0xFFFE)))
def test_name_has_no_wildcard(uri: UUri) -> None:
    assert not uri.has_wildcard


@pytest.mark.parametrize(
    ("resource", "kind"),
    [(0, "entity"), (1, "method"), (0x7FFF, "method"), (0x8000, "topic"), (0xFFFE, "topic"), (0xFFFF, None)],
)
def test_resource_ranges(resource: int, kind: str | None) -> None:
    uri = UUri("veh1", 1, 1, resource)
    assert {"entity": uri.is_entity, "method": uri.is_method, "topic": uri.is_topic} == {
        name: name == kind for name in ("entity", "method", "topic")
    }


@given(authorities)
def test_legal_authority_is_recognised_and_everything_at_it_matches(authority: str) -> None:
    assert is_authority(authority)
    assert everything_at(authority).matches(UUri(authority, 7, 1, 0x8000))
    assert not everything_at(authority).matches(UUri(authority + "x", 7, 1, 0x8000))


@given(st.lists(st.text("0123456789abcdefg", min_size=1, max_size=5) | st.just(""), min_size=1, max_size=10).map(":".join))
def test_an_ip_literal_is_an_ipv6_address_and_nothing_else(text: str) -> None:
    try:
        IPv6Address(text)
    except ValueError:
        assert not is_authority(f"[{text}]")
    else:
        assert is_authority(f"[{text}]")


@given(ip_literals, uint16)
def test_the_case_of_an_ip_literal_is_made_one_when_it_is_read(literal: str, resource: int) -> None:
    uri = UUri(literal, 1, 1, resource)
    assert UUri.parse(f"up://{literal.upper()}/1/1/{resource:X}") == uri
    assert str(uri.check()) == f"//{literal}/1/1/{resource:X}"


@pytest.mark.parametrize(
    "text", ["", "A", "a b", "a*", "a:1", "a@b", "a/b", "[::1", "::1]", "::1", "[::G]", "[::A]", "[]", "a\n", "[::1]\n", "ä"]
)
def test_illegal_authority_is_recognised(text: str) -> None:
    assert not is_authority(text)


@pytest.mark.parametrize("letter", ["a", "A", "\x01", "[", "\U000e0001"])
@pytest.mark.parametrize("length", [129, 10**6])
def test_an_authority_that_is_too_long_is_not_repeated(letter: str, length: int) -> None:
    with pytest.raises(UriError, match="at most 128") as caught:
        UUri(letter * length, 1, 1, 1).check()
    assert len(str(caught.value)) < 1000
    assert f"{letter * 64!r}..." in str(caught.value)


def test_text_of_any_length_is_refused_before_it_is_remembered() -> None:
    assert UUri.parse(f"//veh1/{'1'.rjust(240, '0')}/1/1") == UUri("veh1", 1, 1, 1)
    for n in range(3):
        with pytest.raises(UriError, match="at most 256"):
            UUri.parse(f"//veh1/{n:0250}/1/1")


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


@pytest.mark.parametrize(("pattern", "candidate", "is_match"), MATCHES)
def test_a_pattern_matches_as_in_the_examples(pattern: str, candidate: str, is_match: bool) -> None:
    assert UUri.parse(pattern).matches(UUri.parse(candidate)) is is_match
