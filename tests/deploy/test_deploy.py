"""`deploy/` against the metrics that Bitgear exposes: every expression parses, every name and label exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry

from router.config.load import load
from router.feedback.metrics import FeedbackMetrics
from router.telemetry.families import Families

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "bitgear.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
MANIFESTS = sorted(
    p for p in (DEPLOY / "kubernetes").glob("*.yaml") if p.name not in ("kustomization.yaml", "settings.yaml")
)
OF_PROMETHEUS = {"up": {"job", "instance"}}
SCRAPED = {"job", "instance", "le"}


def exposed() -> dict[str, set[str]]:
    """Labels by name of each series that a worker can expose."""
    registry = CollectorRegistry()
    families, feedback = Families(registry), FeedbackMetrics(registry)
    found = dict(OF_PROMETHEUS)
    kept = [*vars(families).values(), *families.rates.values(), *vars(feedback).values()]
    for family in [v for v in kept if hasattr(v, "_labelnames")]:
        kind = type(family).__name__
        suffixes = {"Counter": ["_total"], "Gauge": [""], "Histogram": ["_bucket", "_sum", "_count"]}[kind]
        for suffix in suffixes:
            found[family._name + suffix] = {*family._labelnames, *SCRAPED}
    return found


EXPOSED = exposed()


def plain(expression: str) -> str:
    """Grafana's variables replaced by what they stand for."""
    return expression.replace("$__rate_interval", "5m").replace("$group", "g").replace("$variant", "v")


def check(expression: str) -> set[str]:
    """The names in a PromQL expression; fails where it doesn't parse or a name or label does not exist."""
    parsed = plain(expression)
    promql_parser.parse(parsed)
    names = set()
    for name, _, labels in re.findall(r"\b(bitgear_\w+|up)\b(\{([^}]*)\})?", parsed):
        assert name in EXPOSED, f"{name} in {expression}"
        names.add(name)
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels):
            assert label in EXPOSED[name], f"{label} of {name} in {expression}"
    for grouped in re.findall(r"by \(([^)]*)\)", parsed):
        for label in grouped.split(","):
            assert any(label.strip() in EXPOSED[name] for name in names), f"{label} in {expression}"
    assert names, expression
    return names


def targets() -> list[tuple[str, str]]:
    return [(p["title"], t["expr"]) for p in DASHBOARD["panels"] for t in p.get("targets", [])]


@pytest.mark.parametrize(("title", "expression"), targets(), ids=[f"{n}-{t}" for n, (t, _) in enumerate(targets())])
def test_every_expression_of_the_dashboard_speaks_of_metrics_that_are_there(title: str, expression: str) -> None:
    check(expression)


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for _, expression in targets() for name in check(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in EXPOSED if EXPOSED[name] & {"le"}} - {"up"}
    missing = {f for f in families if not any(s.startswith(f) for s in shown)}
    # The bins behind the index are for whoever wants to look closer.
    assert missing <= {"bitgear_drift_bin_requests"}


def test_the_documentation_names_every_metric_and_alert_and_no_others() -> None:
    told = set(re.findall(r"`(bitgear_[a-z0-9_]+)`", (ROOT / "docs" / "telemetry.md").read_text()))
    assert told == {re.sub(r"_(bucket|sum|count)$", "", name) for name in EXPOSED} - {"up"}
    text = (ROOT / "docs" / "operations.md").read_text()
    assert set(re.findall(r"`(Bitgear[A-Za-z]+)`", text)) == {rule["alert"] for rule in RULES}
    assert set(re.findall(r"`(bitgear_[a-z0-9_]+)`", text)) <= told


