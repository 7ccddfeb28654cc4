"""The models of the configuration file, with their defaults and bounds.

Reading files and YAML is in `streamer.config.load`. ``Config.model_validate`` reports all mistakes at
once: those of single values and those between the parts (`streamer.config.checks`). Errors of type ``expected`` say what was
expected; `streamer.config.messages` adds what was found.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from streamer.config.checks import ORIGIN, RESERVED_ROUTES, Finding, check_installed, check_options, findings, part
from streamer.config.claims import conflicts, database, read_only, without_name, written
from streamer.config.metrics import ControlConfig, MetricsConfig
from streamer.config.permissions import PermissionsConfig
from streamer.config.stores import DeadLetterStoreConfig, JournalConfig
from streamer.config.types import (
    MIB,
    Authority,
    Count,
    FilePath,
    Name,
    Pattern,
    RateConfig,
    Section,
    SingleAuthority,
    Size,
    expected,
    too_small,
)
from streamer.transports.base import LONGEST_S
from streamer.transports.certificates import CertificateFile
from streamer.transports.claims import Claim, tcp
from streamer.transports.installed import available_transports, load_transport
from streamer.transports.probe import Probe
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at
from streamer.uprotocol.well_known import DEAD_LETTERS, EntityId

POLICY_KEYS = ("queue", "topics", "window", "flow_window", "absent_s", "rate", "rate_per_authority", "retry")
"""The keys of `QueuePolicy`. A route may set them too."""


class QueueBounds(Section):
    """The bounds of a queue."""

    messages: Count = 10_000
    """Messages that may queue."""
    bytes: Size = 64 * MIB
    """Bytes that messages may queue."""


class QueueConfig(QueueBounds):
    """The queue of a route, and what happens at a bound."""

    on_full: Literal["backpressure", "reject", "evict"] = "backpressure"
    """backpressure: the source waits; reject: the new message fails; evict: a queued one does, the lowest priority first."""
    stalled_factor: Annotated[int, Field(ge=0)] = 10
    """With a journal and backpressure: messages whose receiver or endpoint is away have additional room, up to so many times
    the bounds, before the source has to wait."""
    per_authority: Annotated[float, Field(gt=0, le=1)] | None = None
    """The part of the queue that one source authority may use; beyond it its messages are rejected. None: half with
    ``rate_per_authority``, else all."""
    strangers: ClassVar[float] = 0.8
    """Where an endpoint lists authorities beside ``*``: once the queue is filled to this part, others are rejected."""


class DeadLetterQueueConfig(QueueBounds):
    """The bounds for dead letters. At a bound the oldest is dropped."""

    bytes: Size = 32 * MIB
    """Bytes that messages may queue."""
    on_full: ClassVar[str] = "evict"
    """Dead letters never make a source wait, and the latest are the most useful."""


class RetryConfig(Section):
    """How often and when a refused message is sent again. A lost link uses up no attempt."""

    initial_ms: Count = 500
    """The first wait."""
    factor: ClassVar[float] = 2.0
    """How much longer each wait is than the one before."""
    max_ms: Annotated[Count, Field(validate_default=True)] = 10_000
    """The longest wait."""
    jitter: ClassVar[float] = 0.2
    """The random part of each wait: 0.2 means 20 % less to 20 % more."""
    attempts: Count = 10
    """After so many refusals the message becomes a dead letter."""

    @field_validator("max_ms")
    @classmethod
    def _not_below_initial(cls, value: int, info: ValidationInfo) -> int:
        initial_ms = info.data.get("initial_ms", 0)
        if value < initial_ms:
            raise too_small("max_ms", value, "initial_ms", initial_ms)
        return value


class TopicPolicy(Section):
    """How the Publishes of some topics wait."""

    topic: Pattern
    """The topics."""
    keep: Literal["all", "latest"] = "all"
    """latest: a message that has not been sent yet is replaced by a newer one of its topic, and ends as ``superseded``."""
    order: ClassVar[str] = "oldest"
    """Which message of a topic is sent first."""


class QueuePolicy(Section):
    """How messages are queued, sent and retried. A route may set each key for itself."""

    queue: QueueConfig = QueueConfig()
    """The bounds of each route's queue, and what happens at a bound."""
    topics: list[TopicPolicy] = []
    """How Publishes wait, by their topics: the first entry that matches applies. Other types of messages wait in order."""
    window: Count = 1000
    """Sends in flight per endpoint. The smallest value of its routes applies."""
    flow_window: Count = 1000
    """Sends in flight per flow. 1 keeps the order even if the destination refuses a message in the middle of a flow."""
    absent_s: Annotated[float, Field(gt=0)] = 60
    """How long a message waits until somebody listens, on networks that know whether anybody does; at most for its TTL."""
    lower_share: ClassVar[float] = 0.1
    """While several classes wait, the part of the bytes sent that is reserved for those below the highest one."""
    rate: RateConfig | None = None
    """How fast messages may leave over a route. Those that come faster wait in the queue; when it is full, ``on_full``
    applies."""
    rate_per_authority: RateConfig | None = None
    """The same for each source authority on a route."""
    retry: RetryConfig = RetryConfig()
    """How often and when a refused message is sent again."""

    def of_topic(self, topic: UUri) -> TopicPolicy:
        """Return how the Publishes of a topic wait."""
        return next((each for each in self.topics if each.topic.matches(topic)), _IN_ORDER)


