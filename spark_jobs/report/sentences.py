"""The day in five sentences, for readers who have never seen the tables. Pure: figures in, text out.

One sentence each about volume, delivery, failures, speed and objectives, and how far the traces can be trusted. Unknown
figures are called unknown; a zero is stated as a zero.
"""

import datetime
from typing import Any, NamedTuple

from spark_jobs.anomalies import LEAST_DAYS
from spark_jobs.report.numbers import clean, count, duration_us, listing, long_date, plural, share
from spark_jobs.slo_file import LIMITS

Figures = dict[str, Any]

REASONS = {"expired": "expired", "rejected": "were rejected", "dead_lettered": "were dead-lettered"}
"""What happened to messages with this outcome."""
IDLE = ("unheard", "sampled_out", "unwanted", "local", "superseded")
"""What became of messages that nobody was waiting for."""
METRICS = {"messages": "messages", "failed_share": "share of failed messages", "latency_p99_us": "latency (p99)"}
OBJECTIVES = {"availability": "availability", "p99_latency_ms": "latency (p99)", "expiry_rate": "expiry rate"}
_NAME_CHARACTERS = 48
_LONG_S = 3600
"""Links that were down for so long are told with the other troubles of a streamer."""
FAULTS = (
    ("files_left_out", "trace file", "left out", "files"),
    ("records_missing", "trace record", "missing", "records"),
    ("records_impossible", "trace record", "that cannot be", "records"),
)
USUAL = {
    "lost": "messages lost:",
    "unknown": "messages unknown:",
    "failed": "messages failed:",
    "incomplete": "streamers with incomplete traces:",
}
"""What a night is compared in with those before."""
_FAR = 0.2
"""A figure within a fifth of its usual value is "about as usual"."""


def short_name(name: str) -> str:
    """A name, shortened if it is too long for a sentence; the tables have it in full."""
    text = clean(name)
    return text if len(text) <= _NAME_CHARACTERS else f"{text[: _NAME_CHARACTERS - 1]}…"


def sentences(figures: Figures) -> list[str]:
    """Five sentences, in this order: volume, delivery, failures, speed and objectives, trust. Of one streamer that is not
    well, one before them says what is wrong."""
    first = []
    if figures["streamer"] is not None and figures["worst"] and figures["worst"]["rows"]:
        first = [f"{_sentence(listing(troubles(figures['worst']['rows'][0]), shown=9))}."]
    return [*first, _volume(figures), _delivery(figures), _failures(figures), _speed(figures), _trust(figures)]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def troubles(row: Figures) -> list[str]:
    """Why a streamer is not well, in words, the gravest first. ``row``: one of the section *worst*."""
    told = []
    if row["handed_over"]:
        told.append(f"{plural(row['handed_over'], 'message')} lost behind it")
    if row["never_came"]:
        told.append(f"{plural(row['never_came'], 'message')} lost on the way to it")
    if row["unknown"]:
        told.append(f"{plural(row['unknown'], 'message')} to it unknown")
    if row["lacking"]:
        told.append(f"{plural(row['lacking'], 'broadcast')} missing")
    if row["is_failing"]:
        told.append(_failing(row))
    if row["unmet"]:
        told.append(f"{plural(row['unmet'], 'objective')} not met")
    if row["unusual"]:
        told.append(plural(row["unusual"], "unusual hour"))
    if row["records_missing"]:
        told.append(f"{plural(row['records_missing'], 'trace record')} missing")
    if row["records_impossible"]:
        told.append(f"{plural(row['records_impossible'], 'trace record')} that cannot be")
    if row["files_left_out"]:
        told.append(f"{plural(row['files_left_out'], 'trace file')} left out")
    if row["clock_ms"]:
        told.append(f"clock {duration_us(abs(row['clock_ms']) * 1000)} {'ahead' if row['clock_ms'] > 0 else 'behind'}")
    if row["offline_s"] >= _LONG_S:
        told.append(f"links down for {duration_us(row['offline_s'] * 1e6)}")
    return told


def _worse_ones(figures: Figures) -> list[Figures]:
    return [row for row in figures["cohorts"]["rows"] if row["is_worse"]] if figures["cohorts"] else []


def _worse(row: Figures) -> str:
    """What is worse with a version or configuration than with all others."""
    name = f"version {short_name(row['version'] or 'unknown')} with configuration {short_name(row['config'] or 'unknown')}"
    return f"{name} fails or loses {share(row['bad_share'])}, all others {share(row['others_share'])}"


