"""Whether a result that was passed on can be what was measured: its figures computed again, and its parts held against each other (docs/publishing.md).

`rules` names what is checked and what the outcomes mean; `whole` applies the rules to a run; the other modules have a rule or a few each. Nothing here proves
that a measurement took place.
"""
