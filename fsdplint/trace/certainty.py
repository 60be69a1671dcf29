"""What a producer knows for certain of the events of its traces."""

from __future__ import annotations

from fsdplint.trace.base import Event, Site


class Certainty:
    """The certainty of a recorded trace: what was recorded has happened, to the module it names.

    The interpreter, which knows less, has a subclass.
    """

    def of_module(self, event: Event) -> bool:
        """Whether the event happens to the very module that it names.

        A loop over modules may choose among them by something that cannot be followed.
        """
        return True

    def tested_in_loop(self, event: Event) -> bool:
        """Whether an undecided test around the event is made anew in each turn of a loop."""
        return False

    def handles_errors(self, event: Event) -> bool:
        """Whether the event happens in an `except` clause: only if something else has failed."""
        return False

    def same_function(self, one: Site | None, other: Site | None) -> bool:
        """Whether two places stand in one function, or both in none."""
        return True
