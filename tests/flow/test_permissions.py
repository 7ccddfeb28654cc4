"""Attacks by peers that may connect: what they send comes in only as far as `permissions` allows it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamer.delivery.lifecycle.reload import Reload
from streamer.features.api.metrics import Exposition
from streamer.logs import audit
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import Provenance, UMessage, UPriority, response
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.harness import CLIMATE, CLOUD_APP, CLOUD_METHOD, ORDERS, VEHICLE_APP, RouterHarness, configuration
from tests.flow.journaled_run import journaled_run, order
from tests.tokens import AUDIENCE, ISSUER, OTHER_KEY, jwk, token, write_keys

STRANGER = UUri("stranger", 0xC0, 1, 0)


def guarded(
    *rules: dict[str, Any],
    methods: list[dict[str, Any]] | None = None,
    tap: dict[str, Any] | None = None,
    routes: Any = None,
    **cloud: Any,
) -> RouterHarness:
    """The vehicle may send everything, the cloud what these rules allow."""
    endpoints = {"vehicle": {"rules": [{"allow": {}}]}, "cloud": {"rules": list(rules), **cloud}}
    changes = {} if routes is None else {"routes": routes}
    return RouterHarness(
        configuration(permissions={"endpoints": endpoints, "methods": methods or [], "tap": tap}, **changes)
    )


def answers(h: RouterHarness) -> dict[bytes | None, UCode | None]:
    """What the cloud's Requests were answered with, by their ids."""
    return {m.attributes.reqid: m.attributes.commstatus for m in h.sent("cloud")}


def sent_by(message: UMessage, identity: str | None) -> UMessage:
    """As if a network had proved who sent it."""
    return replace(message, attributes=replace(message.attributes, provenance=Provenance(identity)))


