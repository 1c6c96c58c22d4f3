"""What every room of the lab speaks: levels, phases, bounds, units, how figures are named and written, errors, histograms, and how one waits.

Units are parsed here and nowhere else. It depends on nothing of ours and knows no system, worker, run or report.
"""
