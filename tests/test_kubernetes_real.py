"""Workers in a real cluster: `make test-kubernetes`. Not part of CI, which has no cluster.

    KUBECONFIG          the cluster; its pods and this machine must reach each other
    KUBERNETES_IMAGE    the workers' image, which the nodes have or can pull (deploy/Containerfile)
    KUBERNETES_HOST     this machine's address as pods reach it; default: the one that leads to the API server. The reference
                        log and Kafka are started there
    KUBERNETES_CUT      optional: a command that cuts off a node; {node} in it stands for the name of one with a worker
    KUBERNETES_HEAL     optional: the command that undoes it

Everything is made in the context's namespace, and nothing is left there.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import lab_support
import pytest
from kubernetes_support import official_client
from streamgauge.fleet.kubernetes import leftovers
from streamgauge.fleet.kubernetes.api import Cluster
from streamgauge.fleet.kubernetes.objects import MANAGED_BY
from streamgauge.fleet.kubernetes.placed import make_identity
from streamgauge.systems.support import processes
from streamgauge.vocabulary.gauge_binary import find_gauge
from test_kubernetes_chart import rendered

WANTED = "STREAMGAUGE_KUBERNETES"
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(WANTED not in os.environ, reason="needs a cluster: make test-kubernetes"),
]

SHARED = """\
name: shared
topics: 1
partitionsPerTopic: 12
messageSize: 1024
producersPerTopic: 3
subscriptionsPerTopic: 1
consumerPerSubscription: 3
rate: 3000
warmup: 2s
duration: 8s
"""


@pytest.fixture(scope="module")
def image() -> str:
    for name in ("KUBECONFIG", "KUBERNETES_IMAGE"):
        if not os.environ.get(name):
            pytest.fail(f"{name} is not set: see the head of {Path(__file__).name}")
    return os.environ["KUBERNETES_IMAGE"]


@pytest.fixture(scope="module")
def cluster(image: str) -> Iterator[Cluster]:
    assert image
    found = Cluster(None, None)
    leftovers.sweep(found)
    yield found
    assert left(found) == []


@pytest.fixture(scope="module")
def host(cluster: Cluster) -> str:
    """This machine's address as pods reach it."""
    return os.environ.get("KUBERNETES_HOST") or own_address(cluster.server)


