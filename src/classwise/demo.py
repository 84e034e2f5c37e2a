"""The demo: the same small network on scikit-learn's digits, fitted normally and adversarially, both audited.

    standard      min_θ mean CE(f_θ(x), y)
    adversarial   min_θ mean CE(f_θ(x'), y),  x' = PGD-7 on the current network (Madry et al., ICLR 2018)

Nothing is downloaded; it takes less than a minute on two CPU cores.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from classwise import datasets, terminal
from classwise.attacks.pgd import Pgd
from classwise.attacks.rows import craft
from classwise.datasets.images import Images
from classwise.evaluation.audit import audit
from classwise.models import load_model, save_checkpoint
from classwise.results import Audit

MODEL = "resnet:width=16,blocks=1-1"
EPS = 0.15  # of a pixel range of 1; the digits have 17 grey levels
EPOCHS, BATCH = 12, 64


def fit(images: Images, adversarial: bool, seed: int = 0) -> nn.Module:
    """The network after a short training, the same in everything but the images it sees."""
    x, y = images.batch(np.arange(len(images)))
    model = load_model(MODEL, num_classes=images.num_classes, in_channels=x.shape[1], seed=seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    steps = EPOCHS * -(-len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=steps)
    for _ in range(EPOCHS):
        order = torch.randperm(len(x), generator=generator)
        for begin in range(0, len(x), BATCH):
            rows = order[begin : begin + BATCH]
            batch = x[rows]
            if adversarial:
                model.eval()  # the attack must not disturb batch-norm's statistics
                batch = craft(Pgd(steps=7), model, batch, y[rows], EPS, generator=generator)
            model.train()
            loss = F.cross_entropy(model(batch), y[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return model.eval()


def run(out: Path, seed: int = 0) -> dict[str, Audit]:
    """Fit both, audit both, keep the checkpoints and run folders below `out`."""
    console = Console()
    digits = datasets.load("digits", split="train")
    audits = {}
    for name, adversarial in (("standard", False), ("adversarial", True)):
        console.print(f"fitting the digits: {name} training …", style="dim")
        model = fit(digits, adversarial, seed)
        save_checkpoint(out / f"{name}.pt", model, MODEL, num_classes=digits.num_classes, in_channels=1)
        console.print(f"auditing it with PGD-20 at eps {EPS:g} …", style="dim")
        audits[name] = audit(model, "digits", "pgd-20", EPS, out=out / name, overwrite=True, seed=seed)
    console.print()
    console.print(terminal.side_by_side(audits))
    for name, result in audits.items():
        console.print(f"{name:>12}: {result}", soft_wrap=True)
    console.print(f"\nsee one again with: classwise show {out}/adversarial", soft_wrap=True)
    return audits