def test_the_dashboards_panels_stand_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({p["id"] for p in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for variable in DASHBOARD["templating"]["list"]:
        for name, label in re.findall(r"label_values\((bitgear_\w+)[^,]*, (\w+)\)", json.dumps(variable)):
            assert label in EXPOSED[name]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r["alert"])
def test_every_alert_speaks_of_metrics_that_are_there(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    names = check(rule["expr"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    labels = set().union(*(EXPOSED[n] for n in names))
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert label in labels
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


def test_an_expression_that_is_wrong_is_found() -> None:
    for wrong in (
        "sum(rate(bitgear_requests_total[5m])",
        "bitgear_nothing",
        'bitgear_cache_up{group="g"}',
        "sum by (variant) (bitgear_cache_up)",
    ):
        with pytest.raises((AssertionError, ValueError)):
            check(wrong)


def test_the_configurations_load() -> None:
    for path in (DEPLOY / "bitgear.yaml", DEPLOY / "kubernetes" / "settings.yaml"):
        config = load(path, {})
        assert config.groups
        assert config.server.host == config.admin.host == "0.0.0.0"


def test_compose_mounts_what_is_there_and_speaks_to_its_own_services() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"bitgear", "valkey", "prometheus", "grafana"}
    for service in services.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), source
        assert set(service.get("depends_on", [])) <= set(services)
    assert (DEPLOY / services["bitgear"]["build"]["context"]).resolve() == ROOT
    assert (ROOT / services["bitgear"]["build"]["dockerfile"]).exists()
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scrape["job_name"] == "bitgear"
    assert scrape["static_configs"][0]["targets"][0].split(":")[0] in services


def test_the_image_has_what_the_package_needs() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE))
    copied = {name for line in copied for name in line.split()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert packages | {"pyproject.toml", project["project"]["readme"]} <= copied
    assert all((ROOT / name).exists() for name in copied)
    extras = re.search(r"'\.\[([^\]]+)\]'", text)
    assert extras
    assert set(extras[1].split(",")) <= set(project["project"]["optional-dependencies"])
    assert "USER 10001" in text


def documents() -> list[dict[str, Any]]:
    return [d for path in MANIFESTS for d in yaml.safe_load_all(path.read_text())]


def test_the_manifests_fit_each_other() -> None:
    found = {(d["kind"], d["metadata"]["name"]): d for d in documents()}
    bitgear = found["Deployment", "bitgear"]
    pod = bitgear["spec"]["template"]
    for kind in ("Service", "PodDisruptionBudget"):
        selector = found[kind, "bitgear"]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == pod["metadata"]["labels"]
    assert found["HorizontalPodAutoscaler", "bitgear"]["spec"]["scaleTargetRef"]["name"] == "bitgear"
    container = pod["spec"]["containers"][0]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    settings = load(DEPLOY / "kubernetes" / "settings.yaml", {})
    image = found["Deployment", "bitgear"]["spec"]["template"]["spec"]["containers"][0]["image"]
    (renamed,) = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())["images"]
    assert renamed["name"] == image
    assert f"-t {renamed['newName']}:{renamed['newTag']} ." in (DEPLOY / "Dockerfile").read_text()
    assert ports == {"api": settings.server.port, "admin": settings.admin.port}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    assert pod["spec"]["terminationGracePeriodSeconds"] > settings.server.drain_s + 5
    assert settings.redis.url == "redis://valkey:6379"
    assert ("Service", "valkey") in found
    pod_of_valkey = found["Deployment", "valkey"]["spec"]["template"]["spec"]
    volumes = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in pod_of_valkey["volumes"]}
    (server,) = pod_of_valkey["containers"]
    (mount,) = server["volumeMounts"]
    assert ("PersistentVolumeClaim", volumes[mount["name"]]) in found
    # Keys and thresholds must outlive the pod: what is written lies there, and every write is.
    assert dict(zip(server["args"][1::2], server["args"][2::2], strict=True)) == {
        "--dir": mount["mountPath"],
        "--maxmemory": "512mb",
        "--maxmemory-policy": "volatile-lru",
        "--save": "",
        "--appendonly": "yes",
    }
    # The autoscaler needs a request to relate CPU to.
    assert container["resources"]["requests"]["cpu"]
    kustomization = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    assert {p.name for p in MANIFESTS} == set(kustomization["resources"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kustomize_builds_it() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / "kubernetes")], capture_output=True, text=True, timeout=60, check=True
    )
    built = list(yaml.safe_load_all(done.stdout))
    assert len(built) == len(documents()) + 1
    assert {d["metadata"].get("namespace") for d in built if d["kind"] != "Namespace"} == {"bitgear"}
