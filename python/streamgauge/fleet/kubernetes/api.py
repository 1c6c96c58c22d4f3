"""The cluster's API, through the official client: what the lab asks of it, with errors as sentences.

The client is an optional dependency (`pip install 'streamgauge[kubernetes]'`) and is imported when a cluster is first
asked for. It ships no types: answers are `Any` here and are looked at by `pods` and `placed`.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.fleet.kubernetes.objects import SERVICE_LABEL, Object, owner_of, selector_text
from streamgauge.vocabulary.errors import FleetFailure, InputError

REQUEST_TIMEOUT_S = (3.0, 10.0)
"""To connect, and to be answered."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOG_LINES = 200
GONE = 404
EXPIRED = 410


class ClusterError(FleetFailure):
    """The cluster refused something or cannot be reached. One sentence."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        """Of HTTP; None when there was no answer."""
        super().__init__(message)


@dataclass(frozen=True)
class Endpoint:
    """A worker that is ready, as an EndpointSlice names it."""

    pod: str
    hostname: str
    address: str
    port: int
    node: str


def official_client() -> Any:
    """The package `kubernetes`. Raises InputError with what to install."""
    try:
        package = importlib.import_module("kubernetes")
        importlib.import_module("kubernetes.watch")
    except ImportError as error:
        raise InputError(
            f"--fleet kubernetes needs the official Python client, which is not installed here ({error}): "
            "pip install 'streamgauge[kubernetes]', or pip install kubernetes"
        ) from None
    return package


class Cluster:
    """A namespace of a cluster."""

    def __init__(self, context: str | None, namespace: str | None) -> None:
        """Reads KUBECONFIG (or ~/.kube/config), or in a pod the service account. Nothing is asked of the cluster yet.

        Raises InputError when there is no cluster to be found.
        """
        self._package = official_client()
        self._client, found = self._configure(context)
        self.namespace: str = namespace or found
        self.server: str = self._client.configuration.host
        self._core = self._package.client.CoreV1Api(self._client)
        self._batch = self._package.client.BatchV1Api(self._client)
        self._network = self._package.client.NetworkingV1Api(self._client)
        self._discovery = self._package.client.DiscoveryV1Api(self._client)

    def _configure(self, context: str | None) -> tuple[Any, str]:
        """The client and the namespace that goes with it."""
        config = self._package.config
        configuration = self._package.client.Configuration()
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").is_file()
        try:
            if in_pod and context is None and "KUBECONFIG" not in os.environ:
                config.load_incluster_config(client_configuration=configuration)
                namespace = (SERVICE_ACCOUNT / "namespace").read_text("utf-8").strip()
            else:
                # The client looks at the environment when it is imported, which may have been before.
                file = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
                contexts, active = config.list_kube_config_contexts(config_file=file)
                chosen = active if context is None else _named(contexts, context)
                config.load_kube_config(file, chosen["name"], client_configuration=configuration)
                namespace = chosen["context"].get("namespace") or "default"
        except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"--fleet kubernetes: no cluster to be found: {' '.join(str(error).split()) or type(error).__name__}; "
                "expected KUBECONFIG (or ~/.kube/config) with a current context, or a pod with a service account"
            ) from None
        # A retry of a request that was carried out would be told that what it makes exists.
        configuration.retries = False
        return self._package.client.ApiClient(configuration), namespace

    def _call(self, what: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Calls the API. Raises ClusterError: what could not be done, and why."""
        options.setdefault("_request_timeout", REQUEST_TIMEOUT_S)
        try:
            return function(*arguments, **options)
        except self._package.client.ApiException as error:
            raise ClusterError(
                f"the cluster {self.server} refused to {what}: {_said(error)}", error.status
            ) from None
        except Exception as error:
            # urllib3's and ssl's; the client has no error of its own for them.
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
            raise ClusterError(f"the cluster {self.server} could not be asked to {what}: {reason}") from None

    # Making

    def create(self, made: Object) -> Any:
        """Makes an object of one of the kinds of `objects`; the answer. Raises ClusterError."""
        creators = {
            "Job": self._batch.create_namespaced_job,
            "Service": self._core.create_namespaced_service,
            "Secret": self._core.create_namespaced_secret,
            "NetworkPolicy": self._network.create_namespaced_network_policy,
        }
        kind = made["kind"]
        what = f"make a {kind} in namespace {self.namespace}"
        return self._call(what, creators[kind], self.namespace, made)

    def owner(self, job: Any) -> Object:
        """What refers to a Job that was made."""
        return owner_of(job.metadata.name, job.metadata.uid)

    def annotate(self, job: str, annotations: Mapping[str, str], *, within_s: float) -> None:
        """Changes annotations of a Job. Raises ClusterError."""
        body = {"metadata": {"annotations": dict(annotations)}}
        patch = self._batch.patch_namespaced_job
        self._call(f"renew the Job {job}", patch, job, self.namespace, body, _request_timeout=within_s)

    # Looking

    def jobs(self, labels: Mapping[str, str]) -> list[Any]:
        """Jobs with these labels. Raises ClusterError."""
        lister = self._batch.list_namespaced_job
        what = f"list Jobs in namespace {self.namespace}"
        return list(self._call(what, lister, self.namespace, label_selector=selector_text(labels)).items)

    def job(self, name: str) -> Any:
        """A Job. Raises ClusterError."""
        return self._call(f"read the Job {name}", self._batch.read_namespaced_job, name, self.namespace)

    def pods(self, labels: Mapping[str, str]) -> tuple[list[Any], str]:
        """Pods with these labels, and from where on a watch sees what comes later. Raises ClusterError."""
        what = f"list pods in namespace {self.namespace}"
        lister = self._core.list_namespaced_pod
        found = self._call(what, lister, self.namespace, label_selector=selector_text(labels))
        return list(found.items), found.metadata.resource_version

    def watch_pods(self, labels: Mapping[str, str], version: str, for_s: int) -> Iterator[tuple[str, Any]]:
        """What becomes of pods: (ADDED, MODIFIED or DELETED, the pod), for so many seconds at most. Raises ClusterError;
        with status 410 when `version` is too old."""
        watch = self._package.watch.Watch()
        try:
            for event in watch.stream(
                self._core.list_namespaced_pod,
                self.namespace,
                label_selector=selector_text(labels),
                resource_version=version,
                timeout_seconds=for_s,
                # An answer is due by the end of the watch; a connection that died must not wait for ever.
                _request_timeout=(REQUEST_TIMEOUT_S[0], for_s + REQUEST_TIMEOUT_S[1]),
            ):
                yield event["type"], event["object"]
        except self._package.client.ApiException as error:
            raise ClusterError(f"the cluster refused to watch pods: {_said(error)}", error.status) from None
        except Exception as error:
            raise ClusterError(f"the cluster could not be asked to watch pods: {error}") from None

    def endpoints(self, service: str) -> list[Endpoint]:
        """The ready endpoints of a Service, from its EndpointSlices. Raises ClusterError."""
        lister = self._discovery.list_namespaced_endpoint_slice
        what = f"list EndpointSlices in namespace {self.namespace}"
        slices = self._call(what, lister, self.namespace, label_selector=f"{SERVICE_LABEL}={service}").items
        return [one for part in slices for one in _endpoints(part)]

    def log(self, pod: str) -> str:
        """The last lines of a pod's log; empty before it has said anything. Raises ClusterError."""
        read = self._core.read_namespaced_pod_log
        text: str | None = self._call(
            f"read the log of {pod}", read, pod, self.namespace, tail_lines=LOG_LINES
        )
        # The client says None for an answer without a body.
        return text or ""

    def secret(self, name: str) -> dict[str, bytes]:
        """The contents of a Secret. Raises ClusterError, never with any of it."""
        read = self._core.read_namespaced_secret
        found = self._call(f"read the Secret {name}", read, name, self.namespace)
        try:
            return {key: base64.b64decode(value) for key, value in (found.data or {}).items()}
        except binascii.Error:
            raise ClusterError(f"the Secret {name} is not what the cluster's API says it is") from None

    # Removing

    def delete_job(self, name: str) -> None:
        """Deletes a Job; what it owns follows. One that is gone is no error. Raises ClusterError."""
        delete = self._batch.delete_namespaced_job
        self._delete("Job", name, delete, propagation_policy="Background")

    def delete_pod(self, name: str, *, grace_s: int) -> None:
        """Deletes a pod; with 0 at once, though its node may not answer. Raises ClusterError."""
        self._delete("pod", name, self._core.delete_namespaced_pod, grace_period_seconds=grace_s)

    def delete_others(self, labels: Mapping[str, str]) -> None:
        """Deletes Services and NetworkPolicies with these labels, which follow their Job anyway, but when the cluster gets round to
        it. Raises ClusterError."""
        deleters = {
            "Service": self._core.delete_namespaced_service,
            "NetworkPolicy": self._network.delete_namespaced_network_policy,
        }
        for kind, name in self.others(labels):
            if kind in deleters:
                self._delete(kind, name, deleters[kind])

    def delete_secret(self, name: str) -> bool:
        """Deletes a Secret, of which nothing but the name need be known; whether it was there still. Raises ClusterError."""
        return self._delete("Secret", name, self._core.delete_namespaced_secret)

    def others(self, labels: Mapping[str, str]) -> list[tuple[str, str]]:
        """Kind and name of everything with these labels but Jobs, pods and Secrets: who may list Secrets reads all of them. Raises
        ClusterError."""
        listers = {
            "Service": self._core.list_namespaced_service,
            "NetworkPolicy": self._network.list_namespaced_network_policy,
            "EndpointSlice": self._discovery.list_namespaced_endpoint_slice,
        }
        selector = selector_text(labels)
        found: list[tuple[str, str]] = []
        for kind, lister in listers.items():
            what = f"list {kind}s in namespace {self.namespace}"
            answer = self._call(what, lister, self.namespace, label_selector=selector)
            found.extend((kind, str(one.metadata.name)) for one in answer.items)
        return found

    def _delete(self, kind: str, name: str, function: Callable[..., Any], **options: Any) -> bool:
        """Whether it was there still."""
        try:
            self._call(f"delete the {kind} {name}", function, name, self.namespace, **options)
        except ClusterError as error:
            if error.status != GONE:
                raise
            return False
        return True


def _named(contexts: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    for one in contexts:
        if one["name"] == name:
            return one
    known = ", ".join(sorted(str(one["name"]) for one in contexts))
    raise ValueError(f"there is no context '{name}', but {known}")


def _endpoints(part: Any) -> list[Endpoint]:
    ports = [one.port for one in part.ports or [] if one.port is not None]
    if not ports:
        return []
    return [
        Endpoint(
            pod=one.target_ref.name,
            hostname=one.hostname or "",
            address=one.addresses[0],
            port=ports[0],
            node=one.node_name or "",
        )
        for one in part.endpoints or []
        if one.conditions and one.conditions.ready and one.target_ref and not one.conditions.terminating
    ]


def _said(error: Any) -> str:
    """What the cluster says is wrong: its message, else HTTP's."""
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        message = error.reason or "it did not say why"
    hint = {
        401: " (the credentials of the kubeconfig are not valid)",
        403: " (see 'What the lab needs to be allowed' in docs/fleet.md)",
    }
    return f"{message}{hint.get(error.status, '')}"
