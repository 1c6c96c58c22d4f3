"""`streamgauge import`: results of the OpenMessaging Benchmark."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.console import Console

from streamgauge.cli import figures
from streamgauge.report import html
from streamgauge.report.foreign import ForeignResult, read_omb
from streamgauge.report.run import FOREIGN_DIRECTORY
from streamgauge.store.directory import RunDirectory


def import_(files: list[Path], into: str | None, out: Path) -> None:
    """The work of commands/importing.py."""
    results = [read_omb(path, follow=True) for path in files]
    run = RunDirectory.open(into, out) if into else RunDirectory.create(out, "imported", latest=False)
    folder = run.path / FOREIGN_DIRECTORY
    folder.mkdir(exist_ok=True)
    for path in files:
        shutil.copyfile(path, _free_name(folder, path))
    console = Console()
    for result in results:
        console.print(_line(result), markup=False, highlight=False, soft_wrap=True)
    console.print(f"report: {html.write(run.path)}", markup=False, highlight=False, soft_wrap=True)


def _free_name(folder: Path, path: Path) -> Path:
    """A name in the folder that is not taken: results of several machines are often called the same."""
    for number in range(1, 10_000):
        candidate = folder / (path.name if number == 1 else f"{path.stem}-{number}{path.suffix}")
        if not candidate.exists():
            return candidate
    raise AssertionError("ten thousand results of one name")


def _line(result: ForeignResult) -> str:
    return (
        f"{result.driver}  {result.workload}  (OMB: no audit, no validity)\n"
        f"  {figures.rate(result.publish_rate_msgs_s)} msg/s, service p50 "
        f"{figures.ms(result.service_ms.p50)} "
        f"p99 {figures.ms(result.service_ms.p99)} ms, end-to-end p50 {figures.ms(result.end_to_end_ms.p50)} "
        f"p99 {figures.ms(result.end_to_end_ms.p99)} ms"
    )
