"""The one way to wait for a condition: bounded, and able to say what it waited for.

Other sleeps only pace what is done anyway (a sampler, a rest between probes); tests/test_waiting.py has the list of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.05


def wait_until(missing: Callable[[], str | None], within_s: float, poll_s: float = POLL_S) -> str | None:
    """Asks `missing` every `poll_s` until it returns None; what it returns otherwise says what is still awaited ("node 2 to answer").

    None when nothing is missing any more; after `within_s` the sentence "waited 30 s for node 2 to answer", for the caller's own error. It is asked
    once more at the deadline, so that a machine that slept meanwhile does not fail what has come about. What `missing` raises ends the wait.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        # Read before asking: a question that takes long is still asked at or after the deadline before it is given up.
        left_s = deadline_s - time.monotonic()
        awaited = missing()
        if awaited is None:
            return None
        if left_s <= 0:
            return f"waited {within_s:g} s for {awaited}"
        time.sleep(max(min(poll_s, deadline_s - time.monotonic()), 0.0))
