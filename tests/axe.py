"""axe-core in a page: what of WCAG 2.1 AA a machine can check. It comes from npm, locked in browser_tools/package-lock.json, and is no part of streamgauge."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from browser import Page

TOOLS = Path(__file__).parent / "browser_tools"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
FETCH_S = 120


def source() -> str:
    """The script; fetched once, checked by its hash."""
    script = TOOLS / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm, which fetches axe-core: install the package npm")
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=TOOLS, check=True, capture_output=True, timeout=FETCH_S)
    return script.read_text("utf-8")


def violations(page: Page, script: str) -> list[str]:
    """Of the page that is open, a line for each place. The script goes past the page's policy, as a debugger's does."""
    page.evaluate(f"(() => {{ {script}\n; return true; }})()")
    asked = json.dumps({"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]})
    found = page.evaluate(
        f"axe.run(document, {asked}).then((all) => all.violations.flatMap((one) => "
        "one.nodes.map((node) => `${one.id}: ${node.target.join(' ')}: ${node.failureSummary.replace(/\\s+/g, ' ')}`)))"
    )
    return list(found)
