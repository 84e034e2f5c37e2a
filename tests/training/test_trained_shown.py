"""What a notebook shows of a training."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from classwise.training.train import Trained


def test_its_classes_with_bars_and_its_epochs_as_a_chart(tmp_path: Path) -> None:
    epochs = [
        {"epoch": k, "robust": 0.3, "clean": 0.8, "seconds": 1.0, "best_epoch": 1}
        | {"clean:cat": 0.9, "clean:dog": 0.7, "robust:cat": 0.5, "robust:dog": 0.1 * k}
        for k in (1, 2)
    ]
    pd.DataFrame(epochs).to_csv(tmp_path / "history.csv", index=False)
    (tmp_path / "config.toml").write_text('[data]\nvalidation = 50\n[validate]\nselect = "worst"\n')
    trained = Trained(tmp_path)
    shown = trained._repr_html_()
    assert "A training of 2 epochs, of which 1 was selected." in shown
    assert "the worst class is dog: 10.0% robust" in shown
    assert shown.index(">dog<") < shown.index(">cat<")
    assert shown.count("linear-gradient(to right") == 2
    assert trained.chart().to_dict()["$schema"]
