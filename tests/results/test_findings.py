"""Every rule on records made by hand: given where the numbers support it, with those numbers, and not otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import power_proportions_2indep, samplesize_proportions_2indep_onetail

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records
from classwise.results import findings
from classwise.results.audit_result import Audit
from classwise.results.compare import compare
from classwise.results.finding import Finding, by_heading
from classwise.results.findings.training import lower_beta
from classwise.stats import intervals

Make = Callable[..., Audit]
WIDE = (100, 100, 100)
#: Class 3 (cat) of Tian et al., KDD 2021, Table 4, line 4; the other rows say only what the rule needs.
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CAT = [34, 16, 82, 262, 113, 254, 139, 53, 14, 33]


def found(audit: Audit, confidence: float = 0.95) -> dict[str, Finding]:
    return {finding.code: finding for finding in findings.of_audit(replace(audit, confidence=confidence))}


def test_a_sound_audit_has_no_warnings(audit_of: Make) -> None:
    assert found(audit_of({"pgd-20": [80, 40, 85]}, WIDE)).keys() == {"lower_beta"}


class TestImages:
    def test_few(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [30, 0, 100]}, (30, 29, 100), ("cat", "dog", "ship"))
        assert found(audit)["few_images"].what == "1 of 3 classes have fewer than 30 images (dog)."

    def test_many_classes_are_counted_not_listed(self, audit_of: Make) -> None:
        audit = audit_of({}, [5] * 8)
        assert found(audit)["few_images"].what.endswith("(class 0, class 1, class 2, class 3, class 4 and 3 more).")

    def test_absent(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [80, 0, 10]}, (100, 0, 100), ("cat", "dog", "ship"))
        assert set(found(audit)) == {"absent_class"}
        assert "(dog)" in found(audit)["absent_class"].what


class TestNearChance:
    @pytest.mark.parametrize(("right", "said"), [(10, True), (13, True), (40, False)])
    def test_of_ten_classes(self, audit_of: Make, right: int, said: bool) -> None:
        audit = audit_of({"clean": [right] * 10}, [100] * 10)
        assert ("near_chance" in found(audit)) is said

    @pytest.mark.parametrize(("right", "said"), [(500, True), (600, True), (750, False)])
    def test_of_two_classes(self, audit_of: Make, right: int, said: bool) -> None:
        """75% on two classes is far from guessing."""
        assert ("near_chance" in found(audit_of({"clean": [right] * 2}, [1000] * 2))) is said


class TestWrongWithoutAttack:
    def test_a_class_that_is_wrong_on_clean_images(self, audit_of: Make) -> None:
        """20 of 100 correct: at most 31.5% by Wilson with Šidák over three classes, so below one half beyond chance."""
        audit = audit_of({"clean": [20, 90, 95], "pgd-20": [15, 60, 60]}, WIDE, ("cat", "dog", "ship"))
        wrong = found(audit)["wrong_without_attack"]
        assert wrong.severity == "warning"
        assert wrong.what == (
            "1 class of 3 is mostly wrong without any attack (cat 20.0% correct); cat is most often misclassified "
            "as dog."
        )
        assert wrong.numbers == {"classes": {"cat": 0.2}}

    @pytest.mark.parametrize("right", [[45, 90, 95], [33, 33, 34]])
    def test_not_within_chance_of_one_half_nor_of_a_model_that_guesses(self, audit_of: Make, right: list[int]) -> None:
        assert "wrong_without_attack" not in found(audit_of({"clean": right, "pgd-20": [1, 1, 1]}, WIDE))


class TestRadius:
    def test_too_large_where_half_of_the_classes_are_gone(self, audit_of: Make) -> None:
        too_large = found(audit_of({"pgd-20": [0, 1, 60]}, WIDE))["radius_too_large"]
        assert too_large.what.startswith("The radius is too large to rank classes: at 8/255, 2 of 3 classes have 1% of")
        assert "--eps-grid" in too_large.remedy
        assert (too_large.numbers["classes"], too_large.numbers["of"]) == (2, 3)

    def test_not_where_most_classes_still_differ(self, audit_of: Make) -> None:
        assert "radius_too_large" not in found(audit_of({"pgd-20": [0, 2, 60]}, WIDE))
        assert "radius_too_large" not in found(audit_of({}, WIDE))


def kdd(cat: list[int] = CAT, dog: int = 430) -> np.ndarray:
    counts = np.full((10, 10), 45)
    np.fill_diagonal(counts, 595)
    counts[3] = cat
    counts[5] = (1000 - dog) // 9
    counts[5, 5] = 1000 - (1000 - dog) // 9 * 9
    return counts


def audit_with(counts: np.ndarray, names: tuple[str, ...] = NAMES) -> Audit:
    """An audit with these errors under pgd-20, and none on clean images."""
    label, prediction = np.indices(counts.shape).reshape(2, -1).repeat(counts.reshape(-1), axis=1)
    frame = pd.DataFrame({"index": np.arange(len(label)), "label": label, "prediction": prediction})
    others = dict.fromkeys(("eps", "confidence", "true_prob", "loss", "distance", "minimal", "step", "queries"), 0)
    frames = [frame.assign(attack="clean", prediction=label), frame.assign(attack="pgd-20")]
    infos = {"clean": AttackInfo(), "pgd-20": AttackInfo(settings={"name": "pgd"})}
    return Audit(Records(pd.concat(frames, ignore_index=True).assign(**others), Meta(class_names=names, attacks=infos)))


def betas(counts: np.ndarray, names: tuple[str, ...] = NAMES) -> list[Finding]:
    return [finding for finding in findings.of_audit(audit_with(counts, names)) if finding.code == "lower_beta"]


class TestBeta:
    def test_the_papers_example(self) -> None:
        """Cat breaks into dog 254 times and into frog, the next, 139 times: lower dog's beta."""
        (found,) = betas(kdd())
        assert found.what == (
            "cat (26.2%) and dog (43.3%) are one to one: 254 of the 1,000 images of cat are misclassified as dog, 139 "
            "as frog, the next most frequent class (p < 0.001)."
        )
        assert found.remedy == (
            "To make cat more robust, train with TRADES and a lower beta for dog: beta = {dog = 0.5}. cat gains at "
            "most 25.4 points, at the expense of dog."
        )
        assert found.numbers["p"] == pytest.approx(8 * stats.binomtest(254, 393).pvalue)
        assert (found.numbers["help"], found.numbers["lower"], found.numbers["next"]) == ("cat", "dog", "frog")

    def test_none_where_two_classes_take_as_much(self) -> None:
        assert not betas(kdd([34, 16, 82, 262, 113, 200, 193, 53, 14, 33]))

    def test_none_where_the_other_would_have_to_pay_what_it_has_not(self) -> None:
        assert not betas(kdd(dog=200))

    def test_none_where_another_class_breaks_into_it_more(self) -> None:
        counts = kdd()
        counts[7, 5], counts[7, 7] = 300, 340
        (found,) = betas(counts)
        assert found.numbers["help"] == "horse"

    def test_none_for_a_class_above_the_average(self) -> None:
        counts = kdd()
        counts[3, 3] += 5000
        assert not [found for found in betas(counts) if found.numbers["help"] == "cat"]

    def test_the_homing_matrix_decides_where_it_is_known(self) -> None:
        """All flips to dog would only go elsewhere; those to frog come home."""
        homing = np.zeros((10, 10), dtype=int)
        homing[3, 5], homing[3, 6] = 20, 100
        ((what, _, numbers),) = lower_beta(audit_with(kdd()), homing=homing)
        assert (numbers["lower"], numbers["errors"]) == ("frog", 100)
        assert "misclassified as frog and would be correct without it" in what
        with pytest.raises(UserError, match=r"shape \(2, 2\), expected \(10, 10\)"):
            next(lower_beta(audit_with(kdd()), homing=np.eye(2)))

    def test_two_classes_have_no_third_to_differ_from(self) -> None:
        assert not betas(np.array([[60, 40], [20, 80]]), ("cat", "dog"))

    def test_a_name_that_toml_must_quote(self) -> None:
        names = tuple(name.replace("dog", 'big "dog"') for name in NAMES)
        (found,) = betas(kdd(), names)
        assert r'beta = {"big \"dog\"" = 0.5}' in found.remedy