def _failing(row: Figures) -> str:
    failed = {name: row[name] for name in REASONS if row[name]}
    most = max(failed, key=lambda name: failed[name])
    how = f"all {REASONS[most]}" if len(failed) == 1 else f"most {REASONS[most]}"
    why = f" ({short_name(row['ucode'])})" if row["ucode"] else ""
    return f"{count(sum(failed.values()))} of {plural(row['due'], 'message')} failed, {how}{why}"


KINDS = (
    *("lost", "unknown", "silent", "version_worse", "worse_than_usual", "jobs_failed", "objectives_not_met"),
    *(
        "broadcasts_missing",
        *(kind for kind, *_ in FAULTS),
        "clocks_wrong",
        "unusual_hours",
        "tables_missing",
        "no_messages",
    ),
)
"""The kinds of reasons."""


class Reason(NamedTuple):
    """Why a day needs attention, or why that is unknown: a kind for machines, a text for people, and the figures of it."""

    kind: str
    text: str
    figures: dict[str, int]


def verdict(figures: Figures) -> tuple[str, str]:
    """``(level, text)``: the level is good, attention or unknown, and the text says why."""
    level, reasons = judged(figures)
    if level != "good":
        return level, listing([reason.text for reason in reasons], shown=5)
    noted = [each.text for each, _ in noticed(figures)]
    told = [] if _lost(figures) else ["nothing lost"]
    if figures["anomalies"] is None or not is_compared(figures):
        nights = key(figures, "messages")["days"]
        told.append("what is unusual is unknown" + f" ({nights} of {LEAST_DAYS} nights before)" * (nights < LEAST_DAYS))
    text = "; ".join(told) if noted or len(told) != 1 else "nothing lost, nothing unusual found"
    return level, "; ".join([*filter(None, [text]), f"within the limits: {listing(noted, shown=5)}"]) if noted else text


def judged(figures: Figures) -> tuple[str, list[Reason]]:
    """The level, and the reasons for it; none if it is good."""
    volume, audit, slo, health = (figures[name] for name in ("volume", "audit", "slo", "health"))
    if matters := [reason for reason, is_beyond in noticed(figures) if is_beyond]:
        return "attention", matters
    if volume is None or (audit is None and figures["streamer"] is None) or slo is None or health is None:
        return "unknown", [Reason("tables_missing", "tables are missing", {})]
    if not volume["messages"]:
        return "unknown", [Reason("no_messages", "no messages were recorded", {})]
    return "good", []


