"""Writes the tables of systems in docs/systems/README.md and docs/systems/features.md, between their markers, from what the systems declare and the suite
tries (streamgauge.conformance). tests/test_systems_declared.py tells when they are out of date.

    .venv/bin/python tools/systems_table.py
"""

from collections.abc import Mapping
from pathlib import Path

from streamgauge.model.feature import Feature
from streamgauge.systems.base import System
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.levels import Level

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- systems, as they declare themselves: tools/systems_table.py writes what follows -->"
END = "<!-- end of systems -->"
METRICS_BEGIN = "<!-- metrics, as the systems declare them: tools/systems_table.py writes what follows -->"
METRICS_END = "<!-- end of metrics -->"


def levels_of(levels: frozenset[Level]) -> str:
    """`L3 L4`, `L1-L4`, or a hyphen for none."""
    found = sorted(levels)
    return f"{found[0]}-{found[-1]}" if len(found) > 2 else " ".join(found) or "-"


def levels(system: System) -> str:
    """Those on one node and on three."""
    more = levels_of(system.levels_of_nodes) if system.can(Feature.NODES) else "-"
    return f"{levels_of(system.levels)} / {more}"


def link(system: System, base: str) -> str:
    """The title, leading to the system's page as seen from a directory."""
    page = system.page if "://" in system.page else base + system.page
    return f"[{system.title}]({page})"


def overview(known: Mapping[str, System]) -> list[str]:
    """For the index of systems, two directories down."""
    rows = ["| system | how it gets here | levels on one node / three | cannot |", "|---|---|---|---|"]
    for name, system in known.items():
        cannot = ", ".join(feature.value for feature in Feature if not system.can(feature)) or "-"
        rows.append(
            f"| `{name}`, {link(system, '../../')} | {system.obtained} | {levels(system)} | {cannot} |"
        )
    return rows


def features(known: Mapping[str, System]) -> list[str]:
    """For the page on features, beside it."""
    rows = [
        "| |" + "".join(f" {link(one, '../../')} |" for one in known.values()),
        "|---" * (len(known) + 1) + "|",
    ]
    rows.append("| version by default |" + "".join(f" {one.default_version} |" for one in known.values()))
    rows.append("| levels on one node / three |" + "".join(f" {levels(one)} |" for one in known.values()))
    reasons: list[str] = []
    for feature in Feature:
        cells = []
        for system in known.values():
            if system.can(feature):
                cells.append(" yes |")
                continue
            reasons.append(f"{len(reasons) + 1}. {system.title}, {feature.value}: {system.cannot[feature]}.")
            cells.append(f" no ({len(reasons)}) |")
        rows.append(f"| {feature.value} |" + "".join(cells))
    return [*rows, *(["", *reasons] if reasons else [])]


def metrics(known: Mapping[str, System]) -> list[str]:
    """For the page on causes: what each system tells of itself."""
    rows = ["| system | metric | unit | what it says of latency |", "|---|---|---|---|"]
    for system in known.values():
        for metric in () if system.own_metrics is None else system.own_metrics.told:
            if metric.role != "count":
                sign = " (a sign)" if metric.role == "sign" else ""
                rows.append(
                    f"| {system.title} | `{metric.name}`: {metric.title} | {metric.shown_unit} | {metric.explains}{sign} |"
                )
    return rows


def replaced(text: str, rows: list[str], begin: str = BEGIN, end: str = END) -> str:
    """A page with what is between the markers replaced."""
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return "\n".join([before + begin, "", *rows, "", end + after])


def pages() -> dict[Path, str]:
    """Each page as it should be."""
    known = {
        name: system
        for name, system in systems().items()
        if system.__module__.startswith("streamgauge.systems.")
    }
    causes = ROOT / "docs/causes.md"
    return {
        causes: replaced(causes.read_text("utf-8"), metrics(known), METRICS_BEGIN, METRICS_END),
    } | {
        path: replaced(path.read_text("utf-8"), rows)
        for path, rows in (
            (ROOT / "docs/systems/README.md", overview(known)),
            (ROOT / "docs/systems/features.md", features(known)),
        )
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