class TestHiddenGradients:
    INFOS = {  # noqa: RUF012
        "pgd-20": AttackInfo(settings={"name": "pgd"}),
        "temperature_pgd-20": AttackInfo(settings={"name": "temperature_pgd"}),
    }

    def audit(self, audit_of: Make, plain: list[int], sharp: list[int], **infos: AttackInfo) -> Audit:
        rights = {"pgd-20": plain, "temperature_pgd-20": sharp}
        return audit_of(rights, (200, 200), ("cat", "dog"), {**self.INFOS, **infos})

    def test_hidden(self, audit_of: Make) -> None:
        hidden = found(self.audit(audit_of, [100, 100], [60, 98]))["temperature_beats_pgd"]
        assert hidden.severity == "warning"
        assert hidden.what == "temperature_pgd-20 leaves 39.5% robust, pgd-20 50.0% (p < 0.001); most in cat −20.0."
        assert hidden.numbers["gain"] == pytest.approx(0.105)
        assert hidden.numbers["p"] == pytest.approx(2 * 0.5**42)
        assert hidden.numbers["classes"] == {"cat": pytest.approx(0.2)}

    @pytest.mark.parametrize("sharp", [[98, 99], [100, 100], [150, 150]])
    def test_open(self, audit_of: Make, sharp: list[int]) -> None:
        codes = found(self.audit(audit_of, [100, 100], sharp))
        assert "temperature_beats_pgd" not in codes
        assert codes["open_gradients"].severity == "info"

    @pytest.mark.parametrize(("broken", "reported"), [(6, True), (5, False)])
    def test_beyond_chance(self, audit_of: Make, broken: int, reported: bool) -> None:
        """k broken by the temperature alone, none by plain PGD alone: p = 2 · 2⁻ᵏ, below 0.05 from k = 6."""
        codes = found(self.audit(audit_of, [100, 100], [100 - broken, 100]))
        assert ("temperature_beats_pgd" in codes, "open_gradients" in codes) == (reported, not reported)

    def test_silent_without_both_attacks_on_every_example(self, audit_of: Make) -> None:
        survivors = {"temperature_pgd-20": AttackInfo(settings={"name": "temperature_pgd"}, coverage="survivors")}
        larger = {"temperature_pgd-20": AttackInfo(settings={"name": "temperature_pgd"}, eps=16 / 255)}
        for audit in (
            audit_of({"pgd-20": [9, 9]}, (20, 20)),
            self.audit(audit_of, [100, 100], [60, 98], **survivors),
            self.audit(audit_of, [100, 100], [60, 98], **larger),
        ):
            assert not {"temperature_beats_pgd", "open_gradients"} & found(audit).keys()


