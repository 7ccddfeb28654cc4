"""The Helm chart: what it renders is good for Kubernetes and for the streamer, and what cannot work it refuses."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.config.load import load_text
from streamer.features.every import FILE
from streamer.features.pair.config import PairConfig
from streamer.main import main
from tests.unit.deployed import ROOT, coming_version, dockerfile, instruction, memory_bytes

CHART = ROOT / "deploy/helm/ustreamer"
KUBERNETES = "1.30.0"
SOME = {
    "files": {"zenoh.json5": '{ mode: "peer" }\n'},
    "secrets": [{"secret": "gateway-tls", "path": "/run/secrets/tls"}],
    "service": {"ports": [{"name": "zenoh", "port": 7447}], "annotations": {"a/b": "c"}},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "serviceMonitor": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 8883}]}],
    },
    "env": [{"name": "A", "value": "b"}],
    "podLabels": {"team": "gateways"},
    "podAnnotations": {"note": "x"},
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "tolerations": [{"operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    ],
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "registry"}],
    "persistence": {"storageClassName": "fast"},
}
"""Every part of the chart switched on, but for the pair."""
PAIR = {"pair": {"enabled": True, "secret": "gateway-pair"}}

pytestmark = pytest.mark.helm


@pytest.fixture
def config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What ``streamer init`` writes for a gateway in the cloud."""
    devices = ("--device", "veh1=mqtts://veh1.example", "--cloud", "backend=mqtts://broker.example")
    assert main(["init", "--role", "cloud-gateway", *devices, "--metrics", "0.0.0.0:9464", "--output", "-"]) == 0
    return capsys.readouterr().out


def helm(action: str, tmp_path: Path, values: dict[str, Any], version: str = KUBERNETES) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "values.json"
    path.write_text(json.dumps(values))
    names = ["gateway"] if action == "template" else ["--strict"]
    command = ["helm", action, *names, str(CHART), "--values", str(path), "--kube-version", version]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def rendered(tmp_path: Path, values: dict[str, Any], version: str = KUBERNETES) -> dict[str, dict[str, Any]]:
    """What the chart makes, by kind and name."""
    done = helm("template", tmp_path, values, version)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def pod(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = found["StatefulSet/gateway-ustreamer"]["spec"]["template"]["spec"]
    return spec


def test_lint_has_nothing_to_say(config: str, tmp_path: Path) -> None:
    for values in ({"config": config}, {"config": config, **SOME}, {"config": config, **SOME, **PAIR}):
        done = helm("lint", tmp_path, values)
        assert done.returncode == 0, done.stdout


def test_lint_without_a_configuration_says_what_is_missing(tmp_path: Path) -> None:
    done = helm("lint", tmp_path, {})
    assert "config: expected the streamer's configuration: --set-file config=streamer.yaml" in done.stdout + done.stderr
    assert "nil pointer" not in done.stdout + done.stderr
    assert "metrics.listen" not in done.stdout + done.stderr  # nothing about what a missing file would say


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == coming_version()


@pytest.mark.parametrize(
    ("more", "objects"), [({}, 4), (SOME, 8), (SOME | PAIR, 9)], ids=["defaults", "everything", "as a pair"]
)
def test_what_is_rendered_fits_the_schemas_of_kubernetes(
    more: dict[str, Any], objects: int, config: str, tmp_path: Path
) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate brings schemas")
    found = rendered(tmp_path, {"config": config, **more})
    assert len(found) == objects
    for each in found.values():
        if not each["apiVersion"].startswith("monitoring.coreos.com/"):
            kubernetes_validate.validate(each, KUBERNETES.rpartition(".")[0], strict=True)


def test_the_configuration_arrives_as_it_is_and_is_good(config: str, tmp_path: Path) -> None:
    found = rendered(tmp_path, {"config": config, **SOME})
    data = found["ConfigMap/gateway-ustreamer"]["data"]
    assert data == {"streamer.yaml": config} | SOME["files"]  # type: ignore[operator]
    assert load_text(data["streamer.yaml"], Path("streamer.yaml"), {}, FILE).authority == "cloud-gateway"


def test_a_changed_configuration_restarts_the_pod(config: str, tmp_path: Path) -> None:
    def annotations(text: str) -> Any:
        template = rendered(tmp_path, {"config": text})["StatefulSet/gateway-ustreamer"]["spec"]["template"]
        return template["metadata"]["annotations"]

    assert annotations(config) != annotations(f"{config}# more\n")


def test_the_pod_has_no_rights_and_the_user_of_the_image(config: str, tmp_path: Path) -> None:
    spec = pod(rendered(tmp_path, {"config": config}))
    (container,) = spec["containers"]
    user = int(instruction(dockerfile()[-1], "USER").partition(":")[0])
    context = spec["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"], context["runAsNonRoot"]) == (
        user,
        user,
        user,
        True,
    )
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert container["args"] == json.loads(instruction(dockerfile()[-1], "CMD"))


