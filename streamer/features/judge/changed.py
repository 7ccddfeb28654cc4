"""Finds the settings in which two configurations differ in meaning, and says them in words. Pure.

The law of this file:
- What is compared is the meaning: defaults that are written out, the order of keys and of lists that are sets, units, and
  other spellings of a pattern change nothing.
- An endpoint or a route with another name and otherwise the same is one that was renamed.
- Values are shown as `streamer.config.shown` shows them: no secret, no user name. Where such a value differs, only that it
  does is said.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from streamer.config.models import Config, EndpointConfig
from streamer.config.permissions import EVERYTHING, TYPES, RuleConfig
from streamer.config.shown import shown_value

Location = tuple[str | int, ...]

_SETS = frozenset(("authorities", "publish", "publish_to", "types", "local", "hosts", "allow", "fetch", "reset", "topics"))
"""Keys whose lists have no order."""
_PLAIN = re.compile(r"[\w./:@*+%?#;()-]+", re.ASCII)
_RULE = {"allow", "deny"}
"""The keys of a permission rule, one of which is null."""
_MOST = 400
"""Characters of a value that are shown."""


class Setting(NamedTuple):
    """A setting that differs. ``before`` and ``after`` are values of JSON, None if the key is not there, without secrets."""

    key: str
    before: Any
    after: Any
    text: str

    @property
    def is_harmless(self) -> bool:
        """Whether it can neither lose nor expose a message: it is about logs or traces, or a name."""
        section, _, rest = self.key.partition(".")
        is_name = "." not in rest and isinstance(self.before, str) and isinstance(self.after, str)
        return section in ("log", "trace") or (section in ("endpoints", "routes") and is_name)


def changed_settings(old: Config, new: Config) -> list[Setting]:
    """Return the settings in which the meaning differs, in the order of the file."""
    renamed = renamed_endpoints(old, new)
    before, after = _comparable(old, renamed), _comparable(new, {})
    _pair_routes(before, after)
    found = [_named_anew("endpoints", one, other) for one, other in renamed.items()]
    found += _routes_named_anew(before, after)
    found += _compared(before, after, ())
    return found


def renamed_endpoints(old: Config, new: Config) -> dict[str, str]:
    """Return the endpoints that are the same under another name: old name → new name."""
    gone = [name for name in old.endpoints if name not in new.endpoints]
    come = [name for name in new.endpoints if name not in old.endpoints]
    renamed: dict[str, str] = {}
    for name in gone:
        same = (each for each in come if _is_same(old.endpoints[name], new.endpoints[each]))
        if (found := next(same, None)) is not None:
            renamed[name] = found
            come.remove(found)
    return renamed


def _is_same(one: EndpointConfig, other: EndpointConfig) -> bool:
    alike = (one.transport, sorted(one.authorities)) == (other.transport, sorted(other.authorities))
    return alike and one.options == other.options


def _named_anew(section: str, before: str, after: str) -> Setting:
    return Setting(f"{section}.{before}", before, after, f"{section}.{_word(before)} is called {_word(after)}")


def _comparable(config: Config, renamed: Mapping[str, str]) -> dict[str, Any]:
    """Return a configuration as mappings and lists whose equality is that of the meaning, with the names of endpoints."""
    data = config.model_dump(mode="json", by_alias=True)
    data["endpoints"] = {renamed.get(name, name): each for name, each in data["endpoints"].items()}
    if data["permissions"] is not None:
        sections = data["permissions"]["endpoints"]
        data["permissions"]["endpoints"] = {renamed.get(name, name): each for name, each in sections.items()}
    data["dead_letter"]["endpoints"] = sorted(renamed.get(name, name) for name in data["dead_letter"]["endpoints"])
    common = data["queue_policy"]
    routes = {}
    for each in data["routes"]:
        each["from"], each["to"] = renamed.get(each["from"], each["from"]), renamed.get(each["to"], each["to"])
        each |= {key: _own(value, common[key]) for key, value in each.pop("queue_policy").items()}
        routes[each["name"]] = each
    data["routes"] = routes
    broadcasts = data.get("multicast", ())  # not there in a program without them
    data["multicast"] = {f"{each['provider']} {each['broadcast']}": each for each in broadcasts}
    sorted_data: dict[str, Any] = _sorted(data, "")
    return sorted_data


class _Inherited(NamedTuple):
    """A value that a route has from the file's ``queue_policy``: a change there is said there."""

    value: Any


def _own(value: Any, common: Any) -> Any:
    return _Inherited(value) if value == common else value


def _sorted(value: Any, key: str) -> Any:
    """Return a value in which the lists that are sets are sorted."""
    if isinstance(value, _Inherited):
        return value
    if isinstance(value, dict):
        is_map = key == "identities"
        return {name: _sorted(each, "local" if is_map else name) for name, each in value.items()}
    if isinstance(value, list):
        items = [_sorted(each, "") for each in value]
        return sorted(items) if key in _SETS and all(isinstance(each, str) for each in items) else items
    return value


