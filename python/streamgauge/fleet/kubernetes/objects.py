"""What the lab makes in the cluster for one placement of workers: plain objects, as the API takes them.

The Job owns all the others, so that whatever removes it - the lab, the next one, `streamgauge fleet clean`, its
deadline and then its time to live - removes everything. They are built here and not rendered from the chart
(deploy/helm), because a lab cannot ask for a helm binary and a template that is rendered by something else is a
second dialect. The chart is for those who place workers themselves; tests/test_kubernetes_chart.py compares what it
renders with what is made here, field by field.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgauge.fleet.kubernetes.settings import KubernetesFile

RUN_LABEL = "streamgauge/run"
HOLDER = "streamgauge/holder"
"""Annotation of the Job: which lab it belongs to, as HOST/PID/STARTED."""
RENEWED = "streamgauge/renewed"
"""Annotation of the Job: when that lab was last there, in seconds since 1970."""
MANAGED_BY = {"app.kubernetes.io/managed-by": "streamgauge-lab"}
NAME_LABEL = {"app.kubernetes.io/name": "streamgauge"}
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
SERVICE_LABEL = "kubernetes.io/service-name"
CONTAINER = "worker"
PORT_NAME = "worker"
USER = 65532
"""Nobody in particular; what distroless images call nonroot."""
IDENTITY = "/etc/streamgauge"
TIME_TO_LIVE_S = 60
GRACE_S = 5
LOST_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

Object = dict[str, Any]


@dataclass(frozen=True)
class Identity:
    """What the workers of one placement show and ask for. Never printed."""

    token: str
    certificate_pem: str
    key_pem: str
    fingerprint: str

    def __repr__(self) -> str:
        return f"Identity({self.fingerprint})"


@dataclass(frozen=True)
class Placement:
    """Workers that are to be placed."""

    name: str
    """Of all objects; it is the run's label as well."""
    namespace: str
    workers: int
    settings: KubernetesFile
    holder: str
    renewed_s: float

    @property
    def selector(self) -> Mapping[str, str]:
        """Labels that all objects have and nothing else has."""
        return {**MANAGED_BY, RUN_LABEL: self.name}

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of all objects."""
        return {**self.settings.labels, **NAME_LABEL, **self.selector}


def job(placement: Placement) -> Object:
    """An Indexed Job: a worker per index, which is not started again when it ends. A worker that the cluster stops
    ends with 143 and its index has failed; the others stay. A replacement is of no use to a trial."""
    settings = placement.settings
    metadata = _metadata(placement)
    metadata["annotations"] = {HOLDER: placement.holder, RENEWED: f"{placement.renewed_s:.0f}"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": placement.workers,
            "parallelism": placement.workers,
            "backoffLimitPerIndex": 0,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": settings.deadline_s,
            "ttlSecondsAfterFinished": TIME_TO_LIVE_S,
            "template": {
                "metadata": {
                    "labels": dict(placement.labels),
                    "annotations": dict(settings.annotations),
                },
                "spec": pod(settings, name=placement.name, select={RUN_LABEL: placement.name}),
            },
        },
    }


def pod(settings: KubernetesFile, *, name: str, select: Mapping[str, str]) -> Object:
    """The pod of a worker. `name` is that of the Service and the Secret, `select` finds the other workers."""
    assert settings.image is not None, "the settings were looked at"
    spec: Object = {
        "restartPolicy": "Never",
        # With it, endpoints carry the name of their index.
        "subdomain": name,
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings)],
        "volumes": [{"name": "identity", "secret": {"secretName": name, "defaultMode": 0o440}}],
        "tolerations": tolerations(settings),
    }
    if settings.spread:
        term = {"labelSelector": {"matchLabels": dict(select)}, "topologyKey": "kubernetes.io/hostname"}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAntiAffinity": rule}
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": one} for one in settings.image_pull_secrets]
    return spec


def _container(settings: KubernetesFile) -> Object:
    amount = {"cpu": settings.resources.cpu, "memory": settings.resources.memory}
    return {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": [
            "worker",
            "--listen",
            f"0.0.0.0:{settings.port}",
            "--token-file",
            f"{IDENTITY}/token",
            "--certificate",
            f"{IDENTITY}/tls.crt",
            "--key",
            f"{IDENTITY}/tls.key",
        ],
        "ports": [{"name": PORT_NAME, "containerPort": settings.port, "protocol": "TCP"}],
        # The API answers nobody without the token; that it accepts connections is what can be seen from outside.
        "readinessProbe": {"tcpSocket": {"port": PORT_NAME}, "periodSeconds": 2, "failureThreshold": 2},
        "resources": {"requests": dict(amount), "limits": dict(amount)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "identity", "mountPath": IDENTITY, "readOnly": True}],
    }


def tolerations(settings: KubernetesFile) -> list[Object]:
    """Those of the file, and how long a pod is left on a node that is lost."""
    given = [one.plain() for one in settings.tolerations]
    known = {one.get("key") for one in given}
    return given + [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": settings.toleration_s,
        }
        for key in LOST_NODE
        if key not in known
    ]


def service(placement: Placement, owner: Mapping[str, Any]) -> Object:
    """Headless: it makes EndpointSlices, in which the lab finds the workers that are ready."""
    port = {"name": PORT_NAME, "port": placement.settings.port, "targetPort": PORT_NAME, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(placement, owner),
        "spec": {"clusterIP": "None", "selector": dict(placement.selector), "ports": [port]},
    }


def secret(placement: Placement, owner: Mapping[str, Any], identity: Identity) -> Object:
    """The token and the certificate of these workers and of no others."""
    files = {
        "token": identity.token,
        "tls.crt": identity.certificate_pem,
        "tls.key": identity.key_pem,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(placement, owner),
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
    }


def network_policy(placement: Placement, owner: Mapping[str, Any]) -> Object:
    """Who may reach a worker: the lab its API, the other workers its clock probe (a UDP port of its choice). What the
    worker itself may reach is not restricted: the system under test is anywhere."""
    settings = placement.settings
    api: Object = {"ports": [{"port": settings.port, "protocol": "TCP"}]}
    if settings.lab_addresses:
        networks = [str(ipaddress.ip_network(text)) for text in settings.lab_addresses]
        api["from"] = [{"ipBlock": {"cidr": network}} for network in networks]
    clocks = {
        "ports": [{"protocol": "UDP"}],
        "from": [{"podSelector": {"matchLabels": dict(placement.selector)}}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(placement, owner),
        "spec": {
            "podSelector": {"matchLabels": dict(placement.selector)},
            "policyTypes": ["Ingress"],
            "ingress": [api, clocks],
        },
    }


def owner_of(name: str, uid: str) -> Object:
    """The Job as an owner: what it owns goes with it."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }


def _metadata(placement: Placement, owner: Mapping[str, Any] | None = None) -> Object:
    metadata: Object = {
        "name": placement.name,
        "namespace": placement.namespace,
        "labels": dict(placement.labels),
    }
    if owner is not None:
        metadata["ownerReferences"] = [dict(owner)]
    return metadata


def selector_text(labels: Mapping[str, str]) -> str:
    """As a request's labelSelector."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
