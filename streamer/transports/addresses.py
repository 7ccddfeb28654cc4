"""Tells from the text of a network address who can reach it (this machine, or others). Nothing is looked up."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host, which is a name or an address, in brackets or not.

    Of names only ``localhost`` counts: what others stand for is decided elsewhere.
    """
    name = host.removeprefix("[").removesuffix("]")
    if name.lower().removesuffix(".") == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
