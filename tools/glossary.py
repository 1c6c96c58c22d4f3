"""Writes docs/glossary.md from the definitions that reports show (streamgauge.report.glossary) and the lab's own words for levels and figures, so that page
and report cannot part. tests/test_docs.py tells when it is out of date.

    PYTHONPATH=python .venv/bin/python tools/glossary.py
"""

import re
from pathlib import Path

from streamgauge.report.glossary import TERMS
from streamgauge.vocabulary.exit_status import MEANINGS
from streamgauge.vocabulary.figures import RESULT_FIGURES, UNITS, unit_of
from streamgauge.vocabulary.levels import MEANINGS as LEVELS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/glossary.md"
LONG_FORMS = {
    "publish": "method.md#five-instants-in-the-life-of-a-message",
    "end_to_end": "method.md#five-instants-in-the-life-of-a-message",
    "service": "method.md#five-instants-in-the-life-of-a-message",
    "knee": "method.md#curves",
    "send_delay": "method.md#our-own-lateness",
    "read_delay": "method.md#our-own-lateness",
    "backpressure": "method.md#five-instants-in-the-life-of-a-message",
    "percentile": "method.md#histograms-percentiles-intervals",
    "rate": "method.md#histograms-percentiles-intervals",
    "backlog": "method.md#backlog-catch-up-mixed",
    "cpu_per_message": "method.md#histograms-percentiles-intervals",
    "audit": "method.md#audit-is-it-the-same-data",
    "valid": "method.md#valid-or-not",
    "steady": "method.md#steady-or-not",
    "durability": "method.md#durability",
    "warm-up": "method.md#phases",
    "limit": "method.md#the-machines-limits",
    "median": "method.md#repeats",
    "quiet_time": "quiet-time.md",
    "disturbed": "quiet-time.md#what-a-trial-is-worth",
    "censored": "method.md#messages-without-an-end",
    "steal": "troubleshooting.md#steal",
}
"""Where a term is defined at length."""
SUFFIXES = (
    ("_per_msg", "per message sent"),
    ("_share", "a share: 1 is all of it"),
    ("_max", "the largest"),
    ("_low", "lower bound of the 95 % interval"),
    ("_high", "upper bound of the 95 % interval"),
)


def entry(slug: str) -> str:
    """A term with its definition, as in a report."""
    term = TERMS[slug]
    more = f" ([more]({LONG_FORMS[slug]}))" if slug in LONG_FORMS else ""
    return f"**{term.title}**: {term.definition}{more}"


def units() -> list[str]:
    """The last words of figures' names, with one figure for each."""
    rows = ["| a name that ends in | is in | such as |", "|---|---|---|"]
    for end, unit in UNITS.items():
        named = (name for name in RESULT_FIGURES if re.search(rf"(^|_|\.){end}(\.|$)", name))
        example = next((name for name in named if unit_of(name) == unit and "unix" not in name), None)
        if example is not None:
            rows.append(f"| `{end}` | {unit} | `{example}` |")
    for end, meaning in SUFFIXES:
        example = next(name for name in RESULT_FIGURES if name.endswith(end))
        rows.append(f"| `{end}` | {meaning} | `{example}` |")
    return rows


def pages() -> dict[Path, str]:
    """The page as it should be."""
    ordered = sorted(TERMS, key=lambda slug: TERMS[slug].title.lower())
    lines = [
        "# Glossary",
        "",
        "The words of reports, one sentence or two each; a report has the same at its end. `tools/glossary.py` writes this page from the lab's own "
        "definitions.",
        "",
        *(line for slug in ordered for line in (entry(slug), "")),
        "## Levels of durability",
        "",
        *(f"- **{level}**: {meaning}." for level, meaning in LEVELS.items()),
        "",
        "## Names of figures",
        "",
        "Names are those of `result.json`, with a dot: `publish_ms.p99`. Gates and comparisons take them; in the columns of queries and exports `_` "
        "stands for the dot. The unit comes last.",
        "",
        *units(),
        "",
        "## Exit statuses",
        "",
        *(f"- **{status.value}**: {meaning}" for status, meaning in MEANINGS.items()),
        "",
        "[exit-status.md](exit-status.md) says what to do about each.",
    ]
    return {PAGE: "\n".join(lines) + "\n"}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
