"""What later papers print of methods that raise the worst class: fair_methods.csv.

It has the average and the worst class in percent, without an attack, under PGD and under AutoAttack, as far as
a paper, its repository or its reviews (`note`) give them. `method` is the name here, empty for what is not in
classwise; `against` is the row of the same table, data and network that it is compared with.
"""

from __future__ import annotations

import functools

import pandas as pd

from classwise.published.index import HOME

#: The papers of fair_methods.csv by their keys there.
CITATIONS = {
    "lee2024dafa": "Lee et al.: DAFA: Distance-Aware Fair Adversarial Training, ICLR 2024",
    "wei2023cfa": "Wei et al.: CFA: Class-wise Calibrated Fair Adversarial Training, CVPR 2023",
    "zhang2024faal": "Zhang et al.: Towards Fairness-Aware Adversarial Learning, CVPR 2024",
    "pethick2022cfol": "Pethick et al.: the submission of pethick2023cfol to ICLR 2022",
    "pethick2023cfol": "Pethick et al.: Revisiting adversarial training for the worst-performing class, TMLR 2023",
    "jin2025csr": "Jin et al.: Enhancing Robust Fairness via Confusional Spectral Regularization, ICLR 2025",
    "anon2026implicit_bias": "A submission to ICLR 2026 on head norms of robust networks",
    "li2026ferd": "Li et al.: FERD, ICLR 2026",
    "medi2025trix": "Medi et al.: TRIX, arXiv 2507.07768",
}
_WORDS = ("paper", "place", "data", "network", "printed", "method", "against", "note")


@functools.cache
def fair_methods() -> pd.DataFrame:
    """The rows of fair_methods.csv, numbers in percent, NaN what is not printed. Cached: do not modify it."""
    cells = pd.read_csv(HOME / "fair_methods.csv", dtype=str, keep_default_na=False, encoding="utf-8")
    for column in cells.columns.difference([*_WORDS]):
        cells[column] = pd.to_numeric(cells[column])
    return cells
