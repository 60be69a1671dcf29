"""Programs with code of their own for an older torch."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "a constructor and a clipping for each torch": (
        """
        from packaging import version
        net = Net()
        if version.parse(torch.__version__) >= version.parse("2.0.0"):
            model = FSDP(net, use_orig_params=True)
        else:
            model = FSDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 8)).sum().backward()
        if torch.__version__ >= "1.13":
            model.clip_grad_norm_(1.0)
        else:
            FSDP.clip_grad_norm_(model, 1.0)
        optimizer.step()
        """,
        """
        from packaging import version
        net = Net()
        if version.parse(torch.__version__) >= version.parse("2.0.0"):
            model = fully_shard(net)
        else:
            model = fully_shard(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 8)).sum().backward()
        if torch.__version__ >= "1.13":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        """,
    ),
    "a library's test": (
        """
        from accelerate.utils import is_torch_version
        model = FSDP(Net())
        if is_torch_version("<", "2.0"):
            model.clip_grad_norm_(0.5)
        else:
            model.clip_grad_norm_(1.0)
        """,
        """
        from accelerate.utils import is_torch_version
        model = fully_shard(Net())
        if is_torch_version("<", "2.0"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
