"""Pages of documentation as the tests read them: links, headings, blocks, and the shell's commands in them.

A block says what it is by its language. What a shell reads is `sh`, and the comment before it says whether it is run (test_docs_commands.py):

    <!-- run: duration=1s rate=1k -->                 each `streamgauge run` gets these options, in place of its own
    <!-- run: background=127.0.0.1:9092 -->           it stays until the page's other blocks have been run; the port is another one
    <!-- run: ends=0,5 -->                            exit statuses that are as told; otherwise 0, or 1 where the machine was too busy
    <!-- not run: needs a cluster -->                 and why; that the commands exist with their options is checked all the same
    <!-- file: orders.yaml -->                        before a block of YAML: it is there when the page's commands are run
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = {".git", ".venv", ".pytest_cache", "target", "node_modules", "runs", "data"}
FENCE = re.compile(
    r"^(?:<!-- (?P<marker>(?:run|not run|file)\b.*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LANGUAGES = {"sh", "text", "yaml", "toml", "json", "python", "sql"}
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)\)")
SEPARATORS = {"&&", "||", "|", ";", "&"}


@dataclass(frozen=True)
class Block:
    """What stands between fences."""

    page: Path
    line: int
    language: str
    text: str
    marker: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.marker.startswith("run")

    @property
    def options(self) -> dict[str, str]:
        """What the marker of a block that is run says."""
        words = self.marker.partition(":")[2].split()
        return dict(word.partition("=")[::2] for word in words)


def pages() -> list[Path]:
    """All that are written for readers."""
    found = []
    for directory, inner, files in os.walk(ROOT):
        inner[:] = [one for one in inner if one not in LEFT_OUT and not one.endswith(".egg-info")]
        found += [Path(directory) / name for name in files if name.endswith(".md")]
    return sorted(found)


def guides() -> list[Path]:
    """Those of which every block is held to be what it says."""
    top = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    return [*top, *(page for page in pages() if page.is_relative_to(ROOT / "docs"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start()) + 1,
            found["language"],
            found["text"],
            found["marker"] or "",
        )
        for found in FENCE.finditer(text)
    ]


def without_blocks(page: Path) -> str:
    """What is neither an example nor a drawing."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    return LINK.findall(re.sub(r"`[^`\n]*`", "``", without_blocks(page)))


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    text = without_blocks(page)
    found: set[str] = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} +(.*?)#* *$", text, re.MULTILINE):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        number, unique = 0, slug
        while unique in found:
            number += 1
            unique = f"{slug}-{number}"
        found.add(unique)
    return found


def commands(text: str) -> Iterator[list[str]]:
    """The programs with their arguments, as a shell reads them; assignments before them and redirections are left out."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), ";"]:
            if word not in SEPARATORS:
                words.append(word)
                continue
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            for at, one in enumerate(words):
                if re.fullmatch(r"\d?>{1,2}.*|<.*", one):
                    words = words[:at]
                    break
            if words:
                yield words
            words = []
