"""Draws the head of a report as a picture, such as the one in the README.

    python tools/picture.py runs/latest/report.html docs/images/report.webp

The ending says what it is: .webp (a third of the size) or .png. Needs Chromium. For the README: a run on a machine that is quiet (`make bench`), whose
verdict is "valid"; the sentence above the picture is that of the report, word for word.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser import Browser

WIDTH, HEIGHT = 1280, 1480
BYTES_MAX = 200_000
"""What is checked in is fetched by everybody."""


def draw(report: Path, picture: Path) -> None:
    """Writes the picture. Raises ValueError for an ending that is none, and for a picture that is too large."""
    kind = picture.suffix.removeprefix(".")
    if kind not in ("webp", "png"):
        raise ValueError(f"{picture}: expected a name that ends in .webp or .png")
    with Browser() as browser:
        page = browser.page()
        page.open(report.resolve(), WIDTH, HEIGHT)
        found = page.picture(kind, WIDTH, HEIGHT)
    if len(found) > BYTES_MAX:
        raise ValueError(
            f"{picture} would have {len(found):,} bytes: expected {BYTES_MAX:,} at most (.webp is smaller)"
        )
    picture.write_bytes(found)
    print(f"{picture}: {len(found):,} bytes")


def main() -> None:
    """The command."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    report, picture = map(Path, sys.argv[1:])
    if not report.is_file():
        sys.exit(f"{report}: there is no such report; streamgauge report RUN makes it")
    try:
        draw(report, picture)
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
