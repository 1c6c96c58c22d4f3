"""What trials say about a question: the only place that turns figures into holds, refuted, equivalent, undecided.

It is pure: it knows no files, no settings of cells and no screen.
"""
