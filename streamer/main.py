"""The command line: ``streamer run``, the commands of the features and of the tools.

Exit status: 0 success; 1 a negative answer or a failure, such as a port or a journal that another streamer uses; 2 wrong
usage; 74 the journal or the traces cannot be read, or the output not written (EX_IOERR); 78 the configuration cannot be
used, or a newer version wrote the files (EX_CONFIG).
"""

import argparse
import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn, TypeGuard

import uvloop

from streamer import __version__
from streamer.config.load import ConfigError, json_schema, warnings
from streamer.config.models import Config
from streamer.config.tls import TlsError
from streamer.features.every import FEATURES, FILE, load_in_use
from streamer.journal.sqlite import FileError
from streamer.logs.output import flush_audit_log, open_audit_log, set_up
from streamer.tools.cost import memory_hint
from streamer.tools.memory import allowed_bytes, keep_giving_back
from streamer.tools.text import (
    CONFIG_DEFAULT,
    CONFIG_VARIABLE,
    DEFAULT_CONFIG,
    EX_CONFIG,
    EX_IOERR,
    complain,
    errors_as_json,
    reason_of,
)
from streamer.uprotocol.form import IS_COMPILED

logger = logging.getLogger("ustreamer.cli.main")

_NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

FORM = "compiled" if IS_COMPILED else "pure Python"


class UsageError(Exception):
    """The command line is wrong. ``usage``: the right one; the text says what is wrong."""

    def __init__(self, text: str, usage: str = "") -> None:
        super().__init__(text)
        self.usage = usage


