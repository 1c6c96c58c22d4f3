"""What a reader sees: the HTML report, terminal tables, exports.

Nothing here computes a figure that a result does not hold, except for charts (series and curves from the
stored intervals) and medians over repeats. `html.write` makes the page of a run, `terminal.print_summary` the
table, `export` the files for other tools.
"""
