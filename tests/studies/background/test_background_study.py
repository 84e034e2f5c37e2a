from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records
from classwise.data import masks
from classwise.data.coloured import colours_of, drawn
from classwise.data.masks import Masks
from classwise.metrics import difference
from classwise.studies.background import claims, digits, tables
from classwise.studies.background.digits import following
from classwise.studies.background.views import chosen_class

QUICK = ("train.epochs=1", "data.per_class=24", "data.validation=4", "method.steps=2", "validate.attack=pgd-2")
CLASS = "9"
PER_CLASS, MISSING = 6, 2  # images of each class, and those of all without a mask; one more has an empty one


def records(label: Sequence[int], prediction: Sequence[int], classes: Sequence[str], attack: str = "pgd") -> Records:
    frame = pd.DataFrame({"index": np.arange(len(label)), "label": label, "attack": attack, "prediction": prediction})
    numbers = ("eps", "confidence", "true_prob", "loss", "distance", "minimal", "step", "queries")
    return Records(
        frame.assign(**dict.fromkeys(numbers, 0)), Meta(class_names=tuple(classes), attacks={attack: AttackInfo()})
    )


# ---- another background at inference ---------------------------------------------------------------------------------


def squares(count: int) -> np.ndarray:
    """The middle of the image, moved by a pixel for every other one, so that shuffling them changes something."""
    array = np.zeros((count, 8, 8), dtype=bool)
    array[::2, 2:6, 1:5] = True
    array[1::2, 2:6, 3:7] = True
    return array


@pytest.fixture(scope="module")
def chosen() -> tuple[np.ndarray, np.ndarray]:
    """The indices of the audited digits that have a usable mask, and of those that have none or an empty one."""
    index = cw.load_data("digits").subset(per_class=PER_CLASS, seed=0).positions
    return index[MISSING + 1 :], index[: MISSING + 1]


