"""Makes the content of the file that ``streamer init`` writes: a configuration with comments, from the answers."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import yaml

LISTEN = "listen:"
"""The prefix of a Zenoh address at which the streamer listens instead of connecting."""

_TAKEN = {"origin", "core"}
_PLAIN = re.compile(r"[A-Za-z0-9_./:@~+-]+")


class Role(NamedTuple):
    """One of the roles that the specification gives dispatchers; each has a file in ``config/roles``."""

    title: str
    authority: str
    """The default of the streamer's authority."""
    minimum: int
    """The least number of devices."""
    cloud: bool
    """Whether the role may have a broker in the cloud."""


ROLES = {
    "ustreamer": Role("uStreamer: from device to device, and to the cloud, over Zenoh and MQTT", "ustreamer", 1, True),
    "cloud-gateway": Role("cloud gateway: many vehicles, and one broker in the cloud", "cloud-gateway", 1, True),
    "device-proxy-router": Role(
        "device proxy router: devices that cannot reach each other, through a third", "proxy", 2, False
    ),
    "ubus": Role("uBus: joins the segments of one device's Zenoh network like a switch", "ubus", 2, False),
}


class Device(NamedTuple):
    """A device, and its addresses: the URL of an MQTT broker, or endpoints of Zenoh."""

    authority: str
    addresses: tuple[str, ...]

    @property
    def is_mqtt(self) -> bool:
        """Whether the device is reached through a broker."""
        return self.addresses[0].startswith(("mqtt:", "mqtts:"))


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to all questions. The file leaves out those that are empty."""

    role: str
    authority: str
    devices: tuple[Device, ...] = ()
    cloud: Device | None = None
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    journal: str = "/var/lib/streamer/journal.db"
    metrics: str = "127.0.0.1:9464"

    @property
    def networks(self) -> tuple[Device, ...]:
        """Return the networks that become endpoints."""
        return self.devices if self.cloud is None else (*self.devices, self.cloud)

    def has(self, *schemes: str) -> bool:
        """Whether an address has one of these schemes."""
        return any(each.removeprefix(LISTEN).startswith(schemes) for net in self.networks for each in net.addresses)


def lines(answers: Answers) -> Iterator[str]:
    """Yield the lines of the file."""
    names = _names(answers)
    yield f"# {ROLES[answers.role].title}. Made by `streamer init`;"
    yield f"# config/roles/{answers.role}.yaml explains the role, config/streamer.yaml every key."
    yield "#"
    yield "#   streamer check --probe --config FILE     # try it on this machine"
    yield "#   streamer run --config FILE"
    yield ""
    yield "# The streamer's own authority: it is the uEntity //AUTHORITY/4/1/0."
    yield f"authority: {_text(answers.authority)}"
    yield ""
    yield "# The networks, and the authorities reached through each. Those not listed can neither send nor receive."
    yield "endpoints:"
    for device, name in names.items():
        yield from _endpoint(answers, device, name)
    yield ""
    yield from _routes(answers, names)
    yield ""
    yield from _permissions(names)
    yield ""
    yield from _services(answers)
    yield ""
    yield "# Keeps queued messages across a kill; subscriptions are in a file beside it. Without it, both are in memory."
    yield f"journal: {{path: {_text(answers.journal)}}}"
    yield ""
    yield "# Bounds. How they add up to the memory of the process: docs/bounds.md, Memory."
    yield "queue_policy:"
    yield "  queue: {messages: 10000, bytes: 16MiB}"
    yield "dead_letter:"
    yield "  queue: {bytes: 8MiB}"
    yield ""
    yield "# Metrics, health and administration over HTTP. For access from other machines: docs/features/api.md."
    yield f"metrics: {{listen: {_text(answers.metrics)}}}"


def _names(answers: Answers) -> dict[Device, str]:
    """Return the name of each endpoint: the device's, without characters that names cannot have."""
    found: dict[Device, str] = {}
    if answers.cloud is not None:
        found[answers.cloud] = "cloud"
    for device in answers.devices:
        base = re.sub(r"[^A-Za-z0-9_.-]", "_", device.authority).lstrip(".-") or "device"
        name, number = base, 1
        while name in _TAKEN or name in found.values():
            number += 1
            name = f"{base}-{number}"
        found[device] = name
    return {device: found[device] for device in answers.networks}