class TestImagesNeeded:
    @pytest.mark.parametrize(("a", "b"), [(0.5, 0.6), (0.18, 0.2), (0.0, 0.05), (0.9, 0.99)])
    def test_formula_agrees_with_statsmodels(self, a: float, b: float) -> None:
        pooled, apart = (a + b) / 2, np.sqrt(a * (1 - a) + b * (1 - b))
        null = np.sqrt(2 * pooled * (1 - pooled))
        z = stats.norm.ppf
        assert intervals.images_needed(a, b) == np.ceil(((z(0.975) * null + z(0.8) * apart) / (b - a)) ** 2)
        theirs = samplesize_proportions_2indep_onetail(b - a, a, power=0.8, ratio=1, alpha=0.05)
        assert intervals.images_needed(a, b) == pytest.approx(theirs, rel=0.02, abs=1)

    def test_so_many_images_have_the_power(self) -> None:
        n = intervals.images_needed(0.3, 0.4, power=0.9)
        assert power_proportions_2indep(0.1, 0.3, n, return_results=False) == pytest.approx(0.9, abs=0.005)

    def test_equal_accuracies_and_bad_power(self) -> None:
        assert intervals.images_needed(0.3, 0.3) == np.inf
        with pytest.raises(UserError, match=r"power must lie between 0 and 1, such as 0\.8; got 80"):
            intervals.images_needed(0.3, 0.4, power=80)

    def test_how_many_more(self, audit_of: Make) -> None:
        """0.50 and 0.60 with a power of 80%: n = (1.96 √(2·0.55·0.45) + 0.84 √(0.25 + 0.24))²/0.1² = 387.3."""
        audit = audit_of({"pgd-20": [50, 48, 90]}, (100, 80, 100), ("cat", "dog", "ship"))
        undecided = found(audit)["worst_undecided"]
        assert undecided.severity == "recommendation"
        assert undecided.numbers["needed"] == intervals.images_needed(0.5, 0.6) == 388
        assert undecided.numbers["more"] == {"cat": 288, "dog": 308}
        assert undecided.what == (
            "Under pgd-20, 100 and 80 images do not tell cat (50.0%) and dog (60.0%) apart as the worst class at 95% "
            "confidence."
        )
        assert undecided.remedy == (
            "Report both, or use more images: about 388 of each class would separate them with 80% power if the "
            "difference is real (288 more of cat and 308 more of dog)."
        )

    def test_depends_on_the_confidence(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [50, 60, 90]}, WIDE)
        assert "worst_undecided" not in found(audit, 0.7)
        assert "at 99% confidence" in found(audit, 0.99)["worst_undecided"].what

    def test_once_for_all_attacks(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [50, 60, 90], "fgsm": [51, 60, 90]}, WIDE)
        (undecided,) = [finding for finding in findings.of_audit(audit) if finding.code == "worst_undecided"]
        assert undecided.what.startswith("In the worst case over all attacks, 100 and 100 images do not tell")

    def test_a_tie_needs_no_number(self, audit_of: Make) -> None:
        """Nobody can separate a difference of 0, so nothing is said of separating it."""
        tied = found(audit_of({"pgd-20": [50, 50, 90]}, WIDE, ("cat", "dog", "ship")))["worst_undecided"]
        assert tied.what == "Under pgd-20, 2 of 3 classes tie for the worst with 50.0% (cat, dog)."
        assert tied.remedy.startswith("Report them together")
        assert tied.numbers["needed"] is None

    def test_never_asks_for_fewer_images_than_there_are(self, audit_of: Make) -> None:
        """0 of 1 against 1 of 1: the normal approximation would be content with none."""
        assert found(audit_of({"pgd-20": [0, 1]}, (1, 1)))["worst_undecided"].numbers["needed"] == 2

    def test_the_level_follows_the_number_of_classes(self, audit_of: Make) -> None:
        """Each class is tested against 9 others at 0.05/9 one-sided, which takes more images than against 2."""
        undecided = found(audit_of({"pgd-20": [50, 60, *[90] * 8]}, (100,) * 10))["worst_undecided"]
        assert undecided.numbers["needed"] == intervals.images_needed(0.5, 0.6, 1 - 2 * 0.05 / 9) > 388

    def test_none_where_the_worst_class_is_clear(self, audit_of: Make) -> None:
        for audit in (
            audit_of({"pgd-20": [10, 60, 90]}, WIDE),
            audit_of({"pgd-20": [10]}, (100,)),
            audit_of({"pgd-20": [50, 0]}, (100, 0)),
            audit_of({}, WIDE),
        ):
            assert "worst_undecided" not in found(audit)
        assert "worst_undecided" in found(audit_of({"clean": [50, 60, 90]}, WIDE))


