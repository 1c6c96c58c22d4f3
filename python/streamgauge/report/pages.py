"""Pages, made of the templates in report/templates.

Python hands over texts and numbers, the templates make markup of them: whatever is put into one is escaped, because any text of a run
may come from somewhere else. A name that a template uses and nobody gave it is an error.
"""

from __future__ import annotations

import functools

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from streamgauge.report.assets_of import asset
from streamgauge.vocabulary.format import count, instant, percent, plural, significant, size, trimmed


def render(template: str, **data: object) -> str:
    """A page, or a part of one, as text."""
    return _environment().get_template(template).render(**data)


def inline(text: str) -> Markup:
    """Scripts, styles and policies of our own, which stand in a page as they are; never what a run or a user says."""
    return Markup(text)


@functools.cache
def _environment() -> Environment:
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=PackageLoader("streamgauge.report"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for form in (count, instant, percent, plural, significant, size, trimmed):
        made.filters[form.__name__] = form
    made.globals["asset"] = lambda name: inline(asset(name))
    return made