def test_probes_ask_what_is_meant_for_them(config: str, tmp_path: Path) -> None:
    (container,) = pod(rendered(tmp_path, {"config": config}))["containers"]
    pages = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert pages == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert {"name": "metrics", "containerPort": 9464} in container["ports"]


@pytest.mark.parametrize(("drain_s", "grace_s"), [(None, 60), (60, 100), (0.5, 41), (0, 40)])
def test_a_stop_may_take_longer_than_a_drain(drain_s: float | None, grace_s: int, config: str, tmp_path: Path) -> None:
    text = config if drain_s is None else f"{config}shutdown: {{drain_s: {drain_s}}}\n"
    assert pod(rendered(tmp_path, {"config": text}))["terminationGracePeriodSeconds"] == grace_s


def test_secrets_are_files_that_only_the_group_may_read(config: str, tmp_path: Path) -> None:
    spec = pod(rendered(tmp_path, {"config": config, **SOME}))
    (container,) = spec["containers"]
    volume = {"name": "secret-0", "secret": {"secretName": "gateway-tls", "defaultMode": 0o440}}
    assert volume in spec["volumes"]
    assert {"name": "secret-0", "mountPath": "/run/secrets/tls", "readOnly": True} in container["volumeMounts"]


@pytest.mark.parametrize(
    ("version", "policy"),
    [("1.25.0", None), ("1.26.9", None), ("1.27.16-eks-a5df82a", "AlwaysAllow"), ("1.31.2", "AlwaysAllow")],
)
def test_a_streamer_without_its_broker_does_not_keep_its_node(
    version: str, policy: str | None, config: str, tmp_path: Path
) -> None:
    spec = rendered(tmp_path, {"config": config}, version)["PodDisruptionBudget/gateway-ustreamer"]["spec"]
    assert (spec["maxUnavailable"], spec.get("unhealthyPodEvictionPolicy")) == (1, policy)


def test_the_limit_of_memory_holds_what_init_writes(config: str) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["resources"]["limits"]["memory"] == "1Gi"
    assert memory_bytes(load_text(config, Path("streamer.yaml"), {}, FILE)) < 1 << 30


@pytest.mark.parametrize(
    ("values", "change", "said"),
    [
        ({"config": ""}, ("", ""), "expected the streamer's configuration"),
        ({}, ("\nauthority:", "\nauthority: ["), "config: expected YAML"),
        ({}, ("0.0.0.0:9464", "127.0.0.1:9464"), "metrics.listen: expected 0.0.0.0:9464"),
        ({}, ("/var/lib/streamer/", "/data/"), "journal.path: expected a file below /var/lib/streamer"),
        ({}, ("\nmetrics:", "\nmetrics: null #"), "metrics.listen: expected 0.0.0.0:9464"),
        ({}, ("\nmetrics:", "\nmetrics: 9464 #"), "metrics.listen: expected 0.0.0.0:9464"),
        ({}, ("\njournal:", "\njournal: #"), "journal.path: expected a file below /var/lib/streamer"),
        ({}, ("\njournal:", "\ntrace: {path: traces}\njournal:"), "trace.path: expected a path below"),
        ({}, ("\njournal:", "\nlog: {audit: /var/log/audit.log}\njournal:"), "log.audit: expected a path below"),
        ({"terminationGracePeriodSeconds": 30}, ("", ""), "expected at least shutdown.drain_s and 15 more: 35"),
        ({"replicas": 2}, ("", ""), "authority: ${HOSTNAME}"),
        ({"replicas": 2}, ("authority: cloud-gateway", "authority: ${HOSTNAME}"), "expected share"),
        ({"replica": 2}, ("", ""), "replica"),
        ({"replicas": 2, **PAIR}, ("", ""), "replicas: expected 1 with pair.enabled"),
        ({"pair": {"enabled": True}}, ("", ""), "pair.secret: expected the name of a Secret"),
        (
            PAIR,
            ("\njournal:", "\npair: {listen: '0.0.0.0:7420', key_file: /k}\njournal:"),
            "config: pair: expected no such section",
        ),
        (PAIR, ("authority: cloud-gateway", "authority: ${HOSTNAME}"), "the pods of a pair have the same authority"),
        ({"pair": {**PAIR["pair"], "options": {"listen": "x"}}}, ("", ""), "pair.options: expected no listen"),
        ({**PAIR, "service": {"ports": [{"name": "pair", "port": 7447}]}}, ("", ""), "ports"),
        ({"secrets": [{"secret": "a", "path": "relative"}]}, ("", ""), "secrets"),
        ({"files": {"streamer.yaml": "x"}}, ("", ""), "files: expected other names than streamer.yaml"),
        ({"files": {"a/b": "x"}}, ("", ""), "a/b"),
    ],
)
def test_what_cannot_work_is_refused(
    values: dict[str, Any], change: tuple[str, str], said: str, config: str, tmp_path: Path
) -> None:
    done = helm("template", tmp_path, {"config": config.replace(*change, 1) if change[0] else config, **values})
    assert done.returncode != 0
    assert said in done.stderr