def noticed(figures: Figures) -> list[tuple[Reason, bool]]:
    """All that is wrong, each with whether it is beyond its limit (`slo_file.LIMITS`)."""
    audit, slo, health, fan_out = (figures[name] for name in ("audit", "slo", "health", "fan_out"))
    limits: dict[str, float] = {**LIMITS, **figures.get("limits", {})}
    limits["lost"] = limits["lost_per_million"] / 1e6
    found: list[tuple[Reason, bool]] = []

    def notice(kind: str, text: str, number: int, of: float, at: int | None = None, **counts: int) -> bool:
        """Note a fault, if there is any, of so many `of` all, or `at` so many. Returns whether it is beyond its limit."""
        is_beyond = (number if at is None else at) > limits.get(kind, 0) * of
        if number:
            found.append((Reason(kind, text, counts), is_beyond))
        return is_beyond

    made, lost, unknown = audit["messages"] if audit else 0, _lost(figures), status(audit, "unknown")
    is_lossy = notice("lost", f"{plural(lost, 'message')} lost{_between(figures)}", lost, made, messages=lost)
    if unknown:
        told = Reason("unknown", f"{plural(unknown, 'message')} unknown{_because(audit)}", {"messages": unknown})
        is_beyond = is_lossy or unknown > limits["unknown"] * made
        found.insert(0 if unknown > lost else 1, (told, is_beyond))
    here = health["totals"]["streamers"] if health else 0
    if figures["silent"]:
        silent = figures["silent"]["totals"]["usual"]
        text = f"{plural(silent, 'streamer')} silent" if figures["streamer"] is None else "silent that day"
        notice("silent", text, silent, here + silent, streamers=silent)
    for row in _worse_ones(figures):
        bad = sum(row[name] or 0 for name in (*REASONS, "lost"))
        notice("version_worse", _worse(row), bad, 0, messages=bad, due=round(bad / row["bad_share"]))
    for line in figures["usual"]["measures"] if figures["usual"] and figures["streamer"] is None else ():
        if line["is_worse"]:
            text = f"{USUAL[line['name']]} {share(line['bad'] / line['of'])}, usually {share(line['usual_share'])}"
            text += f" (median of {count(line['nights'])} nights)"
            notice("worse_than_usual", text, line["bad"], 0, bad=line["bad"], due=line["of"], nights=line["nights"])
    failed = len(figures.get("jobs_failed") or ())
    notice("jobs_failed", f"{plural(failed, 'job')} failed", failed, 0, jobs=failed)
    if slo:
        unmet = slo["objectives"] - slo["met"]
        counts = {"objectives": slo["objectives"], "not_met": unmet}
        notice("objectives_not_met", f"{plural(unmet, 'objective')} not met", unmet, slo["objectives"], **counts)
    if fan_out:
        of, lacked = fan_out["totals"]["expected"], fan_out["totals"]["missing"]
        text = f"{count(lacked)} of {count(of)} deliveries of broadcasts missing"
        text += _most_lacked(fan_out) if lacked else ""
        notice("broadcasts_missing", text, lacked, of, expected=of, missing=lacked)
    for kind, what, after, counted in FAULTS if health else ():
        number, at = health["totals"][kind], health["totals"][f"{kind}_at"]
        notice(kind, f"{plural(number, what)} {after}", number, here, at, **{counted: number})
    if health:
        apart = len(health["clocks"]) + health["more_clocks"]
        notice("clocks_wrong", f"{plural(apart, 'clock')} wrong by a second or more", apart, here, clocks=apart)
    if figures["anomalies"]:
        unusual, at = _all(figures["anomalies"]), figures["anomalies"]["streamers"]
        notice("unusual_hours", plural(unusual, "unusual hour"), unusual, here, at, hours=unusual)
    return found


def is_compared(figures: Figures) -> bool:
    """Whether there are enough earlier days for anomalies."""
    return bool(key(figures, "messages")["days"] >= LEAST_DAYS)


def _all(ranking: Figures) -> int:
    return len(ranking["rows"]) + int(ranking["more"])


def status(audit: Figures | None, status: str) -> int:
    return next((row["messages"] for row in audit["statuses"] if row["status"] == status), 0) if audit else 0


def _because(audit: Figures) -> str:
    """Whose records are missing of messages that are unknown, to follow their number."""
    first = [
        f"{short_name(row['missing_at'])} from {row['first']:02d}:00 to {row['last'] + 1:02d}:00" for row in audit["unknown"]
    ]
    return f", because of {listing(first + [''] * audit['more_unknown'])}"


def _between(figures: Figures) -> str:
    """Between which streamers messages were lost, to follow their number."""
    rows, rest = (figures["findings"][name] for name in ("between", "more_between")) if figures["findings"] else ([], 0)
    pairs = [
        f"{count(row['messages'])} from {short_name(row['last_streamer'])} to {short_name(row['missing_at'] or 'unknown')}"
        for row in rows
    ]
    return f" ({listing(pairs + [''] * rest, shown=3)})" if pairs else ""


def _lost(figures: Figures) -> int:
    """Of all streamers, each message once; of one, those that were lost behind it or on the way to it."""
    if figures["streamer"] is None:
        return status(figures["audit"], "lost")
    return sum(row["handed_over"] + row["never_came"] for row in figures["worst"]["rows"]) if figures["worst"] else 0


def key(figures: Figures, name: str) -> Figures:
    """One of the key figures, by its name."""
    found: Figures = next(each for each in figures["key"] if each["name"] == name)
    return found


def against_usual(line: Figures) -> str:
    """How the day compares with the mean of the days before, to follow a figure; empty if it is unknown."""
    value, usual, change, days = line["value"], line["usual"], line["change"], line["days"]
    if usual is None or value is None:
        return ", with no earlier day to compare with" if value is not None else ""
    short = "" if days == 14 else f" ({plural(days, 'recorded day')})"
    known = "" if days == 14 else f", from {plural(days, 'recorded day')}"
    usual_text = f"the 14-day mean of {count(usual)}{short}"
    if change is None:
        return f", where none is usual{short}" if value else f", as usual{short}"
    if abs(change) < _FAR:
        return f", about as usual (14-day mean: {count(usual)}{known})"
    if change >= 1:
        return f", {change + 1:.1f} times {usual_text}"
    return f", {round(abs(change) * 100)}\u202f% {'more' if change > 0 else 'less'} than {usual_text}"