_IN_ORDER = TopicPolicy(topic=everything_at(ANY_AUTHORITY))


class FilledFolder(NamedTuple):
    """A folder that a feature fills: up to ``max_bytes``, and ``open_bytes`` more of what is being written."""

    key: str
    path: Path
    bound_key: str
    max_bytes: int
    open_bytes: int


class FeatureSection(Section):
    """A section of the file that a feature brings. Others ask it what follows from it, and need not know what it means."""

    @classmethod
    def field(cls) -> tuple[Any, Any]:
        """Return the type of what stands at the section's key, and the default. In a list, each entry is a section."""
        return cls | None, None

    @classmethod
    def fixed_keys(cls) -> Iterable[str] | None:
        """Return the keys whose change needs a restart, as does adding or removing the section; None: no change does."""
        return None

    @property
    def memory_bytes(self) -> int:
        """Return the bound on the memory that the feature takes."""
        return 0

    @property
    def local_authorities(self) -> Sequence[str] | None:
        """Return the authorities, beside its own, that the streamer serves; None: the section does not say."""
        return None

    @property
    def local_entities(self) -> Sequence[EntityId]:
        """Return the uEntities that the streamer is for each of these authorities, too."""
        return ()

    @property
    def multicast_topics(self) -> Iterable[UUri]:
        """Return the topics that are multicast: no Publish on them passes from one device over another to a third."""
        return ()

    def folders(self) -> Iterable[FilledFolder]:
        """Return the folders that the feature fills."""
        return ()

    def claims(self, config: "Config") -> Iterable[Claim]:
        """Return the claims to resources that only one part of a configuration may have."""
        return ()

    @classmethod
    def mistakes(cls, raw: Any) -> Iterable[Finding]:
        """Return the mistakes between the section and the rest of a file, of which the values may be wrong."""
        return ()

    def hints(self, config: "Config") -> Iterable[str]:
        """Return sentences about what is valid, but may not be intended."""
        return ()

    def certificates(self) -> Iterable[tuple[str, CertificateFile]]:
        """Return the files with certificates that the feature uses, each with its key in the section."""
        return ()

    def probes(self, config: "Config", running: Mapping[str, Any] | None) -> Iterable[Probe]:
        """Return the tests of this machine. ``running``: the state of the streamer that runs with this configuration."""
        return ()


S = TypeVar("S", bound=FeatureSection)


