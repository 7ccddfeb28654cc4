"""``streamer support-bundle``: one archive with what somebody who helps has to know, and without secrets.

The law of this file:
- Nothing of the environment, of a payload, of an access token or of a file that holds a secret goes into the archive. Every
  text is searched once more for the secrets that the configuration names, and for what looks like one. If no
  configuration is known, only the latter is possible, and the command says so.
- Everything is bounded: each file by `FILE_BYTES`, each question to a daemon or a program by `WITHIN_S`.
- What cannot be had is listed with the reason; it does not keep the rest out. So the command works with the daemon down, and
  with a configuration that is wrong.
"""

import argparse
import importlib.metadata
import io
import json
import os
import platform
import re
import shutil
import sqlite3
import ssl
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

from streamer import __version__
from streamer.config.load import ConfigError, inserted, load, warnings
from streamer.config.models import Config
from streamer.config.secrets import WITHHELD, is_secret_file, redacted, without_given
from streamer.config.shown import cohort, fingerprint, shown
from streamer.config.token import token_file
from streamer.config.yaml import LONG
from streamer.journal.sqlite import CorruptFileError, FileError
from streamer.journal.summary import summary
from streamer.tools.running import API, DaemonAddress, NotAskedError, add_options, answered, daemon_of, opened
from streamer.tools.text import CONFIG_VARIABLE, DEFAULT_CONFIG, add_json, complain, document_out, lines_out, reason_of
from streamer.uprotocol.form import FORM

FILE_BYTES = 1 << 20
"""The most that one file of the archive has. There are at most `_PAGES` and seven others."""
WITHIN_S = 10.0