def _volume(figures: Figures) -> str:
    day = f"On {long_date(datetime.date.fromisoformat(figures['date']))}"
    if figures["volume"] is None:
        return f"{day}, the volume is unknown: the table route_hourly was not written."
    line, streamers = key(figures, "messages"), len(figures["streamers"]) + figures["more_streamers"]
    if not line["value"]:
        return f"{day}, no message was recorded{against_usual(line)}."
    names = [short_name(name) for name in figures["streamers"]] + [""] * figures["more_streamers"]
    who = plural(streamers, "streamer") if figures["is_fleet"] else f"{plural(streamers, 'streamer')} ({listing(names)})"
    who = who if figures["streamer"] is None else short_name(figures["streamer"])
    return f"{day}, {who} handled {plural(line['value'], 'message')}{against_usual(line)}{_silent(figures)}."


def _silent(figures: Figures) -> str:
    """Who is silent that usually writes, to follow a sentence; empty if nobody is."""
    if not figures["silent"] or not (number := figures["silent"]["totals"]["usual"]):
        return ""
    names = [short_name(row["streamer"]) for row in figures["silent"]["rows"] if row["usually"]]
    return f"; silent, though usually not: {listing(names + [''] * (number - len(names)))}"


def _delivery(figures: Figures) -> str:
    audit = figures["audit"]
    if figures["streamer"] is not None:
        return _delivery_there(figures)
    if audit is None:
        return "Whether messages were lost between streamers is unknown: the table delivery_audit was not written."
    if not audit["messages"]:
        return "The audit across streamers found no message that was created that day, so none could be lost."
    delivered, lost, created = status(audit, "delivered"), status(audit, "lost"), audit["messages"]
    part = f"Of the {plural(created, 'message')} created that day, each counted once, {share(delivered / created)} reached "
    part += "the destination"
    if unconfirmed := status(audit, "unconfirmed"):
        part += f", {share(unconfirmed / created)} were sent without a confirmation that they arrived"
    if idle := sum(status(audit, each) for each in IDLE):
        part += f", {share(idle / created)} had none beyond the network where they came from"
    if unknown := status(audit, "unknown"):
        part += f"; of {plural(unknown, 'message')} it is unknown{_because(audit)}"
    if not lost:
        return f"{part}, and none was lost on the way{_lacking(figures)}."
    verb = "was" if lost == 1 else "were"
    against = against_usual(key(figures, "lost"))
    return f"{part}; {plural(lost, 'message')} {verb} handed over but never seen again{against}{_lacking(figures)}."


def _delivery_there(figures: Figures) -> str:
    """The sentence about delivery for one streamer."""
    if figures["findings"] is None:
        return "Whether messages were lost there is unknown: the table delivery_audit_detail was not written."
    share_ = key(figures, "delivered_share")["value"]
    part = "Nothing there was to be delivered" if share_ is None else f"{share(share_)} of its deliveries succeeded"
    lost = _lost(figures)
    return f"{part}, and {plural(lost, 'message')} {'was' if lost == 1 else 'were'} lost behind it or on the way to it."


def _lacking(figures: Figures) -> str:
    """What is missing of broadcasts, to follow a sentence; empty if it is nothing."""
    if not figures["fan_out"] or not (missing := figures["fan_out"]["totals"]["missing"]):
        return ""
    deliveries = plural(figures["fan_out"]["totals"]["expected"], "delivery", "deliveries")
    return f"; of what is published to many, {count(missing)} of {deliveries} are missing{_most_lacked(figures['fan_out'])}"


def _most_lacked(fan_out: Figures) -> str:
    """The topic and hour of which most deliveries are missing, to follow their number."""
    first = fan_out["rows"][0]
    at = f"{short_name(first['topic'] or 'unknown')} at {first['hour']:02d}:00 UTC"
    return f" ({count(first['lacking'])} of {count(first['gateways'])} gateways lack {at})"


