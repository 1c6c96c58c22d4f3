"""Words of a page that nothing keeps apart: what a reader who copies the text, or has it read aloud, gets as one word."""

from __future__ import annotations

from html.parser import HTMLParser

INLINE = frozenset({"a", "b", "code", "em", "i", "label", "small", "span", "strong", "sub", "sup"})
"""Elements that begin no line of their own."""
UNREAD = frozenset({"script", "style", "svg", "template"})


def glued(page: str) -> list[str]:
    """Two texts each, with a bar between them, of which one begins where the other ends, with an element's border between them and no space."""
    reader = _Reader()
    reader.feed(page)
    return reader.found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._before = ""
        self._is_border = False
        self._unread = 0

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        self._unread += tag in UNREAD
        self._pass(tag)

    def handle_endtag(self, tag: str) -> None:
        self._unread -= tag in UNREAD
        self._pass(tag)

    def _pass(self, tag: str) -> None:
        self._is_border = True
        if tag not in INLINE:
            self._before = ""

    def handle_data(self, data: str) -> None:
        if self._unread or not data:
            return
        if self._is_border and self._before[-1:].isalnum() and data[0].isalnum():
            self.found.append(f"{self._before[-40:]}|{data[:40]}")
        self._before, self._is_border = data, False
