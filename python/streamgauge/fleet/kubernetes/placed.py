"""Workers that are pods: placed for one trial and removed after it, or those of a release of the chart."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from streamgauge.fleet import trust
from streamgauge.fleet.base import Worker
from streamgauge.fleet.client import WorkerClient
from streamgauge.fleet.crew import Crew, CrewFleet, Member
from streamgauge.fleet.hosts import ahead_ns
from streamgauge.fleet.kubernetes import leftovers, objects
from streamgauge.fleet.kubernetes.api import GONE, Cluster, ClusterError, Endpoint
from streamgauge.fleet.kubernetes.pods import PodWatch
from streamgauge.fleet.kubernetes.settings import KubernetesSettings
from streamgauge.fleet.local import CREW, check_version
from streamgauge.fleet.split import Capacity, Role
from streamgauge.vocabulary.background import Background
from streamgauge.vocabulary.choices import OnLoss, Topology
from streamgauge.vocabulary.errors import FleetFailure, WorkerLost, WorkerRefused
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.gauge_binary import find_gauge
from streamgauge.vocabulary.waiting import wait_until

POLL_S = 0.2
IDENTITY_WITHIN_S = 20.0
RENEW_WITHIN_S = 5.0
BOTH: frozenset[Role] = frozenset({"producers", "consumers"})


class KubernetesFleet(CrewFleet):
    """Workers in a cluster."""

    def __init__(
        self,
        settings: KubernetesSettings,
        *,
        gauge: Path | None = None,
        topology: Topology = "same",
        on_loss: OnLoss = "end",
    ) -> None:
        super().__init__()
        self._settings = settings
        self._gauge = gauge
        self._topology: Topology = topology
        self._on_loss: OnLoss = on_loss
        self._cluster: Cluster | None = None
        self._job: str | None = None
        """What was placed and is to be removed."""
        self._keeper: _Keeper | None = None
        self._watch: PodWatch | None = None
        self._found: list[Endpoint] = []
        self._logs: Path | None = None
        self._remarks: list[str] = []

    # Starting

    def start(self, log_directory: Path) -> Worker:
        """Places workers, or finds those of a release, and waits until all answer."""
        self.stop()
        self._logs = log_directory
        written = self._settings.written
        cluster = self._cluster = Cluster(written.context, written.namespace)
        members: list[Member] = []
        try:
            if written.release is None:
                service, identity, count = self._place(cluster)
            else:
                service, identity, count = self._adopt(cluster, written.release)
            self._found = self._await_endpoints(cluster, service, count)
            for endpoint in self._found:
                members.append(self._reach(endpoint, identity))
            self._crew = Crew(members, self._topology, self._on_loss, one_clock=False)
        except BaseException as error:
            for member in members:
                member.client.close()
            try:
                if self._crew is None and isinstance(error, FleetFailure):
                    self._keep_logs()
            finally:
                self.stop(at_once=not isinstance(error, Exception))
            raise
        where = ", ".join(f"{_name_of(one)} on {one.node or 'a node without a name'}" for one in self._found)
        self._crew.notes = [*self._remarks, f"workers ran in Kubernetes: {where}"]
        return Worker(name=CREW, client=self._crew, pid=None, lab_clock=True)

    def _place(self, cluster: Cluster) -> tuple[str, objects.Identity, int]:
        """Removes what a dead lab has left, and makes everything anew. The Job is made first: it owns the others."""
        swept = [one for one in leftovers.sweep(cluster) if one.removed]
        self._remarks = [f"removed {one.placed.name}, which {one.placed.whose} had left" for one in swept]
        identity = make_identity(self._gauge or find_gauge())
        placement = objects.Placement(
            name=f"streamgauge-{secrets.token_hex(4)}",
            namespace=cluster.namespace,
            workers=self._settings.workers or 1,
            settings=self._settings.written,
            holder=leftovers.holder(),
            renewed_s=time.time(),
        )
        # Named before it is made: an answer that gets lost must not leave it behind.
        self._job = placement.name
        owner = cluster.owner(cluster.create(objects.job(placement)))
        self._keeper = _Keeper(cluster, placement.name)
        self._keeper.start()
        cluster.create(objects.secret(placement, owner, identity))
        cluster.create(objects.service(placement, owner))
        if placement.settings.network_policy:
            cluster.create(objects.network_policy(placement, owner))
        self._begin_watch(cluster, placement.selector)
        return placement.name, identity, placement.workers

    def _adopt(self, cluster: Cluster, release: str) -> tuple[str, objects.Identity, int]:
        """The workers of a release. Its Job says how many there are and which Secret they use."""
        jobs = cluster.jobs({"app.kubernetes.io/instance": release, "app.kubernetes.io/component": "worker"})
        if len(jobs) != 1:
            raise FleetFailure(
                f"release {release} of {self._settings.file}: found {len(jobs)} Jobs of workers in namespace "
                f"{cluster.namespace}, expected one (helm install {release} deploy/helm/streamgauge)"
            )
        spec = jobs[0].spec.template.spec
        volume = next((one for one in spec.volumes or [] if one.secret is not None), None)
        if volume is None or spec.subdomain is None:
            raise FleetFailure(f"release {release}: its Job is not the chart's: no Secret, or no Service")
        held = cluster.secret(volume.secret.secret_name)
        count = int(jobs[0].spec.completions)
        wanted = self._settings.workers or count
        if wanted > count:
            raise FleetFailure(f"--workers {wanted}: release {release} has {plural(count, 'worker')}")
        self._begin_watch(cluster, dict(jobs[0].spec.selector.match_labels))
        return spec.subdomain, identity_in(held, volume.secret.secret_name), wanted

    def _begin_watch(self, cluster: Cluster, labels: Mapping[str, str]) -> None:
        self._watch = PodWatch(cluster, labels)
        self._watch.start()

    def _await_endpoints(self, cluster: Cluster, service: str, count: int) -> list[Endpoint]:
        """Waits for `count` workers; in order of their numbers. Raises FleetFailure with what holds them up."""
        within_s = self._settings.written.ready_within_s
        found: list[Endpoint] = []

        def missing() -> str | None:
            nonlocal found
            found = sorted(cluster.endpoints(service), key=_number_of)
            if len(found) >= count:
                return None
            problem = self._problem()
            if problem is not None:
                raise FleetFailure(f"the workers could not be started: {problem}")
            return "workers"

        if wait_until(missing, within_s, POLL_S) is not None:
            raise FleetFailure(
                f"{len(found)} of {plural(count, 'worker')} were ready after {within_s:g} s (key ready_within_s)"
                f"{self._holdup()}"
            )
        return found[:count]

    def _problem(self) -> str | None:
        """What no waiting will mend."""
        if self._job is None or self._watch is None:
            # The chart's Job starts its workers again.
            return None
        for state in self._watch.states():
            if state.ended is not None:
                return f"pod {state.name} {state.ended}{self._last_words(state.name)}"
            if state.hopeless:
                return f"pod {state.name}: {state.waiting}"
        return None

    def _holdup(self) -> str:
        states = self._watch.states() if self._watch is not None else []
        if not states:
            return ": the cluster has made no pod (kubectl describe job says why)"
        by_reason: dict[str, list[str]] = {}
        for state in states:
            if state.waiting is not None:
                by_reason.setdefault(state.waiting, []).append(state.name)
        waiting = [
            f"; pod {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {reason}"
            for reason, names in by_reason.items()
        ]
        return "".join(waiting[:3]) or (
            ": the pods run, but nothing connects to them (is the readiness probe's way open?)"
        )

    def _last_words(self, pod: str) -> str:
        assert self._cluster is not None
        with contextlib.suppress(ClusterError):
            lines = [line for line in self._cluster.log(pod).splitlines() if line.strip()]
            # A program that does not like its arguments says so first and ends with its usage.
            errors = [line for line in lines[:-2] if line.lower().startswith("error")]
            said = errors[-1:] + lines[-2:]
            return f": {' | '.join(said)}" if said else ""
        return ""

    def _reach(self, endpoint: Endpoint, identity: objects.Identity) -> Member:
        name, host = _name_of(endpoint), endpoint.address
        address = f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"
        client: WorkerClient | None = None
        try:
            encryption = trust.pinned(host, endpoint.port, identity.fingerprint)
            client = WorkerClient(address, token=identity.token, encryption=encryption)
            info = client.info()
            check_version(info, f"the worker {name} ({address})")
            return Member(Capacity(name, float(info.cores), BOTH), client, ahead_ns=ahead_ns(client))
        except (trust.NotTrusted, WorkerLost, WorkerRefused, FleetFailure) as error:
            if client is not None:
                client.close()
            raise FleetFailure(
                f"{name} (pod {endpoint.pod} on {endpoint.node}): {error}; the lab must reach pods by their addresses "
                "(docs/fleet.md)"
            ) from None

    # Watching

    def failure(self) -> str | None:
        """As Fleet. The cluster often knows of a loss before the heartbeat does, and always better why."""
        if self._crew is None:
            return "the workers were left"
        if self._keeper is not None and self._keeper.failure is not None:
            return self._keeper.failure
        try:
            for endpoint, member in zip(self._found, self._crew.members, strict=True):
                end = self._watch.end_of(endpoint.pod) if self._watch is not None else None
                if end is not None and member.lost is None:
                    self._crew.lose(member, f"pod {endpoint.pod} on {endpoint.node} {end}")
            self._crew.check()
        except WorkerLost as error:
            return self._located(str(error))
        return None

    def _located(self, reason: str) -> str:
        """A loss with the node it happened on, where the reason does not say it."""
        for endpoint in self._found:
            if reason.startswith(f"{_name_of(endpoint)}: ") and f" on {endpoint.node}" not in reason:
                return f"{reason} (pod {endpoint.pod} on {endpoint.node})"
        return reason

    def losses(self) -> list[str]:
        """As Fleet."""
        return [self._located(loss) for loss in super().losses()]

    # The end

    def stop(self, *, at_once: bool = False) -> None:
        """Removes what was placed; workers of a release are left running."""
        cluster, job = self._cluster, self._job
        if at_once and cluster is not None and job is not None:
            leftovers.remove_at_once(cluster, job)
        if self._crew is not None and not at_once:
            with contextlib.suppress(Exception):
                self._keep_logs()
        self._leave(abort=not at_once and self._job is None)
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if self._keeper is not None:
            self._keeper.stop()
            self._keeper = None
        if at_once or cluster is None or job is None:
            return
        problem = _problem_of(lambda: leftovers.remove(cluster, job))
        if problem is not None:
            self._tell(
                f"{job} was not removed from namespace {cluster.namespace}: {problem}; the next start or 'streamgauge "
                "fleet clean' removes it"
            )
        self._job = None

    def _keep_logs(self) -> None:
        """What the workers said, beside the trial's other logs. Those of a node that is gone are lost."""
        if self._watch is None or self._cluster is None or self._logs is None:
            return
        lost = (
            {member.name for member in self._crew.members if member.lost} if self._crew is not None else set()
        )
        for state in self._watch.states():
            if state.ended is None and f"worker-{state.index}" in lost:
                # Its node would not answer.
                continue
            with contextlib.suppress(ClusterError, OSError):
                text = self._cluster.log(state.name)
                self._logs.mkdir(parents=True, exist_ok=True)
                name = f"worker-{state.index}" if state.index is not None else state.name
                (self._logs / f"{name}.log").write_text(text, encoding="utf-8")

    def _tell(self, text: str) -> None:
        """Keeps what went wrong at the end, when there is nobody to raise it to."""
        if self._logs is not None:
            with contextlib.suppress(OSError):
                self._logs.mkdir(parents=True, exist_ok=True)
                with (self._logs / "kubernetes.log").open("a", encoding="utf-8") as log:
                    log.write(f"{text}\n")


