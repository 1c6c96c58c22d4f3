"""SQL over many runs, in DuckDB: nothing is kept between two queries, the runs' own files are the tables.

- `runs`: a row per run: run_id, started, status, streamgauge_version, command, trials, directory.
- `trials`: a row per trial, with everything in `result.json`, nested names joined by `_`: publish_ms_p99, audit_lost; and started.
- `intervals`, `resources`: the rows of the trials' Parquet files (model/result_columns.py), with run_id and trial in front.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgauge.model.result import TrialResult
from streamgauge.model.result_columns import INTERVAL_COLUMNS, LATER_COLUMNS, RESOURCE_COLUMNS
from streamgauge.store.directory import RunDirectory, list_runs
from streamgauge.store.flat import flat
from streamgauge.store.parquet import is_table
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.figures import RESULT_FIGURES, STANDING, figure
from streamgauge.vocabulary.format import plural

if TYPE_CHECKING:
    import duckdb

MEMORY_MAX = "2GB"
TABLES = ("runs", "trials", "intervals", "resources")
_RUN_COLUMNS = {
    "run_id": "string", "started": "timestamp", "status": "string", "streamgauge_version": "string",
    "command": "string", "trials": "int64", "directory": "string",
}  # fmt: skip
_TYPES = {"string": "varchar", "int32": "integer", "int64": "bigint", "float64": "double", "binary": "blob"}


@dataclass(frozen=True)
class QueryAnswer:
    """What a query gave."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


def ask(sql: str, out: Path) -> QueryAnswer:
    """The answer of one query over the runs in a directory. Raises InputError with the database's words."""
    import duckdb

    connection = _open(list_runs(out), out)
    try:
        _check_reads(connection, sql)
        found = connection.execute(sql)
        columns = [str(column[0]) for column in found.description or []]
        return QueryAnswer(columns, found.fetchall())
    except duckdb.Error as error:
        hint = " (streamgauge query without SQL lists the tables and columns)"
        raise InputError(f"the query failed: {str(error).strip()}{hint}") from None
    finally:
        connection.close()