class TestChance:
    def test_paired(self, audit_of: Make) -> None:
        first, second, third = (audit_of({"pgd-20": right}, (100, 100)) for right in ([50, 50], [60, 60], [51, 50]))
        better, same = findings.of_comparison(compare({"a": first, "b": second, "c": third}))
        assert better.code == "beyond_chance"
        assert better.what.startswith("b is 10.0 points above a over all images (95% confidence interval +")
        assert better.what.endswith("exact McNemar test of the same images, p < 0.001).")
        assert better.numbers["p_holm"] == pytest.approx(2 * 2 * 0.5**20)
        assert same.code == "within_chance"
        assert "p = 1.000" in same.what
        assert "Call them equal" in same.remedy

    def test_unpaired_says_so(self, audit_of: Make) -> None:
        runs = {"a": audit_of({"pgd-20": [50, 50]}, (100, 100)), "b": audit_of({"pgd-20": [40, 40]}, (99, 101))}
        (found,) = findings.of_comparison(compare(runs))
        assert found.what.startswith("b is 10.0 points below a")
        assert "Fisher's exact test of different images" in found.what
        assert found.numbers["paired"] is False


class TestWeakAttack:
    def test_noise_that_breaks_what_the_gradient_cannot(self, audit_of: Make) -> None:
        audit = audit_of({"noise-10": [50, 5, 60], "pgd-20": [60, 5, 80]}, WIDE)
        assert found(audit)["blind_beats_gradient"].what == (
            "noise-10 breaks 10.0% of the examples that pgd-20 could not."
        )

    def test_noise_compared_with_the_strongest(self, audit_of: Make) -> None:
        audit = audit_of({"noise-10": [50, 5, 60], "fgsm": [60, 5, 80], "pgd-20": [40, 5, 60]}, WIDE)
        assert "blind_beats_gradient" not in found(audit)

    def test_noise_that_is_merely_lucky(self, audit_of: Make) -> None:
        audit = audit_of({"noise-10": [58, 5, 80], "pgd-20": [60, 5, 80]}, WIDE)
        assert "blind_beats_gradient" not in found(audit)

    def test_attacks_on_survivors_are_not_compared(self, audit_of: Make) -> None:
        survivors = {
            name: AttackInfo(settings={"name": name.partition("-")[0]}, coverage="survivors") for name in ("pgd-20",)
        }
        audit = audit_of({"noise-10": [50, 5, 60], "pgd-20": [60, 5, 80]}, WIDE, infos=survivors)
        assert "blind_beats_gradient" not in found(audit)

    @pytest.mark.parametrize("needs_gradient", [False, True])
    def test_a_foreign_attack_says_whether_it_needs_a_gradient(self, audit_of: Make, needs_gradient: bool) -> None:
        theirs = AttackInfo(settings={"name": "foreign", "source": "mine.py"}, needs_gradient=needs_gradient)
        audit = audit_of({"mine.py:search": [50, 5, 60], "pgd-20": [60, 5, 80]}, WIDE, infos={"mine.py:search": theirs})
        assert ("blind_beats_gradient" in found(audit)) is not needs_gradient

    @pytest.mark.parametrize("kind", ["square", "nattack", "transfer"])
    def test_an_attack_without_gradient_that_breaks_what_the_gradient_cannot(self, audit_of: Make, kind: str) -> None:
        audit = audit_of({f"{kind}-10": [50, 5, 60], "pgd-20": [60, 5, 80]}, WIDE)
        assert found(audit)["blind_beats_gradient"].what.startswith(f"{kind}-10 breaks 10.0%")

    def test_attacks_are_compared_at_their_own_radius(self, audit_of: Make) -> None:
        """Noise at the larger radius beats the gradient at the smaller one, as it may, but not that at its own."""
        right = {"noise@2": [99, 99, 99], "pgd@2": [90, 40, 90], "noise@8": [50, 40, 50], "pgd@8": [20, 5, 30]}
        audit = audit_of(right, WIDE, infos=curve(*right))
        assert "blind_beats_gradient" not in found(audit)
        weaker = audit_of({**right, "pgd@2": [100, 100, 100], "noise@2": [90, 90, 90]}, WIDE, infos=curve(*right))
        assert (
            found(weaker)["blind_beats_gradient"].what == "noise@2 breaks 10.0% of the examples that pgd@2 could not."
        )


