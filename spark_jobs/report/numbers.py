"""Numbers and names for people. Pure. A missing value is a dash, never a zero."""

import datetime
import math
import uuid

NARROW = "\u202f"
"""A narrow no-break space: between groups of three digits, and before units."""
MISSING = "–"

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_NAME_CHARACTERS = 300
_DIGITS_MAX = 12
"""Of a share in percent: one message of a trillion is still seen."""


def count(value: float | None) -> str:
    """A whole number in groups of three digits. A mean is rounded, but never to 0 unless it is 0."""
    if value is None:
        return MISSING
    if 0 < abs(value) < 10 and value != int(value):
        return f"{value:.1f}" if abs(value) >= 0.05 else f"<{NARROW}0.1"
    return f"{round(value):,}".replace(",", NARROW)


def share(value: float | None) -> str:
    """A share of one in percent, with enough digits not to be rounded to 0 or 100."""
    if value is None:
        return MISSING
    if value in (0, 1):
        return f"{value:.0%}".replace("%", f"{NARROW}%")
    edge = min(abs(value), abs(1 - value)) * 100
    digits = min(_DIGITS_MAX, max(1, math.ceil(-math.log10(edge) - 1e-9) + 1)) if edge > 0 else 1
    return f"{value * 100:.{digits}f}{NARROW}%".replace("-", "−")


def change(value: float | None) -> str:
    """A relative change with its sign; as a factor from 3 on."""
    if value is None:
        return MISSING
    if value >= 2:
        return f"×{NARROW}{value + 1:.1f}" if value < 99 else f"×{NARROW}{count(value + 1)}"
    if abs(value) < 0.005:
        return f"±0{NARROW}%"
    return f"{'+' if value > 0 else '−'}{abs(value) * 100:.0f}{NARROW}%"


def duration_us(value: float | None) -> str:
    """Microseconds, with three digits in a suitable unit."""
    if value is None:
        return MISSING
    size = abs(value)
    if size < 999.5:
        return f"{value:.0f}{NARROW}µs".replace("-", "−")
    for unit_us, limit_us, unit in ((1e3, 1e6, "ms"), (1e6, 120e6, "s"), (60e6, 7200e6, "min"), (3600e6, math.inf, "h")):
        if size < limit_us * 0.9995:
            scaled = value / unit_us
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{digits}f}{NARROW}{unit}".replace("-", "−")
    return MISSING


def size(value: float | None) -> str:
    """Bytes, in powers of 1000."""
    if value is None:
        return MISSING
    step = 0
    while abs(value) >= 999.5 and step < len(_BYTES) - 1:
        value, step = value / 1000, step + 1
    return f"{value:.0f}{NARROW}B" if step == 0 else f"{value:.{0 if value >= 99.5 else 1}f}{NARROW}{_BYTES[step]}"


def decimal(value: float | None, digits: int = 2) -> str:
    """A decimal number; infinity as ∞."""
    if value is None:
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:,.{digits}f}".replace(",", NARROW).replace("-", "−")


def plural(number: int, one: str, many: str | None = None) -> str:
    """``1 message``, ``2 messages``, ``no messages``."""
    noun = one if number == 1 else many or f"{one}s"
    return f"{'no' if number == 0 else count(number)} {noun}"


def listing(names: list[str], shown: int = 3) -> str:
    """``a, b and c``. Names beyond ``shown`` are only counted."""
    if len(names) > shown:
        names = [*names[:shown], f"{count(len(names) - shown)} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def clean(name: str) -> str:
    """A name from the network, bounded and without control characters, which neither HTML nor XML may contain."""
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in name[:_NAME_CHARACTERS])
    return text if len(name) <= _NAME_CHARACTERS else f"{text}…"


def uuid_text(value: bytes) -> str:
    """A message id as a UUID; if it is not 16 bytes long, as plain hexadecimal."""
    return str(uuid.UUID(bytes=bytes(value))) if len(value) == 16 else bytes(value).hex()


def entity(authority: str | None, ue_id: int | None, resource: int | None = None) -> str | None:
    """``//authority/1002``, and the resource if there is one, in hexadecimal as in a UUri."""
    if authority is None:
        return None
    parts = [f"//{authority}", *(f"{part:X}" for part in (ue_id, resource) if part is not None)]
    return "/".join(parts)


def long_date(date: datetime.date) -> str:
    """``Friday, 20 November 2026``, whatever the locale."""
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    months = "January February March April May June July August September October November December"
    return f"{days[date.weekday()]}, {date.day} {months.split()[date.month - 1]} {date.year}"
