"""Tells from the text of a network address whether only this machine can reach it. Makes no look-ups."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host: a name or an address, in brackets or not.

    The only such name is ``localhost``: other names would have to be resolved.
    """
    name = host.removeprefix("[").removesuffix("]")
    if name.lower().removesuffix(".") == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
