"""Lays the skeleton of a system in a package of its own: a copy of examples/toy-system under another name, which starts and passes the suite
as it is, so that whoever writes a system replaces what runs.

    python tools/new_system.py NAME [DIRECTORY]     (make new-system NAME=... [IN=...]; default: ./NAME-system)
"""

import re
import sys
from pathlib import Path

TOY = Path(__file__).resolve().parent.parent / "examples" / "toy-system"


def renamed(text: str, name: str) -> str:
    """The toy's names replaced: `toy`, `toy_system`, `toy-system`, and `Toy` in the names of classes and sentences."""
    title = "".join(part.capitalize() for part in name.split("-"))
    module = name.replace("-", "_")
    text = text.replace("toy_system", f"{module}_system").replace("toy-system", f"{name}-system")
    text = re.sub(r"\btoy\b(?! :)", name, text)
    return text.replace("Toy", title)


def lay(name: str, into: Path) -> list[Path]:
    """Writes the skeleton; its files. Raises SystemExit for a name that is none, and for a directory that is there already."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise SystemExit(f"NAME={name}: expected small letters, digits and hyphens, such as redis-streams")
    if into.exists():
        raise SystemExit(f"{into} is there already; expected a new directory (IN=...)")
    into.mkdir(parents=True)
    written = []
    for source in sorted(path for path in TOY.iterdir() if path.is_file()):
        target = into / source.name.replace("toy", name.replace("-", "_"))
        target.write_text(renamed(source.read_text("utf-8"), name), "utf-8")
        written.append(target)
    return written


def main() -> None:
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    name = sys.argv[1]
    into = Path(sys.argv[2] if len(sys.argv) == 3 else f"{name}-system")
    for path in lay(name, into):
        print(path)
    print(f"next: pip install -e {into} && pytest {into}   (docs/adding-a-system.md)")


if __name__ == "__main__":
    main()
