"""What the tests of workers in a cluster have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

MODELS = {
    "Job": "V1Job",
    "Service": "V1Service",
    "Secret": "V1Secret",
    "NetworkPolicy": "V1NetworkPolicy",
    "ConfigMap": "V1ConfigMap",
    "PersistentVolumeClaim": "V1PersistentVolumeClaim",
    "ServiceAccount": "V1ServiceAccount",
    "Role": "V1Role",
    "RoleBinding": "V1RoleBinding",
}


def official_client() -> Any:
    """The module `kubernetes.client`, or the test is skipped."""
    return pytest.importorskip(
        "kubernetes.client", reason="the official Kubernetes client is not installed; make test installs it"
    )


def through_the_models(made: Mapping[str, Any]) -> Any:
    """An object as the official client's types keep it: fields that they do not know are lost, required ones that are
    missing and values that cannot be are errors."""
    client = official_client()
    api = client.ApiClient(client.Configuration())
    model = api._ApiClient__deserialize(made, MODELS[made["kind"]])
    return api.sanitize_for_serialization(model)
