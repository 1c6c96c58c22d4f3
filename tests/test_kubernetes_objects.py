"""What the lab makes in a cluster, without one: objects against the API's types, settings, whose is what."""

from __future__ import annotations

import base64
import copy
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubernetes_support import official_client, through_the_models
from streamgauge.fleet.choice import choose_fleet
from streamgauge.fleet.kubernetes import leftovers, objects
from streamgauge.fleet.kubernetes.api import Cluster, ClusterError
from streamgauge.fleet.kubernetes.placed import identity_in, make_identity
from streamgauge.fleet.kubernetes.pods import PodState
from streamgauge.fleet.kubernetes.settings import read_settings
from streamgauge.vocabulary.errors import InputError

FULL = """\
image: registry.example.org/streamgauge-worker:0.1.0
namespace: load
workers: 3
resources: {cpu: "4", memory: 2Gi}
node_selector: {pool: load}
tolerations:
  - {key: dedicated, operator: Equal, value: load, effect: NoSchedule}
toleration_s: 7
image_pull_secrets: [registry]
labels: {team: messaging}
annotations: {sidecar.istio.io/inject: "false"}
lab_addresses: [10.0.0.5, 10.1.0.0/16]
"""
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: user, user: {token: none}}]
contexts: [{name: local, context: {cluster: local, user: user}}]
current-context: local
"""
SECRET = objects.Identity("t0ken-of-the-test", "certificate", "private", "sha256:0")


def placement(tmp_path: Path, text: str = FULL) -> objects.Placement:
    file = tmp_path / "kubernetes.yaml"
    file.write_text(text)
    settings = read_settings(file)
    return objects.Placement(
        name="streamgauge-1234abcd",
        namespace="load",
        workers=settings.workers or 1,
        settings=settings.written,
        holder=leftovers.holder(),
        renewed_s=1.7e9,
    )


def all_of(placed: objects.Placement) -> list[objects.Object]:
    owner = objects.owner_of(placed.name, "u-i-d")
    return [
        objects.job(placed),
        objects.secret(placed, owner, SECRET),
        objects.service(placed, owner),
        objects.network_policy(placed, owner),
    ]


@pytest.mark.parametrize("text", [FULL, "image: worker:1\nspread: false\n"])
def test_objects_are_what_the_api_knows(tmp_path: Path, text: str) -> None:
    for made in all_of(placement(tmp_path, text)):
        assert through_the_models(made) == made


def test_the_models_see_what_they_do_not_know(tmp_path: Path) -> None:
    job = objects.job(placement(tmp_path))
    misspelt = copy.deepcopy(job)
    misspelt["spec"]["podReplacementPolice"] = misspelt["spec"].pop("podReplacementPolicy")
    assert through_the_models(misspelt) != misspelt
    del job["spec"]["template"]["spec"]["containers"][0]["name"]
    with pytest.raises(ValueError, match="name"):
        through_the_models(job)


def test_whatever_removes_the_job_removes_everything(tmp_path: Path) -> None:
    placed = placement(tmp_path)
    job, *others = all_of(placed)
    for made in others:
        assert made["metadata"]["ownerReferences"][0]["uid"] == "u-i-d"
        assert made["metadata"]["labels"].items() >= placed.selector.items()
    assert job["metadata"]["annotations"][objects.HOLDER] == leftovers.holder()
    spec = job["spec"]
    assert spec["activeDeadlineSeconds"] == 6 * 3600
    assert spec["ttlSecondsAfterFinished"] > 0
    # One lost worker must not take the others with it, nor come back in the middle of a trial.
    assert spec["backoffLimitPerIndex"] == 0
    assert "backoffLimit" not in spec
    assert spec["podReplacementPolicy"] == "Failed"


def test_a_worker_may_do_little_and_has_its_cores_to_itself(tmp_path: Path) -> None:
    pod = objects.job(placement(tmp_path))["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert (
        container["resources"]["requests"]
        == container["resources"]["limits"]
        == {"cpu": "4", "memory": "2Gi"}
    )
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["nodeSelector"] == {"pool": "load"}
    assert [one["tolerationSeconds"] for one in pod["tolerations"][1:]] == [7, 7]
    rule = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    loose = placement(tmp_path, "image: worker:1\nspread: false\n")
    assert "affinity" not in objects.job(loose)["spec"]["template"]["spec"]


def test_secrets_are_in_the_secret_and_nowhere_else(tmp_path: Path) -> None:
    job, secret, *others = all_of(placement(tmp_path))
    assert base64.b64decode(secret["data"]["token"]) == b"t0ken-of-the-test"
    for made in (job, *others):
        assert SECRET.token not in str(made)
        assert secret["data"]["token"] not in str(made)
    assert SECRET.token not in repr(SECRET)
    assert SECRET.key_pem not in repr(SECRET)


def test_the_policy_lets_the_lab_and_the_clocks_in(tmp_path: Path) -> None:
    placed = placement(tmp_path)
    policy = all_of(placed)[3]["spec"]
    assert policy["podSelector"]["matchLabels"] == placed.selector
    api, clocks = policy["ingress"]
    assert [one["ipBlock"]["cidr"] for one in api["from"]] == ["10.0.0.5/32", "10.1.0.0/16"]
    assert clocks["ports"] == [{"protocol": "UDP"}]
    assert clocks["from"] == [{"podSelector": {"matchLabels": placed.selector}}]


def test_settings_are_refused_with_lines(tmp_path: Path) -> None:
    file = tmp_path / "kubernetes.yaml"
    file.write_text("namespace: load\nlab_addresses: [nowhere]\nlabels:\n  streamgauge/run: mine\n")
    with pytest.raises(InputError) as found:
        read_settings(file)
    text = str(found.value)
    assert "kubernetes.yaml:1: key 'image' is missing" in text
    assert "kubernetes.yaml:2: lab_addresses[0]: expected an address or a network" in text
    assert "kubernetes.yaml:4: labels: 'streamgauge/run' is one that the lab sets itself" in text
    file.write_text("release: load\nimage: worker:1\nspread: false\n")
    with pytest.raises(InputError) as of_release:
        read_settings(file)
    assert ":2: image: says nothing of workers that run already (release: load)" in str(of_release.value)
    assert ":3: spread: says nothing" in str(of_release.value)
    file.write_text("image: worker:1\nresources: {cpu: 4}\nimage_pull: Never\n")
    with pytest.raises(InputError) as typed:
        read_settings(file)
    assert "resources.cpu: expected text, found 4" in str(typed.value)
    assert "unknown key 'image_pull'" in str(typed.value)


def test_options_that_cannot_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official_client()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with pytest.raises(
        InputError, match=r"kubernetes\.yaml is not here: expected a file with at least 'image"
    ):
        choose_fleet("kubernetes", 3, "same", "end")
    with pytest.raises(InputError, match="expected a file behind the colon"):
        choose_fleet("kubernetes:", 3, "same", "end")
    with pytest.raises(InputError, match=r"other\.yaml: no such file"):
        choose_fleet("kubernetes:other.yaml", 3, "same", "end")
    (tmp_path / "kubernetes.yaml").write_text("image: worker:1\n")
    with pytest.raises(InputError, match=r"no cluster to be found: .*; expected KUBECONFIG"):
        choose_fleet("kubernetes", 3, "same", "end")
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    with pytest.raises(InputError, match="--topology split needs two workers or more"):
        choose_fleet("kubernetes", None, "split", "end")
    chosen = choose_fleet("kubernetes", 3, "split", "go-on")
    assert chosen.kubernetes is not None
    assert chosen.kubernetes.workers == 3
    (tmp_path / "kubernetes.yaml").write_text("image: worker:1\ncontext: another\n")
    with pytest.raises(InputError, match="there is no context 'another', but local"):
        choose_fleet("kubernetes", 3, "same", "end")


def test_a_missing_client_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubernetes.yaml").write_text("image: worker:1\n")
    monkeypatch.chdir(tmp_path)
    # How Python marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(InputError, match=r"pip install 'streamgauge\[kubernetes\]'"):
        choose_fleet("kubernetes", 3, "same", "end")


def test_a_lab_is_known_to_live_or_to_be_dead() -> None:
    mine = leftovers.holder()
    assert leftovers.holder_lives(mine) is True
    host, boot, pid, _ = leftovers.parts(mine)
    assert leftovers.holder_lives(f"{host}/{boot}/{pid}/1.00") is False, (
        "another process had the number before"
    )
    child = subprocess.Popen(["true"])
    started = f"{psutil.Process(child.pid).create_time():.2f}"
    child.wait()
    assert leftovers.holder_lives(f"{host}/{boot}/{child.pid}/{started}") is False
    assert leftovers.holder_lives(f"elsewhere/{boot}/{pid}/1.00") is None
    assert leftovers.holder_lives(f"{host}/another-boot/{pid}/1.00") is None
    assert leftovers.Placed("p", "elsewhere/b/1/1.00", 60.0).held
    assert not leftovers.Placed("p", "elsewhere/b/1/1.00", 300.0).held
    assert not leftovers.Placed("p", "", None).held


def pod_with(status: dict[str, Any], **metadata: Any) -> Any:
    client = official_client()
    api = client.ApiClient(client.Configuration())
    pod = {
        "metadata": {"name": "w-1", "uid": "u", "labels": {objects.INDEX_LABEL: "1"}, **metadata},
        "spec": {"nodeName": "node2", "containers": [{"name": "worker"}]},
        "status": status,
    }
    return api._ApiClient__deserialize(pod, "V1Pod")


def container(**state: Any) -> dict[str, Any]:
    one = {"name": "worker", "state": state, "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return {"phase": "Running", "containerStatuses": [one]}


def test_what_becomes_of_a_pod_is_said_in_words() -> None:
    state = PodState.of(pod_with(container(running={})))
    assert (state.index, state.node, state.ended, state.waiting) == (1, "node2", None, None)
    killed = PodState.of(pod_with(container(terminated={"exitCode": 137, "reason": "OOMKilled"})))
    assert killed.ended == "ended with status 137 (SIGKILL), OOMKilled"
    stopped = container(terminated={"exitCode": 143, "reason": "Error"})
    message = "Eviction API: evicting"
    stopped["conditions"] = [{"type": "DisruptionTarget", "status": "True", "message": message}]
    assert PodState.of(pod_with(stopped)).ended == "ended with status 143 (SIGTERM): Eviction API: evicting"
    going = PodState.of(pod_with(container(running={}), deletionTimestamp="2026-01-02T03:04:05Z"))
    assert going.ended == "is being removed from the cluster"
    pulling = PodState.of(pod_with(container(waiting={"reason": "ErrImageNeverPull", "message": "no such"})))
    assert (pulling.waiting, pulling.hopeless) == ("ErrImageNeverPull: no such", True)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    pending = PodState.of(pod_with({"phase": "Pending", "conditions": [condition]}))
    assert (pending.waiting, pending.hopeless) == ("Unschedulable: 0/3 nodes", False)


def test_an_identity_is_found_again_in_its_secret(gauge: Path) -> None:
    made = make_identity(gauge)
    held = {"token": f"{made.token}\n".encode(), "tls.crt": made.certificate_pem.encode()}
    assert identity_in(held, "s").fingerprint == made.fingerprint
    assert identity_in(held, "s").token == made.token
    with pytest.raises(Exception, match=r"the Secret s has no tls\.crt"):
        identity_in({"token": b"t"}, "s")
    with pytest.raises(Exception, match="expected a token in one line and a PEM certificate"):
        identity_in({"token": b"t", "tls.crt": b"\xff"}, "s")


class Answers(http.server.BaseHTTPRequestHandler):
    """What a cluster may say: nothing at all to one question, no to all others."""

    def do_GET(self) -> None:
        empty = self.path.partition("?")[0].endswith("/log")
        body = b"" if empty else json.dumps({"message": "lab may not list jobs"}).encode()
        self.send_response(200 if empty else 403)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def grumpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    official_client()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        (tmp_path / "kubeconfig").write_text(KUBECONFIG.replace("https://127.0.0.1:1", address))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield Cluster(None, "load")
        server.shutdown()


def test_what_the_cluster_says_is_said_in_words(grumpy: Cluster) -> None:
    assert grumpy.log("w-1") == "", "a pod that has not said anything yet"
    with pytest.raises(ClusterError) as refused:
        leftovers.sweep(grumpy)
    assert refused.value.status == 403
    assert "refused to list Jobs in namespace load: lab may not list jobs (see 'What the lab needs" in str(
        refused.value
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
def test_a_worker_that_is_stopped_does_not_look_finished(gauge: Path) -> None:
    """As the first process of a container, for which the kernel has no default of its own for SIGTERM."""
    command = ["unshare", "--pid", "--fork", "--kill-child", str(gauge), "worker", "--listen", "127.0.0.1:0"]
    outer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert outer.stdout is not None
        assert outer.stdout.readline().startswith("ready ")
        (worker,) = psutil.Process(outer.pid).children()
        began_s = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert outer.wait(10) == 143
        assert time.monotonic() - began_s < objects.GRACE_S
    finally:
        outer.kill()
        outer.wait()
