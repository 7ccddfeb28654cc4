"""Reads a configuration file, or reports every problem in it: file, line, key, and what was expected.

Reports never contain a secret; see `streamer.config.secrets`.
"""

import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from streamer.config.checks import is_elsewhere, nearest
from streamer.config.claims import paths
from streamer.config.exposure import exposures
from streamer.config.messages import described, is_about_key, kind_of, place, sentence, shown_key
from streamer.config.models import POLICY_KEYS, Config, QueuePolicy, RouteConfig
from streamer.config.permissions import available_verifiers, hints, load_verifier
from streamer.config.secrets import (
    WITHHELD,
    dotted,
    is_secret_location,
    is_secret_value,
    redacted,
    without_secrets,
    without_settings,
)
from streamer.config.yaml import LIST_FACTOR, MAX_BYTES, MAX_NODES, Document, Location, Position, read
from streamer.files import MOST_BYTES, read_file, read_up_to
from streamer.transports.installed import available_transports, loadable_transports
from streamer.uprotocol.uri import ANY_AUTHORITY

MOST_PROBLEMS: Final = 50
"""Reported of one file: each of them is a line of a log, and costs a search for the nearest valid name."""

M = TypeVar("M", bound=BaseModel)


class Problem(NamedTuple):
    """One mistake. ``line`` and ``column`` count from 1; for a file that cannot be read, they are 0."""

    file: str
    line: int
    column: int
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