def _endpoint(answers: Answers, device: Device, name: str) -> Iterator[str]:
    yield f"  {name}:"
    yield f"    transport: {'mqtt5' if device.is_mqtt else 'zenoh'}"
    yield f"    authorities: [{_text(device.authority)}]"
    yield "    options:"
    options = _mqtt(answers, device, name) if device.is_mqtt else _zenoh(device)
    yield from (f"      {line}" for line in options)


def _mqtt(answers: Answers, device: Device, name: str) -> Iterator[str]:
    broker = device.addresses[0]
    yield f"broker: {_text(broker)}"
    if device is answers.cloud or answers.role == "device-proxy-router":
        yield "topics: off-vehicle    # source and sink authority: one broker serves any number of devices"
    else:
        yield "topics: in-vehicle     # one MQTT topic for each uProtocol topic"
    yield "# The broker keeps messages for this client while the streamer is down."
    several = sum(each.is_mqtt for each in answers.networks) > 1
    yield f"client_id: {_text(f'{answers.authority}-{name}' if several else answers.authority)}"
    tls = {"ca_file": answers.ca_file, "cert_file": answers.cert_file, "key_file": answers.key_file}
    if not answers.key_file:
        tls.pop("cert_file")
    if broker.startswith("mqtts:") and any(tls.values()):
        yield f"tls: {{{', '.join(f'{key}: {_text(path)}' for key, path in tls.items() if path)}}}"
    yield "receive_maximum: 100   # unacknowledged messages that the broker may send"
    yield "max_packet_bytes: 262144"


def _zenoh(device: Device) -> Iterator[str]:
    listen = [each.removeprefix(LISTEN) for each in device.addresses if each.startswith(LISTEN)]
    connect = [each for each in device.addresses if not each.startswith(LISTEN)]
    if listen:
        yield f"listen: [{', '.join(map(_text, listen))}]     # uEntities connect to us"
    if connect:
        yield f"connect: [{', '.join(map(_text, connect))}]    # we connect, and keep trying"
    yield "max_message_bytes: 262144"
    yield "receive_buffer: 100    # messages that may wait for the streamer, per subscription"


def _routes(answers: Answers, names: dict[Device, str]) -> Iterator[str]:
    yield "# From where to where. A Publish goes to those who have subscribed to its topic; to forward topics without any"
    yield "# subscription, add publish: [//AUTHORITY/FFFFFFFF/FF/FFFF] to a route."
    pairs = [
        (names[one], names[other])
        for one in names
        for other in names
        # A gateway keeps vehicles apart.
        if one is not other and (answers.role != "cloud-gateway" or answers.cloud in (one, other))
    ]
    yield "routes:" if pairs else "routes: []"
    yield from (f"  - {{from: {_text(one)}, to: {_text(other)}}}" for one, other in pairs)


def _permissions(names: dict[Device, str]) -> Iterator[str]:
    yield "# What no rule allows is denied: docs/permissions.md."
    yield "permissions:"
    yield "  endpoints:"
    for device, name in names.items():
        yield f"    {_text(name)}: {{rules: [allow: {{from: {_text(f'//{device.authority}/FFFFFFFF/FF/FFFF')}}}]}}"


def _services(answers: Answers) -> Iterator[str]:
    local = ", ".join(_text(each.authority) for each in answers.devices)
    yield "# The streamer is the uSubscription service of these. Leave out a device that has its own."
    yield "usubscription:"
    yield f"  local: [{local}]"
    if answers.cloud is not None:
        topics = ", ".join(_text(f"//{each.authority}/FFFFFFFF/FF/FFFF") for each in answers.devices)
        yield "  # Which topics the cloud may have: list single uEntities to keep the others inside."
        yield "  subscribe:"
        yield f"    - from: {_text(f'//{answers.cloud.authority}/FFFFFFFF/FF/0')}"
        yield f"      topics: [{topics}]"


def _text(value: str) -> str:
    """Return a text as YAML, in quotes only if necessary."""
    if _PLAIN.fullmatch(value):
        try:
            if yaml.safe_load(f"[{value}]") == [value]:
                return value
        except yaml.YAMLError:
            pass
    return json.dumps(value)