_LINES = 5000
_LOG = "log.txt"
_PAIR = "pair.json"
_RUNNING = "config-running.json"
_PAGES = {
    "status.json": f"{API}",
    "endpoints.json": f"{API}/endpoints",
    "routes.json": f"{API}/routes",
    "queues.json": f"{API}/queues",
    "flows.json": f"{API}/flows?state=waiting&limit=1000",
    "paused.json": f"{API}/paused",
    _PAIR: f"{API}/pair",
    _RUNNING: f"{API}/config",
    "metrics.txt": "/metrics",
}
_LOOKS_SECRET = re.compile(
    r"(?<=://)[^/\s@\"']+(?=@)"  # user and password in an address
    r"|(?<=[Bb]earer )[\w.~+/=-]+"
    r"|(?<=Authorization: Basic )\S+"
    r"|\beyJ[\w-]+\.[\w-]+\.[\w-]*"  # a JSON Web Token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)

_NAMES_FILE = re.compile(r"""(\w+)["']?\s*:\s*["']?([^\s"',{}\[\]]+)""")


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Write an archive with configuration, state, metrics, log and versions, without secrets, for whoever helps you."
    bundle = commands.add_parser("support-bundle", help=text, description=text)
    bundle.set_defaults(command=answered(_bundle), works_without_config=True)
    add_options(bundle)
    text = "the archive; default: ustreamer-support-TIME.tar.gz in this folder. An existing file is not replaced"
    bundle.add_argument("--output", type=Path, metavar="FILE", help=text)
    text = "take the log from this file; default: from the systemd journal"
    bundle.add_argument("--log-file", type=Path, metavar="FILE", help=text)
    bundle.add_argument(
        "--unit", default="streamer", metavar="NAME", help="the systemd unit with the log; default: streamer"
    )
    add_json(bundle)


def _bundle(arguments: argparse.Namespace) -> int:
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    output: Path = arguments.output or Path(f"ustreamer-support-{now}.tar.gz")
    try:
        descriptor = os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        return complain(f"--output: {reason_of(exc)}", 2 if isinstance(exc, FileExistsError) else 1)
    contents = _Contents()
    try:
        with os.fdopen(descriptor, "wb") as file:
            _collect(arguments, contents)
            contents.write(file, f"ustreamer-support-{now}")
            size = file.tell()
    except BaseException:
        output.unlink()
        raise
    if arguments.as_json:
        described = {"files": sorted(contents.texts), "missing": contents.missing, "secrets": contents.known.value}
        document_out({"file": str(output), "bytes": size, **described})
        return 0
    lines_out(
        [f"{output}: {size} bytes, {len(contents.texts)} files, {_TOLD[contents.known]}. Look at it before you send it"]
    )
    lines_out(f"not in it: {name}: {why}" for name, why in contents.missing.items())
    return 0


class _Known(Enum):
    """Which secrets were searched for, beside what looks like one."""

    ALL = "known"  # those that the configuration names
    SOME = "partly known"  # the file is wrong: those that its text names
    NONE = "unknown"


_TOLD = {
    _Known.ALL: "no secrets",
    _Known.SOME: "secrets withheld as far as the configuration names them, for it is wrong",
    _Known.NONE: "only what looks like a secret is withheld, for the configuration is not known",
}


class _Contents:
    """The files of the archive, and what is missing with the reason. ``secrets`` are replaced in all of them."""

    def __init__(self) -> None:
        self.known = _Known.NONE
        self.texts: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.secrets: list[str] = []
        self.inserted: set[str] = set()  # what the configuration has of the environment

    def add(self, name: str, text: Callable[[], str]) -> None:
        """Add a file, or the reason why there is none."""
        try:
            self.texts[name] = text()
        except (NotAskedError, FileError, CorruptFileError, sqlite3.Error, HTTPException, subprocess.SubprocessError) as exc:
            self.missing[name] = str(exc)
        except OSError as exc:
            self.missing[name] = reason_of(exc)

    def write(self, file: Any, folder: str) -> None:
        """Write the archive. The same content gives the same bytes."""
        self.texts["contents.json"] = _as_json({"files": sorted(self.texts), "missing": self.missing})
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in sorted(self.texts.items()):
                data = _bounded(self._clean(name, text), from_end=name == _LOG).encode(errors="replace")
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mode = len(data), 0o600
                archive.addfile(entry, io.BytesIO(data))

    def _clean(self, name: str, text: str) -> str:
        if name == _RUNNING:
            text = _without_inserted(text, self.inserted)
        text = _LOOKS_SECRET.sub(WITHHELD, redacted(text, self.secrets))
        return without_given(text) if name == _LOG else text  # others may write there, too


def _collect(arguments: argparse.Namespace, contents: _Contents) -> None:
    config = None
    if arguments.config is not None:
        config = _of_config(arguments.config, arguments.kind, contents)
    elif arguments.url is None:
        contents.missing["config.yaml"] = f"no --config, and no default file ({CONFIG_VARIABLE}, {DEFAULT_CONFIG})"
    contents.add("versions.json", lambda: _as_json(_versions()))
    try:
        daemon = None if config is None and arguments.url is None else daemon_of(arguments, config)
    except NotAskedError as exc:
        daemon = None
        contents.missing["daemon"] = str(exc)
    if daemon is not None:
        _of_daemon(daemon, contents)
    if arguments.url is None:
        if config is not None and config.journal is not None:
            journal = config.journal.path
            contents.add("journal.json", lambda: _as_json(summary(journal)))
        contents.add(_LOG, lambda: _log(arguments.log_file, arguments.unit))


def _of_config(path: Path, kind: type[Config], contents: _Contents) -> Config | None:
    """Add what is said by the configuration file, and learn the secrets that it names; None: it is wrong, or not there."""
    try:
        path.read_bytes()
    except OSError as exc:
        is_there = not isinstance(exc, FileNotFoundError)
        contents.missing["config.yaml"] = f"{path}: {exc.strerror if is_there else 'there is no such file'}"
        return None
    try:
        config = load(path, kind=kind)
    except ConfigError as exc:
        contents.known = _Known.SOME
        contents.texts["config-problems.txt"] = "".join(f"{problem}\n" for problem in exc.problems)
        contents.missing["config.yaml"] = "the file is wrong: config-problems.txt"
        contents.secrets += _secrets_in(_named_in_text(path))
        return None
    contents.known = _Known.ALL
    contents.secrets += _secrets(config)
    data, found = shown(config), inserted(path)
    public = {config.authority, *(name for endpoint in config.endpoints.values() for name in endpoint.authorities)}
    contents.inserted = {text for texts in found.values() for text in texts} - public - {""}
    contents.secrets += [text for text in contents.inserted if len(text) >= LONG]
    shares = [name for name, endpoint in data["endpoints"].items() if endpoint["options"].get("share")]
    contents.secrets += [data["endpoints"][name]["options"]["share"] for name in shares]
    for location in (*found, *(("endpoints", name, "options", "share") for name in shares)):
        _withhold(data, location)
    head = f"# {path}\n# fingerprint {fingerprint(config)}\n# cohort {cohort(config)}\n"
    contents.texts["config.yaml"] = head + yaml.safe_dump(data, sort_keys=False)
    contents.texts["config-hints.txt"] = "".join(f"{warning}\n" for warning in warnings(config))
    return config


def _withhold(data: Any, location: tuple[str | int, ...]) -> None:
    """Withhold a text of the configuration that has something of the environment; names of authorities are public."""
    *above, last = location
    if last in ("authority", "authorities") or above[-1:] == ["authorities"]:
        return
    try:
        for part in above:
            data = data[part]
        if isinstance(data[last], str):
            data[last] = WITHHELD
    except (LookupError, TypeError):
        return  # the file in use does not have it in this place


def _without_inserted(text: str, inserted: set[str]) -> str:
    try:
        data = json.loads(text)
    except ValueError:
        return text
    return _as_json(_replaced(data, inserted))


def _replaced(value: Any, inserted: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(each, inserted) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, inserted) for each in value]
    return WITHHELD if isinstance(value, str) and value in inserted else value


