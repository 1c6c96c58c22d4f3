"""streamgauge: a benchmark laboratory for messaging and event-streaming systems.

Rooms and what each may import: docs/architecture.md. Runs as pandas frames: `streamgauge.frames`.
"""
