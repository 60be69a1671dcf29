"""The certainty of a producer about the events of its traces."""

from __future__ import annotations

from fsdplint.trace.base import Event, Site


class Certainty:
    """The certainty of a recorded trace: each event happened to the module that it names.

    The interpreter knows less and has a subclass.
    """

    def of_module(self, event: Event) -> bool:
        """Whether the event certainly happens to the module that it names.

        A loop over modules may select them by a test that cannot be followed.
        """
        return True

    def tested_in_loop(self, event: Event) -> bool:
        """Whether an undecided test of the event is evaluated in each iteration of a loop."""
        return False

    def handles_errors(self, event: Event) -> bool:
        """Whether the event is in an `except` clause, so it only happens after an error."""
        return False

    def same_function(self, one: Site | None, other: Site | None) -> bool:
        """Whether two places are in the same function, or both at module level."""
        return True
