"""`classwise.audit`: everything it accepts, and everything one asks of its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

import classwise as cw
from classwise.attacks.fgsm import Fgsm
from classwise.attacks.pgd import Pgd
from classwise.core.errors import UserError
from classwise.data.images import ArrayPixels, Images
from classwise.models import load_model, save_checkpoint

EPS = 0.09  # 2ε is no multiple of 1/255/5, so that no margin is exactly zero under attack
COUNT, CLASSES = 60, 3


class Stripes(nn.Module):
    """Logit k is the mean of pixel row k: on 3×5 grey images the brightest row is the class."""

    def __init__(self, outputs: int = CLASSES) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(outputs, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((1, 3)) @ self.weight.T * 10


@pytest.fixture(scope="module")
def x() -> Tensor:
    """Images whose brightest row leads by a margin that differs from image to image, all on a grid of 1/255."""
    generator = torch.Generator().manual_seed(0)
    base = torch.full((COUNT, 1, CLASSES, 5), 0.4) + 0.02 * torch.rand(COUNT, 1, CLASSES, 5, generator=generator)
    base[torch.arange(COUNT), 0, torch.arange(COUNT) % CLASSES] += torch.linspace(0.01, 0.5, COUNT)[:, None]
    return (base * 255).round() / 255


@pytest.fixture(scope="module")
def y() -> Tensor:
    return torch.arange(COUNT) % CLASSES


@pytest.fixture(scope="module")
def audit(x: Tensor, y: Tensor) -> cw.Audit:
    return cw.audit(Stripes(), (x, y), ["fgsm", "pgd-8"], EPS, class_names=("top", "middle", "bottom"))


@pytest.fixture(scope="module")
def expected(x: Tensor, y: Tensor) -> pd.DataFrame:
    return cw.audit(Stripes(), (x, y), "pgd-8", EPS).records.frame


class TestData:
    def test_the_reference_is_what_the_margins_say(self, x: Tensor, y: Tensor, expected: pd.DataFrame) -> None:
        """A linear model: the lead over each other row falls by 2ε at most, and [0,1] is far away."""
        rows = x.mean((1, 3))
        others = rows.scatter(1, y[:, None], -1).amax(1)
        lead = (rows.gather(1, y[:, None])[:, 0] - others).numpy()
        attacked = expected[expected["attack"] == "pgd-8"]
        np.testing.assert_array_equal(attacked["prediction"] == attacked["label"], lead > 2 * EPS)
        assert 10 < (lead > 2 * EPS).sum() < 50

    def data(self, form: str, x: Tensor, y: Tensor) -> Any:
        class Items(Dataset[Any]):
            def __len__(self) -> int:
                return len(x)

            def __getitem__(self, place: int) -> tuple[Tensor, int]:
                return x[place], int(y[place])

        dataset = TensorDataset(x, y)
        return {
            "numpy": lambda: (x.numpy(), y.numpy()),
            "uint8": lambda: ((x * 255).round().to(torch.uint8), y),
            "lists of labels": lambda: (x, y.tolist()),
            "TensorDataset": lambda: dataset,
            "Dataset": Items,
            "Subset": lambda: Subset(TensorDataset(torch.cat([x, x]), torch.cat([y, y])), range(COUNT)),
            "DataLoader": lambda: DataLoader(dataset, batch_size=7),
            "shuffled DataLoader": lambda: DataLoader(dataset, batch_size=7, shuffle=True),
            "Images": lambda: Images(ArrayPixels(x.numpy()), y.numpy(), ("0", "1", "2")),
        }[form]()

    @pytest.mark.parametrize(
        "form",
        [
            "numpy",
            "uint8",
            "lists of labels",
            "TensorDataset",
            "Dataset",
            "Subset",
            "DataLoader",
            "shuffled DataLoader",
            "Images",
        ],
    )
    def test_every_form_gives_the_same_records(self, x: Tensor, y: Tensor, expected: pd.DataFrame, form: str) -> None:
        state = torch.random.get_rng_state()
        records = cw.audit(Stripes(), self.data(form, x, y), "pgd-8", EPS).records
        assert torch.equal(state, torch.random.get_rng_state())
        columns = ["index", "label", "attack", "eps", "prediction", "step"]
        pd.testing.assert_frame_equal(records.frame[columns], expected[columns])
        np.testing.assert_allclose(records.frame["loss"], expected["loss"], rtol=1e-4)

    def test_a_named_data_set(self) -> None:
        audit = cw.audit("resnet:width=2,blocks=1-1", "digits", "fgsm", 0.05, per_class=3)
        assert audit.by_class()["n"].tolist() == [3] * 10
        assert audit.records.class_names == tuple("0123456789")

    def test_a_colour_model_on_grey_images(self, x: Tensor, y: Tensor) -> None:
        model = load_model("resnet:width=2,blocks=1-1,in_channels=3", num_classes=3)
        with pytest.raises(UserError, match="expects images of 3 channels but the data has 1"):
            cw.audit(model, (x, y))
        assert cw.audit("resnet:width=2,blocks=1-1", (x, y), "fgsm").records.num_classes == 3

    def test_labels_outside_the_models_outputs(self, x: Tensor, y: Tensor) -> None:
        with pytest.raises(UserError, match=r"the data has label 5 but the model has only 3 outputs \(labels 0…2\)"):
            cw.audit(Stripes(), (x, y + 3))

    def test_outputs_the_data_does_not_have(self, x: Tensor, y: Tensor) -> None:
        audit = cw.audit(Stripes(5), (x, y), "fgsm", EPS)
        assert audit.records.class_names == ("0", "1", "2", "class 3", "class 4")
        assert audit.by_class()["n"].tolist() == [20, 20, 20, 0, 0]
        assert "absent_class" in {finding.code for finding in audit.findings}

    @pytest.mark.parametrize("outputs", [5, 2])
    def test_superclasses_of_other_classes_than_the_models(self, x: Tensor, y: Tensor, outputs: int) -> None:
        groups = {"edge": ("0", "2"), "inside": ("1",)}
        images = Images(ArrayPixels(x), y.numpy(), ("0", "1", "2"), superclasses=groups)
        audit = cw.audit(Stripes(outputs), images, "fgsm", EPS, classes=("0", "1"))
        assert "superclass" not in audit.summary()["worst_case"]

    def test_an_empty_selection(self, x: Tensor, y: Tensor) -> None:
        images = Images(ArrayPixels(x), y.numpy(), ("0", "1", "2", "3"))
        with pytest.raises(UserError, match=r"the selection from data is empty: it has no example of \['3'\]"):
            cw.audit(Stripes(4), images, classes=["3"])

    def test_forty_unequal_classes(self) -> None:
        """Class k has k examples, none for class 0; the model says its number, or the next one under attack."""
        labels = np.repeat(np.arange(40), np.arange(40))
        x = np.full((len(labels), 1, 2, 2), 0.5, dtype=np.float32)
        x[:, 0, 0, 0] = labels / 64 + 0.1

        class Counter(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return -((x[:, 0, 0, :1] - torch.arange(40) / 64 - 0.1) ** 2) * 1e4

        audit = cw.audit(Counter(), (x, labels), "fgsm", 1 / 100, num_classes=40)  # 0.64 of the way to the next
        table = audit.by_class("clean")
        assert table["n"].tolist() == list(range(40))
        assert table["correct"].tolist() == list(range(40))
        assert np.isnan(table["accuracy"][0])
        assert (audit.by_class()["correct"] == 0).all()
        assert np.trace(audit.confusion(), offset=1) + np.trace(audit.confusion(), offset=-1) == len(labels)
        assert audit.worst.name == "1"


class TestRadius:
    def test_one_per_class(self, x: Tensor, y: Tensor) -> None:
        audit = cw.audit(Stripes(), (x, y), "fgsm", {"top": "2/255", "*": EPS}, class_names=("top", "middle", "bottom"))
        rows = audit.records.of("fgsm").frame
        assert rows.groupby("label")["eps"].unique().map(list).tolist() == [[2 / 255], [EPS], [EPS]]
        assert (rows["distance"] <= rows["eps"] + 1e-6).all()
        assert audit.records.meta.eps == EPS

    def test_one_per_example(self, x: Tensor, y: Tensor) -> None:
        eps = np.linspace(0.01, 0.1, COUNT)
        for given in (eps, list(eps), torch.from_numpy(eps)):
            rows = cw.audit(Stripes(), (x, y), "fgsm", given).records.of("fgsm")
            np.testing.assert_allclose(rows.frame["eps"], eps)

    @pytest.mark.parametrize("eps", [np.float32(0.0625), torch.tensor(0.0625), "1/16"])
    def test_one_number_of_any_kind(self, x: Tensor, y: Tensor, eps: Any) -> None:
        assert (cw.audit(Stripes(), (x, y), "fgsm", eps).records.of("fgsm").frame["eps"] == 0.0625).all()

    @pytest.mark.parametrize(
        ("eps", "message"),
        [
            (0, r"eps must be in \(0, 1\].* got 0"),
            (-0.1, "got -0.1"),
            (8, r"got 8. Did you mean 8/255\?"),
            ("8/0", "expected a number such as 8/255"),
            ([0.1, 0.2], "2 radii for 60 examples"),
            ({"tpo": 0.1, "*": 0.1}, "unknown class of data 'tpo'; did you mean 'top'"),
            ({"top": 0, "*": 0.1}, "got 0"),
            ({"top": 0.1, "middle": 0.2}, r"eps has no radius for class 'bottom'; add it, or '\*' for all others"),
            ({}, "eps has no radius for class 'top'"),
            ([0.1] * 59 + [float("nan")], "got nan"),
        ],
    )
    def test_impossible(self, x: Tensor, y: Tensor, eps: Any, message: str) -> None:
        with pytest.raises(UserError, match=message):
            cw.audit(Stripes(), (x, y), "fgsm", eps, class_names=("top", "middle", "bottom"))


class TestModel:
    @pytest.mark.parametrize("training", [True, False])
    def test_the_mode_is_put_back(self, x: Tensor, y: Tensor, training: bool) -> None:
        model = nn.Sequential(nn.BatchNorm2d(1), Stripes()).train(training)
        statistics = model[0].running_mean.clone()  # type: ignore[union-attr, operator]
        codes = {finding.code for finding in cw.audit(model, (x, y), "fgsm", EPS).findings}
        assert ("train_mode" in codes) is training
        assert all(module.training is training for module in model.modules())
        assert torch.equal(model[0].running_mean, statistics)  # type: ignore[arg-type]

    @pytest.mark.parametrize("whole", [True, False])
    def test_a_part_in_another_mode_than_the_whole_is_put_back_too(self, x: Tensor, y: Tensor, whole: bool) -> None:
        model = nn.Sequential(nn.BatchNorm2d(1), Stripes()).train(whole)
        model[0].train(not whole)
        audit = cw.audit(model, (x, y), "fgsm", EPS)
        assert [module.training for module in model.modules()] == [whole, not whole, whole]
        assert "train_mode" in {finding.code for finding in audit.findings}

    def test_the_mode_is_put_back_after_an_error(self, x: Tensor, y: Tensor) -> None:
        model = Stripes().train()
        with pytest.raises(UserError):
            cw.audit(model, (x, y + 3))
        assert model.training

    def test_weights_and_gradients_are_untouched(self, x: Tensor, y: Tensor) -> None:
        model = Stripes()
        before = model.weight.clone()
        cw.audit(model, (x, y), "pgd-2", EPS)
        assert torch.equal(model.weight, before)
        assert model.weight.requires_grad
        assert model.weight.grad is None

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_torchscript(self, x: Tensor, y: Tensor, audit: cw.Audit) -> None:
        found = cw.audit(torch.jit.script(Stripes()), (x, y), "fgsm", EPS)  # type: ignore[no-untyped-call]
        np.testing.assert_array_equal(found.rows("fgsm").prediction, audit.rows("fgsm").prediction)

    @pytest.mark.slow
    def test_an_exported_program(self, x: Tensor, y: Tensor, audit: cw.Audit, tmp_path: Path) -> None:
        """Its mode was fixed when it was exported: whatever its modules say, it was not left in train mode."""
        free = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(Stripes().eval(), (x[:4],), dynamic_shapes=free), tmp_path / "m.pt2")
        found = cw.audit(tmp_path / "m.pt2", (x, y), "fgsm", EPS, trust=True)
        np.testing.assert_array_equal(found.rows("fgsm").prediction, audit.rows("fgsm").prediction)
        assert "train_mode" not in {finding.code for finding in found.findings}

    def test_not_a_number(self, x: Tensor, y: Tensor) -> None:
        class Broken(Stripes):
            def forward(self, x: Tensor) -> Tensor:
                return torch.where(x.mean() > 0, torch.nan, super().forward(x))

        with pytest.raises(UserError, match="NaN or infinite logits"):
            cw.audit(Broken(), (x, y))

    @pytest.mark.slow
    def test_a_checkpoint_of_classwise(self, x: Tensor, y: Tensor, tmp_path: Path) -> None:
        spec = "resnet:width=2,blocks=1-1"
        save_checkpoint(tmp_path / "m.pt", load_model(spec, num_classes=3, in_channels=1), spec, 3, 1)
        one = cw.audit(tmp_path / "m.pt", (x, y), "fgsm", EPS)
        other = cw.audit(spec, (x, y), "fgsm", EPS, weights=tmp_path / "m.pt")
        assert one.records.frame.equals(other.records.frame)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"protocol": "finla"}, "unknown protocol 'finla'; did you mean 'final'"),
            ({"coverage": "survivor"}, "did you mean 'survivors'"),
            ({"norm": "l1"}, "unknown norm 'l1'"),
            ({"confidence": 95}, "confidence must be positive and below 1, got 95"),
            ({"eot": 0}, "eot must be at least 1, got 0"),
            ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
            ({"workers": 0}, "workers must be at least 1, got 0"),
            ({"limit": 0}, "limit must be at least 1, got 0"),
            ({"limit": 2.5}, "limit must be a whole number, got 2.5"),
            ({"per_class": "few"}, "per_class must be a whole number, got 'few'"),
            ({"seed": -1}, "seed must be at least 0, got -1"),
            ({"seed": None}, "seed must be a whole number, got None"),
            ({"seed": 2**70}, "seed must be at least 0 and at most"),
            ({"num_classes": 0}, "num_classes must be at least 1, got 0"),
            ({"num_classes": 2.5}, "num_classes must be a whole number, got 2.5"),
            ({"batch_size": "4.5"}, "batch_size must be a whole number, got '4.5'"),
            ({"eot": True}, "eot must be a whole number, got True"),
            ({"eps": True}, "eps must be a number such as 8/255 or 0.031, .*, got True"),
            ({"eps": 1j}, "eps must be a number such as 8/255 or 0.031, .*, got 1j"),
            ({"eps": None}, "eps must be a number such as 8/255 or 0.031, .*, got None"),
            ({"eps": [0.1, True, 0.1]}, r"eps\[1\] must be a number such as 8/255 or 0.031 or text, got True"),
            ({"attacks": "pgd-99999999999999999999"}, "steps must be at least 1 and at most 10000000, got 1000"),
            ({"amp": "float16"}, "amp=float16 is for GPUs"),
            ({"attacks": "pdg-20"}, "unknown attack 'pdg'; did you mean 'pgd'"),
            ({"attacks": []}, "no attack given"),
            ({"attacks": [3]}, "attacks\\[0\\] must be text or Attack, got 3"),
            ({"class_names": ["a", "b"]}, "label 2 in data is outside the class range 0…1"),
            ({"weights": "m.pt"}, "belong to a model spec"),
            ({"device": "cpux"}, "cannot use the device 'cpux'"),
            ({"device": "cuda:97"}, "cannot use the device 'cuda:97'"),
        ],
    )
    def test_impossible_settings(self, x: Tensor, y: Tensor, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            cw.audit(Stripes(), (x, y), **settings)


class TestAnswer:
    def test_by_class(self, audit: cw.Audit) -> None:
        table = audit.by_class("pgd-8")
        assert list(table.columns) == [
            "class", "n", "correct", "accuracy", "low", "high", "p_worst", "confused_with", "confused_share",
        ]  # fmt: skip
        assert table["class"].tolist() == ["top", "middle", "bottom"]
        assert table["n"].tolist() == [20, 20, 20]
        rows = audit.records.of("pgd-8")
        assert table["correct"].tolist() == [int(rows.correct[rows.label == k].sum()) for k in range(3)]
        assert ((table["low"] < table["accuracy"]) & (table["accuracy"] < table["high"])).all()
        assert table["p_worst"].sum() == pytest.approx(1)

    def test_the_headline_is_the_worst_case_of_several_attacks(self, audit: cw.Audit) -> None:
        assert audit.attacks == ("fgsm", "pgd-8")
        assert audit.headline == "worst_case"
        assert audit.by_class().equals(audit.by_class("worst_case"))
        broken = ~audit.rows("fgsm").correct | ~audit.rows("pgd-8").correct
        np.testing.assert_array_equal(~audit.rows().correct, broken)

    def test_worst(self, audit: cw.Audit) -> None:
        table = audit.by_class()
        assert audit.worst.name == table["class"][table["accuracy"].argmin()]
        assert audit.worst.value == table["accuracy"].min()
        assert audit.worst.low < audit.worst.value < audit.worst.high
        assert audit.worst.name in audit.worst.tied
        assert f"worst class {audit.worst.label}" in str(audit)

    def test_confusion(self, audit: cw.Audit) -> None:
        counts, rates = audit.confusion("pgd-8"), audit.confusion("pgd-8", rates=True)
        assert counts.sum(axis=1).tolist() == [20, 20, 20]
        assert np.diag(counts).tolist() == audit.by_class("pgd-8")["correct"].tolist()
        np.testing.assert_allclose(rates.sum(axis=1), 1)
        assert list(counts.index) == list(counts.columns) == ["top", "middle", "bottom"]

    def test_summary_is_json_with_the_documented_keys(self, audit: cw.Audit) -> None:
        summary = json.loads(json.dumps(audit.summary(), allow_nan=False))
        documented = (Path(__file__).parents[1] / "docs" / "summary.md").read_text()
        cells = [line.split("|")[1] for line in documented.splitlines() if line.startswith("| `")]
        keys = [key.strip(" `") for cell in cells for key in cell.split(",")]
        of_entry, of_verdict = keys.index("versions") + 1, keys.index("family") + 1
        top, entry, said = keys[:of_entry], keys[of_entry:of_verdict], keys[of_verdict:]
        assert sorted(summary) == sorted(top)
        assert list(summary["attacks"]) == ["clean", "fgsm", "pgd-8"]
        for attack in summary["attacks"].values():
            assert sorted(attack) == sorted(set(entry) - {"superclass", "eps", "family"})
            assert len(attack["by_class"]) == 3
        assert summary["attacks"]["pgd-8"]["worst"].keys() == {"class", "classes", "accuracy", "low", "high"}
        for own in (summary, summary["worst_case"], *summary["attacks"].values()):
            assert sorted(own["verdict"]) == sorted(said)
        assert summary["threat"] == {"norm": "linf", "eps": EPS}
        assert summary["timing"]["attacks"]["pgd-8"].keys() == {"seconds", "passes", "rejected", "outside", "attacked"}

    def test_protocol_final_is_recorded_and_never_stronger(self, x: Tensor, y: Tensor, audit: cw.Audit) -> None:
        final = cw.audit(Stripes(), (x, y), Pgd(steps=8), EPS, protocol="final")
        assert final.summary()["attacks"]["pgd-8"]["protocol"] == "final"
        assert final.rows().correct.sum() >= audit.rows("pgd-8").correct.sum()
        assert (final.rows().frame["step"] == 8).all()

    def test_coverage_standing_answers_for_the_attacks_so_far(self, x: Tensor, y: Tensor, audit: cw.Audit) -> None:
        standing = cw.audit(Stripes(), (x, y), [Fgsm(), Pgd(steps=8)], EPS, coverage="survivors")
        np.testing.assert_array_equal(standing.rows("pgd-8").correct, audit.rows().correct)
        assert standing.by_class("fgsm")["correct"].tolist() == audit.by_class("fgsm")["correct"].tolist()
        assert standing.summary()["attacks"]["pgd-8"]["coverage"] == "survivors"

    def test_an_attack_that_found_nobody_standing_still_has_its_table(self, x: Tensor, y: Tensor) -> None:
        audit = cw.audit(Stripes(), (x, (y + 1) % 3), ["fgsm", "pgd-2"], EPS, coverage="survivors")
        assert audit.attacks == ("fgsm", "pgd-2")
        assert list(audit.summary()["attacks"]) == ["clean", "fgsm", "pgd-2"]
        assert audit.by_class("pgd-2")["correct"].tolist() == [0, 0, 0]

    def test_many_classes_keep_no_probabilities_unless_asked(self, x: Tensor, y: Tensor) -> None:
        for outputs, probs, kept in ((101, None, False), (101, True, True), (100, None, True), (3, False, False)):
            audit = cw.audit(Stripes(outputs), (x, y), "fgsm", EPS, probs=probs)
            assert (audit.records.probs is not None) is kept

    def test_random_starts_follow_the_seed_alone(self, x: Tensor, y: Tensor) -> None:
        losses = []
        for seed in (0, 0, 1):
            torch.manual_seed(seed + 10)
            losses.append(cw.audit(Stripes(), (x, y), "pgd-2", EPS, seed=seed).rows().frame["loss"])
        assert losses[0].equals(losses[1])
        assert not losses[0].equals(losses[2])
