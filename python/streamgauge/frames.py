"""Runs as pandas frames, for notebooks: `from streamgauge import frames; run = frames.load("runs/latest")`.

pandas is no dependency of streamgauge: `pip install pandas` (or `pip install streamgauge[pandas]`) brings it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.analysis.intervals import Intervals, read_resources, series
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.model.result_columns import INTERVAL_COLUMNS, LATER_COLUMNS, METRICS, RESOURCE_COLUMNS
from streamgauge.store.directory import RunDirectory
from streamgauge.store.parquet import is_table
from streamgauge.store.query import trial_rows
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.histograms import Histogram
from streamgauge.vocabulary.phases import MEASURE

OUT = Path("runs")


@dataclass(frozen=True)
class LoadedRun:
    """A run that is over. Frames are read when they are asked for."""

    directory: Path

    @property
    def manifest(self) -> Manifest:
        """What was asked, on what machine."""
        return RunDirectory(self.directory).read_manifest()

    @property
    def results(self) -> list[TrialResult]:
        """The results, one per trial, in their order."""
        return RunDirectory(self.directory).results()

    @property
    def trials(self) -> Any:
        """A frame with a row per trial; columns are the names in result.json, joined by `_`: `publish_ms_p99`."""

        return _pandas().DataFrame(trial_rows([RunDirectory(self.directory)]))

    @property
    def intervals(self) -> Any:
        """A frame of all intervals of all trials (columns: docs/results.md), `trial` in front. Histograms are bytes."""
        return self._frame("intervals", INTERVAL_COLUMNS)

    @property
    def resources(self) -> Any:
        """A frame of CPU, memory and disk per interval and process, `trial` in front."""
        return self._frame("resources", RESOURCE_COLUMNS)

    @property
    def series(self) -> Any:
        """A frame with a row per trial and interval: rates, latencies in ms (`publish_ms_p99`), levels, CPU; all workers together."""

        pandas = _pandas()
        frames = []
        for number, path in self._trials():
            lined_up = series(Intervals.read(path), read_resources(path))
            columns = {"start_s": lined_up.start_s, "duration_s": lined_up.duration_s, **lined_up.values}
            frame = pandas.DataFrame(columns)
            frame.insert(0, "trial", number)
            frames.append(frame)
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()

    def histogram(self, trial: int, metric: str = "publish", phase: str | None = MEASURE) -> Histogram:
        """All samples of a metric of a trial, in ns: `.percentile(99.9)`, `.share_above(5e6)`."""

        if metric not in METRICS:
            raise InputError(f"no metric '{metric}': expected one of {', '.join(METRICS)}")
        return Intervals.read(self.directory / "trials" / f"{trial:03d}").histogram(metric, phase)

    def _trials(self) -> list[tuple[int, Path]]:
        return [(int(one.path.name), one.path) for one in RunDirectory(self.directory).trials()]

    def _frame(self, name: str, columns: Mapping[str, str]) -> Any:
        import pyarrow
        from pyarrow import parquet

        _pandas()
        tables = []
        for number, path in self._trials():
            file = path / f"{name}.parquet"
            if file.exists():
                if not is_table(file, columns):
                    raise InputError(f"{file}: is no table of this version of streamgauge")
                table = parquet.read_table(file)
                for later in LATER_COLUMNS & columns.keys() - set(table.column_names):
                    table = table.append_column(
                        later, pyarrow.nulls(len(table), pyarrow.type_for_alias(columns[later]))
                    )
                tables.append(
                    table.add_column(0, "trial", pyarrow.array([number] * len(table), pyarrow.int32()))
                )
        if not tables:
            return _pandas().DataFrame(columns=["trial", *columns])
        return pyarrow.concat_tables(tables, promote_options="default").to_pandas()


def load(run: str | Path = "latest", out: str | Path = OUT) -> LoadedRun:
    """A run by its directory, or by its name (or `latest`) in `out`. Raises InputError when there is none."""
    return LoadedRun(RunDirectory.open(str(run), Path(out)).path)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise InputError("frames need pandas: pip install pandas") from None
    return pandas
