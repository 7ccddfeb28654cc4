"""The files that people deploy with must fit what the program does: numbers, names, command lines, versions."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.config.exposure import exposures
from streamer.config.load import load, warnings
from streamer.config.metrics import MetricsConfig
from streamer.config.models import Config, ShutdownConfig
from streamer.daemon import CLOSING_S
from streamer.features.every import FILE
from streamer.features.pair.config import PairConfig
from streamer.main import _parser
from streamer.tools.text import DEFAULT_CONFIG
from streamer.transports.zenoh.options import session_config
from tests.unit.deployed import MIB, ROOT, coming_version, dockerfile, instruction, memory_bytes, project, unit

SERVICE = unit()["Service"]


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "deploy/container/compose.yaml").read_text())
    return loaded


def test_systemd_is_told_when_the_service_is_ready() -> None:
    assert SERVICE["Type"] == "notify"
    assert SERVICE["NotifyAccess"] == "main"


def test_systemd_reloads_by_the_command_that_waits_for_the_answer() -> None:
    program = SERVICE["ExecStart"].split()[0]
    assert SERVICE["ExecReload"].split()[:2] == [program, "reload"]


def test_systemd_watches_with_time_enough_for_a_slow_tick() -> None:
    assert 10 <= int(SERVICE["WatchdogSec"]) <= 60


def test_systemd_docker_and_kubernetes_give_a_stop_the_time_that_it_may_take() -> None:
    chart = (ROOT / "deploy/helm/ustreamer/templates/_helpers.tpl").read_text()
    grace = compose()["services"]["streamer"]["stop_grace_period"].removesuffix("s")
    image = re.findall(r"--stop-timeout (\d+)", (ROOT / "Dockerfile").read_text())
    assert {int(text) for text in (SERVICE["TimeoutStopSec"], grace, *image)} == {ShutdownConfig().drain_s + CLOSING_S}
    assert re.findall(r"default \(add \$drain (\d+)\)", chart) == [f"{CLOSING_S:g}"]
    assert f"`drain_s` and {CLOSING_S:g} s more" in (ROOT / "docs/operations.md").read_text()


def test_a_bad_configuration_is_not_started_again_and_a_crash_is() -> None:
    assert SERVICE["Restart"] == "on-failure"
    assert SERVICE["RestartPreventExitStatus"] == "78"
    assert "ExecStartPre" not in SERVICE  # its status 78 would be ignored
    limits = unit()["Unit"]
    within_s, starts = int(limits["StartLimitIntervalSec"]), int(limits["StartLimitBurst"])
    assert starts * int(SERVICE["RestartSec"]) < within_s, "the limit would never be reached"


def test_state_is_kept_where_the_journal_and_the_traces_go() -> None:
    assert SERVICE["StateDirectory"] == "streamer"
    assert SERVICE["User"] not in ("", "root", "0")


@pytest.mark.parametrize(
    "key",
    [
        "NoNewPrivileges",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectClock",
        "ProtectControlGroups",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "LockPersonality",
        "MemoryDenyWriteExecute",
    ],
)
def test_the_service_is_hardened(key: str) -> None:
    assert SERVICE[key] == "yes"


def test_the_service_has_no_capabilities_and_writes_to_its_state_only() -> None:
    assert SERVICE["CapabilityBoundingSet"] == ""
    assert SERVICE["ProtectSystem"] == "strict"
    assert set(SERVICE["RestrictAddressFamilies"].split()) == {"AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"}
    text = (ROOT / "deploy/systemd/streamer.service").read_text()
    filters = re.findall(r"^SystemCallFilter=(.*)$", text, re.MULTILINE)
    assert filters == [
        "@system-service",
        "~@privileged @resources",
        "setpriority",
    ]  # the last one for the compaction of traces


def commands() -> list[list[str]]:
    """Every command line of the unit that calls the streamer."""
    lines = (ROOT / "deploy/systemd/streamer.service").read_text().splitlines()
    found = [shlex.split(line.partition("=")[2]) for line in lines if re.match(r"Exec\w+=", line)]
    return [words[1:] for words in found if Path(words[0]).name == "streamer"]


def test_the_command_lines_of_the_unit_are_understood() -> None:
    parsed = [_parser().parse_args(words) for words in commands()]
    assert [arguments.command.__name__ for arguments in parsed] == ["_run", "_reload"]
    assert {arguments.config for arguments in parsed} == {None}  # USTREAMER_CONFIG of a drop-in applies to both


def test_what_starts_the_daemon_has_the_default_file() -> None:
    unit, image = (ROOT / "deploy/systemd/streamer.service").read_text(), (ROOT / "Dockerfile").read_text()
    assert str(DEFAULT_CONFIG) in unit
    assert f"streamer.yaml:{DEFAULT_CONFIG}:ro" in image
    assert "USTREAMER_CONFIG" not in image


def test_the_drop_in_of_a_pair_gives_the_key_to_where_its_configuration_looks_for_it(tmp_path: Path) -> None:
    path = ROOT / "deploy/systemd/pair.conf"
    service = unit(path)["Service"]
    assert service.keys() <= {"LoadCredential", "Environment"}, "the unit itself fits a pair"
    name, _, _ = service["LoadCredential"].partition(":")
    assert service["Environment"] == "STREAMER_SECRETS=%d"
    (example,) = re.findall(r"^#   pair:\n(?:#     .*\n)+", path.read_text(), re.MULTILINE)
    file = tmp_path / "streamer.yaml"
    file.write_text(
        (ROOT / "config/minimal.yaml").read_text() + "journal: {path: /j.db}\n" + re.sub("(?m)^#   ", "", example)
    )
    for environ, folder in (({"STREAMER_SECRETS": "/x"}, "/x"), ({}, "/run/credentials/streamer.service")):
        pair = load(file, environ, kind=FILE).section(PairConfig)
        assert pair is not None
        assert pair.key_file == Path(folder, name)


def test_the_image_is_built_in_two_stages_and_nothing_is_fetched_by_url() -> None:
    stages = dockerfile()
    assert len(stages) == 2
    assert not [line for stage in stages for line in stage if line.startswith("ADD ")]
    assert any(line.startswith("COPY --from=builder ") for line in stages[-1])


def test_the_image_runs_as_a_numbered_user_who_is_not_root() -> None:
    user = instruction(dockerfile()[-1], "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_the_image_starts_a_command_that_the_package_installs() -> None:
    final = dockerfile()[-1]
    (entry,) = yaml.safe_load(instruction(final, "ENTRYPOINT"))
    assert entry in project()["scripts"]
    arguments = _parser().parse_args(yaml.safe_load(instruction(final, "CMD")))
    assert arguments.command.__name__ == "_run"
    assert instruction(final, "STOPSIGNAL") == "SIGTERM"


def test_the_image_asks_for_health_where_the_daemon_answers_by_default() -> None:
    check = instruction(dockerfile()[-1], "HEALTHCHECK")
    assert f"http://{MetricsConfig().listen}/healthz" in check


def test_the_image_has_a_python_that_the_package_takes() -> None:
    required = re.fullmatch(r">=(\d+)\.(\d+)", project()["requires-python"])
    assert required is not None
    for stage in dockerfile():
        found = re.match(r"FROM python:(\d+)\.(\d+)-slim", stage[0])
        assert found is not None
        assert tuple(map(int, found.groups())) >= tuple(map(int, required.groups()))


def test_the_image_is_built_and_labelled_with_the_version_that_is_given() -> None:
    builder, final = dockerfile()
    assert [stage.count(f"ARG VERSION={default}") for stage, default in ((builder, ""), (final, "unknown"))] == [1, 1]
    assert 'org.opencontainers.image.version="${VERSION}"' in "".join(final)
    assert any('USTREAMER_VERSION="${VERSION}"' in line for line in builder)
    assert compose()["services"]["streamer"]["build"]["args"] == {"VERSION": "${USTREAMER_VERSION:-}"}


def test_what_the_compose_file_starts_comes_back_by_itself() -> None:
    assert {service["restart"] for service in compose()["services"].values()} == {"unless-stopped"}


@pytest.mark.parametrize("name", ["deploy/spark/cronjob.yaml", "deploy/spark/submit-kubernetes.sh", "docs/install.md"])
def test_examples_name_the_version_of_the_package(name: str) -> None:
    found = re.findall(r"(?:ustreamer-nightly:|streamer )(\d+\.\d+\.\d+)", (ROOT / name).read_text())
    assert set(found) == {coming_version()}


def test_only_what_the_image_needs_is_sent_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {word.removeprefix("./") for line in dockerfile()[0] if line.startswith("COPY ") for word in line.split()[1:-1]}
    assert "*" in lines
    assert kept == copied
    assert all((ROOT / name).exists() for name in kept)


def test_compose_starts_the_streamer_without_rights() -> None:
    streamer = compose()["services"]["streamer"]
    assert streamer["read_only"] is True
    assert streamer["cap_drop"] == ["ALL"]
    assert streamer["healthcheck"]["test"][1:] == yaml.safe_load(
        instruction(dockerfile()[-1], "HEALTHCHECK").partition("CMD ")[2]
    )


CONTAINER = ROOT / "deploy/container"


def contained() -> Config:
    """The configuration in the container."""
    return load(CONTAINER / "streamer.yaml", {}, kind=FILE)


def test_the_configuration_of_the_compose_file_is_good_and_nothing_in_it_is_open() -> None:
    config = contained()
    assert warnings(config) == []
    assert set(config.endpoints) == {"vehicle", "cloud"}
    assert config.metrics is not None
    assert config.metrics.port == MetricsConfig().port
    assert config.metrics.hosts == ["streamer", "streamer-b"]
    assert config.endpoints["cloud"].options.brokers[0].host in compose()["services"]
    assert config.permissions is not None


def test_every_file_of_the_container_is_mounted_where_it_is_looked_for() -> None:
    services, script = compose()["services"], (CONTAINER / "make-secrets.sh").read_text()
    for service, files in (("streamer", ("streamer.yaml", "zenoh.json5")), ("broker", ("mosquitto.conf",))):
        text = "".join((CONTAINER / file).read_text() for file in files) + str(services[service].get("command", ""))
        mounted = set(services[service]["secrets"])
        assert set(re.findall(r"/run/secrets/([\w.-]+)", text)) <= mounted
        assert mounted <= set(compose()["secrets"])
        for config in services[service]["configs"]:
            assert config["target"] in text or config["target"] in (str(DEFAULT_CONFIG), "/mosquitto/config/mosquitto.conf")
            assert (CONTAINER / compose()["configs"][config["source"]]["file"]).is_file()
    for name, secret in compose()["secrets"].items():
        assert secret["file"] == f"./secrets/{name}"
        assert re.search(rf"\b{re.escape(name.partition('.')[0])}\b", script), name


def test_what_the_compose_file_publishes_speaks_tls_or_stays_on_this_machine() -> None:
    services = compose()["services"]
    assert services["streamer"]["ports"] == ["7447:7447", "127.0.0.1:9464:9464"]
    assert services["broker"]["ports"] == ["8883:8883"]
    assert contained().endpoints["vehicle"].options.listen == ["tls/0.0.0.0:7447"]
    broker = (CONTAINER / "mosquitto.conf").read_text().splitlines()
    assert {"listener 8883", "allow_anonymous false", "tls_version tlsv1.2"} <= set(broker)
    assert {"certfile", "keyfile", "acl_file", "password_file"} <= {line.partition(" ")[0] for line in broker}


def test_zenoh_takes_its_file_and_denies_what_is_not_allowed() -> None:
    options = contained().endpoints["vehicle"].options.model_copy(update={"config_file": CONTAINER / "zenoh.json5"})
    config = session_config(options)
    assert json.loads(config.get_json("transport/link/tls/enable_mtls")) is True
    access = json.loads(config.get_json("access_control"))
    assert (access["enabled"], access["default_permission"]) == (True, "deny")
    assert all(subject["cert_common_names"] for subject in access["subjects"])


def test_both_containers_run_without_rights_and_are_bounded() -> None:
    for service in compose()["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {"mem_limit", "pids_limit"} <= service.keys()


def test_the_memory_limit_of_the_container_holds_all_bounds() -> None:
    total = memory_bytes(contained())
    limit = re.fullmatch(r"(\d+)m", compose()["services"]["streamer"]["mem_limit"])
    assert limit is not None
    assert total <= int(limit[1]) * MIB * 0.8
    (said,) = re.findall(r"^ *# +(\d+) +and a reserve", (CONTAINER / "compose.yaml").read_text(), re.MULTILINE)
    assert int(said) == round(total / MIB)


class _Compose(yaml.SafeLoader):
    """Compose's own tag says that a list replaces that of the file before."""


