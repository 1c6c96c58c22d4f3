"""The command line: one module per command, and what they share.

Commands read what was asked, hand it to the parts that do the work, and show what came of it. Nothing heavy is
imported before a command needs it: `streamgauge --help` answers at once.

Exit statuses are in model/exit_status.py.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the `streamgauge` program."""
    from streamgauge.cli.app import run

    sys.exit(run(sys.argv[1:]))
