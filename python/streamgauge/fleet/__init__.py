"""Where load workers run, and how to talk to them.

`base` is the seam: whoever places workers (child processes here, a list of machines, pods) hands out
`Worker`s, and nothing else in the lab knows where they run. `client` speaks the worker API
(docs/worker-api.md), `heartbeat` keeps a trial's lease alive and notices a worker that is gone.
"""
