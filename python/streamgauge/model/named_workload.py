"""A workload by its path, or by the name of one that ships."""

from __future__ import annotations

from pathlib import Path

from streamgauge.model.document import Document, parse_document, read_document
from streamgauge.model.library import FILE_SUFFIXES, library_directory, library_names, shipped_text
from streamgauge.vocabulary.errors import InputError, Problem, nearest


def find_workload(text: str) -> tuple[Document, Path]:
    """The document of a workload given as a path or as the name of one that ships with streamgauge, and the path
    beside which its payload file is looked for. Raises InputError."""
    path = Path(text)
    looks_like_path = path.suffix.lower() in FILE_SUFFIXES or len(path.parts) > 1
    if looks_like_path and not path.exists():
        raise InputError(Problem(f"no such file{_meant(path)}", text))
    if looks_like_path or path.is_file():
        return read_document(path, text), path
    shipped = shipped_text(text)
    if shipped is not None:
        name = f"{text}.yaml"
        return parse_document(shipped, f"workloads/{name}"), library_directory() / name
    names = library_names()
    hint = (
        nearest(text, names)
        or "; expected a file (path/to/x.yaml) or a name that streamgauge workloads lists"
    )
    raise InputError(f"no workload '{text}'{hint}")


def _meant(path: Path) -> str:
    """What may have been meant by a file that is not there: one beside it, or a workload that ships."""
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    files = [str(one) for one in beside if one.suffix.lower() in FILE_SUFFIXES]
    if shipped_text(path.stem) is not None:
        return f"; did you mean '{path.stem}', which ships with streamgauge and is no file?"
    return nearest(str(path), files) or nearest(path.stem, library_names())