class _Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of ending the process, so that the error can be printed as JSON."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: error: {message}", self.format_usage())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit status. Raises SystemExit if the command line is wrong."""
    given = sys.argv[1:] if argv is None else argv
    try:
        return _run_command(given)
    except UsageError as exc:
        with errors_as_json() if "--json" in given else contextlib.nullcontext():
            sys.stderr.write("" if "--json" in given else exc.usage)
            raise SystemExit(complain(str(exc), 2)) from None


def _run_command(given: Sequence[str]) -> int:
    arguments = _parsed(given)
    try:
        with errors_as_json() if getattr(arguments, "as_json", False) else contextlib.nullcontext():
            status = _status_of(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        _discard_output()
        return 1
    except OSError as exc:
        if exc.filename is not None or exc.errno not in _NOT_WRITTEN:
            raise
        _discard_output()
        return complain(f"standard output could not be written: {exc.strerror}", EX_IOERR)
    return status


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """Parse the command line, and fill in the configuration file if a command needs one and none is named.

    Raises `UsageError`.
    """
    parser = _parser(is_daemon=given[:1] == ["run"])
    arguments = parser.parse_args(given)
    elsewhere = (getattr(arguments, name, None) for name in ("url", "path", "broker", "zenoh"))  # take the place of the file
    arguments.config_from = ""
    if "config" in arguments and arguments.config is None and not any(elsewhere):
        try:
            arguments.config = _default_config(parser.prog, "url" in arguments)
        except UsageError:
            if not getattr(arguments, "works_without_config", False):
                raise
        arguments.config_from = "" if arguments.config == DEFAULT_CONFIG else f" ({CONFIG_VARIABLE})"
    return arguments


def _default_config(prog: str, has_url: bool) -> Path:
    """Return the configuration file of the environment, or that of this machine. Raises `UsageError` if there is none.

    ``has_url``: the command takes ``--url`` instead.
    """
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    try:
        DEFAULT_CONFIG.stat()
    except (FileNotFoundError, NotADirectoryError):
        looked = f"--config is not given, {CONFIG_VARIABLE} is not set, and {DEFAULT_CONFIG} does not exist"
        more = "; a daemon elsewhere is reached with --url" if has_url else ""
        raise UsageError(f"{prog}: error: no configuration file: {looked}{more}") from None
    except OSError:  # reading it reports why
        pass
    return DEFAULT_CONFIG


def _status_of(arguments: argparse.Namespace) -> int:
    try:
        status: int = arguments.command(arguments)
    except ConfigError as exc:
        for problem in exc.problems:
            complain(problem, EX_CONFIG)
        count = len(exc.problems)
        file = f"{arguments.config}{arguments.config_from}"
        return complain(f"{file}: {count} {'problem' if count == 1 else 'problems'}", EX_CONFIG)
    return status


def _discard_output() -> None:
    """Discard buffered output, which Python would write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(is_daemon: bool = False) -> argparse.ArgumentParser:
    """The parser of the daemon, or of all commands: their imports take a megabyte of the daemon's memory."""
    parser: argparse.ArgumentParser = _Parser(
        prog="streamer", description="Routes uProtocol messages between MQTT 5 and Zenoh and loses none of them."
    )
    parser.add_argument("--version", action="version", version=f"streamer {__version__} ({FORM})")
    parser.set_defaults(features=FEATURES, kind=FILE)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str, needs_config: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=run)
        if needs_config:
            sub.add_argument("--config", type=Path, metavar="FILE", help=f"the configuration file; {CONFIG_DEFAULT}")
        return sub

    command("run", _run, "Route messages until a signal (SIGTERM drains and stops, SIGHUP reloads the configuration).")
    if is_daemon:
        return parser
    from streamer.tools import completion, dead_letters, init, listen, ping, send, support_bundle, top  # noqa: PLC0415
    from streamer.tools import config as config_commands  # noqa: PLC0415

    init.add_to(commands)
    config_commands.add_to(commands)
    for feature in FEATURES:
        for name in feature.COMMANDS:
            import_module(name).add_to(commands)
    for each in (dead_letters, top, send, listen, ping, support_bundle):
        each.add_to(commands)
    command("schema", _schema, "Print the JSON Schema of the configuration file, for editors.", needs_config=False)
    completion.add_to(commands, parser)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # it would end the process
    config = load_in_use(arguments.config, at_start=True)
    try:
        set_up(config.log.level, config.log.format, config.log.repeat_s, open_audit_log(config.log.audit))
    except OSError as exc:
        return complain(f"{arguments.config}: log.audit: {reason_of(exc)}", EX_CONFIG)
    for warning in (*warnings(config), *memory_hint(config, allowed_bytes())):
        logger.warning("hint text=%s", warning)
    problems: list[BaseException] = []
    must_restart = False
    try:
        must_restart = uvloop.run(_serve(config, arguments.config))
    except* (ConfigError, TlsError, FileError, OSError) as group:
        problems = _flat(group)
    finally:
        flush_audit_log()
    if must_restart:
        _restart()
    for problem in problems:
        text = reason_of(problem) if isinstance(problem, OSError) else str(problem)
        if _is_in_use(problem):
            text = f"journal.path: {text}"
        found = problem.problems if isinstance(problem, ConfigError) else [f"{arguments.config}: {text}"]
        for each in found:
            logger.critical("not_started problem=%s", each)
    if any(not isinstance(problem, OSError) and not _is_in_use(problem) for problem in problems):
        return EX_CONFIG
    return 1 if problems else 0


def _restart() -> NoReturn:
    """Execute the program anew in this process: under the same id, so that no supervisor has to know of it."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # ignored ones would be inherited
    os.execv(sys.executable, sys.orig_argv)


async def _serve(config: Config, path: Path) -> bool:
    """Run the daemon to its end. Return whether it has to start anew."""
    # Their libraries take longer to load than other commands run.
    from streamer.daemon import Daemon  # noqa: PLC0415

    daemon = Daemon(config, path)
    gc.collect()
    gc.freeze()  # collections skip the objects that exist now, which stay
    # The journal's thread needs the GIL several times per transaction, beside an event loop that is always busy.
    sys.setswitchinterval(0.0005)
    giving_back = asyncio.create_task(keep_giving_back())
    try:
        await daemon.run()
    finally:
        giving_back.cancel()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # a late signal must not change the exit status
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    return daemon.must_restart


def _is_in_use(problem: BaseException) -> TypeGuard[FileError]:
    return isinstance(problem, FileError) and problem.is_in_use


def _flat(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _flat(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _schema(arguments: argparse.Namespace) -> int:
    print(json.dumps(json_schema(arguments.kind), indent=2))
    return 0
