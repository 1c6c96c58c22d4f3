"""Whose fault it was that the generator was late: its own, or the machine's that did not run it."""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.analysis.intervals import Series, Window, felt
from streamgauge.model.result_machine import Cpu
from streamgauge.vocabulary.bounds import LINGER_HIDES_MS_MAX, OWN_SHARE_MAX
from streamgauge.vocabulary.format import plural

LATE_MS_MIN = 1.0
STEAL_S_MIN = 0.02
"""Two ticks of the kernel's account: one may be rounding."""


def hidden_ms(linger_ms: float, cpu: Cpu) -> float:
    """What of a send delay is in no latency. Workers that tell their wake-ups are late against when they had planned to be awake, which is in the latency;
    those of before were late against when a message was due, and a batch lingers from then, so that one which leaves late lingers for less."""
    return 0.0 if cpu.wakeups_per_s is not None else min(linger_ms, LINGER_HIDES_MS_MAX)


def allowed_ms(judged_ms: float, hidden: float = 0.0) -> float:
    """How late the generator may be where a latency is judged, of which so much of a delay is no part."""
    return OWN_SHARE_MAX * judged_ms + hidden


@dataclass(frozen=True)
class Lateness:
    """Intervals of the measured window in which the p99 of send delay was above 1 ms."""

    late: int
    stolen: int
    """Those of them in which the host took CPU time away (steal), or in the one before: it is felt afterwards."""
    intervals: int
    """All of the window."""
    intervals_with_steal: int

    @property
    def explanation(self) -> str:
        """A sentence where steal explains most of it and does not happen all the time; empty elsewhere."""
        if self.stolen == 0 or 2 * self.stolen < self.late:
            return ""
        return (
            f"The host of this machine took CPU time away (steal) in {self.stolen} of the {plural(self.late, 'interval')} in which it was "
            f"late, and in {self.intervals_with_steal} of all {self.intervals}."
        )


def lateness(lined_up: Series, window: Window) -> Lateness:
    """`lined_up`: the series of the trial, interval by interval."""
    late = lined_up.values["send_delay_ms_p99"] > LATE_MS_MIN
    steal = lined_up.values["steal_s"] >= STEAL_S_MIN
    inside = lined_up.within(window)
    return Lateness(
        late=int((late & inside).sum()),
        stolen=int((late & felt(steal) & inside).sum()),
        intervals=int(inside.sum()),
        intervals_with_steal=int((steal & inside).sum()),
    )
