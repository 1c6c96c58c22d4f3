"""YAML (and JSON) files with line numbers, checked against a pydantic model.

A file is read with ruamel.yaml's round-trip loader, which keeps the line of every key. The plain values go
to a strict pydantic model; whatever pydantic finds is said in our words, at the line of the key to blame,
with the nearest known key for a misspelt one. All problems of a file are reported at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, ScalarEvent
from ruamel.yaml.nodes import MappingNode
from ruamel.yaml.scalarbool import ScalarBoolean

from streamgauge.vocabulary.errors import InputError, Problem, nearest

FILE_BYTES_MAX = 1 << 20
"""Files that people write are small; more than 1 MiB is some other file."""

NODES_MAX = 20_000
DEPTH_MAX = 50

Location = tuple[str | int, ...]


class FileModel(BaseModel):
    """Base of everything read from a file: strict types, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


ModelType = TypeVar("ModelType", bound=FileModel)


@dataclass(frozen=True)
class Document:
    """One file as read: its plain values, and where each of them stands."""

    file: str
    values: Mapping[str, Any]
    _tree: CommentedMap
    text: str = ""
    """As it was read."""
    _set: Mapping[Location, str] = field(default_factory=dict)
    """Where values stand that the command line has set -> the option."""

    def holds(self, key: str) -> bool:
        """Whether the file itself has a key at its top."""
        return key in self._tree

    def is_set(self, location: Location) -> bool:
        """Whether the value at `location` is an option's."""
        return location in self._set

    def with_option(self, option: str, location: Location, value: Any) -> Document:
        """The file with a value that an option sets: problems of it are the option's."""
        return replace(self, values=_with(self.values, location, value), _set={**self._set, location: option})

    def without(self, location: Location) -> Document:
        """The file without a value, where it has one."""
        return replace(self, values=_without(self.values, location))

    def line(self, location: Location = ()) -> int:
        """Line (from 1) of the key at `location`; of its nearest existing parent when there is no such
        key."""
        node: Any = self._tree
        line = int(self._tree.lc.line) + 1
        for step in location:
            if isinstance(node, CommentedMap) and step in node:
                line = int(node.lc.key(step)[0]) + 1
            elif isinstance(node, CommentedSeq) and isinstance(step, int) and step < len(node):
                line = int(node.lc.item(step)[0]) + 1
            else:
                break
            node = node[step]
        return line

    def problem(self, message: str, location: Location = ()) -> Problem:
        """A problem at the line of `location`, or of the option that has set what is there."""
        option = self._set.get(location)
        if option is None:
            return Problem(message, self.file, self.line(location))
        # Messages begin with the key; here it is the option that was written.
        told = message.removeprefix(_dotted(location))
        if told.startswith(": "):
            told = f" {_shown(self.values, location)}{told}"
        return Problem(f"{option}{told}" if told.startswith(" ") else f"{option}: {told}")

    def validate(self, model: type[ModelType], hints: Mapping[str, str] | None = None) -> ModelType:
        """The file's values as `model`. `hints` are sentences for keys that do not exist but are often
        expected.

        Raises InputError with every problem found.
        """
        try:
            return model.model_validate(self.values)
        except ValidationError as error:
            problems = [self._translate(detail, model, hints or {}) for detail in error.errors()]
        problems.sort(key=lambda problem: problem.line or 0)
        raise InputError(problems)

    def _translate(self, detail: Any, model: type[FileModel], hints: Mapping[str, str]) -> Problem:
        location: Location = tuple(step for step in detail["loc"] if not str(step).startswith("function-"))
        key = str(location[-1]) if location else ""
        if detail["type"] == "extra_forbidden":
            if key in hints:
                return self.problem(f"unknown key '{key}': {hints[key]}", location)
            known = _known_keys(model, location[:-1])
            hint = nearest(key, known)
            listing = "" if hint else f"; known keys: {', '.join(sorted(known))}"
            return self.problem(f"unknown key '{key}'{hint}{listing}", location)
        if detail["type"] == "missing":
            return self.problem(f"key '{key}' is missing", location[:-1])
        return self.problem(f"{_dotted(location)}: {_sentence(detail)}", location)


def read_document(path: Path, file: str | None = None) -> Document:
    """Reads a file whose top level is a mapping. `file` is the name for messages. Raises InputError."""
    name = file or str(path)
    try:
        if not path.is_dir() and not path.is_file() and path.exists():
            raise InputError(Problem("is no plain file: expected a YAML file", name))
        with path.open("rb") as source:
            content = source.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise InputError(Problem("is larger than 1 MiB: expected a small YAML file", name))
        text = content.decode("utf-8")
    except FileNotFoundError:
        raise InputError(Problem("no such file", name)) from None
    except IsADirectoryError:
        raise InputError(Problem("is a directory: expected a YAML file", name)) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"is not text: byte {error.start} is not UTF-8", name)) from None
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", name)) from None
    return parse_document(text, name)


