"""What streamgauge is made of, as CycloneDX 1.6 (JSON) on standard output: the crates in the gauge binary (Cargo.lock) and the Python packages that the lab
needs (requirements/run.txt), with versions, checksums and, for crates, licences and who needs whom.

    python tools/sbom.py > streamgauge.cdx.json

The same sources give the same bytes: there is neither a date nor a random number in it. Packages of the systems under test (Kafka, ...) are not in it: they are
fetched by whoever measures them, and python/streamgauge/systems/support/checksums says which.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
Component = dict[str, Any]


def tree(edges: str) -> list[tuple[int, str, str]]:
    """Depth, reference and licence of everything that the gauge binary needs, as cargo's tree shows it: what stands under a crate stands there once.
    (The metadata of the workspace would add what other members of the workspace switch on.)
    """
    command = ["cargo", "tree", "--locked", "--package", "gauge", "--target", TARGET, "--edges", edges]
    command += ["--prefix", "depth", "--format", " {p} | {l}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found = re.findall(r"^(\d+) (\S+) v(\S+).*? \| (.*?)(?: \(\*\))?$", done.stdout, re.MULTILINE)
    return [(int(depth), f"pkg:cargo/{name}@{version}", licence) for depth, name, version, licence in found]


def crates() -> tuple[list[Component], list[dict[str, Any]], str]:
    """Components and their dependencies, and the reference of the gauge binary."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    checksums = {f"pkg:cargo/{each['name']}@{each['version']}": each.get("checksum") for each in lock}
    inside = {reference for _, reference, _ in tree("normal")}
    needs: dict[str, set[str]] = {}
    licences: dict[str, str] = {}
    above: list[str] = []
    for depth, reference, licence in tree("normal,build"):
        del above[depth:]
        if above:
            needs[above[-1]].add(reference)
        above.append(reference)
        needs.setdefault(reference, set())
        licences[reference] = licence
    gauge = above[0]
    components = []
    for reference, licence in licences.items():
        name, _, version = reference.removeprefix("pkg:cargo/").partition("@")
        component: Component = {
            "type": "application" if reference == gauge else "library",
            "bom-ref": reference,
            "name": name,
            "version": version,
            "purl": reference,
            # What only builds it is not in it.
            "scope": "required" if reference in inside else "excluded",
            # A slash is the older way to write OR.
            "licenses": [{"expression": licence.replace("/", " OR ")}],
        }
        if checksum := checksums[reference]:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    return components, [{"ref": each, "dependsOn": sorted(needs[each])} for each in needs], gauge


def python_packages() -> list[Component]:
    """Components of requirements/run.txt. One has several files, of which a machine takes one."""
    text = (ROOT / "requirements/run.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    components = []
    for line in text.splitlines():
        found = re.match(r"(\S+)==(\S+)", line)
        if found is None:
            continue
        name, version = found.groups()
        files = [
            {"alg": "SHA-256", "content": each} for each in re.findall(r"--hash=sha256:([0-9a-f]{64})", line)
        ]
        components.append(
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name}@{version}",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                # A package with a marker is not needed on every machine.
                "scope": "optional" if ";" in line else "required",
                "externalReferences": [
                    {
                        "type": "distribution",
                        "url": f"pkg:pypi/{name}@{version}",
                        "hashes": files,
                    }
                ],
            }
        )
    return components


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rust, dependencies, gauge = crates()
    python = python_packages()
    lab = f"pkg:pypi/{project['name']}@{project['version']}"
    dependencies.append({"ref": lab, "dependsOn": sorted([gauge, *(each["bom-ref"] for each in python)])})
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": lab,
                "name": project["name"],
                "version": project["version"],
                "purl": lab,
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": sorted([*rust, *python], key=lambda each: each["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda each: each["ref"]),
    }
    json.dump(bom, sys.stdout, indent=1)
    print()


main()
