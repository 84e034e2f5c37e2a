"""A curve: the same attack at several radii in one run, each going on from what the smaller one broke."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise.auditing.config import AuditConfig
from classwise.auditing.inputs import grid
from classwise.core.errors import UserError


class Ramp(nn.Module):
    """Two classes; the margin of an image is its first pixel minus ½, so that it falls exactly at |x₀ − ½|."""

    def forward(self, x: Tensor) -> Tensor:
        m = x[:, 0, 0, 0] - 0.5
        return torch.stack([m, -m], 1)


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    first = torch.tensor([0.49, 0.51, 0.53, 0.56, 0.59, 0.90])  # the first is misclassified already
    x = torch.full((6, 1, 2, 2), 0.5)
    x[:, 0, 0, 0] = first
    return x, torch.zeros(6, dtype=torch.int64)


def test_each_radius_breaks_what_lies_within_it(data: tuple[Tensor, Tensor]) -> None:
    audit = cw.audit(Ramp(), data, "pgd:steps=8,start=none", eps="0.04,0.02,0.08", class_names=["up", "down"])
    assert audit.attacks == ("pgd-8@0.02", "pgd-8@0.04", "pgd-8@0.08")
    correct = {name: audit.rows(name).correct.tolist() for name in audit.names}
    assert correct["pgd-8@0.02"] == [False, False, True, True, True, True]
    assert correct["pgd-8@0.04"] == [False, False, False, True, True, True]
    assert correct["pgd-8@0.08"] == [False, False, False, False, True, True]
    assert (audit.rows("pgd-8@0.04").frame["eps"] == 0.04).all()
    assert audit.rows().correct.tolist() == correct["pgd-8@0.08"]
    attacked = [audit.timing["attacks"][name]["attacked"] for name in audit.attacks]
    assert attacked == [5, 4, 3]  # what is broken is not attacked again


def test_minimal_is_the_distance_of_the_point_that_broke_it(data: tuple[Tensor, Tensor]) -> None:
    audit = cw.audit(Ramp(), data, "pgd:steps=8,step=0.02,start=none", eps="0.02,0.08", class_names=["up", "down"])
    minimal = audit.rows("pgd-8@0.08").frame["minimal"].to_numpy()
    np.testing.assert_allclose(minimal, [0, 0.02, 0.04, 0.08, np.inf, np.inf], atol=1e-6)


def test_standing_and_several_attacks_go_radius_by_radius(data: tuple[Tensor, Tensor]) -> None:
    settings = {"coverage": "survivors", "class_names": ["up", "down"]}
    audit = cw.audit(Ramp(), data, ["fgsm", "pgd-8"], eps=["0.02", "0.08"], **settings)  # type: ignore[arg-type]
    assert audit.attacks == ("fgsm@0.02", "pgd-8@0.02", "fgsm@0.08", "pgd-8@0.08")
    assert [audit.timing["attacks"][name]["attacked"] for name in audit.attacks] == [5, 4, 4, 2]
    assert audit.rows("pgd-8@0.02").correct.sum() == 4
    assert audit.rows("pgd-8@0.08").correct.sum() == 2


@pytest.mark.slow
def test_a_run_folder_holds_every_radius_and_goes_on(data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    settings = {"eps": "0.02,0.08", "class_names": ["up", "down"], "out": tmp_path / "run"}
    first = cw.audit(Ramp(), data, "pgd-8", **settings)  # type: ignore[arg-type]
    again = cw.audit(Ramp(), data, "pgd-8", **settings)  # type: ignore[arg-type]
    assert again.records.frame.equals(first.records.frame)
    assert cw.Audit.load(tmp_path / "run").attacks == first.attacks
    with pytest.raises(UserError, match="other settings"):
        cw.audit(Ramp(), data, "pgd-8", **{**settings, "eps": "0.02,0.09"})  # type: ignore[arg-type]


def test_the_grid() -> None:
    assert grid("8/255", None, "linf") == {}
    assert grid({"cat": 0.1}, None, "linf") == {}
    assert grid([0.1, 0.2], None, "linf") == {}  # numbers are one radius per example
    assert list(grid("8/255,2/255", None, "linf")) == ["2/255", "8/255"]
    assert grid("0.4", 4, "linf") == pytest.approx({"0.1": 0.1, "0.2": 0.2, "0.3": 0.3, "0.4": 0.4})
    with pytest.raises(UserError, match="eps must be in"):
        grid("8/255,8", None, "linf")
    with pytest.raises(UserError, match="twice"):
        grid("8/255,8/255", None, "linf")
    with pytest.raises(UserError, match="one radius"):
        grid("1/255,2/255", 4, "linf")
    with pytest.raises(UserError, match="at least 2"):
        AuditConfig.of(model="lenet", data="digits", eps_grid=1)