class _Keeper(Background):
    """Says on the Job that the lab is still there, and notices that somebody has removed it."""

    def __init__(self, cluster: Cluster, job: str) -> None:
        super().__init__("keeper", RENEW_WITHIN_S + 1.0)
        self._cluster = cluster
        self._job = job
        self.failure: str | None = None

    def _run(self) -> None:
        while not self._stop.wait(leftovers.RENEW_EVERY_S):
            renewed = {objects.RENEWED: f"{time.time():.0f}"}
            try:
                self._cluster.annotate(self._job, renewed, within_s=RENEW_WITHIN_S)
            except ClusterError as error:
                # One that cannot be asked now may be asked later.
                if error.status == GONE:
                    self.failure = f"somebody has removed the workers' Job {self._job} from the cluster"
                    return


def make_identity(gauge: Path) -> objects.Identity:
    """A token and a certificate for one placement. Raises FleetFailure."""
    with tempfile.TemporaryDirectory(prefix="streamgauge-identity-") as directory:
        made = Path(directory) / "identity"
        command = [str(gauge), "worker", "--make-identity", str(made)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=IDENTITY_WITHIN_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FleetFailure(f"{gauge} made no identity for the workers: {error}") from None
        if done.returncode != 0:
            raise FleetFailure(f"{gauge} made no identity for the workers: {done.stderr.strip()}")
        return objects.Identity(
            token=(made / "token").read_text("ascii").strip(),
            certificate_pem=(made / "certificate.pem").read_text("ascii"),
            key_pem=(made / "key.pem").read_text("ascii"),
            fingerprint=done.stdout.strip(),
        )


def identity_in(held: Mapping[str, bytes], name: str) -> objects.Identity:
    """What a Secret holds. Raises FleetFailure, never with any of it."""
    missing = [key for key in ("token", "tls.crt") if key not in held]
    if missing:
        raise FleetFailure(
            f"the Secret {name} has no {' and no '.join(missing)}: expected token, tls.crt and tls.key"
        )
    try:
        certificate = held["tls.crt"].decode("ascii")
        token = held["token"].decode("ascii").strip()
        first = certificate[: certificate.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n"
        der = ssl.PEM_cert_to_DER_cert(first[first.index("-----BEGIN") :])
    except (UnicodeDecodeError, ValueError):
        raise FleetFailure(f"the Secret {name}: expected a token in one line and a PEM certificate") from None
    # The lab has no use for the key.
    return objects.Identity(token, certificate, "", f"sha256:{hashlib.sha256(der).hexdigest()}")


def _problem_of(step: Callable[[], list[str]]) -> str | None:
    try:
        left = step()
    except ClusterError as error:
        return str(error)
    return f"still there: {', '.join(left)}" if left else None


def _number_of(endpoint: Endpoint) -> tuple[int, str]:
    """Pods of an Indexed Job are called NAME-INDEX as hosts."""
    number = endpoint.hostname.rpartition("-")[2]
    return (int(number) if number.isdigit() else 1 << 30, endpoint.pod)


def _name_of(endpoint: Endpoint) -> str:
    number, pod = _number_of(endpoint)
    return f"worker-{number}" if number < 1 << 30 else pod