@pytest.fixture(scope="module")
def broker(host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A reference log on this machine that pods reach."""
    address = f"{host}:{processes.free_ports(1)[0]}"
    data = tmp_path_factory.mktemp("log")
    command = [str(find_gauge()), "log", "--listen", address, "--insecure", "--data", str(data / "data")]
    with (data / "out").open("w") as out:
        log = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        await_that(lambda: reaches(address), 10)
        yield address
    finally:
        log.terminate()
        log.wait(10)


def own_address(server: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the kernel says which address it would send from.
        probe.connect((urlsplit(server).hostname, 9))
        return str(probe.getsockname()[0])


def reaches(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def await_that(fact: Callable[[], Any], within_s: float) -> Any:
    until_s = time.monotonic() + within_s
    while True:
        found = fact()
        if found:
            return found
        assert time.monotonic() < until_s, f"not so within {within_s:g} s"
        time.sleep(0.02)


def left(cluster: Cluster) -> list[str]:
    found = [f"{kind} {name}" for kind, name in cluster.others(MANAGED_BY)]
    selector = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
    # The lab has no right to do this, and does without.
    held = cluster._core.list_namespaced_secret(cluster.namespace, label_selector=selector)
    found += [f"Secret {secret.metadata.name}" for secret in held.items]
    found += [f"pod {pod.metadata.name}" for pod in cluster.pods(MANAGED_BY)[0]]
    return found + [f"Job {job.metadata.name}" for job in cluster.jobs(MANAGED_BY)]


class Lab:
    """A run in a directory of its own."""

    def __init__(
        self, directory: Path, settings: str, broker: str | None, *arguments: str, workload: str = SHARED
    ) -> None:
        """`broker`: the reference log that is measured; None: `arguments` say what is."""
        (directory / "kubernetes.yaml").write_text(settings)
        (directory / "shared.yaml").write_text(workload)
        self.directory = directory
        self.events_file = directory / "events.jsonl"
        system = ("--system", "gauge-log", "--connect", broker) if broker else ()
        fleet = ("--fleet", "kubernetes", "--events", str(self.events_file))
        what = (
            arguments if arguments[:1] and not arguments[0].startswith("-") else ("shared.yaml", *arguments)
        )
        self.process = lab_support.lab(
            find_gauge(), directory, "run", *what, *system, *fleet, stderr=subprocess.STDOUT
        )

    def events(self) -> str:
        return self.events_file.read_text() if self.events_file.exists() else ""

    def await_event(self, text: str, within_s: float) -> None:
        await_that(lambda: text in self.events() or self.process.poll() is not None, within_s)
        assert text in self.events(), self.out()

    def out(self) -> str:
        text, _ = self.process.communicate(timeout=180)
        print(text)
        return text

    def result(self) -> dict[str, Any]:
        return lab_support.result(self.directory)


def settings(image: str, **others: Any) -> str:
    return json.dumps({"image": image, "resources": {"cpu": "500m", "memory": "512Mi"}, **others})


def check_books(lab: Lab) -> None:
    audit = lab.result()["audit"]
    assert audit["clean"], audit
    assert audit["sent"] == audit["subscriptions"][0]["unique"] == 30_000


def test_three_workers_measure_as_one_and_nothing_is_left(
    tmp_path: Path, image: str, cluster: Cluster, broker: str
) -> None:
    lab = Lab(tmp_path, settings(image), broker, "--workers", "3")
    out = lab.out()
    assert lab.process.returncode in (0, 1), out
    assert left(cluster) == []
    check_books(lab)
    found = lab.result()
    assert {lane["worker"] for lane in found["lanes"]} == {"worker-0", "worker-1", "worker-2"}
    assert "workers ran in Kubernetes: worker-0 on" in out.replace("\n", " ")
    assert found["end_to_end_bound_ms"] is not None
    assert (tmp_path / "runs/latest/trials/001/logs/worker-0.log").read_text().count("ready ") == 1


def test_a_workload_that_ships_runs_as_it_is(
    tmp_path: Path, image: str, cluster: Cluster, broker: str
) -> None:
    what = ("1-topic-16-partitions-1kb", "--rate", "2000", "--duration", "5s", "--warmup", "1s")
    lab = Lab(tmp_path, settings(image), broker, *what, "--workers", "3")
    out = lab.out()
    assert lab.process.returncode in (0, 1), out
    assert lab.result()["audit"]["clean"]
    assert left(cluster) == []


@pytest.mark.timeout(400)
def test_kafka_that_the_lab_starts_is_measured_from_pods(
    tmp_path: Path, image: str, cluster: Cluster, host: str
) -> None:
    what = ("1-topic-16-partitions-1kb", "--rate", "3000", "--duration", "8s", "--warmup", "2s")
    lab = Lab(
        tmp_path,
        settings(image),
        None,
        *what,
        "--workers",
        "3",
        "--system",
        "kafka",
        "--at",
        host,
        "--insecure",
    )
    out = lab.out()
    assert lab.process.returncode in (0, 1), out
    check_books(lab)
    assert lab.result()["system"] == "kafka"
    assert left(cluster) == []


@pytest.mark.parametrize("on_loss", ["end", "go-on"])
def test_a_node_that_is_cut_off_is_noticed_within_3_s(
    tmp_path: Path, image: str, cluster: Cluster, broker: str, on_loss: str
) -> None:
    cut, heal = os.environ.get("KUBERNETES_CUT"), os.environ.get("KUBERNETES_HEAL")
    if not cut:
        pytest.skip("KUBERNETES_CUT is not set: a command that cuts off a node")
    options = ("--workers", "3", "--on-worker-loss", on_loss, "--duration", "20s")
    lab = Lab(tmp_path, settings(image), broker, *options)
    node = ""
    try:
        lab.await_event('"interval"', 90)
        node = cluster.pods(MANAGED_BY)[0][-1].spec.node_name
        subprocess.run(shlex.split(cut.replace("{node}", node)), check=True, stdout=subprocess.DEVNULL)
        cut_s = time.monotonic()
        lab.await_event("worker lost", 10)
        noticed_s = time.monotonic() - cut_s
        out = lab.out()
        print(f"noticed after {noticed_s:.2f} s, ended after {time.monotonic() - cut_s:.1f} s")
        assert noticed_s < 3.0
        assert lab.process.returncode == (3 if on_loss == "end" else 1), out
        assert left(cluster) == []
        found = lab.result()
        assert not found["validity"]["valid"]
        assert found["status"] == ("failed" if on_loss == "end" else "complete")
        reasons = " ".join(found["validity"]["reasons"])
        assert "worker lost: worker-" in reasons
        assert "(pod streamgauge-" in reasons, "it says on which node the worker was"
    finally:
        if heal:
            subprocess.run(shlex.split(heal.replace("{node}", node)), check=True, stdout=subprocess.DEVNULL)
            await_that(lambda: all_nodes_ready(cluster), 120)


def all_nodes_ready(cluster: Cluster) -> bool:
    nodes = official_client().CoreV1Api(cluster._client).list_node().items
    return all(
        any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
        and not any(taint.effect == "NoExecute" for taint in node.spec.taints or [])
        for node in nodes
    )


def test_a_worker_that_the_cluster_stops_is_no_finished_one(
    tmp_path: Path, image: str, cluster: Cluster, broker: str
) -> None:
    lab = Lab(tmp_path, settings(image), broker, "--workers", "2", "--duration", "20s")
    lab.await_event('"interval"', 90)
    pods = cluster.pods(MANAGED_BY)[0]
    cluster.delete_pod(pods[0].metadata.name, grace_s=5)
    stopped_s = time.monotonic()
    lab.await_event("worker lost", 3)
    print(f"noticed after {time.monotonic() - stopped_s:.2f} s")
    out = lab.out()
    assert lab.process.returncode == 3, out
    reasons = " ".join(lab.result()["validity"]["reasons"])
    assert "is being removed from the cluster" in reasons or "ended with status 143" in reasons
    assert left(cluster) == []


def test_what_a_killed_lab_leaves_is_removed(
    tmp_path: Path, image: str, cluster: Cluster, broker: str
) -> None:
    lab = Lab(tmp_path, settings(image), broker, "--workers", "2", "--duration", "60s")
    lab.await_event('"interval"', 90)
    clean = ("fleet", "clean", f"kubernetes:{tmp_path}/kubernetes.yaml")
    alive = lab_support.lab(find_gauge(), tmp_path, *clean, stderr=subprocess.STDOUT)
    assert f"left, process {lab.process.pid} on" in alive.communicate(timeout=60)[0]
    lab.process.send_signal(signal.SIGKILL)
    lab.process.communicate(timeout=10)
    assert {name.split()[0] for name in left(cluster)} >= {"Job", "pod", "Secret", "Service", "NetworkPolicy"}
    done = lab_support.lab(find_gauge(), tmp_path, *clean, stderr=subprocess.STDOUT)
    text = done.communicate(timeout=60)[0]
    assert done.returncode == 0, text
    assert "removed from namespace" in text
    assert left(cluster) == []


def test_the_job_alone_takes_everything_with_it(
    image: str, cluster: Cluster, broker: str, tmp_path: Path
) -> None:
    """As when its time to live is over and no lab comes any more."""
    lab = Lab(tmp_path, settings(image), broker, "--workers", "2", "--duration", "60s")
    lab.await_event('"interval"', 90)
    lab.process.send_signal(signal.SIGKILL)
    lab.process.communicate(timeout=10)
    for job in cluster.jobs(MANAGED_BY):
        cluster.delete_job(job.metadata.name)
    await_that(lambda: left(cluster) == [], 60)


def test_an_image_that_is_not_there_is_said_at_once(tmp_path: Path, cluster: Cluster, broker: str) -> None:
    absent = settings("localhost/streamgauge-absent:1", image_pull_policy="Never")
    lab = Lab(tmp_path, absent, broker, "--workers", "2")
    out = lab.out()
    assert lab.process.returncode == 3
    assert "fleet failed: the workers could not be started: pod streamgauge-" in out.replace("\n", " ")
    assert "ErrImageNeverPull" in out
    assert left(cluster) == []


def test_more_workers_than_nodes_say_what_holds_them_up(
    tmp_path: Path, image: str, cluster: Cluster, broker: str
) -> None:
    lab = Lab(tmp_path, settings(image, ready_within_s=10.0), broker, "--workers", "32")
    out = lab.out().replace("\n", " ")
    assert lab.process.returncode == 3
    assert "of 32 workers were ready after 10 s" in out
    assert "Unschedulable" in out
    assert left(cluster) == []


def test_the_charts_objects_are_taken_and_its_workers_found(
    tmp_path: Path, image: str, cluster: Cluster, broker: str
) -> None:
    client = official_client()
    core, batch = client.CoreV1Api(cluster._client), client.BatchV1Api(cluster._client)
    makers = {
        "Job": batch.create_namespaced_job,
        "Service": core.create_namespaced_service,
        "ConfigMap": core.create_namespaced_config_map,
        "PersistentVolumeClaim": core.create_namespaced_persistent_volume_claim,
        "ServiceAccount": core.create_namespaced_service_account,
        "NetworkPolicy": client.NetworkingV1Api(cluster._client).create_namespaced_network_policy,
        "Role": client.RbacAuthorizationV1Api(cluster._client).create_namespaced_role,
        "RoleBinding": client.RbacAuthorizationV1Api(cluster._client).create_namespaced_role_binding,
    }
    for (kind, _), made in rendered().items():
        # The server itself looks at it, with every field that it does not know an error.
        makers[kind](cluster.namespace, made, dry_run="All", field_validation="Strict")

    identity = make_identity(find_gauge())
    held = {"token": identity.token, "tls.crt": identity.certificate_pem, "tls.key": identity.key_pem}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in held.items()}
    core.create_namespaced_secret(
        cluster.namespace, {"metadata": {"name": "identity-of-load"}, "data": data, "type": "Opaque"}
    )
    job, service = rendered()["Job", "load-workers"], rendered()["Service", "load-workers"]
    pod = job["spec"]["template"]["spec"]
    del pod["nodeSelector"]
    container = pod["containers"][0]
    container["image"] = image
    container["resources"] = {}
    try:
        makers["Job"](cluster.namespace, job)
        makers["Service"](cluster.namespace, service)
        lab = Lab(tmp_path, json.dumps({"release": "load"}), broker)
        out = lab.out()
        assert lab.process.returncode in (0, 1), out
        check_books(lab)
        assert "worker-2 on" in out
        # They stay for the next run.
        assert len(cluster.endpoints("load-workers")) == 3
    finally:
        batch.delete_namespaced_job("load-workers", cluster.namespace, propagation_policy="Background")
        core.delete_namespaced_service("load-workers", cluster.namespace)
        core.delete_namespaced_secret("identity-of-load", cluster.namespace)
    selector = {"app.kubernetes.io/instance": "load", "app.kubernetes.io/component": "worker"}
    await_that(lambda: not cluster.pods(selector)[0], 60)
