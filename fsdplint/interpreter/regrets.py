"""Decisions because of which runs left a function early, and which later runs make otherwise."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from fsdplint.interpreter.configurations import Choice, Decisions
from fsdplint.source.fsdp_words import names_strategy


@dataclass
class Regrets:
    """What is regretted.

    Attributes:
        going_on: how keys are decided, so that the program goes on.
    """

    going_on: dict[str, bool] = field(default_factory=dict)

    def note(self, decisions: Decisions, sharding: Set[Choice]) -> bool:
        """Note decisions because of which a run left a function later on; whether some are new.

        Each time one decision is regretted: the last one that is none of those with which a model
        is sharded (`sharding`) and, if possible, names no strategy. One that was regretted before
        stays as it is now, so that another one is regretted.
        """
        values = decisions.values_by_key
        known = len(self.going_on)
        for keys in decisions.left_by:
            free = [
                key
                for key in keys
                if (key, values[key]) not in sharding and self.going_on.get(key) is not values[key]
            ]
            if free and not any(key in self.going_on for key in free):
                key = min(free, key=names_strategy)
                self.going_on[key] = not values[key]
        return len(self.going_on) > known
