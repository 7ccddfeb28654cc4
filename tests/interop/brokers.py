"""MQTT 5 brokers that package registries of other languages bring."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

from tests.brokers import BrokerProcess
from tests.interop.programs import BUILD, need
from tests.ports import HOST


class OtherBroker(BrokerProcess):
    """Keeps sessions and messages in its directory."""

    start_timeout_s = 120.0  # a JVM on a busy machine
    shortcomings: Mapping[str, str] = MappingProxyType({})
    """What the broker cannot do: names of tests, with the reason."""

    def __init__(self, port: int | None = None) -> None:
        self.program = need(type(self).__name__.lower(), self.built())
        super().__init__(port)

    @staticmethod
    @abstractmethod
    def built() -> Path:
        """What the build leaves behind."""


class Mochi(OtherBroker):
    """Mochi, in Go. ``as_it_is`` leaves its PUBACKs as they are (go/main.go)."""

    shortcomings = MappingProxyType(
        {
            "test_the_broker_keeps_to_our_receive_maximum": "what is beyond it comes out of order, then nothing comes",
            "test_the_broker_keeps_for_a_streamer_that_is_away_what_has_not_expired": "what it has kept comes out of order",
            "test_nothing_is_missing_after_a_restart_of_the_broker": "it stalls, or what it has kept comes out of order",
        }
    )

    def __init__(self, port: int | None = None, as_it_is: bool = False) -> None:
        super().__init__(port)
        self._further = ["as-it-is"] if as_it_is else []

    @staticmethod
    def built() -> Path:
        return BUILD / "mochi" / "broker"

    def command(self) -> list[str]:
        return [str(self.program), f"{HOST}:{self.port}", str(self.directory), *self._further]


class HiveMq(OtherBroker):
    """HiveMQ Community Edition, in Java. Its limits are raised: it takes 10 messages at a time and queues 1000."""

    @staticmethod
    def built() -> Path:
        return BUILD / "hivemq" / "classes"

    def command(self) -> list[str]:
        folder = self.directory / "conf"
        folder.mkdir(exist_ok=True)
        listener = f"<port>{self.port}</port><bind-address>{HOST}</bind-address>"
        (folder / "config.xml").write_text(
            f"""<hivemq>
            <listeners><tcp-listener>{listener}</tcp-listener></listeners>
            <mqtt>
              <receive-maximum><server-receive-maximum>1000</server-receive-maximum></receive-maximum>
              <queued-messages><max-queue-size>100000</max-queue-size></queued-messages>
            </mqtt>
            <anonymous-usage-statistics><enabled>false</enabled></anonymous-usage-statistics>
            </hivemq>"""
        )
        return ["java", "-Xmx512m", "-cp", class_path(self.program), "HiveMq", str(self.directory)]


class Artemis(OtherBroker):
    """Apache ActiveMQ Artemis, in Java."""

    @staticmethod
    def built() -> Path:
        return BUILD / "artemis" / "classes"

    def command(self) -> list[str]:
        where = f"{HOST}:{self.port}"
        return ["java", "-Xmx512m", "-cp", class_path(self.program), "Artemis", where, str(self.directory)]


def class_path(classes: Path) -> str:
    """A built class, and the libraries beside it."""
    return f"{classes}:{classes.parent / 'lib'}/*"


class Lent:
    """A running broker for one of several users: it goes on when this one has ended."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.port = broker.port
        self.url = broker.url
        self.restart = broker.restart

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """The broker has other users."""


BROKERS = {"mochi": Mochi, "hivemq": HiveMq, "artemis": Artemis}