@pytest.fixture(scope="module")
def white(
    models: dict[str, Path], chosen: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("white")
    usable, without = chosen
    index = np.concatenate([usable, without[MISSING:]])
    array = squares(len(index))
    array[-1] = False
    masks.write(Masks(array, index), out / "masks.npz")
    options = {
        "part": "white",
        "model": [str(models["madry"])],
        "class_name": CLASS,
        "per_class": PER_CLASS,
        "attack": "pgd-2",
        "masks": str(out / "masks.npz"),
        "colour": "white,black",
        "others": PER_CLASS,
    }
    return out, studies.run(studies.parse("background", options), out / "study")


def labels_of(index: np.ndarray) -> np.ndarray:
    images = cw.load_data("digits")
    return images.labels[np.searchsorted(images.positions, index)]


def on_white(index: np.ndarray, foreground: np.ndarray, label: int) -> torch.Tensor:
    rows = np.flatnonzero(labels_of(index) == label)
    x = cw.load_data("digits").pixels.read(index[rows])
    return torch.where(torch.from_numpy(foreground[rows])[:, None], x, torch.ones(()))


def test_predictions_are_the_models_on_replaced_images(
    white: tuple[Path, studies.StudyResult], models: dict[str, Path], chosen: tuple[np.ndarray, np.ndarray]
) -> None:
    x = on_white(chosen[0], squares(len(chosen[0])), int(CLASS))
    with torch.no_grad():
        answers = cw.load_model(models["madry"] / "best.pt")(x).argmax(1).numpy()
    table = white[1].tables["predictions"].query("prediction == 'natural'")
    row = table[table["background"] == "white"].iloc[0]
    assert row["n"] == len(x)
    assert [row[str(c)] for c in range(10)] == np.bincount(answers, minlength=10).tolist()
    assert list(table["background"]) == ["original", "white", "black", "white, shuffled masks", "white, random masks"]


def test_changes_are_paired_by_image(white: tuple[Path, studies.StudyResult]) -> None:
    out, result = white
    before, after = (cw.Audit.load(out / f"study/jobs/madry-{name}").rows().frame for name in ("audit", "white"))
    both = before.merge(after, on="index", suffixes=("_before", "_after")).query(f"label_before == {CLASS}")
    right = [(both[f"prediction_{side}"] == both["label_before"]).mean() for side in ("before", "after")]
    table = result.tables["changes"].query("prediction == 'adversarial'")
    row = table.query("background == 'white' and against == 'original'").iloc[0]
    assert row["change (points)"] == pytest.approx(100 * (right[1] - right[0]))
    assert (row["n"], row["low"] <= row["change (points)"] <= row["high"]) == (len(both), True)
    assert len(table) == 4 + 3  # each background against the original, the first against each other


def test_images_without_a_usable_mask_are_left_out_and_counted(
    white: tuple[Path, studies.StudyResult], chosen: tuple[np.ndarray, np.ndarray]
) -> None:
    out, result = white
    quality = result.tables["masks"]
    assert quality["without a mask"].sum() == MISSING
    assert (quality["images"] * quality["empty (%)"]).sum() == pytest.approx(100)
    seen = cw.Audit.load(out / "study/jobs/madry-white-random").rows().index
    assert sorted(seen) == sorted(chosen[0])
    assert f"{MISSING + 1} of {10 * PER_CLASS} images have no usable mask" in (out / "study/study.md").read_text()


def test_controls_have_the_area_of_the_masks_and_stay_in_the_class(
    white: tuple[Path, studies.StudyResult], chosen: tuple[np.ndarray, np.ndarray]
) -> None:
    folder = white[0] / "study/jobs/masks"
    own, shuffled, shapes = (masks.read(folder / f"{name}.npz") for name in ("own", "shuffled", "random"))
    index = chosen[0]
    np.testing.assert_array_equal(own.of(index).sum((1, 2)), shapes.of(index).sum((1, 2)))
    labels = labels_of(index)
    for label in range(10):
        left, right = (m.of(index[labels == label])[:, 3, 1].sum() for m in (own, shuffled))
        assert left == right


def test_the_most_robust_images_come_first_with_their_backgrounds_brightness(
    white: tuple[Path, studies.StudyResult], chosen: tuple[np.ndarray, np.ndarray]
) -> None:
    out, result = white
    table = result.tables["most_robust"]
    rows = cw.Audit.load(out / "study/jobs/madry-audit").rows().frame.set_index("index")
    assert table["attacked: probability (%)"].is_monotonic_decreasing
    np.testing.assert_allclose(table["attacked: probability (%)"], 100 * rows.loc[table["index"], "true_prob"])
    first = int(table["index"].iloc[0])
    place = int(np.flatnonzero(chosen[0] == first)[0])
    x = cw.load_data("digits").pixels.read(np.array([first]))[0, 0].numpy()
    expected = 100 * x[~squares(len(chosen[0]))[place]].mean()
    assert table["background brightness (%)"].iloc[0] == pytest.approx(expected)


def test_claims_and_pictures_are_written(white: tuple[Path, studies.StudyResult]) -> None:
    out, result = white
    assert [claim.source for claim in result.claims] == ["tian2021:table4"] * 3 + ["tian2021:figure6"]
    captions = pd.read_csv(out / "study/jobs/pictures/pictures.csv")["caption"]
    assert captions.str.fullmatch(r"natural: \d \d+%, \d \d+%\nadversarial: \d \d+%, \d \d+%").all()
    assert (out / "study/figures/pictures.svg").read_text().count("data:image/png") == len(captions)


def test_the_weakest_class_is_meant_where_none_is_named(white: tuple[Path, studies.StudyResult]) -> None:
    audit = cw.Audit.load(white[0] / "study/jobs/madry-audit")
    assert chosen_class(audit, None) == audit.worst.name
    assert chosen_class(audit, "7") == "7"


def made_views(right: Mapping[str, int]) -> dict[str, dict[str, Records]]:
    """200 cats and 100 dogs; `right` says how many cats withstand the attack on each background."""
    label = [0] * 200 + [1] * 100
    natural = records(label, label, ("cat", "dog"))
    return {
        view: {
            "natural": natural,
            "adversarial": records(label, [0] * count + [1] * (300 - count), ("cat", "dog")),
        }
        for view, count in right.items()
    }


@pytest.mark.parametrize(
    ("own", "shuffled", "verdict"), [(120, 60, "held"), (120, 119, "not decided here"), (80, 120, "did not hold")]
)
def test_white_helps_only_if_it_helps_more_than_behind_another_images_mask(
    own: int, shuffled: int, verdict: str
) -> None:
    views = made_views({"original": 50, "white": own, "white, shuffled masks": shuffled, "white, random masks": 60})
    found = list(claims.claims({"trades": views}, "cat", None))
    assert [claim.verdict for claim in found] == [verdict, "held"]  # natural predictions never change here
    gain = difference.compute(views["original"]["adversarial"], views["white"]["adversarial"]).iloc[0]
    assert f"{(own - 50) / 2:+.1f} points ({100 * gain['low']:+.1f} to {100 * gain['high']:+.1f})" in found[0].numbers
    assert "against shuffled masks" in found[0].numbers


def test_other_colours_and_other_classes_are_told_apart() -> None:
    views = made_views(
        {"original": 50, "white": 120, "grey": 120, "white, shuffled masks": 60, "white, random masks": 60}
    )
    found = list(claims.claims({"trades": views}, "cat", None))
    assert (found[1].verdict, "against grey +0.0 points" in found[1].numbers) == ("not decided here", True)
    dogs = views["white"]["adversarial"]
    more = records(dogs.label, np.where((dogs.label == 1) & (dogs.index < 240), 0, dogs.prediction), ("cat", "dog"))
    found = tables.misclassified_as({"m": {**views, "white": {**views["white"], "adversarial": more}}}, "cat")
    row = found.query("background == 'white' and prediction == 'adversarial'").iloc[0]
    assert (row["n"], row["before (%)"], row["after (%)"]) == (100, 0, 40)


def test_the_adjusted_training_is_compared_on_white() -> None:
    base = made_views({"original": 50, "white": 80, "white, shuffled masks": 60, "white, random masks": 60})
    better = {**base, "white": made_views({"white": 120})["white"]}
    claim = list(claims.claims({"trades": base, "dog": better}, "cat", "dog"))[-1]
    assert (claim.verdict, "against trades on white +20.0 points" in claim.numbers) == ("held", True)


def test_many_classes_are_shown_by_the_commonest() -> None:
    names = [f"c{number}" for number in range(30)]
    rows = records([3] * 60, [*range(30), *([3] * 20), *([29] * 10)], names)
    table = tables.predictions({"m": {"original": {"natural": rows, "adversarial": rows}}}, "c3")
    assert (table["c3"].iloc[0], table["c29"].iloc[0], table["(others)"].iloc[0]) == (21, 11, 10)
    assert table["n"].iloc[0] == 60


# ---- digits that share a background ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("shared")
    options = {"mnist_recipe": "desk/digits/madry", "mnist_set": QUICK, "pairing": "pairs,black", "per_class": 10}
    return out, studies.run(studies.parse("background", {**options, "mnist_attack": "pgd-2"}), out)


@pytest.mark.slow
def test_errors_are_counted_against_the_pairing_they_were_trained_with(
    shared: tuple[Path, studies.StudyResult],
) -> None:
    out, result = shared
    table = result.tables["backgrounds"].set_index(["trained on", "images", "pairing"])
    assert list(table.index.get_level_values("pairing").unique()) == ["pairs"]  # on black all classes share it
    for run in ("pairs", "black"):
        frame = cw.Audit.load(out / f"jobs/on-{run}-audit").rows().frame
        wrong = frame[frame["label"] != frame["prediction"]]
        share = (wrong["label"] // 2 == wrong["prediction"] // 2).mean()
        row = table.loc[(run, "attacked", "pairs")]
        assert (row["errors"], row["on the same background (%)"]) == (len(wrong), pytest.approx(100 * share))
        assert row["by chance (%)"] == pytest.approx(100 / 9)
    config = (out / "jobs/on-pairs/config.toml").read_text()
    assert "coloured:of=digits,colours=pairs" in config
    assert "eps = 0.5" in config
    assert [claim.source for claim in result.claims] == ["tian2021:figure5"] * 3
    assert (out / "figures/confusion_on_pairs.svg").is_file()


def partners(share: float, classes: int = 10, each: int = 30, attack: str = "pgd") -> Records:
    """Half the images are right; `share` of the errors go to the partner of `pairs`, the others to any other class."""
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(classes), each)
    partner, further = label ^ 1, (label // 2 * 2 + rng.integers(2, classes, len(label))) % classes
    prediction = np.where(rng.random(len(label)) < share, partner, further)
    prediction[::2] = label[::2]
    return records(label, prediction, [str(c) for c in range(classes)], attack)


def audit_of(clean: float, attacked: float) -> cw.Audit:
    return cw.Audit(Records.concat([partners(clean, attack="clean"), partners(attacked)]))


@pytest.mark.slow
def test_following_is_judged_against_chance_and_other_pairings() -> None:
    follows, not_so = audit_of(0.1, 0.7), audit_of(0.1, 0.1)
    result = digits.result({"pairs": follows, "shifted": not_so})
    verdicts = {claim.text: claim.verdict for claim in result.claims}
    assert verdicts["Under attack, classes are misclassified as those that share their background (pairs)."] == "held"
    assert verdicts["On natural images the errors do not follow the background (pairs)."] == "held"
    assert "after training on shifted, +" in result.claims[0].numbers
    # The same errors whatever is behind the digits: they are alike, and nothing is due to the background.
    alike = digits.result({"pairs": follows, "black": follows})
    assert alike.claims[0].verdict == "not decided here"


def test_natural_errors_that_follow_the_background_contradict_the_paper() -> None:
    """A model that has learned the colour only: its few natural errors follow it more than those under attack."""
    result = digits.result({"pairs": audit_of(1.0, 0.5)})
    assert [claim.verdict for claim in result.claims] == ["held", "did not hold", "did not hold"]


def test_images_flipped_to_the_same_background_are_paired() -> None:
    audit = audit_of(0.2, 0.6)
    shares = []
    for rows in (audit.rows("clean"), audit.rows()):
        label, answer = rows.label, rows.prediction
        shares.append(np.mean((label != answer) & (label // 2 == answer // 2)))
    claim = digits.result({"pairs": audit}).claims[2]
    assert claim.numbers.startswith(
        f"{shares[0]:.1%} and {shares[1]:.1%} of images: {100 * (shares[1] - shares[0]):+.1f}"
    )
    assert claim.verdict == "held"


def test_with_two_backgrounds_to_a_class_each_image_has_its_own() -> None:
    """Errors go to the neighbour with the image's own colour: all of them follow `both`, but only some follow pairs."""
    label = np.repeat(np.arange(10), 40)
    colours = colours_of([str(c) for c in range(10)], "both")
    place = drawn(label, np.arange(400), [len(own) for own in colours.values()])
    prediction = np.where(place == 0, label ^ 1, (label + np.where(label % 2, 1, -1)) % 10)
    rows = records(label, prediction, [str(c) for c in range(10)])
    found = following(rows, "both")
    assert (found.inside, found.chance, found.errors) == (1, pytest.approx(1 / 9), 400)
    assert found.p < 0.05
    assert following(rows, "pairs").inside == pytest.approx((place == 0).mean())


def test_what_cannot_be_studied_is_said(models: dict[str, Path], tmp_path: Path) -> None:
    model = str(models["madry"])
    for options, message in [
        ({"pairing": "pears"}, "unknown pairing 'pears'; did you mean 'pairs'"),
        ({"pairing": "black,random"}, "give every class the same backgrounds; add one such as pairs"),
        ({"colour": "whit"}, "'whit' is no colour of a background"),
        ({"masks": str(tmp_path / "none.npz")}, "there are no masks at"),
        ({"others": -1}, "0 or more images of each other class, got -1"),
        ({"part": "whit"}, "did you mean 'white'"),
    ]:
        with pytest.raises(UserError, match=message):
            studies.parse("background", options)
    for options, message in [
        ({}, "no model to study"),
        ({"model": [model], "class_name": "11"}, "unknown class of digits '11'"),
        ({"model": [model, str(models["standard"])], "adjusted": "mad"}, "did you mean 'madry'"),
        ({"model": [model], "adjusted": "madry"}, "madry is the only model"),
    ]:
        with pytest.raises(UserError, match=message):
            studies.parse("background", {"part": "white", **options}).jobs()


def test_a_class_needs_two_usable_masks(models: dict[str, Path], tmp_path: Path) -> None:
    masks.write(Masks(squares(1), np.array([0])), tmp_path / "one.npz")
    options = {"part": "white", "model": [str(models["madry"])], "per_class": 3, "attack": "pgd-2"}
    study = studies.parse("background", {**options, "class_name": "0", "masks": str(tmp_path / "one.npz")})
    with pytest.raises(UserError, match=r"of 3 images of 0 \d have a usable mask, and at least 2 are needed"):
        studies.run(study, tmp_path / "out")


def test_a_part_with_nothing_given_is_left_out(models: dict[str, Path]) -> None:
    def names(options: dict[str, object]) -> list[str]:
        return [job.name for job in studies.parse("background", options).jobs()]

    assert names({}) == ["on-pairs", "on-pairs-audit", "on-shifted", "on-shifted-audit", "digits"]
    assert len(names({"model": [str(models["madry"])]})) == 5 + 2 + 1 + 5
    assert "on-pairs" not in names({"part": "white", "model": [str(models["madry"])]})
