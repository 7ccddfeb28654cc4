"""What is deployed for the nightly jobs must fit the jobs, the daemon's unit and the trace folder."""

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from spark_jobs import arguments
from tests.unit.deployed import unit

ROOT = Path(__file__).parents[2]
HERE = ROOT / "deploy/spark"
SCRIPTS = ["submit-kubernetes.sh", "submit-yarn.sh"]
STATE = "/var/lib/streamer"


def text(name: str) -> str:
    return (HERE / name).read_text()


def sections(name: str) -> dict[str, dict[str, str]]:
    return unit(HERE / name)


def cron() -> dict[str, Any]:
    (found,) = (part for part in yaml.safe_load_all(text("cronjob.yaml")) if part["kind"] == "CronJob")
    spec: dict[str, Any] = found["spec"]
    return spec


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = cron()["jobTemplate"]["spec"]["template"]["spec"]
    return spec


def settings(words: list[str]) -> dict[str, str]:
    """What follows ``--conf``, or stands in ``--conf=…``."""
    pairs = [word.removeprefix("--conf=") for word in words if word.startswith("--conf=")]
    pairs += [value for word, value in pairwise(words) if word == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.fixture
def submitted(tmp_path: Path) -> Callable[..., list[str]]:
    """What a script gives to ``spark-submit``, which a stand-in prints."""
    stand_in = tmp_path / "bin/spark-submit"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    variables = {"SPARK_HOME": str(tmp_path), "IMAGE": "image:1", "KUBERNETES": "https://k", "PATH": "/usr/bin:/bin"}

    def call(name: str, *words: str) -> list[str]:
        done = subprocess.run([HERE / name, *words], env=variables, check=True, capture_output=True, text=True, timeout=60)
        return done.stdout.splitlines()

    return call


# one gateway


@pytest.mark.parametrize("name", ["ustreamer-nightly.service", "ustreamer-traces-sync.service"])
def test_the_services_take_only_what_is_left_over_and_read_the_traces_only(name: str) -> None:
    service = sections(name)["Service"]
    assert int(service["Nice"]) > 0
    assert service["IOSchedulingClass"] == "idle"
    assert "MemoryMax" in service
    assert service["SupplementaryGroups"] == unit()["Service"]["Group"]
    assert service["TemporaryFileSystem"] == f"{STATE}:ro", "the journal holds payloads"
    assert service["BindReadOnlyPaths"] == f"{STATE}/traces"
    assert unit()["Service"]["StateDirectory"] == Path(STATE).name
    assert sections(name)["Unit"]["ConditionPathIsDirectory"] == f"{STATE}/traces"


HARDENING = [
    "NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectClock", "ProtectControlGroups",
    "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "RestrictNamespaces",
    "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality",
]  # fmt: skip


@pytest.mark.parametrize("key", HARDENING)
@pytest.mark.parametrize("name", ["ustreamer-nightly.service", "ustreamer-traces-sync.service"])
def test_the_services_are_hardened(name: str, key: str) -> None:
    service = sections(name)["Service"]
    assert service[key] == "yes"
    assert (service["CapabilityBoundingSet"], service["ProtectSystem"]) == ("", "strict")


def test_the_jvm_may_compile_and_has_only_its_own_network() -> None:
    service = sections("ustreamer-nightly.service")["Service"]
    assert "MemoryDenyWriteExecute" not in service
    assert service["PrivateNetwork"] == "yes"
    assert service["User"] not in ("", "root", unit()["Service"]["User"])


def test_heap_and_bound_of_the_nightly_service_leave_room_for_what_is_beside_the_heap() -> None:
    heap = re.search(r"--driver-memory (\d+)g", text("ustreamer-nightly.service"))
    bound = re.fullmatch(r"(\d+)G", sections("ustreamer-nightly.service")["Service"]["MemoryMax"])
    assert heap is not None
    assert bound is not None
    assert int(bound[1]) > int(heap[1])


def test_everything_that_the_nightly_service_writes_is_below_folders_that_are_its_own() -> None:
    variables = dict(
        re.findall(r"^Environment=(TABLES|SPARK_LOCAL_DIRS|XDG_CACHE_HOME)=(.*)$", text("ustreamer-nightly.service"), re.M)
    )
    service = sections("ustreamer-nightly.service")["Service"]
    own = f"/var/lib/{service['StateDirectory']}", f"/var/cache/{service['CacheDirectory']}"
    assert len(variables) == 3
    assert all(value.startswith(own) for value in variables.values())


@pytest.mark.parametrize("name", ["ustreamer-nightly", "ustreamer-traces-sync"])
def test_a_timer_starts_each_service(name: str) -> None:
    timer = sections(f"{name}.timer")
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert "RandomizedDelaySec" in timer["Timer"]
    assert sections(f"{name}.service")["Service"]["Type"] == "oneshot"
    assert "Install" not in sections(f"{name}.service"), "it would start at boot"


def test_who_is_told_of_a_failure_gets_its_exit_code_and_the_end_of_the_journal(tmp_path: Path) -> None:
    """With stand-ins for journalctl and mail."""
    told = sections("ustreamer-nightly.service")["Unit"]["OnFailure"]
    assert (HERE / told).is_file()
    for name, does in (("journalctl", "echo the end"), ("mail", f'(echo "$@"; cat) > {tmp_path}/mail')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    words = shlex.split(sections(told)["Service"]["ExecStart"].replace("$$", "$").replace("%H", "host"))
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MAILTO": "root", "MONITOR_EXIT_STATUS": "3"}
    subprocess.run(words, env=variables, check=True, timeout=60)
    assert (tmp_path / "mail").read_text() == "-s uStreamer on host: the nightly jobs ended with 3 root\nthe end\n"


def test_the_night_begins_after_midnight_utc_and_is_caught_up() -> None:
    timer = sections("ustreamer-nightly.timer")["Timer"]
    assert re.fullmatch(r"\*-\*-\* 0[1-9]:\d\d:00 UTC", timer["OnCalendar"])
    assert timer["Persistent"] == "true"


def test_only_complete_files_are_copied_and_no_secret_is_on_the_command_line() -> None:
    command = sections("ustreamer-traces-sync.service")["Service"]["ExecStart"]
    words = shlex.split(command)
    assert words[1:3] == ["copy", f"{STATE}/traces"]
    assert [words[at + 1] for at, word in enumerate(words) if word == "--include"] == [
        "/date=*/hour=*/streamer=*/part-*.parquet",
        "/_events/date=*/streamer=*/events-*.parquet",
    ]
    assert "--ignore-existing" in words
    assert not re.search(r"key|secret|password|token", command)
    assert "LoadCredential" in sections("ustreamer-traces-sync.service")["Service"]


# a cluster


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_are_sound(name: str) -> None:
    subprocess.run(["bash", "-n", str(HERE / name)], check=True, timeout=60)
    assert (HERE / name).stat().st_mode & 0o111
    refused = subprocess.run([HERE / name, "only-one"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert refused.stderr.startswith("usage: ")


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_submitted_is_what_make_builds(name: str, submitted: Callable[..., list[str]]) -> None:
    given = submitted(name, "s3a://b/tr aces", "s3a://b/tables", "--date", "2026-11-20")
    main = next(at for at, word in enumerate(given) if word.endswith("nightly_main.py"))
    assert given[main + 1 : main + 5] == ["--input", "s3a://b/tr aces", "--output", "s3a://b/tables"]
    assert given[-2:] == ["--date", "2026-11-20"]
    assert given[given.index("--py-files") + 1].endswith("/spark_jobs.zip")
    assert "dist/spark_jobs.zip" in (ROOT / "Makefile").read_text()


SAME_EVERYWHERE = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.executorEnv.TZ": "UTC",
}


@pytest.mark.parametrize("name", [*SCRIPTS, "cronjob.yaml"])
def test_what_results_depend_on_is_the_same_everywhere(name: str, submitted: Callable[..., list[str]]) -> None:
    found, yarn = (
        settings(submitted(each, "in", "out") if each.endswith(".sh") else pod()["containers"][0]["args"])
        for each in (name, "submit-yarn.sh")
    )
    assert found | SAME_EVERYWHERE == found
    assert sql(found) == sql(yarn)


def sql(found: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in found.items() if key.startswith("spark.sql.")}


def test_the_cron_job_never_runs_twice_at_a_time_and_ends() -> None:
    spec = cron()
    assert (spec["timeZone"], spec["concurrencyPolicy"]) == ("Etc/UTC", "Forbid")
    minute, hour, *rest = spec["schedule"].split()
    assert (minute.isdecimal(), int(hour) >= 1, rest) == (True, True, ["*", "*", "*"])
    job = spec["jobTemplate"]["spec"]
    assert 0 < job["activeDeadlineSeconds"] < 86_400
    assert pod()["restartPolicy"] == "Never"


def test_the_cron_job_has_no_rights_that_it_does_not_need() -> None:
    (container,) = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    parts = {part["kind"]: part for part in yaml.safe_load_all(text("cronjob.yaml"))}
    account = pod()["serviceAccountName"]
    assert parts["ServiceAccount"]["metadata"]["name"] == account
    assert parts["RoleBinding"]["subjects"][0]["name"] == account
    assert parts["RoleBinding"]["roleRef"]["name"] == parts["Role"]["metadata"]["name"]
    assert all("*" not in rule["resources"] + rule["verbs"] for rule in parts["Role"]["rules"])
    assert {part["metadata"]["namespace"] for part in parts.values()} == {
        settings(container["args"])["spark.kubernetes.namespace"]
    }


def test_the_cron_jobs_pod_has_room_for_the_drivers_heap_and_a_place_to_write() -> None:
    (container,) = pod()["containers"]
    args = container["args"]
    heap_gib = int(args[args.index("--driver-memory") + 1].removesuffix("g"))
    assert int(container["resources"]["limits"]["memory"].removesuffix("Gi")) >= heap_gib * 1.1
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert {"/tmp", variables["SPARK_LOCAL_DIRS"]} <= mounts
    assert settings(args)["spark.kubernetes.container.image"] == container["image"]


# Airflow


class _Dag:
    """Stands in for Airflow, which cannot be installed beside this project: notes what the file declares."""

    made: dict[str, dict[str, Any]]

    def __init__(self, name: str, **given: Any) -> None:
        self.made[name] = given

    def __enter__(self) -> "_Dag":
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The DAGs and the tasks of the file, by name, with what was given to each."""
    tasks: dict[str, dict[str, Any]] = {}
    _Dag.made = {}
    modules: dict[str, dict[str, Any]] = {
        "airflow": {"DAG": _Dag},
        "airflow.providers.standard.operators.bash": {
            "BashOperator": lambda task_id, **given: tasks.update({task_id: given})
        },
    }
    for name, content in modules.items():
        for part in range(1, name.count(".") + 1):
            parent = name.rsplit(".", part)[0]
            if parent not in modules:
                monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(HERE / "airflow_dag.py"))
    return _Dag.made, tasks


def test_the_dags_run_what_the_jobs_understand(airflow: Any, capsys: pytest.CaptureFixture[str]) -> None:
    dags, tasks = airflow
    assert set(dags) == {"ustreamer_nightly", "ustreamer_compact"}
    assert all(dag["max_active_runs"] == 1 and not dag["catchup"] for dag in dags.values())
    for name, main in ("nightly", "nightly_main.py"), ("compact", "compact_main.py"):
        words = shlex.split(tasks[name]["bash_command"])
        at = words.index(f"/opt/ustreamer/{main}")
        assert (HERE / main).is_file()
        given = arguments.parse(name, words[at + 1 :])
        assert (given.input, given.output) == ("s3a://bucket/traces", "s3a://bucket/tables")
        assert settings(words[:at])["spark.sql.session.timeZone"] == "UTC"
    assert capsys.readouterr().err == ""