def _replaced(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> Any:
    return loader.construct_sequence(node)


_Compose.add_constructor("!override", _replaced)


def paired() -> dict[str, Any]:
    """What compose.pair.yaml adds to compose.yaml."""
    loaded: dict[str, Any] = yaml.load((CONTAINER / "compose.pair.yaml").read_text(), _Compose)  # it is safe
    return loaded


def test_the_containers_of_a_pair_have_one_configuration_but_for_their_place_in_it(tmp_path: Path) -> None:
    services = paired()["services"]
    assert services["streamer-b"]["extends"] == {"file": "compose.yaml", "service": "streamer"}
    (command,) = services["streamer"]["command"]
    joined = re.fullmatch(r"cat (\S+) (\S+) >(\S+) && exec streamer run", command)
    assert joined is not None
    mounted = {each["target"]: each["source"] for each in compose()["services"]["streamer"]["configs"]}
    mounted |= {each["target"]: each["source"] for each in services["streamer"]["configs"]}
    files = {name: each["file"] for name, each in (compose()["configs"] | paired()["configs"]).items()}
    path = tmp_path / "streamer.yaml"
    path.write_text("".join((CONTAINER / files[mounted[part]]).read_text() for part in joined.groups()[:2]))
    configs = []
    for service in services.values():
        assert service["command"] == [command]
        assert service["environment"].pop("USTREAMER_CONFIG") == joined[3]
        configs.append(load(path, service["environment"], kind=FILE))
        assert warnings(configs[-1]) == []
    first, second = (config.section(PairConfig) for config in configs)
    assert first is not None
    assert second is not None
    assert (first.connect, second.listen) == (None, None)
    assert first.address[1] == second.address[1]
    assert second.address[0] in services
    assert configs[0].model_copy(update={"pair": None}) == configs[1].model_copy(update={"pair": None})
    limits = {service["mem_limit"] for service in services.values()}
    assert memory_bytes(configs[0]) <= int(limits.pop().removesuffix("m")) * MIB * 0.8
    assert not limits
    assert configs[0].metrics is not None
    assert configs[0].metrics.hosts == list(services)


def test_the_containers_of_a_pair_share_a_key_and_nothing_else() -> None:
    services = paired()["services"]
    (secret,) = {name for service in services.values() for name in service["secrets"]}
    assert paired()["secrets"][secret]["file"] == f"./secrets/{secret}"
    assert f'give "$streamer" {secret}' in (CONTAINER / "make-secrets.sh").read_text()
    path = f"/run/secrets/{secret}"
    assert path in (CONTAINER / "pair.yaml").read_text()
    (first,), (second,) = compose()["services"]["streamer"]["volumes"], services["streamer-b"]["volumes"]
    assert first.partition(":")[2] == second.partition(":")[2]
    assert first != second
    published = [*compose()["services"]["streamer"]["ports"], *services["streamer-b"]["ports"]]
    assert len({each.rpartition(":")[0] for each in published}) == len(published)


@pytest.mark.parametrize("role", sorted((ROOT / "config/roles").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_role_says_how_much_memory_its_bounds_allow_and_is_not_open_to_the_network(role: Path) -> None:
    (said,) = re.findall(r"add up to (\d+) MiB at most", role.read_text())
    assert int(said) == round(memory_bytes(load(role, {}, kind=FILE)) / MIB)
    assert list(exposures(load(role, {}, kind=FILE))) == []


# the Debian package


def test_the_example_of_the_debian_package_is_good_and_fits_the_service() -> None:
    config = load(ROOT / "deploy/debian/streamer.yaml", {}, kind=FILE)
    assert warnings(config) == []
    assert memory_bytes(config) < 1 << 30
    assert config.journal is not None
    assert config.journal.path.parent == Path("/var/lib") / SERVICE["StateDirectory"]


def test_every_override_of_the_debian_package_has_a_reason() -> None:
    lines = (ROOT / "deploy/debian/uprotocol-ustreamer.lintian-overrides").read_text().splitlines()
    overrides = [index for index, line in enumerate(lines) if not line.startswith("#")]
    assert overrides
    assert all(lines[index - 1].startswith("# ") for index in overrides)
