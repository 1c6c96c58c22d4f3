"""Drives trials through their phases (docs/method.md) and keeps what they produce.

`plan` says what will be done, `run` does it trial by trial, `trial` leads one trial from provision to wipe,
`load` drives its load. Whatever ends a trial - its schedule, Ctrl-C, a broker or a worker that dies - what
was measured is written, and what was started is stopped. Who watches is an `observer`.
"""