def _failures(figures: Figures) -> str:
    failed, letters = key(figures, "failed"), figures["dead_letters"]
    worse = "".join(f"; {_worse(row)}" for row in _worse_ones(figures))
    if failed["value"] is None:
        return "The number of failed messages is unknown: the table route_hourly was not written."
    if not failed["value"]:
        return f"No message failed at a streamer{against_usual(failed)}{worse}."
    sentence = f"{plural(failed['value'], 'message').capitalize()} failed at a streamer{against_usual(failed)}"
    if letters is None or not letters["messages"]:
        return f"{sentence}; the reasons are unknown{worse}."
    first = letters["reasons"][0]
    only = "all" if first["messages"] == letters["messages"] else f"{share(first['messages'] / letters['messages'])} of them"
    how = REASONS.get(first["outcome"], first["outcome"])
    return f"{sentence}; {only} {how} ({short_name(first['ucode'] or 'no reason given')}){worse}."


def _speed(figures: Figures) -> str:
    latency, slo = figures["latency"], figures["slo"]
    parts, verb = [], "was" if slo and slo["met"] == 1 else "were"
    if latency is None:
        parts.append("The latency is unknown, because the table latency_daily was not written")
    elif not latency["routes"]:
        parts.append("No message was delivered, so there is no latency to report")
    else:
        route = latency["routes"][0]
        where = f"{short_name(route['route'])} of {short_name(route['streamer'])}"
        parts.append(
            f"On the busiest route, {where}, half of the messages took at most "
            f"{duration_us(route['latency_p50_us'])} and 99 of 100 at most {duration_us(route['latency_p99_us'])}"
        )
    if slo is None:
        parts.append("the service objectives were not evaluated")
    elif not slo["objectives"]:
        parts.append("no service objectives are set")
    elif slo["met"] == slo["objectives"]:
        parts.append(
            "the service objective was met" if slo["met"] == 1 else f"all {count(slo['met'])} service objectives were met"
        )
    else:
        parts.append(f"{count(slo['met'])} of {plural(slo['objectives'], 'service objective')} {verb} met")
    return "; ".join(parts) + "."


def _faults(health: Figures) -> str:
    """What else keeps the traces from being trusted, to follow a sentence."""
    told = ""
    if left_out := health["totals"]["files_left_out"]:
        where = [short_name(row["streamer"]) for row in health["rows"] if row["files_left_out"]]
        told += f"; {plural(left_out, 'file')} of {listing(where)} could not be used"
    if wrong := health["totals"]["records_impossible"]:
        where = [short_name(row["streamer"]) for row in health["rows"] if row["records_impossible"]]
        told += f"; {plural(wrong, 'record')} of {listing(where)} cannot be: a number twice, a negative latency, no outcome"
    if health["clocks"]:
        names = [_clock(row) for row in health["clocks"]] + [""] * health["more_clocks"]
        told += f"; clocks are wrong: {listing(names)}"
    return told


def _clock(row: Figures) -> str:
    by, side = duration_us(abs(row["clock_skew_ms"]) * 1000), "ahead of" if row["clock_skew_ms"] > 0 else "behind"
    return f"{short_name(row['streamer'])} by {by} {side} {short_name(row['skew_against'])}"


def _trust(figures: Figures) -> str:
    health, anomalies = figures["health"], figures["anomalies"]
    if health is None:
        trust = "It is unknown whether the traces are complete, because the table streamer_health was not written"
    elif not health["totals"]["streamers"]:
        trust = "No streamer wrote traces for this day"
    elif missing := health["totals"]["records_missing"]:
        of = missing + health["totals"]["records"]
        where = [short_name(row["streamer"]) for row in health["rows"] if row["records_missing"]]
        trust = f"The traces lack {plural(missing, 'record')} of {count(of)} ({share(missing / of)}), at {listing(where)}"
    else:
        trust = "The traces are complete"
        if health["totals"]["files_left_out"]:
            trust = "No trace record is missing in the files that were read"
    trust += _faults(health) if health else ""
    if anomalies is None:
        return f"{trust}; the search for anomalies did not run."
    found = _all(anomalies)
    if not found and not is_compared(figures):
        return f"{trust}; it takes {LEAST_DAYS} earlier days to tell which hours are unusual."
    if not found:
        return f"{trust}, and no hour differed unusually from the same hour of the days before."
    first = anomalies["rows"][0]
    hours = "1 hour of a route" if found == 1 else f"{count(found)} hours of routes"
    metric = METRICS.get(first["metric"], first["metric"])
    return (
        f"{trust}; {hours} differed unusually from the days before, {'namely' if found == 1 else 'most of all'} the "
        f"{metric} on {short_name(first['route'])} at {first['hour']:02d}:00 UTC."
    )