class ConfigError(ValueError):
    """The file cannot be used. ``problems`` has the mistakes by line; beyond `MOST_PROBLEMS`, how many more there are."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def load(
    path: Path, environ: Mapping[str, str] = os.environ, may_wait: bool = True, *, kind: type[Config] = Config
) -> Config:
    """Read and check ``path``; ``${NAME}`` comes from ``environ``. Raises `ConfigError`, and nothing else.

    ``may_wait``: also read from a pipe, which may block. ``kind``: the class of the file, with the sections of the features.
    """
    return load_text(_text(path, may_wait), path, environ, kind)


def load_text(text: str, path: Path, environ: Mapping[str, str] = os.environ, kind: type[Config] = Config) -> Config:
    """Check a text that is, or will be, in ``path``, as `load` does. Raises `ConfigError`, and nothing else."""
    try:
        return _loaded(text, path, environ, kind)
    except ConfigError:
        raise
    except Exception as exc:  # noqa: BLE001  # a bug, here or in a plugin, must not end a daemon. Its text may hold a secret
        last = traceback.extract_tb(exc.__traceback__)[-1]
        at = f"{Path(last.filename).name}:{last.lineno}"
        raise _unusable(path, Position(0, 0), f"cannot be checked: {type(exc).__name__} at {at}; please report it") from None


def inserted(path: Path, environ: Mapping[str, str] = os.environ) -> dict[Location, list[str]]:
    """Return what a configuration file has of the environment: by place, the values of variables, or their defaults."""
    return read(_text(path, may_wait=False), environ).inserted


def load_as(model: type[M], path: Path, environ: Mapping[str, str] = os.environ) -> tuple[M, Document]:
    """Read and check a file of another kind, such as expectations; return it with the positions of its values.

    Raises `ConfigError`.
    """
    text = _text(path, may_wait=True, most_bytes=MAX_BYTES * LIST_FACTOR)
    document, reporter = _opened(text, path, environ, " and ".join(model.model_fields), MAX_NODES * LIST_FACTOR)
    found: M | None = None
    if isinstance(document.data, dict):
        try:
            found = model.model_validate(document.data)
        except ValidationError as exc:
            reporter.add_errors(exc, document.data, model)
    if reporter.has_problems or found is None:
        raise ConfigError(reporter.sorted())
    return found, document


def _loaded(text: str, path: Path, environ: Mapping[str, str], kind: type[Config]) -> Config:
    document, reporter = _opened(text, path, environ, "authority, endpoints and routes")
    config = _validated(document, reporter, kind) if isinstance(document.data, dict) else None
    if reporter.has_problems or config is None:
        raise ConfigError(reporter.sorted())
    config._text = text
    return config


def _opened(
    text: str, path: Path, environ: Mapping[str, str], keys: str, most_nodes: int = MAX_NODES
) -> tuple[Document, "_Reporter"]:
    """Read a mapping with these keys; return it, and a reporter that has the mistakes in the YAML. Raises `ConfigError`."""
    document = read(text, environ, most_nodes)
    if document.data is None and not document.mistakes:
        raise _unusable(path, Position(1, 1), f"the file is empty; expected the keys {keys}")
    if not isinstance(document.data, dict) and not document.mistakes:
        text = described(document.data)
        found = text if isinstance(document.data, list) else "a single value"
        raise _unusable(path, document.position(()), f"expected a mapping with the keys {keys}, found {found}")
    reporter = _Reporter(str(path), document)
    for mistake in document.mistakes:
        reporter.add(mistake.location, mistake.message, mistake.position)
    return document, reporter


def _text(path: Path, may_wait: bool, most_bytes: int = MAX_BYTES) -> str:
    try:
        content = read_up_to(path, max(most_bytes, MOST_BYTES) + 1) if may_wait else read_file(path)
    except OSError as exc:
        raise _unusable(path, Position(0, 0), f"cannot be read: {exc.strerror or type(exc).__name__}") from exc
    if len(content) > most_bytes:
        raise _unusable(path, Position(0, 0), f"{len(content)} bytes long; expected at most {most_bytes}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        before = content[: exc.start]
        position = Position(before.count(b"\n") + 1, exc.start - before.rfind(b"\n"))
        raise _unusable(path, position, "not UTF-8; expected text in UTF-8") from exc


def _unusable(path: Path, position: Position, message: str) -> ConfigError:
    return ConfigError([Problem(str(path), *position, "", message)])


def _validated(document: Document, reporter: "_Reporter", kind: type[Config]) -> Config | None:
    data, mistakes, secrets = without_secrets(document.data)
    document.secrets += secrets
    for location, message in mistakes:
        reporter.add(location, message, of_key=True, is_clean=True)
    routes = data.get("routes")
    for index, route in enumerate(routes if isinstance(routes, list) else ()):
        if isinstance(route, dict) and route.pop("queue_policy", None) is not None:
            message = f"unknown key; expected one of {', '.join(POLICY_KEYS)} in the route itself"
            reporter.add(("routes", index, "queue_policy"), message, of_key=True)
    try:
        return kind.model_validate(data)
    except ValidationError as exc:
        reporter.add_errors(exc, data, kind)
    return None


class _Reporter:
    """Collects problems, without secrets. A place inside one that is wrong already is not reported.

    A problem gets its text in `sorted`, and only if it is one of the first: texts are expensive.
    """

    def __init__(self, file: str, document: Document) -> None:
        self._found: list[tuple[Position, str, Callable[[], str], bool]] = []
        self._file = file
        self._document = document
        self._unread: set[Location] = set()

    @property
    def has_problems(self) -> bool:
        """Whether there is a problem so far."""
        return bool(self._found)

    def add(
        self,
        location: Location,
        message: str | Callable[[], str],
        position: Position | None = None,
        of_key: bool = False,
        is_clean: bool = False,
    ) -> None:
        """``position`` is given for mistakes of the YAML itself; nothing else is reported for such a location.

        ``is_clean``: the message has nothing from the file, so what looks like a secret in it is a word of ours.
        """
        if position is None:
            if location in self._unread:
                return
            position = self._document.position(location, of_key)
        elif location:
            self._unread.add(location)
        text = message if callable(message) else partial(str, message)
        self._found.append((position, dotted(location), text, is_clean))

    def add_errors(self, exc: ValidationError, data: Any, model: type[BaseModel]) -> None:
        """Add every error of a file that ought to be a ``model``."""
        for error in exc.errors(include_url=False):
            self.add(place(error), partial(self._sentence, error, data, model), of_key=is_about_key(error))

    def _sentence(self, error: ErrorDetails, data: Any, model: type[BaseModel]) -> str:
        location = place(error)
        found = shown_key(location[-1]) if is_about_key(error) else self.found(location, data)
        return sentence(error, data, found, model)

    def found(self, location: Location, data: Any) -> str:
        """Return the value at ``location`` for a message, without secrets."""
        value = data
        for part in location:
            try:
                value = value[part]
            except (LookupError, TypeError):
                return "nothing"
        if value is not None and (is_secret_location(location) or (isinstance(value, str) and is_secret_value(value))):
            return WITHHELD
        if names := self._document.variables.get(location, ()):
            return f"{kind_of(value)} from {', '.join(names)} {WITHHELD}"
        if isinstance(value, str):
            value = redacted(without_settings(value), self._document.secrets)
        return described(value)

    def sorted(self) -> list[Problem]:
        """Return the problems by line, column and key; of more than `MOST_PROBLEMS`, how many more there are."""
        problems: dict[Problem, None] = {}
        ordered = sorted(self._found, key=lambda found: found[:2])
        for number, (position, key, text, is_clean) in enumerate(ordered):
            if len(problems) == MOST_PROBLEMS:
                more = f"and {len(ordered) - number} more mistakes"
                return [*sorted(problems), Problem(self._file, *position, "", more)]
            said = text() if is_clean else redacted(text(), self._document.secrets)
            problems[Problem(self._file, *position, key, said)] = None
        return sorted(problems)


def warnings(config: Config) -> list[str]:
    """Return sentences about settings that are valid, but may not be intended."""
    return list(_warnings(config))


def _warnings(config: Config) -> Iterator[str]:
    yield from exposures(config)
    for _, section in config.feature_sections():
        yield from section.hints(config)
    relative = {dotted(location): path for location, path in paths(config) if not path.is_absolute()}
    if relative:
        named = ", ".join(f"{key}: {path}" for key, path in relative.items())
        is_tilde = any(path.parts[:1] and path.parts[0].startswith("~") for path in relative.values())
        tilde = "; ~ is no more than a name here" if is_tilde else ""
        yield f"{named}: relative to the folder in which the streamer is started{tilde}"
    if config.journal is None:
        yield "journal: null: memory only; queued messages are lost if the process is killed"
    if not config.routes:
        yield "routes: empty; nothing is forwarded"
    yield from _everybody(config)
    yield from _bystanders(config)
    for name, endpoint in config.endpoints.items():
        yield from (f"endpoints.{name}.options.{text}" for text in endpoint.options.hints())
    yield from hints(config.permissions, {name: each.options.proves_identity for name, each in config.endpoints.items()})
    authorities = {name: endpoint.authorities for name, endpoint in config.endpoints.items()}
    for route in config.routes:
        far = config.endpoints[route.to]
        is_addressed = route.to in config.addressed
        if route.publish and route.publish_to is None and far.authorities == [ANY_AUTHORITY] and is_addressed:
            yield (
                f'route {route.name}: nothing says who a Publish to {route.to!r} is for, so it goes to the authority "*" '
                "(an MQTT topic source/*); set publish_to, or list authorities at the endpoint"
            )
        needless = [text for text in route.publish_to or () if is_elsewhere(text, route.to, authorities)]
        if needless:
            yield f"route {route.name}: publish_to names {', '.join(needless)}, not reached through {route.to!r}"
            yield from _nowhere(config, route, needless)


def _nowhere(config: Config, route: RouteConfig, names: list[str]) -> Iterator[str]:
    known = {name for endpoint in config.endpoints.values() for name in endpoint.authorities}
    for name in names:
        if not {name, ANY_AUTHORITY} & known:
            hint = nearest(name, known)
            yield f"route {route.name}: publish_to: {name} lives at no endpoint, so no uEntity can answer it{hint}"


def _everybody(config: Config) -> Iterator[str]:
    wide = [name for name, endpoint in config.endpoints.items() if ANY_AUTHORITY in endpoint.authorities]
    if len(wide) > 1:
        yield (
            f'endpoints {", ".join(wide)}: each takes "*": a Publish goes to all where a route or a subscriber wants '
            "it, a Notification, Request or Response to an authority that no endpoint names only over the first route in "
            "the file; its sources are believed at each; name who lives where at all but one"
        )


def _bystanders(config: Config) -> Iterator[str]:
    """Yield endpoints where the streamer's own subscriptions could be taken for a receiver, so that it does without."""
    shared = [name for name, endpoint in config.endpoints.items() if endpoint.options.is_shared]
    for name in shared:
        if len(shared) > 1 and ANY_AUTHORITY in config.endpoints[name].authorities:
            others = ", ".join(other for other in shared if other != name)
            yield (
                f'endpoints.{name}.authorities: with "*" it hears everything on its network, and is taken for the receiver '
                f"of what {others} sends, if that is the same network; list the authorities that are reached through {name}"
            )


