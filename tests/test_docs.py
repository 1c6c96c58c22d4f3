"""The documentation holds together: links and their anchors, what blocks are, commands with options that exist, pages that are written by tools."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main
from docs_pages import LANGUAGES, ROOT, Block, anchors, blocks, commands, guides, links, pages
from streamgauge.cli.app import app
from streamgauge.model.checked_study import experiment_study_names, study_names
from streamgauge.model.library import library_names
from streamgauge.systems.registry import systems
from test_systems_declared import tool

SHELL = [block for page in guides() for block in blocks(page) if block.language == "sh"]
NAMED = re.compile(r"docs/[\w./-]*\w\.(?:md|json)(?:#[\w-]+)?")
"""A page as messages and comments name it."""
KNOWN = {*systems(), "redis-streams"}
"""Systems, and the one that docs/adding-a-system.md makes."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            wrong.append(link)
        elif anchor and anchor not in anchors(target):
            wrong.append(f"{link}: no such heading")
    assert wrong == []


def test_pages_that_sources_name_are_there() -> None:
    """In messages, comments and templates, of both languages."""
    sources = [
        path
        for where, ending in (
            ("python", "*.py"),
            ("python", "*.html"),
            ("crates", "*.rs"),
            ("tools", "*.py"),
            ("tests", "*.py"),
            ("deploy", "*"),
            ("studies", "*.yaml"),
        )
        for path in (ROOT / where).rglob(ending)
        if path.is_file() and path.resolve() != Path(__file__).resolve()
    ]
    wrong = []
    for source in sources:
        for named in set(NAMED.findall(source.read_text("utf-8", "replace"))):
            path, _, anchor = named.partition("#")
            if not (ROOT / path).is_file() or (anchor and anchor not in anchors(ROOT / path)):
                wrong.append(f"{source.relative_to(ROOT)}: {named}")
    assert wrong == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs/README.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    for page in (ROOT / "docs").rglob("*.md"):
        assert page in listed or page == index, f"{page.name} is not in docs/README.md"


@pytest.mark.parametrize("page", guides(), ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_say_what_they_are(page: Path) -> None:
    fences = len(re.findall(r"^```", page.read_text("utf-8"), re.MULTILINE))
    found = blocks(page)
    assert fences == 2 * len(found), "a block that is not closed, or one within a list"
    for block in found:
        assert block.language in LANGUAGES, f"{block.place}: say what it is: {', '.join(sorted(LANGUAGES))}"
        if block.language == "sh":
            assert re.fullmatch(r"run(: .+)?|not run: .{8,}", block.marker), (
                f"{block.place}: <!-- run --> or <!-- not run: why -->"
            )


def context(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """What a command line of the lab is read as. Raises click's UsageError."""
    command: Any = typer.main.get_command(app)
    name, rest, parent = "streamgauge", list(arguments), None
    while True:
        made = command.make_context(name, rest, parent=parent)
        if not hasattr(command, "resolve_command"):
            return made.command_path.removeprefix("streamgauge "), made.params
        name, command, rest = command.resolve_command(made, [*made._protected_args, *made.args])
        parent = made


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.place)
def test_commands_of_the_lab_exist_with_their_options(block: Block) -> None:
    for program, *arguments in commands(block.text):
        if Path(program).name != "streamgauge" or arguments[0].startswith("--"):
            continue
        path, values = context(arguments)
        if path == "run":
            for name in values["workloads"] or ():
                assert name in library_names() or name.endswith(".yaml"), f"no workload {name}"
        if path in ("run", "durability"):
            asked = values.get("system") or values.get("systems") or ""
            for name in asked.split(","):
                assert not name or name.endswith(".yaml") or name.partition("@")[0] in KNOWN, name
        if path == "study":
            assert values["name"] in (*study_names(), *experiment_study_names()) or values["name"].endswith(
                ".yaml"
            )


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.place)
def test_targets_of_make_exist(block: Block) -> None:
    rules = (ROOT / "Makefile").read_text("utf-8")
    for program, *arguments in commands(block.text):
        for target in arguments if program == "make" else ():
            if "=" not in target:
                assert re.search(rf"^(?:[\w -]* )?{target}(?: [\w -]*)?:", rules, re.MULTILINE), target


def test_options_of_the_gauge_exist(real_gauge: Path) -> None:
    helps: dict[str, str] = {}
    for block in SHELL:
        for program, *arguments in commands(block.text):
            if Path(program).name != "gauge":
                continue
            command = arguments[0]
            if command not in helps:
                done = subprocess.run(
                    [real_gauge, command, "--help"], capture_output=True, text=True, timeout=60
                )
                assert done.returncode == 0, f"{block.place}: gauge {command}"
                helps[command] = done.stdout
            for option in arguments[1:]:
                if option.startswith("--"):
                    name = option.partition("=")[0]
                    assert re.search(rf"{name}\b", helps[command]), f"{block.place}: gauge {command} {name}"


def test_the_glossary_is_what_the_report_says() -> None:
    for path, text in tool("glossary").pages().items():
        assert path.read_text("utf-8") == text, "run tools/glossary.py"


def test_the_readme_is_one_screen() -> None:
    """Sixty lines of text beside its blocks, and no wall of commands."""
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).split()) < 500
    assert all(
        len(list(commands(block.text))) <= 4 for block in blocks(ROOT / "README.md") if block.language == "sh"
    )
