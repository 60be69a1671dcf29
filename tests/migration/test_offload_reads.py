"""Code that reads `offload_params` of a `CPUOffload`: FSDP2's policies are of two classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

READS = {
    "a variable": (
        """
        offload = CPUOffload(os.environ["OFFLOAD"] == "1")
        model = FSDP(Net(), cpu_offload=offload)
        print(offload.offload_params)
        """,
        "print(isinstance(offload, CPUOffloadPolicy))\n",
    ),
    "an attribute": (
        """
        class Config:
            offload = CPUOffload(offload_params=True)


        def build(config):
            if config.offload and not config.offload.offload_params:
                print("on the device")
            return FSDP(Net(), cpu_offload=config.offload)


        model = build(Config())
        """,
        "if config.offload and not isinstance(config.offload, CPUOffloadPolicy):\n",
    ),
    "what the constructor leaves out": (
        """
        offload = CPUOffload(offload_params=False)
        print(offload.offload_params)
        model = FSDP(Net(), cpu_offload=offload)
        """,
        "offload = OffloadPolicy()\nprint(isinstance(offload, CPUOffloadPolicy))\n",
    ),
}


@pytest.mark.parametrize("name", READS)
def test_the_field_becomes_a_question_for_the_class(name: str, tmp_path: Path) -> None:
    body, expected = READS[name]
    assert expected in migrated(tmp_path, body)


def test_a_field_that_is_set_blocks(tmp_path: Path) -> None:
    body = """
        offload = CPUOffload()
        offload.offload_params = os.environ["OFFLOAD"] == "1"
        model = FSDP(Net(), cpu_offload=offload)
    """
    found, _ = plan(tmp_path, body)
    assert [one.blocker.code for one in found.blockers] == ["FSDP201-cpu-offload-arguments"]


def test_a_choice_of_two_configs_keeps_both(tmp_path: Path) -> None:
    body = """
        if os.environ.get("OFFLOAD"):
            offload = CPUOffload(offload_params=True)
        else:
            offload = CPUOffload(offload_params=False)
        model = FSDP(Net(), cpu_offload=offload)
    """
    text = migrated(tmp_path, body)
    assert "    offload = CPUOffloadPolicy()\nelse:\n    offload = OffloadPolicy()\n" in text
    assert "offload_policy=offload)" in text