def json_schema(kind: type[Config]) -> dict[str, Any]:
    """Return the JSON Schema of the file, for editors, with the options of all installed transports and token verifiers."""
    schema = kind.model_json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    route, queue_policy = definitions["RouteConfig"]["properties"], QueuePolicy.model_json_schema()
    del route["queue_policy"]
    route |= {key: {k: v for k, v in queue_policy["properties"][key].items() if k != "default"} for key in POLICY_KEYS}
    definitions["EndpointConfig"]["properties"]["transport"] |= {"enum": available_transports()}
    transports = {kind: transport.Options for kind, transport in loadable_transports().items()}
    _add_options(definitions, "EndpointConfig", "transport", transports)
    verifiers = {name: load_verifier(name).Options for name in available_verifiers()}
    definitions["TapConfig"]["properties"]["verifier"] |= {"enum": available_verifiers()}
    _add_options(definitions, "TapConfig", "verifier", verifiers)
    return schema


def _add_options(definitions: dict[str, Any], section: str, key: str, models: Mapping[str, type[BaseModel]]) -> None:
    """Make the schema of a section's ``options`` depend on the class that its ``key`` names."""
    cases = []
    for kind, model in models.items():
        options = model.model_json_schema(ref_template=f"#/$defs/{kind}.{{model}}")
        definitions |= {f"{kind}.{name}": part for name, part in options.pop("$defs", {}).items()}
        definitions[f"{kind}.options"] = options
        cases.append(
            {
                "if": {"properties": {key: {"const": kind}}},
                "then": {"properties": {"options": {"$ref": f"#/$defs/{kind}.options"}}},
            }
        )
    definitions[section]["allOf"] = cases
