"""What is known of a trial, on disk at every moment: from it, a result can be made when the lab is killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamgauge.runner.observer import Observer
from streamgauge.store.context import TrialContext
from streamgauge.store.directory import TrialDirectory, event


class TrialRecord:
    """Keeps a trial's context, notes and events."""

    def __init__(self, context: TrialContext, directory: TrialDirectory, observer: Observer) -> None:
        self.context = context
        self._directory = directory
        self._observer = observer

    def update(self, **changes: Any) -> None:
        """Changes fields of the context and writes it."""
        self.context = self.context.model_copy(update=changes)
        self.save()

    def save(self) -> None:
        """Writes the context."""
        self._directory.write_context(self.context)

    def event(self, kind: str, facts: dict[str, Any]) -> None:
        """Something happened."""
        self._directory.append_event(event(kind, **facts))

    def note(self, text: str) -> None:
        """A remark that belongs to the result."""
        self.update(notes=[*self.context.notes, text])
        self.event("note", {"text": text})
        self._observer.note(text)

    def attempt(self, what: str, step: Callable[[], object]) -> None:
        """A step of a trial's end: that it could not be done is a remark, and keeps no other step from being tried."""
        try:
            step()
        except Exception as error:
            self.note(f"could not {what}: {str(error) or type(error).__name__}")

    def fail(self, text: str, **changes: Any) -> None:
        """A reason for which the trial is invalid, and what else changes with it."""
        self.update(fatal=[*self.context.fatal, text], **changes)
        self.event("failure", {"reason": text})
        self._observer.problem(text)
