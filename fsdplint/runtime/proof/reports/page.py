"""A proof as one self-contained HTML file."""

from __future__ import annotations

import datetime
import importlib.util
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsdplint.report import unit_picture
from fsdplint.report.sizes import format_bytes
from fsdplint.report.web_page import style
from fsdplint.runtime.launch.failures import failure_lines, relative_path
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.proof.prove import Proof
from fsdplint.runtime.proof.reports import plots
from fsdplint.runtime.proof.reports.changes import rows
from fsdplint.runtime.proof.reports.text import findings_of, heading, ranks_of, summary
from fsdplint.runtime.proof.reports.units import memory_table, unit_tree
from fsdplint.version import __version__


class PageError(Exception):
    """The page cannot be made; the text says why."""


def check_libraries() -> None:
    """Check that the libraries for a page are installed.

    Raises:
        PageError: one of them is missing.
    """
    for name in ("jinja2", "matplotlib"):
        if importlib.util.find_spec(name) is None:
            raise PageError(f"a page needs {name}: pip install 'fsdplint[prove]'")


def as_page(proof: Proof) -> str:
    """The page; call `check_libraries` first."""
    return render("page.html.jinja", **_context(proof))


def render(template: str, **context: Any) -> str:
    """Render one of the templates in this folder."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(context, style=style())


def _context(proof: Proof) -> dict[str, Any]:
    runs = proof.runs
    return {
        "proof": proof,
        "summary": summary(proof),
        "heading": heading(proof),
        "facts": facts_of(proof.script, runs),
        "verdicts": proof.verdicts,
        "checks": proof.checks,
        "findings": findings_of(proof),
        "rows": rows(proof.diff, proof.verdicts, str(proof.root)),
        "memory": memory_table(runs),
        "kinds": [*unit_picture.KINDS],
        "size": format_bytes,
        "units": unit_picture.as_html(unit_tree(runs)),
        "pictures": [picture for picture in _pictures(runs) if picture],
        "failures": [
            "\n".join(failure_lines(f"The program {name}", run))
            for name, run in runs.items()
            if not run.ok
        ],
        "shown": relative_path,
        "version": __version__,
    }


def _pictures(runs: dict[str, Run]) -> list[str]:
    if not runs:
        return []
    return [
        plots.curves(runs, plots.losses, "Loss"),
        plots.curves(runs, plots.gradient_norms, "Norm of the gradient"),
        plots.bars(
            {
                name: {f"rank {rank}": value for rank, value in enumerate(plots.memory(run))}
                for name, run in runs.items()
            },
            "Most memory held",
            "MiB",
        ),
        plots.bars(
            {name: plots.collectives(run) for name, run in runs.items()},
            "Collectives in a step",
            "calls of a rank",
        ),
    ]


def facts_of(script: Path, runs: Mapping[str, Run]) -> dict[str, str]:
    """Facts about the runs: the program, the time, the machine, ranks and arguments."""
    facts = {
        "Program": relative_path(str(script)),
        "Made": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "Machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }
    if runs:
        launch = next(iter(runs.values())).launch
        heads = [run.records[0].head for run in runs.values() if run.records]
        facts["torch"] = str(heads[0].get("torch", "")) if heads else ""
        if launch.simulate is None:
            facts["Ranks"] = ranks_of(next(iter(runs.values())))
        facts["Arguments"] = " ".join(launch.args) or "none"
        facts["Seed"] = str(launch.seed)
        facts["Times"] = ", ".join(f"{name} {run.seconds:.1f} s" for name, run in runs.items())
    return facts
