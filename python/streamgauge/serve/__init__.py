"""Runs in a browser: a list with filters, reports as they are, comparisons of what is ticked. It reads a directory of runs, and nothing else.

What it shows may come from anybody, and whoever asks may be any page that the browser has open (docs/threat-model.md): `gate` says who is answered, `shelf`
what there is, `pages` what is answered, and `server` speaks HTTP.
"""