def curve(*names: str) -> dict[str, AttackInfo]:
    """The metadata of attacks called family@eps."""
    split = {name: name.split("@") for name in names}
    return {
        name: AttackInfo(
            settings={"name": family}, protocol="final", eps=float(eps), family=family, needs_gradient=family != "noise"
        )
        for name, (family, eps) in split.items()
    }


def pgd(**settings: float) -> AttackInfo:
    return AttackInfo(settings={"name": "pgd", "steps": 20, "step": None, "restarts": 1, **settings})


class TestMoreIsNotWeaker:
    """k examples that only the stronger attack leaves robust: p = 2 · 2⁻ᵏ, below 0.05 from k = 6."""

    @pytest.mark.parametrize(("stand", "said"), [(46, True), (45, False), (40, False), (30, False)])
    def test_steps(self, audit_of: Make, stand: int, said: bool) -> None:
        audit = audit_of(
            {"pgd-20": [40, 5, 80], "pgd-100": [stand, 5, 80]}, WIDE, infos={"pgd-20": pgd(), "pgd-100": pgd(steps=100)}
        )
        finding = found(audit).get("more_steps_weaker")
        assert (finding is not None) is said
        if finding:
            assert finding.what == (
                "pgd-100 leaves 2.0% more examples robust than pgd-20, which tries less (p = 0.031)."
            )

    def test_restarts_too(self, audit_of: Make) -> None:
        infos = {"pgd-20": pgd(), "pgd-20:restarts=5": pgd(restarts=5)}
        audit = audit_of({"pgd-20": [40, 5, 80], "pgd-20:restarts=5": [60, 5, 80]}, WIDE, infos=infos)
        assert "pgd-20:restarts=5 leaves" in found(audit)["more_steps_weaker"].what

    @pytest.mark.parametrize(
        "other",
        [
            pgd(steps=100, step=0.1),
            pgd(steps=100, restarts=0),
            AttackInfo(settings={**pgd(steps=100).settings, "name": "margin_pgd"}),
        ],
    )
    def test_only_of_attacks_that_differ_in_effort_alone(self, audit_of: Make, other: AttackInfo) -> None:
        audit = audit_of({"pgd-20": [40, 5, 80], "other": [60, 5, 80]}, WIDE, infos={"pgd-20": pgd(), "other": other})
        assert "more_steps_weaker" not in found(audit)

    def test_many_pairs_are_corrected_for(self, audit_of: Make) -> None:
        """Three pairs, two of them with p = 0.031 each: by Holm neither is beyond chance."""
        infos = {f"pgd-{steps}": pgd(steps=steps) for steps in (10, 20, 100)}
        audit = audit_of({"pgd-10": [40, 5, 80], "pgd-20": [40, 5, 80], "pgd-100": [46, 5, 80]}, WIDE, infos=infos)
        assert "more_steps_weaker" not in found(audit)

    @pytest.mark.parametrize(("stand", "said"), [(46, True), (45, False), (30, False)])
    def test_a_larger_radius(self, audit_of: Make, stand: int, said: bool) -> None:
        right = {"pgd@2": [40, 5, 80], "pgd@8": [stand, 5, 80]}
        finding = found(audit_of(right, WIDE, infos=curve(*right))).get("larger_eps_weaker")
        assert (finding is not None) is said
        if finding:
            assert finding.what.startswith("pgd@8 leaves 2.0% more examples robust than pgd@2, in a smaller ball")

    def test_families_are_not_mixed(self, audit_of: Make) -> None:
        right = {"pgd@2": [40, 5, 80], "fgsm@8": [60, 5, 80]}
        assert "larger_eps_weaker" not in found(audit_of(right, WIDE, infos=curve(*right)))


