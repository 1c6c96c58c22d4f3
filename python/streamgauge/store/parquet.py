"""Tables of a trial as they are read: columns of the types that the lab writes, and no more than can be held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from streamgauge.model.messages import INDEX_MAX, SECONDS_MAX
from streamgauge.model.result_columns import LATER_COLUMNS
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.files import clean, open_plain

ROWS_MAX = 5_000_000
BYTES_MAX = 4 << 30
"""Of all columns, unpacked."""
BATCH_ROWS = 2000
BATCH_BYTES_MAX = 512 << 20
COUNT_MAX = 1 << 56
TEXT_CHARACTERS_MAX = 65_536

_TYPES = {
    "string": (pyarrow.string(), pyarrow.large_string()),
    "binary": (pyarrow.binary(), pyarrow.large_binary()),
    "int32": (pyarrow.int32(), pyarrow.int64()),
    "int64": (pyarrow.int64(), pyarrow.int32()),
    "float64": (pyarrow.float64(), pyarrow.float32()),
}
_SECONDS = ("start_s", "duration_s")


def read_rows(path: Path, columns: Mapping[str, str], bytes_max: int = BYTES_MAX) -> list[dict[str, Any]]:
    """The rows of a table, with all of these columns: null where the file has none of the name. A file that is not there has no
    rows. `bytes_max`: of all columns, unpacked. Raises InputError for anything that the lab would not have written."""
    if not path.exists():
        return []
    file = clean(str(path))
    rows: list[dict[str, Any]] = []
    texts: dict[str, str] = {}
    with open_plain(path) as source:
        try:
            table = pyarrow.parquet.ParquetFile(source)
            present = _check(table, columns, bytes_max)
            held = 0
            for batch in table.iter_batches(BATCH_ROWS, columns=present):
                held += batch.nbytes
                if batch.nbytes > BATCH_BYTES_MAX or held > bytes_max or len(rows) > ROWS_MAX:
                    raise ValueError("it holds more than any trial")
                rows.extend(_checked(row, texts) for row in batch.to_pylist())
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
            said = clean(str(error).splitlines()[0])[:300] if str(error) else type(error).__name__
            raise InputError(Problem(f"is no table of a trial: {said}", file)) from None
    absent = dict.fromkeys(name for name in columns if name not in present)
    for row in rows:
        row.update(absent)
    return rows


def is_table(path: Path, columns: Mapping[str, str]) -> bool:
    """Whether a file has the columns of such a table, all but those that came later (LATER_COLUMNS), which its footer tells."""
    try:
        with open_plain(path) as source:
            present = _check(pyarrow.parquet.ParquetFile(source), columns)
            return set(columns) - set(present) <= LATER_COLUMNS
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, InputError):
        return False


def _check(table: Any, columns: Mapping[str, str], bytes_max: int = BYTES_MAX) -> list[str]:
    """The columns that are there. Raises ValueError."""
    metadata = table.metadata
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    if not 0 <= metadata.num_rows <= ROWS_MAX or not 0 <= size <= bytes_max:
        raise ValueError(f"it tells of {metadata.num_rows} rows of {size} bytes, which no trial has")
    schema = table.schema_arrow
    if len(set(schema.names)) != len(schema.names):
        raise ValueError("two columns have one name")
    present = [name for name in columns if name in schema.names]
    for name in present:
        found = schema.field(name).type
        if found not in _TYPES[columns[name]]:
            raise ValueError(f"column {name} holds {found}; expected {columns[name]}")
    return present


def _checked(row: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    """A row whose numbers can be reckoned with. `texts`: those met so far, as they are told; each is held once. Raises ValueError."""
    interval = row.get("interval")
    if interval is None or not 0 <= interval <= INDEX_MAX:
        raise ValueError(f"interval {interval} cannot be")
    for name in _SECONDS:
        if row.get(name) is None or not -SECONDS_MAX <= row[name] <= SECONDS_MAX:
            raise ValueError(f"{name} {row.get(name)} of interval {interval} cannot be")
    if row["duration_s"] < 0:
        raise ValueError(f"duration_s {row['duration_s']} of interval {interval} cannot be")
    for name, value in row.items():
        if isinstance(value, str):
            told = texts.get(value)
            if told is None:
                if len(value) > TEXT_CHARACTERS_MAX:
                    raise ValueError(f"{name} of interval {interval} is too long")
                told = texts[value] = clean(value)
            row[name] = told
        elif (isinstance(value, float) and not (math.isfinite(value) and abs(value) < COUNT_MAX)) or (
            isinstance(value, int) and abs(value) > COUNT_MAX
        ):
            raise ValueError(f"{name} {value} of interval {interval} cannot be")
    return row