def _pair_routes(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Give the routes of ``before`` the names that those with the same ends have in ``after``."""
    names = {(each["from"], each["to"]): name for name, each in after["routes"].items()}
    before["routes"] = {
        names.get((each["from"], each["to"]), f"{name} (earlier)" if name in after["routes"] else name): each
        for name, each in before["routes"].items()
    }


def _routes_named_anew(before: dict[str, Any], after: dict[str, Any]) -> list[Setting]:
    found = []
    for name, each in before["routes"].items():
        earlier = each.pop("name")
        if name in after["routes"] and earlier != name:
            found.append(_named_anew("routes", earlier, name))
    for each in after["routes"].values():
        each.pop("name")
    return found


def _compared(before: Any, after: Any, location: Location) -> Iterator[Setting]:
    if isinstance(before, _Inherited) and isinstance(after, _Inherited):
        return
    before, after = _value(before), _value(after)
    if before == after:
        return
    if location[:1] == ("permissions",) and location[-1:] == ("rules",):
        yield from _rules(before or [], after or [], location)
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            if key not in after or key not in before:
                yield _came_or_went(before.get(key), after.get(key), key in after, (*location, key))
            else:
                yield from _compared(before[key], after[key], (*location, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(before, after, location)
    else:
        yield _replaced(before, after, location)


def _value(value: Any) -> Any:
    return value.value if isinstance(value, _Inherited) else value


def _own_only(value: Any) -> Any:
    """Return a value without what a route inherits."""
    if isinstance(value, dict):
        return {key: _own_only(each) for key, each in value.items() if not isinstance(each, _Inherited)}
    return value


def _came_or_went(before: Any, after: Any, has_come: bool, location: Location) -> Setting:
    before, after = _shown(before, location), _shown(after, location)
    text = f"{_dotted(location)}: new, {_said(after)}" if has_come else f"{_dotted(location)}: removed, {_said(before)}"
    return Setting(_dotted(location), before, after, text)


def _replaced(before: Any, after: Any, location: Location) -> Setting:
    before, after = _shown(before, location), _shown(after, location)
    key = _dotted(location)
    text = f"{key}: another value (withheld)" if before == after else f"{key}: {_said(after)} instead of {_said(before)}"
    return Setting(key, before, after, text)


def _lists(before: list[Any], after: list[Any], location: Location) -> Iterator[Setting]:
    """Yield what was removed from a list and added to it, or that its order is another one."""
    key = _dotted(location)
    gone, come = _without(before, after), _without(after, before)
    shown_before, shown_after = _shown(before, location), _shown(after, location)
    if not gone and not come:
        yield Setting(key, shown_before, shown_after, f"{key}: another order, {_said(shown_after)}")
        return
    parts = [f"no longer {_said(each)}" for each in _shown(gone, location)]
    parts += [f"now also {_said(each)}" for each in _shown(come, location)]
    yield Setting(key, shown_before, shown_after, f"{key}: {'; '.join(parts)}")


def _without(items: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    left, found = [*others], []
    for each in items:
        if each in left:
            left.remove(each)
        else:
            found.append(each)
    return found


# permission rules


def _rules(before: list[Any], after: list[Any], location: Location) -> Iterator[Setting]:
    """Yield the rules that were removed and added, and those whose order has changed and matters."""
    key = _dotted(location)
    gone, come = _without(before, after), _without(after, before)
    shown_before, shown_after = [_rule(each) for each in before], [_rule(each) for each in after]
    parts = [f"no longer {_rule(each)}" for each in gone] + [f"now also {_rule(each)}" for each in come]
    first, second = ([each for each in rules if each not in other] for rules, other in ((before, gone), (after, come)))
    parts += [f"{_rule(later)} comes before {_rule(earlier)} now" for earlier, later in _reversed(first, second)]
    if parts:
        yield Setting(key, shown_before, shown_after, f"{key}: {'; '.join(parts)}")


def _reversed(before: list[Any], after: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of rules whose order is reversed, although some message matches both and they treat it differently."""
    if before == after:
        return
    for at, earlier in enumerate(before):
        for later in before[at + 1 :]:
            if earlier != later and after.index(earlier) > after.index(later) and _treat_differently(earlier, later):
                yield earlier, later


def _treat_differently(one: Any, other: Any) -> bool:
    first, second = (RuleConfig.model_validate(each) for each in (one, other))
    about, also = first.allow or first.deny, second.allow or second.deny
    assert about is not None
    assert also is not None
    if not set(about.types) & set(also.types):
        return False
    if about.from_.common(also.from_) is None or about.to.common(also.to) is None:
        return False
    if first.allow is None or second.allow is None:
        return first.allow is not second.allow
    return (first.allow.max_priority, first.allow.rate) != (second.allow.max_priority, second.allow.rate)


def _rule(rule: Any) -> str:
    """Return a permission rule in words."""
    word = "allow" if rule["allow"] is not None else "deny"
    about = rule[word]
    is_all = sorted(about["types"]) == sorted(TYPES)
    text = f"{word} {'everything' if is_all else ', '.join(sorted(about['types']))}"
    text += "".join(f" {end} {about[end]}" for end in ("from", "to") if about[end] != EVERYTHING)
    if about.get("max_priority", "CS6") != "CS6":
        text += f", at most {about['max_priority']}"
    if about.get("rate") is not None:
        text += f", rate {_said(about['rate'])}"
    return text


# text


def _shown(value: Any, location: Location) -> Any:
    return shown_value(_own_only(value), location)


def _said(value: Any) -> str:
    """Return a value for a sentence: on one line, so that no text of the file can pass for another line."""
    if isinstance(value, str):
        text = _word(value)
    elif isinstance(value, Mapping) and value.keys() == _RULE:
        text = _rule(value)
    elif isinstance(value, Mapping):
        text = ", ".join(f"{_word(key)} {_nested(each)}" for key, each in value.items() if each is not None) or "{}"
    elif isinstance(value, list):
        text = f"[{'; '.join(map(_nested, value))}]"
    elif isinstance(value, float):
        text = f"{value:.15g}"
    else:
        text = json.dumps(value)
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def _nested(value: Any) -> str:
    is_nested = isinstance(value, Mapping) and bool(value) and value.keys() != _RULE
    return f"({_said(value)})" if is_nested else _said(value)


def _word(text: str) -> str:
    """Return a text as it is if it is plain, else in quotes with escapes."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _dotted(location: Location) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{_word(part)}"
    return text
