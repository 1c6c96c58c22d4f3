"""Tables of a trial as they are read: columns of the types that the lab writes, and no more than can be held."""

from __future__ import annotations

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
_BOUNDS = {"interval": (0, INDEX_MAX), "start_s": (-SECONDS_MAX, SECONDS_MAX), "duration_s": (0, SECONDS_MAX)}


def read_rows(path: Path, columns: Mapping[str, str], bytes_max: int = BYTES_MAX) -> list[dict[str, Any]]:
    """The rows of a table, with all of these columns: null where the file has none of the name. A file that is not there has no
    rows. `bytes_max`: of all columns, unpacked. Raises InputError for anything that the lab would not have written."""
    if not path.exists():
        return []
    file = clean(str(path))
    rows: list[dict[str, Any]] = []
    absent = dict.fromkeys(columns)
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
                read = _checked(batch, texts)
                rows.extend(
                    absent | dict(zip(read, row, strict=True)) for row in zip(*read.values(), strict=True)
                )
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
            said = clean(str(error).splitlines()[0])[:300] if str(error) else type(error).__name__
            raise InputError(Problem(f"is no table of a trial: {said}", file)) from None
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


def _checked(batch: Any, texts: dict[str, str]) -> dict[str, list[Any]]:
    """The values of each column, of numbers that can be reckoned with. `texts`: those met so far, as they are told; each is held once. Raises ValueError."""
    found = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
    for name in ("interval", *_SECONDS):
        if batch.num_rows and (name not in found or found[name].null_count):
            raise ValueError(f"a row has no {name}")
    values = {}
    for name, column in found.items():
        if pyarrow.types.is_binary(column.type) or pyarrow.types.is_large_binary(column.type):
            values[name] = column.to_pylist()
        elif pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
            values[name] = _texts(name, column, texts)
        else:
            _check_numbers(name, column)
            values[name] = column.to_pylist()
    return values


def _texts(name: str, column: Any, texts: dict[str, str]) -> list[str | None]:
    coded = column.dictionary_encode()
    told: list[str] = []
    for text in coded.dictionary.to_pylist():
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ValueError(f"{name} holds a text that is too long")
        told.append(texts.setdefault(text, clean(text)))
    return [None if at is None else told[at] for at in coded.indices.to_pylist()]


def _check_numbers(name: str, column: Any) -> None:
    low, high = _BOUNDS.get(name, (-COUNT_MAX, COUNT_MAX))
    numbers = column.drop_null().to_numpy(zero_copy_only=False)
    # What is no number is within no bounds.
    beyond = numbers[~((numbers >= low) & (numbers <= high))]
    if len(beyond):
        raise ValueError(f"{name} {beyond[0]} cannot be")