def test_refusals_are_reported(audit_of: Make) -> None:
    stats = {"pgd-20": {"rejected": 3.0, "outside": 2.0}, "fgsm": {"rejected": 0.0, "outside": 0.0}}
    refused = found(audit_of({"pgd-20": [80, 40, 85]}, WIDE, stats=stats))
    assert refused["verification"].what.startswith("3 example(s) that pgd-20 seemed to break")
    assert refused["verification"].severity == "info"
    assert refused["outside_ball"].what.startswith("2 point(s) that pgd-20 proposed lie outside the ball")
    assert refused["outside_ball"].severity == "error"


class TestTraining:
    """A beta is lowered only for a model that was adversarially trained, or that looks like it."""

    def test_a_broken_model_is_to_be_trained_adversarially(self, audit_of: Make) -> None:
        """5% robust among three classes is less than guessing: no beta trained that, however one-to-one the errors."""
        codes = found(audit_of({"pgd-20": [0, 10, 20]}, (200,) * 3))
        assert codes.keys() == {"train_adversarially"}
        assert codes["train_adversarially"].what == (
            "Clean accuracy is 100.0% and robust accuracy 5.0%: the model does not look adversarially trained."
        )
        assert "lower_beta" in found(audit_of({"pgd-20": [100, 120, 180]}, (200,) * 3))

    @pytest.mark.parametrize("right", [[0, 10, 20], [100, 120, 180]])
    def test_no_advice_on_training_from_a_wrongly_normalised_model(self, audit_of: Make, right: list[int]) -> None:
        audit = audit_of({"pgd-20": right}, (200,) * 3)
        wrong = replace(audit, findings=(Finding("normalisation", "error", "Wrong.", "Mend it."),))
        advice = {"train_adversarially", "lower_beta"}
        assert advice & found(audit).keys()
        assert not advice & found(wrong).keys()

    def test_what_the_checkpoint_says_decides(self, audit_of: Make) -> None:
        broken, robust = [0, 10, 20], [100, 120, 180]
        for right, trained, expected in (
            (broken, False, {"train_adversarially"}),
            (broken, True, set()),
            (robust, False, set()),
            (robust, True, {"lower_beta"}),
        ):
            codes = found(audit_of({"pgd-20": right}, (200,) * 3, adversarially_trained=trained))
            assert codes.keys() & {"train_adversarially", "lower_beta"} == expected
        standard = found(audit_of({"pgd-20": broken}, (200,) * 3, adversarially_trained=False))
        assert "was trained without adversarial examples" in standard["train_adversarially"].what

    def test_a_small_share_of_the_clean_accuracy_is_not_robust(self, audit_of: Make) -> None:
        """20% is twice what guessing among ten classes gives, but a fifth of the clean accuracy."""
        codes = found(audit_of({"pgd-20": [10, *[21] * 9]}, (100,) * 10))
        assert codes.keys() & {"train_adversarially", "lower_beta"} == {"train_adversarially"}

    def test_a_model_that_guesses_has_another_problem(self, audit_of: Make) -> None:
        codes = found(audit_of({"clean": [35] * 3, "pgd-20": [0, 10, 20]}, WIDE))
        assert "near_chance" in codes
        assert "train_adversarially" not in codes