class HasSections(Section):
    """A part of the file in which sections of features stand."""

    def by_key(self) -> Iterator[tuple[str, FeatureSection]]:
        """Yield the sections of features that stand here, each with its key."""
        for key, value in self:
            if isinstance(value, FeatureSection):
                yield key, value
            elif isinstance(value, list):
                yield from ((f"{key}[{n}]", each) for n, each in enumerate(value) if isinstance(each, FeatureSection))

    def sections(self, kind: type[S]) -> Iterator[S]:
        """Yield the sections of a class, which stand in a list."""
        yield from (each for _, each in self.by_key() if isinstance(each, kind))

    def section(self, kind: type[S]) -> S | None:
        """Return the section of a feature by its class; None: there is none."""
        return next(self.sections(kind), None)


class EndpointConfig(HasSections):
    """One network: how to reach it, and who lives there."""

    transport: str
    """The name of an installed transport."""
    authorities: Annotated[list[Authority], Field(min_length=1)]
    """The authorities that are reached through this endpoint. ``*`` stands for all that no endpoint lists."""
    options: Any = Field(default={}, validate_default=True)
    """An instance of the transport's own options model."""
    ttl_clock: Literal["id", "arrival"] = "id"
    """From when the TTL of messages that come from this network counts: from the creation time in their id, or, for devices
    without a clock, from their arrival here."""
    is_global: bool | None = Field(default=None, alias="global")
    """Whether this network connects devices: a multicast from one such network is not published to another. None: it does if
    a Publish needs an address there, as on an off-vehicle MQTT broker."""

    @field_validator("transport")
    @classmethod
    def _installed(cls, value: str) -> str:
        return check_installed(value, load_transport, available_transports, "transport")

    @field_validator("options")
    @classmethod
    def _of_transport(cls, value: Any, info: ValidationInfo) -> Any:
        return check_options(value, info.data.get("transport"), load_transport)


class RouteConfig(Section):
    """One direction between two endpoints."""

    from_: str = Field(alias="from")
    """The endpoint that messages come from."""
    to: str
    """The endpoint that they go to."""
    publish: list[Pattern] = []
    """Topics that are forwarded without any subscription."""
    publish_to: Annotated[list[SingleAuthority], Field(min_length=1)] | None = None
    """The authorities that a Publish is addressed to if the far network needs it. None: those of the far endpoint."""
    name: Name = ""
    """The route's name in metrics, traces and logs. By default from and to, joined by a hyphen."""
    queue_policy: QueuePolicy = QueuePolicy()
    """The file's ``queue_policy`` with this route's own keys on top."""

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, value: str) -> str:
        if value in RESERVED_ROUTES:
            raise expected(
                f"a name other than {', '.join(sorted(RESERVED_ROUTES))}, which metrics and traces use themselves"
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, raw: Any) -> Any:
        """Give the route its name and its queue policy."""
        if not isinstance(raw, Mapping):
            return raw
        route = {
            key: value for key, value in raw.items() if key not in POLICY_KEYS and not QueuePolicy.is_constant(key, value)
        }
        own = {key: raw[key] for key in POLICY_KEYS if key in raw}
        if own:
            base = raw.get("queue_policy", QueuePolicy())
            route["queue_policy"] = _overlaid(base.model_dump() if isinstance(base, QueuePolicy) else base, own)
        if route.get("name") is None:
            route["name"] = f"{raw.get('from', raw.get('from_'))}-{raw.get('to')}"
        return route


class ReportRateConfig(Section):
    """How many failures of messages that no route took are reported, for each source authority and endpoint."""

    messages: Annotated[float, Field(gt=0)] = 10
    """Reports per second."""
    bytes: ClassVar[None] = None
    burst_s: ClassVar[float] = 10
    """After a pause, so many seconds' worth may be reported at once."""


class DeadLetterConfig(Section):
    """Where undeliverable messages go."""

    resource: ClassVar[int] = DEAD_LETTERS
    """The resource of the dead letter topic, ``//AUTHORITY/4/1/8001``."""
    endpoints: list[str] = [ORIGIN]
    """Where dead letters are published: ``origin`` (where the message came from) and names of endpoints."""
    queue: DeadLetterQueueConfig = DeadLetterQueueConfig()
    """The bounds for dead letters that are still to be published."""
    store: DeadLetterStoreConfig = DeadLetterStoreConfig()
    """The dead letters that the journal keeps for ``streamer dead-letters``."""
    report_rate: ReportRateConfig | None = ReportRateConfig()
    """How many failures of messages that no route took are reported. None: all of them."""


