"""Inference: the one place that says holds, refuted, equivalent or undecided.

Pure: numbers in, verdicts out; without files, cells, trials or words on a screen. `study.py` judges the claims of a study, `price.py` says what undecided
ones would cost and which cells to run again, `comparison.py` judges two sides beside each other, `gate.py` a bound, `levels.py` changes over runs. Under
them: `samples.py` (what was measured, where), `spread.py` (how trials vary), `contrast.py` (estimates with their errors), `sequential.py` (several looks),
`verdict.py` (from an estimate, a bound and a margin to a verdict), `margins.py` (the smallest effects that matter).
"""
