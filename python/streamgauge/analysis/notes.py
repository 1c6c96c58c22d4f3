"""What is said beside the figures of a trial: of its clocks, of phases after the measured one, and what ended it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.analysis.lateness import allowed_ms
from streamgauge.model.result_special import CatchUp
from streamgauge.store.context import TrialContext
from streamgauge.vocabulary.bounds import ACHIEVED_SHARE_MIN
from streamgauge.vocabulary.format import plural, trimmed


def late_in(caught: CatchUp | None, hidden: float) -> list[str]:
    """The measured phase is judged with the trial; the phases after it have figures, too."""
    notes = []
    for phase in caught.phases[1:] if caught is not None else []:
        delay, publish = phase.send_delay_ms.p99, (phase.service_ms or phase.publish_ms).p99
        bound = allowed_ms(publish or 0.0, hidden)
        if delay is not None and publish is not None and delay > bound:
            notes.append(
                f"The generator was late in the phase {phase.name}: p99 of send delay is {trimmed(delay)} ms, "
                f"{trimmed(bound)} ms are allowed; latencies of this phase are partly its own."
            )
        share = phase.achieved_share
        if share is not None and share < ACHIEVED_SHARE_MIN:
            notes.append(f"In the phase {phase.name} only {100 * share:.1f} % of the rate was acknowledged.")
    return notes


def clocks(raw: TrialContext) -> Mapping[str, Any]:
    """How the clocks of several hosts compared (fleet.clocks); nothing with one clock."""
    found = (raw.finish or {}).get("clocks")
    return found if isinstance(found, dict) else {}


def clock_notes(raw: TrialContext) -> list[str]:
    """How far end-to-end latencies between hosts can be trusted."""
    found = clocks(raw)
    if not found:
        return []
    drifts = [abs(float(pair["drift_ppm"])) for pair in found["pairs"]]
    notes = [
        f"End-to-end latencies between hosts are corrected for their clocks and right within {trimmed(found['bound_ms'])} ms "
        f"({plural(len(found['pairs']), 'pair')} compared, drift up to {trimmed(max(drifts, default=0.0))} ppm)."
    ]
    loops = found["loops"]
    if loops["open"]:
        notes.append(
            f"The comparison of clocks does not close: round {loops['open']} of {loops['looked_at']} loops of workers "
            f"{trimmed(loops['worst_ms'])} ms are left over, more than the bounds allow; a clock was not steady."
        )
    return notes


def fatal(raw: TrialContext) -> list[str]:
    """Why the trial is invalid whatever its figures are."""
    if raw.finish is None and raw.status == "complete" and not raw.fatal:
        return ["A worker was lost before it could report: no audit was made."]
    untaken = int(((raw.finish or {}).get("audit") or {}).get("untaken") or 0)
    if untaken:
        return [
            *raw.fatal,
            f"{plural(untaken, 'message')} fell due and never left, because the system left no room until the end: they are "
            "in no figure.",
        ]
    return raw.fatal
