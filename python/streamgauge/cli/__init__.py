"""The command line: one module per command, and what they share.

Commands read what was asked, hand it to the parts that do the work, and show what came of it. Nothing heavy is
imported before a command needs it: `streamgauge --help` answers at once.

Exit status: 0 done and valid, 1 a trial was invalid, 2 the input was wrong, 3 a system or worker failed,
130 stopped by the user.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the `streamgauge` program."""
    from streamgauge.cli.app import run

    sys.exit(run(sys.argv[1:]))