def _secrets(config: Config) -> Iterator[str]:
    """Yield what stands in the files with secrets that a configuration names, as a whole and by lines."""
    files = {path for path in _secret_files(config.model_dump(mode="json", by_alias=True)) if path is not None}
    made = token_file(config)
    yield from _secrets_in(files if made is None else {*files, str(made)})


def _named_in_text(path: Path) -> set[str]:
    """Return the files with secrets that a configuration file names, as far as its text shows them: it may be wrong."""
    try:
        text = path.read_text(errors="replace") if path.is_file() else ""
    except OSError:
        return set()
    return {file for key, file in _NAMES_FILE.findall(text) if is_secret_file(key)}


def _secrets_in(files: Iterable[str]) -> Iterator[str]:
    for path in files:
        try:
            text = Path(path).read_text(errors="replace") if Path(path).is_file() else ""  # a pipe could block
        except (OSError, ValueError):  # what cannot be read here cannot get into the archive by us
            continue
        yield text.strip()
        yield from (line.strip() for line in text.splitlines())
        yield from (line.partition(":")[2].strip() for line in text.splitlines() if ":" in line)  # of headers


def _secret_files(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _secret_files(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _secret_files(each, name)
    elif isinstance(value, str) and is_secret_file(name):
        yield value


def _of_daemon(daemon: DaemonAddress, contents: _Contents) -> None:
    """Add the pages of a daemon; if it does not answer, that is said once."""
    for name, page in _PAGES.items():
        if name == _PAIR and '"pair": null' in contents.texts["status.json"]:
            continue  # it works alone
        contents.add(name, lambda page=page: _page(daemon, page))  # type: ignore[misc]  # mypy does not see its type
        if name == "status.json" and name in contents.missing:
            contents.missing["daemon"] = contents.missing.pop(name)
            return


def _page(daemon: DaemonAddress, page: str) -> str:
    with opened(daemon, page, within_s=WITHIN_S, below="") as answer:
        return answer.read(FILE_BYTES + 1).decode(errors="replace")


def _log(file: Path | None, unit: str) -> str:
    """Return the end of the log: of a file, else of a unit in the systemd journal."""
    if file is not None:
        with open(file, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - FILE_BYTES - 1))
            return log.read(FILE_BYTES + 1).decode(errors="replace")
    program = shutil.which("journalctl")
    if program is None:
        raise NotAskedError("there is no journalctl; --log-file names a file with the log")
    words = [program, "--unit", unit, "--lines", str(_LINES), "--no-pager", "--output", "short-iso", "--quiet"]
    done = subprocess.run(words, capture_output=True, timeout=WITHIN_S, check=False, text=True, errors="replace")
    if not done.stdout.strip():
        why = done.stderr.strip()[:500] or "no lines that this user may read"
        raise NotAskedError(f"the systemd journal of the unit {unit}: {why}; --log-file names a file with the log")
    return done.stdout


def _versions() -> dict[str, Any]:
    packages = ((each.metadata["Name"], each.version) for each in importlib.metadata.distributions())
    return {
        "ustreamer": __version__,
        "form": FORM,
        "python": sys.version,
        "platform": platform.platform(),
        "openssl": ssl.OPENSSL_VERSION,
        "sqlite": sqlite3.sqlite_version,
        "packages": dict(sorted((str(name), version) for name, version in packages)),
    }


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _bounded(text: str, from_end: bool) -> str:
    """Return a text, or as much of its beginning or its end as `FILE_BYTES` allow, with a note."""
    data = text.encode(errors="replace")
    if len(data) <= FILE_BYTES:
        return text
    note = f"(cut: {FILE_BYTES} bytes of more)\n"
    room = FILE_BYTES - len(note)
    return note + (data[-room:] if from_end else data[:room]).decode(errors="ignore")
