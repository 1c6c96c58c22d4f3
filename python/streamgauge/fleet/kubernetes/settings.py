"""The settings of `--fleet kubernetes`, as a file.

```yaml
# kubernetes.yaml
image: registry.example.org/streamgauge-worker:0.1.0    # deploy/Containerfile
namespace: load                     # default: that of the context, or of the lab's own pod
context: my-cluster                 # default: the current one of KUBECONFIG; in a pod its service account
workers: 3                          # --workers goes first
resources: {cpu: "4", memory: 2Gi}  # requested and the limit; whole cores suit the static CPU manager
node_selector: {pool: load}
```

or, for workers that the chart (deploy/helm/streamgauge) has placed: `release: NAME` and where they are.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from streamgauge.model.document import Document, FileModel, read_document
from streamgauge.vocabulary.errors import InputError, Problem

DEFAULT_FILE = "kubernetes.yaml"
WORKERS_MAX = 64
DAY_S = 86_400

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")]


class Resources(FileModel):
    """What a worker gets: as much is requested as is the limit, so that its pod is of the class Guaranteed."""

    cpu: Quantity = "1"
    memory: Quantity = "1Gi"


class Toleration(FileModel):
    """As in a pod."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: Annotated[int, Field(ge=0)] | None = None

    def plain(self) -> dict[str, Any]:
        """As the cluster's API takes it."""
        return self.model_dump(exclude_none=True)


class KubernetesFile(FileModel):
    """The file as written."""

    image: Annotated[str, Field(min_length=1)] | None = None
    release: Name | None = None
    namespace: Name | None = None
    context: str | None = None
    workers: Annotated[int, Field(ge=1, le=WORKERS_MAX)] | None = None
    port: Annotated[int, Field(ge=1024, le=65535)] = 7400
    spread: bool = True
    resources: Resources = Field(default_factory=Resources)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[Toleration] = Field(default_factory=list)
    toleration_s: Annotated[int, Field(ge=0)] = 10
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: list[Name] = Field(default_factory=list)
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    network_policy: bool = True
    lab_addresses: list[str] = Field(default_factory=list)
    ready_within_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    deadline_s: Annotated[int, Field(ge=60, le=7 * DAY_S)] = 6 * 3600


OF_PLACED = frozenset({"release", "namespace", "context", "workers", "ready_within_s"})
"""Keys that say something of workers which the chart has placed."""


@dataclass(frozen=True)
class KubernetesSettings:
    """The settings, looked at."""

    file: str
    written: KubernetesFile
    workers: int | None
    """How many; None: one, or of a release all of them."""


def read_settings(path: Path | None, workers: int | None = None) -> KubernetesSettings:
    """Reads a settings file; None: kubernetes.yaml of the working directory. `workers` goes before the file's.

    Raises InputError with every problem and its line.
    """
    if path is None:
        path = Path(DEFAULT_FILE)
        if not path.exists():
            raise InputError(
                f"--fleet kubernetes: {DEFAULT_FILE} is not here: expected a file with at least 'image: ...' "
                "(the workers' image, see docs/fleet.md), or --fleet kubernetes:FILE"
            )
    document = read_document(path)
    written = document.validate(KubernetesFile)
    problems = _problems(document, written)
    if problems:
        raise InputError(problems)
    return KubernetesSettings(document.file, written, workers or written.workers)


def _problems(document: Document, written: KubernetesFile) -> list[Problem]:
    problems = []
    if written.image is None and written.release is None:
        problems.append(
            document.problem(
                "key 'image' is missing: the image with the gauge binary (deploy/Containerfile); "
                "or 'release: NAME' for workers that the chart has placed"
            )
        )
    if written.release is not None:
        problems.extend(
            document.problem(
                f"{key}: says nothing of workers that run already (release: {written.release}); leave one out",
                (key,),
            )
            for key in sorted(written.model_fields_set - OF_PLACED)
        )
    for at, text in enumerate(written.lab_addresses):
        try:
            ipaddress.ip_network(text)
        except ValueError:
            problems.append(
                document.problem(
                    f"lab_addresses[{at}]: expected an address or a network such as 10.0.0.0/24, found '{text}'",
                    ("lab_addresses", at),
                )
            )
    for key in written.labels:
        if key.startswith(("streamgauge/", "app.kubernetes.io/")):
            problems.append(
                document.problem(f"labels: '{key}' is one that the lab sets itself", ("labels", key))
            )
    return problems
