"""The images a report shows of each class, kept by an audit and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch import nn

import classwise as cw
from classwise.core import example_images
from classwise.core.adversarial_examples import rounded
from classwise.data.images import Images

pytestmark = pytest.mark.slow


def test_an_audit_keeps_robust_images_and_errors_with_the_adversarial_ones(
    net: nn.Module, images: Images, tmp_path: Path
) -> None:
    audit = cw.audit(net, images, "pgd-5", eps=0.02, out=tmp_path, save_adversarial=True, progress=False)
    found = example_images.read(tmp_path)
    assert set(found["kind"]) == {"robust", "wrong"}
    rows = audit.rows().frame.set_index("index")
    clean = audit.rows("clean").frame.set_index("index")
    for index, label, kind, prediction, image in zip(*(found[key] for key in example_images.KEYS), strict=True):
        own = rows.loc[index] if kind == "robust" else clean.loc[index]
        assert (own["label"], own["prediction"]) == (label, prediction)
        assert bool(label == prediction) is bool(kind == "robust")
        exact = images.batch(np.flatnonzero(images.positions == index))[0][0].numpy()
        np.testing.assert_array_equal(image, rounded(exact).transpose(1, 2, 0))
    again = cw.audit(net, images, "fgsm", eps=0.02, out=tmp_path, overwrite=True, progress=False)
    assert len(again.attacks) == 1
    assert example_images.read(tmp_path) == {}  # overwritten, and not asked for


def test_a_damaged_file_is_no_images(tmp_path: Path) -> None:
    assert example_images.read(None) == {}
    (tmp_path / "examples.npz").write_bytes(b"PK\x03\x04 not a file of arrays")
    assert example_images.read(tmp_path) == {}
