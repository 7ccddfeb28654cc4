"""Claims on exclusive resources, such as a port: finds configurations that use a resource twice."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple


class Claim(NamedTuple):
    """One part of the configuration needs an exclusive resource.

    ``key`` is the place in the options. Claims of the same ``thing`` (``TCP port 7447``) exclude each other. Claims with
    hosts do so only where these mean the same address of this machine. ``behind_any_address``: the name under which two
    claims may conflict if their addresses lead to one server. ``is_shared``: two shared claims do not exclude each other.
    """

    key: tuple[str | int, ...]
    thing: str
    host: str | None = None
    behind_any_address: str | None = None
    is_shared: bool = False

    def excludes(self, other: "Claim") -> bool:
        """Return whether two claims conflict, as far as their texts show."""
        if self.thing != other.thing or (self.is_shared and other.is_shared):
            return False
        if self.host is None or other.host is None:
            return True
        here, there = _addresses(self.host), _addresses(other.host)
        return any(_meet(one, another) for one in here for another in there)

    def may_exclude(self, other: "Claim") -> bool:
        """Return whether two claims may conflict: for callers that can make one wait for the end of the other."""
        alike = self.behind_any_address is not None and self.behind_any_address == other.behind_any_address
        return alike or self.excludes(other)


def tcp(key: tuple[str | int, ...], host: str, port: int) -> list[Claim]:
    """Return the claim on a TCP port to listen on; none for port 0, which means any free port."""
    return [Claim(key, f"TCP port {port}", host)] if port else []


_Address = IPv4Address | IPv6Address | str


def _addresses(host: str) -> list[_Address]:
    name = host.removeprefix("[").removesuffix("]").lower().removesuffix(".")
    if name == "localhost":
        return [name, ip_address("127.0.0.1"), ip_address("::1")]
    try:
        return [ip_address(name)]
    except ValueError:
        return [name]


def _meet(one: _Address, other: _Address) -> bool:
    """Return whether two addresses overlap. An unspecified address means all of its family."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return one == other or (one.version == other.version and (one.is_unspecified or other.is_unspecified))