def test_rules_are_applied_once_and_the_model_s_findings_kept(audit_of: Make) -> None:
    of_model = Finding("train_mode", "warning", "The model was in train mode.", "Call model.eval().")
    audit = audit_of({"pgd-20": [50, 60, 90], "temperature_pgd-20": [20, 30, 90]}, WIDE, findings=(of_model,))
    once = findings.of_audit(audit)
    assert once[0] == of_model
    assert {finding.code for finding in once} == {
        "train_mode", "temperature_beats_pgd", "lower_beta", "worst_undecided",
    }  # fmt: skip
    assert findings.of_audit(replace(audit, findings=once)) == once
    assert [*by_heading(once)] == ["Warnings", "Recommendations"]


def test_every_section_exists(audit_of: Make) -> None:
    audit = audit_of({"pgd-20": [50, 60, 90]}, WIDE)
    sections = [rule.section for rule in findings.RULES if rule.section]
    sections += [finding.section for finding in findings.of_comparison(compare({"a": audit, "b": audit}))]
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
    headings = {re.sub(r"\W+", "-", title.lower()) for title in re.findall(r"^## (.+)$", page, flags=re.MULTILINE)}
    assert len(set(sections)) == 4
    for path, _, anchor in (section.partition("#") for section in sections):
        assert path == "docs/compare.md"
        assert anchor in headings


def test_findings_of_older_summaries_are_read() -> None:
    older = {"code": "near_chance", "level": "serious", "what": "Guessing.", "remedy": "Check the weights."}
    assert Finding.from_dict(older) == Finding("near_chance", "error", "Guessing.", "Check the weights.")
    newer = Finding("few_images", "warning", "Few.", "More.", numbers={"classes": ["cat"]}, section="docs/x.md")
    assert Finding.from_dict(newer.to_dict()) == newer
    for damage in ({"level": "dire"}, {"what": 2}, {"remedy": None}, {"level": None}):
        with pytest.raises(ValueError, match="not made of text, or has no known severity"):
            Finding.from_dict({**older, **damage})