def parse_document(text: str, file: str) -> Document:
    """Parses YAML or JSON text whose top level is a mapping. Raises InputError with the line of a syntax
    error."""
    yaml = YAML(typ="rt", pure=True)
    yaml.Composer = BoundedComposer
    try:
        tree = yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        what = " ".join(str(error.problem or error.context or "syntax error").split())
        raise InputError(Problem(f"is not valid YAML: {what}", file, line)) from None
    except (YAMLError, ValueError) as error:
        raise InputError(Problem(f"is not valid YAML: {' '.join(str(error).split())}", file)) from None
    if tree is None:
        raise InputError(Problem("is empty: expected keys and values", file))
    if not isinstance(tree, CommentedMap):
        kind = "a list" if isinstance(tree, CommentedSeq) else "a single value"
        raise InputError(Problem(f"holds {kind}: expected keys and values (key: value)", file, 1))
    values = _plain(tree)
    for key in values:
        if not isinstance(key, str):
            raise InputError(Problem(f"key {key!r} is not a word", file, int(tree.lc.key(key)[0]) + 1))
    return Document(file=file, values=values, _tree=tree, text=text)


class BoundedComposer(Composer):
    """Refuses a document that is larger or deeper than any that a person writes. An alias counts as all that it stands for: a few
    hundred bytes of aliases of aliases stand for gigabytes."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader=loader)
        self._nodes = self._depth = 0
        self._weights: dict[str, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """See Composer. Raises ComposerError."""
        event = self.parser.peek_event()
        is_alias = isinstance(event, AliasEvent)
        is_key = isinstance(parent, MappingNode) and index is None
        if is_key and not isinstance(event, ScalarEvent):
            # Beyond what any of our files means, and ruamel.yaml cannot hash every such key.
            self._refuse("expected a word as key, found a list, keys and values, or an alias", event)
        before = self._nodes
        self._nodes += self._weights.get(event.anchor, 1) if is_alias else 1
        self._depth += 1
        if self._nodes > NODES_MAX:
            self._refuse(
                f"it holds more than {NODES_MAX:,} values, aliases counted as what they stand for", event
            )
        if self._depth > DEPTH_MAX:
            self._refuse(f"it is nested more than {DEPTH_MAX} deep", event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        anchor = getattr(event, "anchor", None)
        if anchor is not None and not is_alias:
            self._weights[anchor] = self._nodes - before
        return node

    @staticmethod
    def _refuse(what: str, event: Any) -> None:
        raise ComposerError(None, None, what, event.start_mark)


def _plain(node: Any) -> Any:
    """Ruamel's decorated values as Python's own, so that strict validation sees int, float, bool and str."""
    if isinstance(node, CommentedMap):
        return {(_plain(key)): _plain(value) for key, value in node.items()}
    if isinstance(node, CommentedSeq):
        return [_plain(value) for value in node]
    if isinstance(node, (bool, ScalarBoolean)):
        return bool(node)
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _with(values: Mapping[str, Any], location: Location, value: Any) -> dict[str, Any]:
    key, *deeper = location
    if deeper:
        within = values.get(str(key))
        value = _with(within if isinstance(within, Mapping) else {}, tuple(deeper), value)
    return {**values, str(key): value}


def _without(values: Mapping[str, Any], location: Location) -> dict[str, Any]:
    key, *deeper = location
    within = values.get(str(key))
    if deeper and isinstance(within, Mapping):
        return {**values, str(key): _without(within, tuple(deeper))}
    return dict(values) if deeper else {name: value for name, value in values.items() if name != key}


def _shown(values: Any, location: Location) -> str:
    for step in location:
        values = values[step]
    return ",".join(values) if isinstance(values, list) else str(values)


def _known_keys(model: type[BaseModel], location: Location) -> set[str]:
    """The keys that `model` knows at a location: follows nested models through optional and annotated
    types."""
    current: type[BaseModel] | None = model
    for step in location:
        if current is None:
            return set()
        by_alias = {field.alias or name: field for name, field in current.model_fields.items()}
        field = by_alias.get(str(step))
        current = _nested_model(field.annotation) if field is not None else current
    return {field.alias or name for name, field in current.model_fields.items()} if current else set()


def _nested_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _nested_model(argument)
        if found is not None:
            return found
    return None


def _dotted(location: Location) -> str:
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else (f".{step}" if text else str(step))
    return text or "the file"


def _sentence(detail: Any) -> str:
    """Pydantic's finding in our words: what was expected, what was found."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail.get("input")
    found = "nothing" if value is None else (f"'{value}'" if isinstance(value, str) else f"{value}")
    if len(found) > 80:
        found = found[:77] + "..."
    match kind:
        case "value_error":
            return str(context["error"])
        case "int_type" | "int_from_float":
            return f"expected a whole number, found {found}"
        case "float_type":
            return f"expected a number, found {found}"
        case "bool_type":
            return f"expected true or false, found {found}"
        case "string_type":
            return f"expected text, found {found}"
        case "greater_than_equal":
            return f"expected {context['ge']} or more, found {found}"
        case "greater_than":
            return f"expected more than {context['gt']}, found {found}"
        case "less_than_equal":
            return f"expected {context['le']} or less, found {found}"
        case "literal_error":
            return f"expected one of {str(context['expected']).replace(' or ', ', ')}, found {found}" + (
                nearest(value, str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", "))
                if isinstance(value, str)
                else ""
            )
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"expected keys and values below it, found {found}"
        case "list_type" | "tuple_type":
            return f"expected a list, found {found}"
        case _:
            return f"{detail['msg']}, found {found}"
