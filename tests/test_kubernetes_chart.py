"""The Helm chart, without helm: its templates as text, its values against their schema, and what helm made of it.

What helm renders is kept in tests/data/chart-rendered.yaml, with a digest of the chart's files: a changed chart must be
rendered again (`make chart`). The rendering is held against the API's types and against what the lab makes itself, so
that both stay the same. Where helm is on the PATH, it renders here, too.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from kubernetes_support import through_the_models
from ruamel.yaml import YAML
from streamgauge.fleet.kubernetes import objects
from streamgauge.fleet.kubernetes.settings import KubernetesFile

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy/helm/streamgauge"
DATA = ROOT / "tests/data"
VALUES = DATA / "chart-values.yaml"
RENDERED = DATA / "chart-rendered.yaml"
ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)


def read(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def templates() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir())}


def digest() -> str:
    """Of everything that a rendering depends on."""
    done = subprocess.run(
        [ROOT / "tools/render-chart.sh", "digest"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def rendered() -> dict[tuple[str, str], Any]:
    """The objects by kind and name."""
    found = YAML(typ="safe", pure=True).load_all(RENDERED.read_text(encoding="utf-8"))
    return {(one["kind"], one["metadata"]["name"]): one for one in found if one is not None}


@pytest.mark.parametrize("name", sorted(templates()))
def test_templates_are_closed_and_refer_to_what_there_is(name: str) -> None:
    defined = {found for text in templates().values() for found in re.findall(r'define "([^"]+)"', text)}
    values, depth = read(CHART / "values.yaml"), 0
    text = templates()[name]
    assert text.count("{{") == text.count("}}") == len(ACTION.findall(text))
    for action in ACTION.findall(text):
        assert action.count('"') % 2 == 0, action
        assert action.count("(") == action.count(")"), action
        word = action.split()[0]
        depth += word in ("if", "with", "range", "define")
        depth -= word == "end"
        assert depth >= 0, f"{name}: an end too many"
        for used in re.findall(r'include "([^"]+)"', action):
            assert used in defined, f"{name}: nothing is called {used}"
        for path in re.findall(r"\.Values\.([A-Za-z.]+)", action):
            at = values
            for key in path.split("."):
                assert key in at, f"{name}: .Values.{path} is not in values.yaml"
                at = at[key]
    assert depth == 0, f"{name}: {depth} blocks have no end"


def test_every_value_is_used_and_in_the_schema() -> None:
    text = "\n".join(templates().values())
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def leaves(at: Any, path: str) -> list[str]:
        if isinstance(at, dict) and at and not path.endswith("resources"):
            return [leaf for key, below in at.items() for leaf in leaves(below, f"{path}.{key}")]
        return [path]

    for path in leaves(read(CHART / "values.yaml"), "")[:]:
        assert f".Values{path}" in text, f"values.yaml:{path} is not used by any template"
        at = schema
        for key in path.strip(".").split("."):
            at = at["properties"][key]


def test_the_schema_takes_good_values_and_refuses_bad_ones() -> None:
    import jsonschema  # Late: a second of CPU, in every process of the suite.

    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    check = jsonschema.Draft7Validator(schema)

    def problems(**changes: Any) -> str:
        values = read(CHART / "values.yaml")
        for section, changed in read(VALUES).items():
            values[section] |= changed
        for section, changed in changes.items():
            values[section] = {**values[section], **changed}
        return "; ".join(error.message for error in check.iter_errors(values))

    assert problems() == ""
    assert problems(image={"digest": ""}) == ""
    assert "'sha256:short'" in problems(image={"digest": "sha256:short"})
    assert "'latest'" in problems(lab={"image": {"repository": "x", "digest": "latest"}})
    # Neither an image nor an identity can be guessed.
    assert problems(image={"repository": ""}) != ""
    assert problems(identity={"existingSecret": ""}) != ""
    assert "'4x'" in problems(workers={"resources": {"cpu": "4x", "memory": "1Gi"}})
    assert "'replicas' was unexpected" in problems(workers={"replicas": 3})
    assert problems(lab={"enabled": True, "arguments": []}) != ""


def test_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = read(CHART / "Chart.yaml")
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_the_rendering_is_of_this_chart() -> None:
    first = RENDERED.read_text(encoding="utf-8").splitlines()[0]
    assert digest() in first, "the chart has changed since it was rendered: make chart (needs helm)"
    if shutil.which("helm") is not None:
        again = subprocess.run(
            [ROOT / "tools/render-chart.sh", "render"], capture_output=True, text=True, check=True
        )
        assert again.stdout == RENDERED.read_text(encoding="utf-8")


def test_an_image_is_taken_by_its_digest_where_one_is_given() -> None:
    """The workers' of the rendering has a digest, the lab's has none."""
    found = rendered()
    images = {
        name: found["Job", f"load-{name}"]["spec"]["template"]["spec"]["containers"][0]["image"]
        for name in ("workers", "lab")
    }
    assert images == {
        "workers": f"registry.example.org/streamgauge-worker@{read(VALUES)['image']['digest']}",
        "lab": "registry.example.org/streamgauge-lab:0.1.0",
    }


def test_what_is_rendered_is_what_the_api_knows() -> None:
    found = rendered()
    kinds = sorted(kind for kind, _ in found)
    others = [
        "ConfigMap",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    ]
    assert kinds == sorted(["Job", "Job", *others])
    for made in found.values():
        assert through_the_models(made) == made


def test_the_chart_and_the_lab_make_the_same_workers() -> None:
    """All but what must differ: labels, the name of the Secret, who starts a worker again, and who removes it."""
    settings = KubernetesFile.model_validate(
        {
            "image": "registry.example.org/streamgauge-worker@sha256:" + "0123456789abcdef" * 4,
            "port": 7500,
            "resources": {"cpu": "4", "memory": "2Gi"},
            "node_selector": {"pool": "load"},
            "tolerations": [
                {"key": "dedicated", "operator": "Equal", "value": "load", "effect": "NoSchedule"}
            ],
            "toleration_s": 30,
            "image_pull_secrets": ["registry"],
            "labels": {"team": "messaging"},
            "annotations": {"sidecar.istio.io/inject": "false"},
            "lab_addresses": ["10.0.0.0/24"],
        }
    )
    found = rendered()
    selector = {"app.kubernetes.io/instance": "load", "app.kubernetes.io/component": "worker"}
    job = found["Job", "load-workers"]
    pod = objects.pod(settings, name="load-workers", select=selector)
    pod["volumes"][0]["secret"]["secretName"] = "identity-of-load"
    template = job["spec"]["template"]
    assert template["spec"] == pod
    assert template["metadata"]["annotations"] == settings.annotations
    assert template["metadata"]["labels"].items() >= {**selector, **settings.labels}.items()
    ours = objects.Placement("n", "load", 3, settings, "h", 0.0)
    made = objects.job(ours)["spec"]
    same = ("completionMode", "completions", "parallelism", "podReplacementPolicy")
    assert {key: job["spec"][key] for key in same} == {key: made[key] for key in same}
    owner = objects.owner_of("n", "u")
    for kind, other in (
        ("Service", objects.service(ours, owner)),
        ("NetworkPolicy", objects.network_policy(ours, owner)),
    ):
        theirs = json.loads(
            json.dumps(found[kind, "load-workers"]["spec"]).replace(json.dumps(selector), '"S"')
        )
        expected = json.loads(json.dumps(other["spec"]).replace(json.dumps(dict(ours.selector)), '"S"'))
        if kind == "NetworkPolicy":
            # The chart's own lab is always let in.
            assert theirs["ingress"][0]["from"].pop() == {
                "podSelector": {"matchLabels": {**selector, "app.kubernetes.io/component": "lab"}}
            }
        assert theirs == expected