class LogConfig(Section):
    """The level and form of log lines."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged. The audit log is logged in any case."""
    format: Literal["auto", "human", "json"] = "auto"
    """auto: human on a terminal, json otherwise."""
    repeat_s: Annotated[float, Field(ge=0)] = 10
    """The same kind of line appears at most once in so many seconds. 0: no limit, except for lines about single flows."""
    audit: FilePath | None = None
    """A file that also gets the lines of the audit log. None: they are only among the others."""


class ShutdownConfig(Section):
    """How the daemon stops."""

    drain_s: Annotated[float, Field(ge=0, le=LONGEST_S)] = 20
    """How long a stop waits for queued messages to be delivered; with a journal, not for receivers that are away."""


class RememberConfig(Section):
    """How many message ids are remembered, and how long, to find duplicates and loops."""

    ids: Count = 200_000
    """How many are remembered."""
    seconds: ClassVar[int] = 600
    """How long they are remembered."""


AT_ENDPOINTS = "endpoints.*."
"""The beginning of the key of a feature's section that stands at each endpoint."""


class Config(HasSections):
    """The whole file."""

    authority: SingleAuthority
    """The streamer's own authority. It is the uEntity ``//AUTHORITY/4/1/0``."""
    endpoints: Annotated[dict[Name, EndpointConfig], Field(min_length=1)]
    """The networks by names of your choice: how to reach each, and who lives there."""
    queue_policy: QueuePolicy = QueuePolicy()  # before routes, which add their own keys to it
    """How messages are queued, sent and retried, unless a route says something else."""
    routes: list[RouteConfig]
    """Which messages go from where to where, one entry per direction."""
    permissions: PermissionsConfig | None = None
    """The rules for senders and receivers. None: everything that the routes allow."""
    journal: JournalConfig | None = None
    """Keeps messages without an outcome on disk, so that they survive a crash. None: in memory only."""
    dead_letter: DeadLetterConfig = DeadLetterConfig()
    """Where undeliverable messages go."""
    metrics: MetricsConfig | None = MetricsConfig()
    """The HTTP port for metrics, health and administration. None: no port."""
    log: LogConfig = LogConfig()
    """The level and form of log lines."""
    shutdown: ShutdownConfig = ShutdownConfig()
    """How the daemon stops."""
    remember: RememberConfig = RememberConfig()
    """How long message ids are remembered, to find duplicates and loops."""
    control: ControlConfig = ControlConfig()
    """The uEntities and programs that may change something over uProtocol and HTTP."""
    _text: str = ""

    @property
    def text(self) -> str:
        """Return the text that it was loaded from; empty: it was made without one."""
        return self._text

    def feature_sections(self) -> Iterator[tuple[str, FeatureSection]]:
        """Yield each section of a feature with its key, those at endpoints included."""
        for where, owner in ("", self), *((f"endpoints.{name}.", each) for name, each in self.endpoints.items()):
            yield from ((f"{where}{key}", section) for key, section in owner.by_key())

    def certificates(self) -> Iterator[tuple[str, CertificateFile]]:
        """Yield the files with certificates that the streamer itself uses, each with its key."""
        yield from () if self.metrics is None else self.metrics.certificates()
        for name, section in self.feature_sections():
            yield from ((f"{name}.{key}", file) for key, file in section.certificates())

    @property
    def listed_authorities(self) -> frozenset[str]:
        """Return the authorities that any endpoint lists; the others are strangers."""
        return frozenset(name for endpoint in self.endpoints.values() for name in endpoint.authorities)

    @property
    def divided(self) -> tuple[str, ...]:
        """Return the endpoints whose messages are divided among several streamers."""
        return tuple(name for name, endpoint in self.endpoints.items() if endpoint.options.is_divided)

    @property
    def addressed(self) -> frozenset[str]:
        """Return the endpoints on whose network a Publish needs a sink authority."""
        return frozenset(name for name, endpoint in self.endpoints.items() if endpoint.options.addresses_publishes)

    def claims(self) -> Iterator[Claim]:
        """Yield the claims of all parts to resources that only one may have: ports, files, sessions."""
        if self.metrics is not None:
            yield from tcp(("metrics", "listen"), self.metrics.host, self.metrics.port)
        for _, section in self.feature_sections():
            yield from section.claims(self)
        for name, endpoint in self.endpoints.items():
            for claim in endpoint.options.claims(self.authority):
                yield claim._replace(key=("endpoints", name, "options", *claim.key))
        journal = self.journal
        if journal is not None:  # unnamed files first: a conflict is then reported at a key that names one
            if self.metrics is not None and self.control.http_token_file is None:
                yield written(("control", "http_token_file"), journal.default_token)
            yield from database(("journal", "path"), journal.path)
        if self.log.audit is not None:
            yield written(("log", "audit"), self.log.audit)
        yield from read_only(self)

    @field_validator("routes", mode="before")
    @classmethod
    def _hand_down_policy(cls, value: Any, info: ValidationInfo) -> Any:
        base = info.data.get("queue_policy", QueuePolicy())
        if not isinstance(value, list):
            return value
        return [{"queue_policy": base, **route} if isinstance(route, Mapping) else route for route in value]

    @model_validator(mode="wrap")
    @classmethod
    def _all_mistakes(cls, raw: Any, handler: ModelWrapValidatorHandler["Config"]) -> "Config":
        """Report the mistakes between the parts together with those inside them."""
        config: Config | None = None
        errors: list[InitErrorDetails] = []
        try:
            config = handler(raw)
        except ValidationError as exc:
            for error in exc.errors(include_url=False):
                again = PydanticCustomError(error["type"], error["msg"], error.get("ctx"))
                errors.append({"type": again, "loc": error["loc"], "input": error["input"]})
        found = list(findings(raw))
        for key, field in cls.model_fields.items():
            for kind in get_args(field.annotation):
                if isinstance(kind, type) and issubclass(kind, FeatureSection) and part(raw, key) is not None:
                    found += kind.mistakes(raw)
        if config is not None:
            found += list(without_name(config)) or conflicts(config.claims())
        for finding in found:
            mistake = PydanticCustomError("check", "{text}", {"text": finding.message})
            errors.append({"type": mistake, "loc": finding.location, "input": None})
        if errors or config is None:
            raise ValidationError.from_exception_data(cls.__name__, errors, hide_input=True)
        return config


def with_sections(sections: Mapping[str, type[FeatureSection]]) -> type[Config]:
    """Return the class of files with these sections of features, by key; those at each endpoint begin with `endpoints.*.`"""

    top: dict[str, Any] = {}
    at_endpoint: dict[str, Any] = {}
    for key, kind in sections.items():
        fields = at_endpoint if key.startswith(AT_ENDPOINTS) else top
        annotation, default = kind.field()
        text = f"{kind.__doc__} None: off." if NoneType in get_args(annotation) else kind.__doc__
        fields[key.removeprefix(AT_ENDPOINTS)] = (annotation, Field(default=default, description=text))
    endpoint = create_model("EndpointConfig", __base__=EndpointConfig, __doc__=EndpointConfig.__doc__, **at_endpoint)
    endpoints = (dict[Name, endpoint], Config.model_fields["endpoints"])  # type: ignore[valid-type]  # made here
    return create_model("Config", __base__=Config, __doc__=Config.__doc__, endpoints=endpoints, **top)


def _overlaid(base: Any, own: Mapping[str, Any]) -> Any:
    """Return ``base`` with the keys of ``own`` in place of its own, mapping by mapping."""
    if not isinstance(base, Mapping):
        return base
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        merged[key] = _overlaid(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged
