"""From intervals to figures: histograms, percentiles, steadiness, limits, validity.

Nothing here touches a system, a worker or the network: it reads what the runner collected and writes a
`TrialResult` (`analysis.trial.analyse`) or series for charts (`analysis.series`). Definitions are in
docs/method.md.
"""
