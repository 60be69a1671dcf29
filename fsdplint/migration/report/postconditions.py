"""What has to hold after a person has changed the code that blocks a migration."""

from __future__ import annotations

from functools import lru_cache

from fsdplint.migration.blockers import (
    Blocker,
    constructor,
    policies,
    program,
    state_dicts,
    summon,
    training,
)

# One sentence for each subject of blockers, in words that hold before and after the migration.
_OF_SUBJECT = {
    constructor: (
        "The same modules are sharded, over the same ranks, with the same precision, offload and "
        "ignored parameters."
    ),
    policies: (
        "The modules that the policy chose are sharded by themselves, in every configuration."
    ),
    summon: (
        "Every rank takes part in each gathering. The same ranks read the same values, and what "
        "is written reaches the parameters of all ranks."
    ),
    training: (
        "Each step runs the same modules, and reduces, clips and applies the gradients of all "
        "ranks as before."
    ),
    state_dicts: (
        "The same states are saved and loaded, whole or sharded as before, and every rank takes "
        "part. Checkpoints that are still needed can be read."
    ),
    program: ("No code that runs uses FSDP1 for a model that FSDP2 shards, in any configuration."),
}


def postcondition(code: str | None) -> str:
    """What has to hold after the code with a blocker was changed.

    code: the stable code of the blocker; None for a finding without one.
    """
    return _by_code().get(code or "", _OF_SUBJECT[program])


@lru_cache(maxsize=1)
def _by_code() -> dict[str, str]:
    return {
        value.code: sentence
        for subject, sentence in _OF_SUBJECT.items()
        for value in vars(subject).values()
        if isinstance(value, Blocker)
    }