def _check_reads(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """One query that reads. Raises InputError for what writes, attaches, installs or sets something; duckdb.Error."""
    import duckdb

    asked = connection.extract_statements(sql)
    if len(asked) != 1:
        raise InputError(f"expected one query, found {plural(len(asked), 'statement')}")
    if asked[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise InputError(
            f"{asked[0].type.name.lower()} is refused: a query reads the runs' tables and changes nothing (select ...); "
            "--to csv or json prints an answer for other programs"
        )


def _lock(connection: duckdb.DuckDBPyConnection, files: list[str]) -> None:
    """From here on nothing but these files can be read, and nothing written: not by a function in a query either."""
    listed = ", ".join(_quoted(file) for file in files)
    for setting in (
        f"allowed_paths = [{listed}]",
        f"memory_limit = '{MEMORY_MAX}'",
        "temp_directory = ''",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"set {setting}")


def describe(out: Path) -> QueryAnswer:
    """Tables and columns."""
    tables = ", ".join(f"'{table}'" for table in TABLES)
    return ask(
        "select table_name, column_name, data_type from information_schema.columns "
        f"where table_name in ({tables}) order by table_name = 'intervals', table_name, ordinal_position",
        out,
    )


def trial_rows(runs: list[RunDirectory]) -> list[dict[str, Any]]:
    """A row per trial, all with the same keys (as exports have them: `publish_ms_p99`); runs that cannot be read are left out."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        # What was written by another version is not there for a query; streamgauge list says so of it.
        with contextlib.suppress(InputError):
            rows.extend(_row(result) for result in run.results())
    keys = dict.fromkeys(key for row in rows for key in row)
    # A part that no trial has (a search, a backlog) still has its columns, and none of its own.
    keys.update(dict.fromkeys(name.replace(".", "_") for name in RESULT_FIGURES))
    parts = {key for key in keys if any(other.startswith(f"{key}_") for other in keys)}
    absent = {key for key in parts if all(row.get(key) is None for row in rows)}
    return [{key: row.get(key) for key in keys if key not in absent} for row in rows]


def _row(result: TrialResult) -> dict[str, Any]:
    """A result's figures by the names of gates, with `_` for the dots, and as gates take them: those that stand."""
    row = flat(result)
    for name in RESULT_FIGURES:
        if name.partition(".")[0] in STANDING:
            row[name.replace(".", "_")] = figure(result, name)
    return row


def _open(runs: list[RunDirectory], out: Path) -> duckdb.DuckDBPyConnection:
    import duckdb
    import pyarrow

    if not runs:
        raise InputError(f"no runs in {out}: expected a directory with runs (--out)")
    connection = duckdb.connect(":memory:")
    table = pyarrow.Table.from_pylist(_run_rows(runs), schema=_run_schema())
    connection.register("_runs", table)
    connection.execute("create table runs as from _runs")
    rows = trial_rows(runs)
    if rows:
        connection.register("_trials", pyarrow.Table.from_pylist(rows, schema=_trial_schema(rows)))
        connection.execute(
            "create table trials as select epoch_ms(started_unix_ms) as started, * from _trials"
        )
    else:
        connection.execute("create table trials (run_id varchar, trial bigint)")
    allowed: list[str] = []
    for name, columns in (("intervals", INTERVAL_COLUMNS), ("resources", RESOURCE_COLUMNS)):
        files = [file for run in runs for file in _tables(run, name, columns)]
        allowed += files
        _view(connection, name, columns, files)
    _lock(connection, allowed)
    return connection


def _tables(run: RunDirectory, name: str, columns: Mapping[str, str]) -> list[str]:
    """The run's tables of a name. One that is damaged or of another version is left out, with a note."""
    files = []
    for trial in run.trials():
        path = trial.path / f"{name}.parquet"
        if is_table(path, columns):
            files.append(str(path.absolute()))
        elif path.exists():
            print(f"note: left out: {path}: is no table of this version of streamgauge", file=sys.stderr)
    return files


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _view(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], files: list[str]
) -> None:
    if not files:
        listed = ", ".join(f'"{column}" {_TYPES[kind]}' for column, kind in columns.items())
        connection.execute(f"create table {name} (run_id varchar, trial integer, {listed})")
        return
    # Where no file has a column that came later, it is null all the same.
    later = ", ".join(
        f'null::{_TYPES[kind]} as "{column}"' for column, kind in columns.items() if column in LATER_COLUMNS
    )
    nothing = f" union all by name select {later} where false" if later else ""
    quoted = ", ".join(_quoted(file) for file in files)
    # .../RUN/trials/NNN/intervals.parquet
    connection.execute(
        f"create view {name} as select parse_path(filename)[-4] as run_id, "
        f"parse_path(filename)[-2]::integer as trial, * exclude (filename) "
        f"from read_parquet([{quoted}], filename = true, union_by_name = true){nothing}"
    )


def _run_rows(runs: list[RunDirectory]) -> list[dict[str, Any]]:
    rows = []
    for run in runs:
        try:
            manifest = run.read_manifest()
        except InputError:
            continue
        rows.append(
            {
                "run_id": run.run_id, "started": manifest.started_unix_ms, "status": manifest.status,
                "streamgauge_version": manifest.streamgauge_version, "command": " ".join(manifest.command),
                "trials": len(manifest.trials), "directory": str(run.path),
            }
        )  # fmt: skip
    return rows


def _run_schema() -> Any:
    import pyarrow

    types = {"string": pyarrow.string(), "int64": pyarrow.int64(), "timestamp": pyarrow.timestamp("ms")}
    return pyarrow.schema([(name, types[kind]) for name, kind in _RUN_COLUMNS.items()])


def _trial_schema(rows: list[dict[str, Any]]) -> Any:
    """Types by what is there; a column of nothing holds numbers, as nearly all do."""
    import pyarrow

    def kind(name: str) -> Any:
        found = {type(row[name]) for row in rows if row[name] is not None}
        if found <= {bool} and found:
            return pyarrow.bool_()
        if found <= {int} and found:
            return pyarrow.int64()
        return pyarrow.float64() if found <= {int, float} else pyarrow.string()

    return pyarrow.schema([(name, kind(name)) for name in rows[0]])
