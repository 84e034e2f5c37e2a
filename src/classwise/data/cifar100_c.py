"""CIFAR-100-C: the released test images under 19 corruptions, each at five severities (`kind`, `severity`).

Reads ``root/CIFAR-100-C/<kind>.npy`` and ``labels.npy``; nothing is decoded before it is used. Source: Hendrycks and
Dietterich, "Benchmarking neural network robustness to common corruptions and perturbations", ICLR 2019. To make
them from the clean images instead, see the data set `corruption`.
"""

from __future__ import annotations

from pathlib import Path

from classwise.data import cifar100
from classwise.data.corruptions import released
from classwise.data.download import Remote
from classwise.data.images import Images, check_split

PAPERS = ("hendrycks2019", "krizhevsky2009")
ARCHIVE = Remote("https://zenodo.org/records/3555552/files/CIFAR-100-C.tar", "md5:11f0ed0f1191edbf9fa23466ae6021d3")


def load(
    root: str | Path, split: str = "test", download: bool = False, kind: str = "gaussian_noise", severity: int = 3
) -> Images:
    """The test images under one corruption; there is no other split."""
    check_split("cifar100_c", split, ("test",))
    folder = Path(root).expanduser() / "CIFAR-100-C"
    return released.load("cifar100_c", cifar100, folder, ARCHIVE, download, kind, severity)
