"""``streamer init``: asks for role, authorities and addresses, and writes a configuration that ``streamer check`` passes.

Each answer is checked by `streamer.config.load` in a file with all answers so far. After an invalid answer, the error is
printed and the question repeated. `init` asks for what the roles differ in; everything else is a key of the file.
"""

import argparse
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from streamer.config.load import ConfigError, load_text, warnings
from streamer.config.models import Config
from streamer.tools.init_file import LISTEN, ROLES, Answers, Device, lines
from streamer.tools.text import complain

_MODE = 0o640
_DEVICE = f"AUTHORITY=ADDRESS, such as veh1=mqtts://broker:8883, veh1=tcp/10.0.0.1:7447 or veh1={LISTEN}tcp/0.0.0.0:7447"
_CLOUD = "AUTHORITY=mqtts://HOST:PORT"
_STAND_IN = Device("stand-in.invalid", (f"{LISTEN}tcp/127.0.0.1:0",))
"""Used while no device is known."""


class _EndedError(Exception):
    """Standard input has ended before all questions were answered."""


class Question(NamedTuple):
    """A question, and the option that answers it."""

    flag: str
    text: str
    """The question; also the help of the option."""
    answered: Callable[[Answers, str], Answers]
    """Returns the answers with this one added. Raises ValueError with what was expected."""
    wanted: Callable[[Answers], bool] = lambda answers: True
    default: Callable[[Answers], str | None] = lambda answers: ""
    """Returns the default; None: an answer is required."""
    metavar: str = "FILE"
    repeats: bool = False
    """The question is repeated until the answer is empty."""
    trial: Callable[[Answers], str] = lambda answers: ""
    """Returns the stand-in for a required answer, for a trial on one machine."""

    @property
    def key(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")


def _field(name: str) -> Callable[[Answers, str], Answers]:
    def answered(answers: Answers, text: str) -> Answers:
        change: dict[str, Any] = {name: text}
        return replace(answers, **change)

    return answered


def _role(answers: Answers, text: str) -> Answers:
    names = list(ROLES)
    role = names[int(text) - 1] if text.isdecimal() and 1 <= int(text) <= len(names) else text
    if role not in ROLES:
        raise ValueError(f"expected one of {', '.join(ROLES)}")
    return replace(answers, role=role, authority=ROLES[role].authority)


def _network(answers: Answers, text: str, what: str) -> Device:
    authority, equals, addresses = text.partition("=")
    device = Device(authority.strip(), tuple(each.strip() for each in addresses.split(",")))
    if not equals or not all(device.addresses):
        raise ValueError(f"expected {what}")
    if len(device.addresses) > 1 and any(each.startswith(("mqtt:", "mqtts:")) for each in device.addresses):
        raise ValueError("expected one broker, or endpoints of Zenoh")
    if device in answers.networks:
        raise ValueError("expected another authority: this one was given already")
    return device


def _device(answers: Answers, text: str) -> Answers:
    device = _network(answers, text, _DEVICE)
    if answers.role == "ubus" and device.is_mqtt:
        raise ValueError("expected endpoints of Zenoh: a uBus joins segments of one network; other roles have brokers")
    return replace(answers, devices=(*answers.devices, device))


def _cloud(answers: Answers, text: str) -> Answers:
    cloud = _network(answers, text, _CLOUD)
    if not cloud.is_mqtt:
        raise ValueError(f"expected {_CLOUD}")
    return replace(answers, cloud=cloud)


def _needs_cloud(answers: Answers) -> bool:
    return answers.role == "cloud-gateway" or len(answers.devices) < 2


def _trial_device(answers: Answers) -> str:
    number = len(answers.devices) + 1
    if answers.role == "cloud-gateway":
        return f"veh{number}=mqtt://127.0.0.1:{1883 + number}"
    return f"{'veh' if answers.role == 'ustreamer' else 'dev'}{number}={LISTEN}tcp/127.0.0.1:{7446 + number}"


QUESTIONS = (
    Question("--role", "role of the streamer", _role, default=lambda answers: next(iter(ROLES)), metavar="ROLE"),
    Question(
        "--authority",
        "the streamer's own authority",
        _field("authority"),
        default=lambda answers: answers.authority,
        metavar="NAME",
    ),
    Question(
        "--device",
        f"a device: {_DEVICE}; several Zenoh endpoints with commas",
        _device,
        default=lambda answers: None if len(answers.devices) < ROLES[answers.role].minimum else "",
        metavar="AUTHORITY=ADDRESS",
        repeats=True,
        trial=_trial_device,
    ),
    Question(
        "--cloud",
        f"who is reached through which broker in the cloud: {_CLOUD}",
        _cloud,
        wanted=lambda answers: ROLES[answers.role].cloud,
        default=lambda answers: None if _needs_cloud(answers) else "",
        metavar="AUTHORITY=BROKER",
        trial=lambda answers: "cloud=mqtt://127.0.0.1:1883",
    ),
    Question(
        "--ca-file",
        "file of the certificate authorities of the brokers; without it the system's",
        _field("ca_file"),
        lambda answers: answers.has("mqtts:"),
    ),
    Question(
        "--cert-file",
        "file with the streamer's certificate for the brokers",
        _field("cert_file"),
        lambda answers: answers.has("mqtts:"),
    ),
    Question(
        "--key-file",
        "file with the key of that certificate",
        _field("key_file"),
        lambda answers: bool(answers.cert_file),
        lambda answers: None,
    ),
    Question("--journal", "file that keeps what is queued", _field("journal"), default=lambda answers: answers.journal),
    Question(
        "--metrics",
        "address of the HTTP port for metrics, health and administration",
        _field("metrics"),
        default=lambda answers: answers.metrics,
        metavar="HOST:PORT",
    ),
)


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Ask for role, authorities and addresses, and write a commented configuration file that passes check."
    more = "Values that are given as options are not asked for."
    # Without abbreviations: another version may have more options.
    init = commands.add_parser("init", help=text, description=f"{text} {more}", allow_abbrev=False)
    init.set_defaults(command=_init, wrong_usage=init.error)
    for each in QUESTIONS:
        roles = f": {', '.join(ROLES)}" if each.flag == "--role" else ""
        init.add_argument(each.flag, action="append", metavar=each.metavar, help=f"{each.text}{roles}")
    text = "the file to write, - for standard output (streamer.yaml)"
    init.add_argument("--output", type=Path, default=Path("streamer.yaml"), metavar="FILE", help=text)
    init.add_argument("--force", action="store_true", help="replace the file if it exists")
    text = "ask nothing and use defaults: missing addresses become ones for a trial on this machine, and are printed"
    init.add_argument("--yes", action="store_true", help=text)


def _init(arguments: argparse.Namespace) -> int:
    path: Path = arguments.output
    is_printed = str(path) == "-"
    if not is_printed and not arguments.force and os.path.lexists(path):
        return complain(f"{path}: exists; --force replaces it", 1)
    asks = not arguments.yes and sys.stdin.isatty()
    try:
        answers = Answers(role="", authority="")
        for question in QUESTIONS:
            answers = _settled(question, answers, arguments, asks)
        text = "".join(f"{line}\n" for line in lines(answers))
        config = load_text(text, path, kind=arguments.kind)
        if not is_printed:
            _write(path, text, arguments.force)
    except (_EndedError, KeyboardInterrupt):
        sys.stderr.write("\n")  # ends the line of the question
        return complain("nothing was written", 1)
    except ConfigError as exc:
        for text in _texts(exc):
            complain(text, 2)
        return 2
    except FileExistsError:
        return complain(f"{path}: exists; --force replaces it", 1)
    except OSError as exc:
        return complain(f"{path}: cannot be written: {exc.strerror}", 1)
    # Errors from here on are of standard output, not of the file.
    sys.stdout.write(text if is_printed else f"{path}: written. Try it with: streamer check --probe --config {path}\n")
    for warning in warnings(config):
        complain(f"hint: {warning}", 0)
    return 0


def _settled(question: Question, answers: Answers, arguments: argparse.Namespace, asks: bool) -> Answers:
    """Return the answers with those to this question: from the option, the user, or the default."""
    wrong_usage: Callable[[str], NoReturn] = arguments.wrong_usage
    given: list[str] = getattr(arguments, question.key) or []
    if given and not question.wanted(answers):
        wrong_usage(f"argument {question.flag}: not with these devices and this role")
    if len(given) > 1 and not question.repeats:
        wrong_usage(f"argument {question.flag}: expected once")
    for text in given:
        try:
            answers = _tried(question, answers, text, arguments.kind)
        except ValueError as exc:
            wrong_usage(f"argument {question.flag}: {exc}")
    if not question.wanted(answers) or (given and not (question.repeats and question.default(answers) is None)):
        return answers
    if asks:
        return _asked(question, answers, arguments.kind)
    while (default := question.default(answers)) is None:
        if not arguments.yes or not (trial := question.trial(answers)):
            more = f", at least {ROLES[answers.role].minimum} times" if question.repeats else ""
            wrong_usage(f"the following arguments are required: {question.flag}{more}")
        complain(f"taken: {question.flag} {trial}", 0)
        answers = _tried(question, answers, trial, arguments.kind)
        if not question.repeats:
            return answers
    return _tried(question, answers, default, arguments.kind) if default else answers


def _asked(question: Question, answers: Answers, kind: type[Config]) -> Answers:
    """Return the answers with the user's; repeat the question until the answer is valid."""
    if question.flag == "--role":
        for number, (name, role) in enumerate(ROLES.items(), 1):
            complain(f"  {number}  {name:<20} {role.title}", 0)
    while True:
        default = question.default(answers)
        if default is None:
            default = question.trial(answers) or None
        more = "" if default is None else f" [{default or ('no more' if question.repeats else 'none')}]"
        sys.stderr.write(f"{question.text[0].upper()}{question.text[1:]}{more}: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise _EndedError
        text = line.strip() or default
        if text == "":
            return answers
        try:
            if text is None:
                raise ValueError("an answer is needed")
            answers = _tried(question, answers, text, kind)
            if not question.repeats:
                return answers
        except ValueError as exc:
            complain(f"  {exc}", 0)


def _tried(question: Question, answers: Answers, text: str, kind: type[Config]) -> Answers:
    """Return the answers with this one. Raises ValueError if no valid file can have it."""
    after = question.answered(answers, text)
    try:
        whole = after if after.devices else replace(after, devices=(_STAND_IN,))
        load_text("".join(f"{line}\n" for line in lines(whole)), Path(), kind=kind)
    except ConfigError as exc:
        raise ValueError("; ".join(_texts(exc))) from None
    return after


def _texts(error: ConfigError) -> list[str]:
    return [f"{each.key}: {each.message}" if each.key else each.message for each in error.problems]


def _write(path: Path, text: str, force: bool) -> None:
    """Write a file completely or not at all. A replaced file keeps owner and mode, and may be behind a symbolic link."""
    target = Path(os.path.realpath(path)) if force else path
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            if target.exists():
                there = target.stat()
                os.fchown(handle, there.st_uid, there.st_gid)
                os.fchmod(handle, stat.S_IMODE(there.st_mode))
            else:
                os.fchmod(handle, _MODE)
            file.flush()
            os.fsync(handle)
        if force:
            os.replace(name, target)
        else:
            os.link(name, target)  # fails if another program has created the file
    finally:
        Path(name).unlink(missing_ok=True)