@pytest.fixture(autouse=True)
def audit_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What earlier tests have denied counts in no bound of the audit log."""
    monkeypatch.setattr(audit, "_denials", audit.denials())
    caplog.set_level(logging.DEBUG)


# rules


async def test_a_stranger_s_request_is_denied_and_it_learns_nothing_of_the_rules() -> None:
    async with guarded({"allow": {"from": "//cloud/FFFFFFFF/FF/FFFF"}}) as h:
        h.arrive("cloud", asked := h.ask(STRANGER))
        assert h.sent("vehicle") == []
        (answer,) = h.sent("cloud")
        assert (answer.attributes.reqid, answer.attributes.commstatus) == (asked.id, UCode.PERMISSION_DENIED)
        assert b"not allowed" in (answer.payload or b"")
        assert b"rule" not in (answer.payload or b"")
        assert b"cloud" not in (answer.payload or b"")
        h.arrive("cloud", allowed := h.ask(CLOUD_APP))
        assert h.sent("vehicle") == [allowed]


async def test_the_answer_to_an_allowed_request_goes_back() -> None:
    async with guarded({"allow": {"types": ["request"]}}) as h:
        h.arrive("cloud", asked := h.ask())
        h.arrive("vehicle", answer := response(h.clock.ms, asked))
        assert h.sent("cloud") == [answer]


async def test_an_unasked_response_or_notification_is_denied_where_only_requests_are_allowed() -> None:
    async with guarded({"allow": {"types": ["request"]}}) as h:
        asked = h.ask(VEHICLE_APP, CLOUD_METHOD)
        h.arrive("cloud", response(h.clock.ms, asked), h.notify(source=ORDERS, sink=VEHICLE_APP))
        assert h.sent("vehicle") == []
        assert h.outcomes("none") == {"rejected": 2}


@pytest.mark.parametrize("is_listed", [True, False], ids=["by a pattern", "by interest"])
async def test_a_publish_is_denied_however_it_would_be_forwarded(is_listed: bool) -> None:
    publish = ["//*/FFFFFFFF/FF/FFFF"] if is_listed else []
    async with guarded(
        {"deny": {"to": str(ORDERS)}}, {"allow": {}}, routes=[{"from": "cloud", "to": "vehicle", "publish": publish}]
    ) as h:
        other = ORDERS._replace(resource=0x9001)
        for topic in (ORDERS, other):
            h.router.set_interest(topic, {"veh1": 0}, "test")
        await asyncio.sleep(0)  # the turn of the loop after which it holds
        await h.router.listening.catch_up()
        h.arrive("cloud", h.speed(source=ORDERS), allowed := h.speed(source=other))
        assert h.sent("vehicle") == [allowed]
        assert h.outcomes("none") == {"rejected": 1}


async def test_an_endpoint_that_the_section_forgets_lets_nothing_in() -> None:
    config = configuration(permissions={"endpoints": {"cloud": {"rules": [{"allow": {}}]}}})
    async with RouterHarness(config) as h:
        h.arrive("vehicle", h.notify(), h.speed())
        assert h.sent("cloud") == []
        assert h.outcomes("none") == {"rejected": 2}


async def test_a_reload_closes_and_opens_at_once() -> None:
    async with guarded({"allow": {}}) as h:
        h.arrive("cloud", first := h.ask())
        section = h.config.permissions
        assert section is not None
        closed = section.model_copy(update={"endpoints": {"vehicle": section.endpoints["vehicle"]}})
        await Reload(h.router, h.config.model_copy(update={"permissions": closed})).run()
        h.arrive("cloud", h.ask())
        assert h.sent("vehicle") == [first]
        await Reload(h.router, h.config).run()
        h.arrive("cloud", third := h.ask())
        assert h.sent("vehicle") == [first, third]


async def test_redriven_letters_are_judged_by_the_rules_of_the_day_and_by_who_sent_them(tmp_path: Path) -> None:
    def section(rules: list[dict[str, Any]]) -> dict[str, Any]:
        cloud = {"identities": {"backend-7f": ["cloud"]}, "rules": rules}
        return {"endpoints": {"cloud": cloud, "vehicle": {"rules": [{"allow": {}}]}}}

    async with journaled_run(tmp_path / "j.db", permissions=section([{"allow": {}}])) as run:
        run.harness.transports["vehicle"].refuse = lambda message: PermanentError(UCode.UNAVAILABLE, "no")
        message = sent_by(order(run.harness, b"again", ttl=60_000), "backend-7f")
        run.harness.arrive("cloud", message)
        await run.flush()
        run.harness.transports["vehicle"].refuse = lambda message: None
        await Reload(run.harness.router, configuration(permissions=section([]))).run()
        run.harness.router.redrive.take(run.letters, [None])
        assert run.harness.sent("vehicle") == []
        assert run.harness.outcomes("none") == {}
        await run.flush()
        assert [letter.outcome for letter in run.letters] == ["dead_lettered"]  # the one that was there
        await Reload(run.harness.router, configuration(permissions=section([{"allow": {}}]))).run()
        run.harness.router.redrive.take(run.letters, [None])
        assert [each.id for each in run.harness.sent("vehicle")] == [message.id]


# identities


async def test_nobody_speaks_for_an_authority_that_is_not_bound_to_its_identity() -> None:
    async with guarded({"allow": {}}, identities={"backend-7f": ["cloud"]}) as h:
        asked = h.ask()
        h.arrive("cloud", sent_by(asked, "mallory"), sent_by(h.ask(), None), sent_by(h.ask(STRANGER), "backend-7f"))
        assert h.sent("vehicle") == []
        assert h.outcomes("none") == {"rejected": 3}
        h.arrive("cloud", sent_by(asked, "backend-7f"))  # its id was not taken by the one that was not allowed
        assert [message.id for message in h.sent("vehicle")] == [asked.id]


async def test_a_message_without_a_proven_sender_does_not_wait_for_an_original() -> None:
    """It came in where its source lives: it is no misrouted copy."""
    async with guarded({"allow": {}}, identities={"backend-7f": ["cloud"]}) as h:
        (received,) = h.arrive("cloud", h.notify(source=ORDERS, sink=VEHICLE_APP))
        assert h.outcomes("none") == {"rejected": 1}
        assert received.acknowledged


async def test_decisions_for_one_identity_are_not_used_for_another() -> None:
    async with guarded({"allow": {}}, identities={"backend-7f": ["cloud"]}) as h:
        for identity in ("backend-7f", "mallory", "backend-7f", None):
            h.arrive("cloud", sent_by(h.ask(), identity))
        assert len(h.sent("vehicle")) == 2


# what a message says of itself


async def test_messages_above_the_ceiling_do_not_overtake() -> None:
    async with guarded({"allow": {}}, max_priority="CS2") as h:
        h.transports["vehicle"].lose_link()
        low = h.notify(source=ORDERS, sink=VEHICLE_APP, priority=UPriority.CS3)
        high = h.notify(source=ORDERS._replace(resource=0x9001), sink=VEHICLE_APP, priority=UPriority.CS6)
        h.arrive("cloud", low, high)
        h.transports["vehicle"].restore_link()
        h.pass_time(50)
        sent = h.sent("vehicle")
        assert [message.id for message in sent] == [low.id, high.id]
        assert [message.attributes.priority for message in sent] == [UPriority.CS3, UPriority.CS6]


@pytest.mark.parametrize(("claimed", "arrives"), [(5, 2), (2, 2), (1, 1), (None, None)])
async def test_a_permission_level_leaves_no_higher_than_its_endpoint_may_claim(
    claimed: int | None, arrives: int | None
) -> None:
    async with guarded({"allow": {}}, max_permission_level=2) as h:
        h.arrive("cloud", h.ask(permission_level=claimed))
        assert [message.attributes.permission_level for message in h.sent("vehicle")] == [arrives]


async def test_a_method_is_called_only_with_the_level_that_it_demands() -> None:
    async with guarded(
        {"allow": {}}, methods=[{"method": str(CLIMATE), "permission_level": 2}], max_permission_level=2
    ) as h:
        low, none, high = (h.ask(permission_level=level) for level in (1, None, 9))
        h.arrive("cloud", low, none, high)
        assert [message.id for message in h.sent("vehicle")] == [high.id]
        assert {(m.attributes.reqid, m.attributes.commstatus) for m in h.sent("cloud")} == {
            (low.id, UCode.PERMISSION_DENIED),
            (none.id, UCode.PERMISSION_DENIED),
        }


async def test_a_method_demands_its_level_of_requests_from_every_endpoint() -> None:
    async with guarded({"allow": {}}, methods=[{"method": str(CLOUD_METHOD), "permission_level": 1}]) as h:
        h.arrive("vehicle", h.ask(VEHICLE_APP, CLOUD_METHOD, permission_level=1))
        assert [message.attributes.type for message in h.sent("cloud")] == []
        assert [message.attributes.commstatus for message in h.sent("vehicle")] == [UCode.PERMISSION_DENIED]


async def test_a_duplicate_is_known_although_it_left_with_other_attributes() -> None:
    async with guarded({"allow": {}}, max_priority="CS0", max_permission_level=0) as h:
        message = h.ask(permission_level=7)
        h.arrive("cloud", message, message)
        assert len(h.sent("vehicle")) == 1
        assert h.outcomes("none") == {"duplicate": 1}


# rates


async def test_a_source_authority_that_sends_more_than_its_rule_allows_is_refused_the_rest() -> None:
    async with guarded({"allow": {"rate": {"messages": 2}}}) as h:
        fast = [h.ask() for _ in range(5)]
        h.arrive("cloud", *fast)
        h.arrive("cloud", other := h.ask(STRANGER))
        assert h.sent("vehicle") == [*fast[:2], other]
        assert answers(h) == {message.id: UCode.RESOURCE_EXHAUSTED for message in fast[2:]}
        h.pass_time(500)
        h.arrive("cloud", later := h.ask(), h.ask())
        assert h.sent("vehicle")[3:] == [later]


async def test_a_rule_counts_bytes_as_well_and_the_flows_of_an_authority_together() -> None:
    async with guarded({"allow": {"rate": {"bytes": 1000}}}) as h:
        messages = [h.ask(CLOUD_APP._replace(ue_id=flow + 1), payload=b"x" * 400) for flow in range(4)]
        h.arrive("cloud", *messages)
        assert h.sent("vehicle") == messages[:1]  # with its 600 bytes of bookkeeping it is as large as the burst


async def test_rules_count_apart_and_duplicates_do_not_count() -> None:
    rate = {"messages": 1}
    async with guarded({"allow": {"to": str(CLIMATE), "rate": rate}}, {"allow": {"rate": rate}}) as h:
        first, second = h.ask(), h.ask(method=CLIMATE._replace(resource=8))
        h.arrive("cloud", first, first, second, second)
        assert h.sent("vehicle") == [first, second]
        h.pass_time(1000)
        h.arrive("cloud", first, third := h.ask())
        assert h.sent("vehicle") == [first, second, third]


async def test_invented_authorities_share_one_pace_beyond_a_number() -> None:
    async with guarded({"allow": {"rate": {"messages": 1}}}) as h:
        h.arrive("cloud", *(h.ask(STRANGER._replace(authority=f"s{n}")) for n in range(2000)))
        assert len(h.sent("vehicle")) == 257


async def test_a_message_that_waits_for_room_is_counted_once() -> None:
    config = configuration(
        permissions={"endpoints": {"cloud": {"rules": [{"allow": {"rate": {"messages": 3}}}]}, "vehicle": {}}},
        queue_policy={"queue": {"messages": 1}},
    )
    async with RouterHarness(config) as h:
        h.transports["vehicle"].lose_link()
        messages = [h.ask() for _ in range(4)]
        h.arrive("cloud", *messages)
        h.transports["vehicle"].restore_link()
        h.pass_time(50)
        assert h.sent("vehicle") == messages[:3]


async def test_a_reload_that_leaves_a_rule_as_it_was_gives_no_new_burst() -> None:
    async with guarded({"allow": {"rate": {"messages": 1}}}) as h:
        h.arrive("cloud", first := h.ask())
        await Reload(h.router, h.config).run()
        h.arrive("cloud", h.ask())
        assert h.sent("vehicle") == [first]


# tokens


UNLOCK = [{"method": str(CLIMATE), "tap": True}]


@pytest.fixture
def tap(tmp_path: Path) -> dict[str, Any]:
    options = {"jwks_file": str(write_keys(tmp_path / "jwks.json")), "issuer": ISSUER, "audience": AUDIENCE}
    return {"verifier": "jwt", "options": options}


async def a_second(h: RouterHarness) -> None:
    """Let a second pass, in which the file of keys is read on its thread."""
    h.pass_time(500)
    assert h.router._tokens._reading is not None
    await h.router._tokens._reading
    h.pass_time(500)


async def test_a_method_that_wants_a_token_is_called_only_with_a_good_one_for_it(tap: dict[str, Any]) -> None:
    async with guarded({"allow": {}}, methods=UNLOCK, tap=tap) as h:
        now_s = h.clock.ms / 1000
        good = h.ask(token=token(now_s, scope=[str(CLIMATE)]))
        missing, expired = h.ask(), h.ask(token=token(now_s - 1000, scope=[str(CLIMATE)]))
        other, forged = h.ask(token=token(now_s, scope=["//veh1/C/1/7"])), h.ask(token=token(now_s, key=OTHER_KEY))
        h.arrive("cloud", good, missing, expired, other, forged)
        assert h.sent("vehicle") == [good]
        assert answers(h) == {
            missing.id: UCode.PERMISSION_DENIED,
            expired.id: UCode.UNAUTHENTICATED,
            other.id: UCode.PERMISSION_DENIED,
            forged.id: UCode.UNAUTHENTICATED,
        }
        assert all(b"not allowed" in (m.payload or b"") for m in h.sent("cloud"))


async def test_tokens_beyond_the_rate_of_a_rule_are_not_verified(tap: dict[str, Any]) -> None:
    async with guarded({"allow": {"rate": {"messages": 2}}}, methods=UNLOCK, tap=tap) as h:
        forged = [h.ask(STRANGER, token=token(h.clock.ms / 1000, key=OTHER_KEY, jti=n)) for n in range(4)]
        h.arrive("cloud", *forged)
        assert [answers(h)[message.id] for message in forged] == [
            UCode.UNAUTHENTICATED,
            UCode.UNAUTHENTICATED,
            UCode.RESOURCE_EXHAUSTED,
            UCode.RESOURCE_EXHAUSTED,
        ]
        h.arrive("cloud", good := h.ask(token=token(h.clock.ms / 1000, scope=[str(CLIMATE)])))
        assert h.sent("vehicle") == [good]


async def test_the_token_of_a_request_that_has_expired_is_not_verified(tap: dict[str, Any]) -> None:
    async with guarded({"allow": {}}, methods=UNLOCK, tap=tap) as h:
        late = h.ask(STRANGER, token=token(h.clock.ms / 1000, key=OTHER_KEY))
        h.pass_time(2000)
        h.arrive("cloud", late)
        assert answers(h) == {late.id: UCode.DEADLINE_EXCEEDED}


async def test_a_token_is_good_until_it_expires_and_not_longer(tap: dict[str, Any]) -> None:
    async with guarded({"allow": {}}, methods=UNLOCK, tap=tap) as h:
        text = token(h.clock.ms / 1000, scope=[str(CLIMATE)])
        h.arrive("cloud", first := h.ask(token=text))
        h.pass_time(100_000)
        h.arrive("cloud", h.ask(token=text))
        assert h.sent("vehicle") == [first]


async def test_a_token_withdrawn_by_a_change_of_keys_is_refused_within_a_second(
    tap: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded({"allow": {}}, methods=UNLOCK, tap=tap) as h:
        text = token(h.clock.ms / 1000, scope=[str(CLIMATE)])
        h.arrive("cloud", first := h.ask(token=text))
        write_keys(Path(tap["options"]["jwks_file"]), jwk(OTHER_KEY, kid="new"))
        await a_second(h)
        h.arrive("cloud", h.ask(token=text))
        assert h.sent("vehicle") == [first]
        assert set(answers(h).values()) == {UCode.UNAUTHENTICATED}
        assert "its token: no key that we know is for it" in caplog.text


WITHDRAWN: dict[str, Callable[[Path], object]] = {
    "the set is empty": lambda keys: keys.write_text('{"keys": []}'),
    "a symmetric key alone": lambda keys: keys.write_text('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'),
    "no set": lambda keys: keys.write_text("nothing"),
    "the file is gone": Path.unlink,
}


@pytest.mark.parametrize("withdraw", WITHDRAWN.values(), ids=WITHDRAWN)
async def test_a_reload_leaves_no_key_that_the_file_does_not_have(
    tap: dict[str, Any], withdraw: Callable[[Path], object]
) -> None:
    async with guarded({"allow": {}}, methods=UNLOCK, tap=tap) as h:
        text = token(h.clock.ms / 1000, scope=[str(CLIMATE)])
        h.arrive("cloud", first := h.ask(token=text))
        withdraw(Path(tap["options"]["jwks_file"]))
        await Reload(h.router, h.config).run()
        h.arrive("cloud", again := h.ask(token=text))
        assert h.sent("vehicle") == [first]
        assert answers(h)[again.id] == UCode.UNAUTHENTICATED


async def test_the_metrics_say_whether_the_keys_can_be_read_and_nothing_where_there_are_none(tap: dict[str, Any]) -> None:
    name = b"\nustreamer_token_verifier_up "
    async with guarded({"allow": {}}) as h:
        assert name not in Exposition(h.router).text()
    async with guarded({"allow": {}}, methods=UNLOCK, tap=tap) as h:
        assert name + b"1.0" in Exposition(h.router).text()
        write_keys(Path(tap["options"]["jwks_file"])).unlink()
        await a_second(h)
        assert name + b"0.0" in Exposition(h.router).text()


async def test_no_token_is_in_the_audit_log(tap: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    async with guarded({"allow": {}}, methods=UNLOCK, tap=tap) as h:
        h.arrive("cloud", h.ask(token=(text := token(h.clock.ms / 1000, key=OTHER_KEY))))
    assert "its token: its signature is wrong" in caplog.text
    assert not any(part in caplog.text for part in text.split("."))


async def test_each_denied_request_of_a_large_batch_is_in_the_audit_log_once(
    tap: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded({"allow": {}}, methods=UNLOCK, tap=tap) as h:
        allowed = [h.ask(token=token(h.clock.ms / 1000, scope=[str(CLIMATE)])) for _ in range(30)]
        h.arrive("cloud", h.ask(), *allowed, h.ask())
    lines = [record.getMessage() for record in caplog.records if record.name == audit.NAME]
    assert len([line for line in lines if "denied" in line]) == 2, lines


# the audit log


async def test_a_denied_flow_is_in_the_audit_log_once_with_the_rule(caplog: pytest.LogCaptureFixture) -> None:
    async with guarded({"deny": {"from": str(STRANGER)}}, {"allow": {}}) as h:
        h.arrive("cloud", *(h.ask(STRANGER, payload=b"secret") for _ in range(3)), h.ask())
    lines = [record.getMessage() for record in caplog.records if record.name == "streamer.audit"]
    assert lines == [
        f"denied who={STRANGER} where=cloud type=request sink={CLIMATE} "
        "because=permissions.endpoints.cloud.rules[0] denies it"
    ]
