"""How improbable a coincidence is: what was slow is shifted against what happened, circularly, which leaves both as they are, clusters included, and only
breaks what connects them. Shifts by a few intervals are left out, because there the two still overlap.

As many things are looked at, each is held against the best of all of them for every shift (Westfall and Young's step-down max-T, with shifts for permutations:
the second is held against all but the first). Frequent and rare ones are made comparable for this by how far a share is from what is usual, as shares go: the
divergence (Kullback and Leibler's) of the one from the other. Counted in spreads over the shifts instead, what was seen twice looks like the best of all
whenever it meets one slow interval, and among dozens of things one always does.
"""

from __future__ import annotations

import numpy as np

from streamgauge.analysis.intervals import Values

OVERLAP_INTERVALS = 3
"""Shifts by as much leave clusters on one another."""


def chances(scores: Values) -> list[float]:
    """For each row, how often the best of all rows that fit no better fits as well when what was slow is shifted. Column s: how well each fits when it is
    shifted by s intervals; column 0: as it was."""
    length = scores.shape[1]
    if not len(scores):
        return []
    far = np.arange(length)
    far = far[np.minimum(far, length - far) > OVERLAP_INTERVALS]
    # From the best on, each against itself and those below it: what is found is no competitor of what comes next.
    order = np.argsort(-scores[:, 0], kind="stable")
    best = np.maximum.accumulate(scores[order[::-1]][:, far], axis=0)[::-1]
    own = scores[order, :1]
    found = np.empty(len(scores))
    found[order] = np.maximum.accumulate((1 + np.count_nonzero(best >= own - 1e-9, axis=1)) / (1 + len(far)))
    return [float(chance) for chance in found]


def divergence(share: Values, usual: Values) -> Values:
    """Of a share from what is usual, both in 0 to 1; 0 for shares that are no larger."""

    def of(share: Values, usual: Values) -> Values:
        return np.where(share > 0.0, share * np.log(np.maximum(share, 1e-12) / np.maximum(usual, 1e-12)), 0.0)

    return np.where(share > usual, of(share, usual) + of(1.0 - share, 1.0 - usual), 0.0)