def test_several_streamers_divide_a_broker(config: str, tmp_path: Path) -> None:
    text = config.replace("authority: cloud-gateway", "authority: ${HOSTNAME}").replace(
        "client_id: cloud-gateway-", "share: "
    )
    found = rendered(tmp_path, {"config": text, "replicas": 3})
    assert found["StatefulSet/gateway-ustreamer"]["spec"]["replicas"] == 3
    assert load_text(text, Path("streamer.yaml"), {"HOSTNAME": "gateway-ustreamer-0"}, FILE).divided


def test_a_pair_is_two_pods_whose_configurations_differ_in_their_place_only(config: str, tmp_path: Path) -> None:
    found = rendered(tmp_path, {"config": config, "pair": {**PAIR["pair"], "port": 7421, "options": {"wait_s": 20}}})
    assert found["StatefulSet/gateway-ustreamer"]["spec"]["replicas"] == 2
    (container,) = pod(found)["containers"]
    environment = {each["name"]: each for each in container["env"]}
    assert environment["POD_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert {"name": "pair", "containerPort": 7421} in container["ports"]
    data = found["ConfigMap/gateway-ustreamer"]["data"]
    assert len(data) == 2
    configs = []
    for number in range(2):
        path = environment["USTREAMER_CONFIG"]["value"].replace("$(POD_NAME)", f"gateway-ustreamer-{number}")
        configs.append(load_text(data[Path(path).name], Path("streamer.yaml"), {}, FILE))
    first, second = (each.section(PairConfig) for each in configs)
    assert first is not None
    assert second is not None
    assert (first.listen, first.connect) == ("0.0.0.0:7421", None)
    assert (second.listen, second.connect) == (None, "gateway-ustreamer-0.gateway-ustreamer:7421")
    assert first.wait_s == second.wait_s == 20
    assert configs[0].model_copy(update={"pair": None}) == configs[1].model_copy(update={"pair": None})
    assert {"name": "pair", "mountPath": str(first.key_file.parent), "readOnly": True} in container["volumeMounts"]


@pytest.mark.parametrize("rest", ["\n...\n", "\n}"], ids=["an end", "braces"])
def test_a_file_to_which_no_section_can_be_added_is_refused(rest: str, tmp_path: Path) -> None:
    text = f"authority: a\nmetrics: {{listen: 0.0.0.0:9464}}\njournal: {{path: /var/lib/streamer/j.db}}{rest}"
    if rest.endswith("}"):
        text = "{" + text.replace("\n", ", ", 2)
    done = helm("template", tmp_path, {"config": text, **PAIR})
    assert done.returncode != 0
    assert "config: expected YAML to which a section can be added" in done.stderr
    assert helm("template", tmp_path, {"config": text}).returncode == 0


def test_the_pods_of_a_pair_are_on_two_nodes_and_one_of_them_stays(config: str, tmp_path: Path) -> None:
    found = rendered(tmp_path, {"config": config, **PAIR})
    (term,) = pod(found)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = found["StatefulSet/gateway-ustreamer"]["spec"]["template"]["metadata"]["labels"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    assert found["PodDisruptionBudget/gateway-ustreamer"]["spec"]["maxUnavailable"] == 1
    assert "affinity" not in pod(rendered(tmp_path, {"config": config}))
    given: dict[str, Any] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    assert pod(rendered(tmp_path, {"config": config, **PAIR, "affinity": given}))["affinity"] == given


def test_others_reach_each_pod_of_a_pair_and_the_pods_reach_each_other(config: str, tmp_path: Path) -> None:
    found = rendered(tmp_path, {"config": config, **SOME, **PAIR})
    names = {
        found[f"Service/gateway-ustreamer-links-{number}"]["spec"]["selector"]["statefulset.kubernetes.io/pod-name"]
        for number in range(2)
    }
    assert names == {"gateway-ustreamer-0", "gateway-ustreamer-1"}
    policy = found["NetworkPolicy/gateway-ustreamer"]["spec"]
    peers = [{"podSelector": policy["podSelector"]}]
    assert {"ports": [{"port": 7420}], "from": peers} in policy["ingress"]
    assert {"ports": [{"port": 7420}], "to": peers} in policy["egress"]
