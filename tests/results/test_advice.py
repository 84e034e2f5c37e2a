"""Advice: given where the numbers support it, with those numbers, and not otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import power_proportions_2indep, samplesize_proportions_2indep_onetail

from classwise.core.errors import UserError
from classwise.core.records import AttackInfo, Meta, Records
from classwise.results import advice
from classwise.results.audit_result import Audit
from classwise.results.compare import compare
from classwise.stats import intervals

Make = Callable[..., Audit]
#: Class 3 (cat) of Tian et al., KDD 2021, Table 4, line 4; the other rows say only what the rule needs.
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CAT = [34, 16, 82, 262, 113, 254, 139, 53, 14, 33]


def kdd(cat: list[int] = CAT, dog: int = 430) -> np.ndarray:
    counts = np.full((10, 10), 45)
    np.fill_diagonal(counts, 595)
    counts[3] = cat
    counts[5] = (1000 - dog) // 9
    counts[5, 5] = 1000 - (1000 - dog) // 9 * 9
    return counts


def records_of(counts: np.ndarray, names: tuple[str, ...] = NAMES) -> Records:
    label, prediction = np.indices(counts.shape).reshape(2, -1).repeat(counts.reshape(-1), axis=1)
    frame = pd.DataFrame({"index": np.arange(len(label)), "label": label, "attack": "pgd-20", "prediction": prediction})
    others = dict.fromkeys(("eps", "confidence", "true_prob", "loss", "distance", "minimal", "step", "queries"), 0)
    return Records(frame.assign(**others), Meta(names, attacks={"pgd-20": AttackInfo({"name": "pgd"})}))


class TestBeta:
    def test_the_papers_example(self) -> None:
        """Cat breaks into dog 254 times and into frog, the next, 139 times: lower dog's beta."""
        (found,) = advice.lower_beta(records_of(kdd()))
        assert found.what == (
            "cat (26.2%) and dog (43.3%) are one to one: 254 of the 1,000 images of cat become dog, 139 become frog, "
            "the next (p < 0.001)."
        )
        assert found.remedy == (
            "To help cat, train TRADES with a lower beta for dog: beta = {dog = 0.5}. It can win at most 25.4 points, "
            "and dog pays."
        )
        assert found.numbers["p"] == pytest.approx(8 * stats.binomtest(254, 393).pvalue)
        assert (found.numbers["help"], found.numbers["lower"], found.numbers["next"]) == ("cat", "dog", "frog")

    def test_none_where_two_classes_take_as_much(self) -> None:
        assert not [*advice.lower_beta(records_of(kdd([34, 16, 82, 262, 113, 200, 193, 53, 14, 33])))]

    def test_none_where_the_other_would_have_to_pay_what_it_has_not(self) -> None:
        assert not [*advice.lower_beta(records_of(kdd(dog=200)))]

    def test_none_where_another_class_breaks_into_it_more(self) -> None:
        counts = kdd()
        counts[7, 5], counts[7, 7] = 300, 340
        (found,) = advice.lower_beta(records_of(counts))
        assert found.numbers["help"] == "horse"

    def test_none_for_a_class_above_the_average(self) -> None:
        counts = kdd()
        counts[3, 3] += 5000
        assert not [found for found in advice.lower_beta(records_of(counts)) if found.numbers["help"] == "cat"]

    def test_the_homing_matrix_decides_where_it_is_known(self) -> None:
        """All flips to dog would only go elsewhere; those to frog come home."""
        homing = np.zeros((10, 10), dtype=int)
        homing[3, 5], homing[3, 6] = 20, 100
        (found,) = advice.lower_beta(records_of(kdd()), homing=homing)
        assert (found.numbers["lower"], found.numbers["flips"]) == ("frog", 100)
        assert "become frog and would be right without it" in found.what
        with pytest.raises(UserError, match=r"shape \(2, 2\), expected \(10, 10\)"):
            next(advice.lower_beta(records_of(kdd()), homing=np.eye(2)))

    def test_two_classes_have_no_third_to_differ_from(self) -> None:
        assert not [*advice.lower_beta(records_of(np.array([[10, 90], [20, 80]]), ("cat", "dog")))]

    def test_a_name_that_toml_must_quote(self) -> None:
        names = tuple(name.replace("dog", 'big "dog"') for name in NAMES)
        (found,) = advice.lower_beta(records_of(kdd(), names))
        assert r'beta = {"big \"dog\"" = 0.5}' in found.remedy


class TestHiddenGradients:
    INFOS = {  # noqa: RUF012
        "pgd-20": AttackInfo({"name": "pgd"}),
        "temperature_pgd-20": AttackInfo({"name": "temperature_pgd"}),
    }

    def audit(self, audit_of: Make, plain: list[int], sharp: list[int], **infos: AttackInfo) -> Audit:
        rights = {"pgd-20": plain, "temperature_pgd-20": sharp}
        return audit_of(rights, (200, 200), ("cat", "dog"), {**self.INFOS, **infos})

    def test_hidden(self, audit_of: Make) -> None:
        (found,) = advice.hidden_gradients(self.audit(audit_of, [100, 100], [60, 98]).records)
        assert (found.code, found.level) == ("hidden_gradients", "warning")
        assert found.what == ("temperature_pgd-20 leaves 39.5% robust, pgd-20 50.0% (p < 0.001); most in cat −20.0.")
        assert found.numbers["gain"] == pytest.approx(0.105)
        assert found.numbers["p"] == pytest.approx(2 * 0.5**42)
        assert found.numbers["classes"] == {"cat": pytest.approx(0.2)}

    @pytest.mark.parametrize("sharp", [[98, 99], [100, 100], [150, 150]])
    def test_open(self, audit_of: Make, sharp: list[int]) -> None:
        (found,) = advice.hidden_gradients(self.audit(audit_of, [100, 100], sharp).records)
        assert (found.code, found.level) == ("open_gradients", "note")

    def test_silent_without_both_attacks_on_every_example(self, audit_of: Make) -> None:
        assert not [*advice.hidden_gradients(audit_of({"pgd-20": [9, 9]}, (20, 20)).records)]
        standing = {"temperature_pgd-20": AttackInfo({"name": "temperature_pgd"}, coverage="standing")}
        assert not [*advice.hidden_gradients(self.audit(audit_of, [100, 100], [60, 98], **standing).records)]

    def test_only_the_same_radius_is_compared(self, audit_of: Make) -> None:
        larger = {"temperature_pgd-20": AttackInfo({"name": "temperature_pgd"}, eps=16 / 255)}
        assert not [*advice.hidden_gradients(self.audit(audit_of, [100, 100], [60, 98], **larger).records)]


class TestImages:
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
        rows = audit_of({"pgd-20": [50, 48, 90]}, (100, 80, 100), ("cat", "dog", "ship")).rows()
        (found,) = advice.more_images(rows)
        need = intervals.images_needed(0.5, 0.6)
        assert need == 388
        assert found.numbers["more"] == {"cat": 288, "dog": 308}
        assert found.what == (
            "The two classes of lowest accuracy, cat (50.0%) and dog (60.0%), are not told apart by 100 and 80 images."
        )
        assert found.remedy == (
            "About 388 images of each would do it in 80% of cases, if the difference is what it seems: "
            "288 more of cat and 308 more of dog."
        )

    def test_equal_classes(self, audit_of: Make) -> None:
        (found,) = advice.more_images(audit_of({"pgd-20": [5, 5, 90]}, (100,) * 3, ("cat", "dog", "ship")).rows())
        assert found.what == "2 classes tie for the worst with 5.0% (cat, dog)."
        assert found.numbers["needed"] is None

    def test_the_level_follows_the_number_of_classes(self, audit_of: Make) -> None:
        """Each class is tested against 9 others at 0.05/9 one-sided, which takes more images than against 2."""
        rows = audit_of({"pgd-20": [50, 60, *[90] * 8]}, (100,) * 10).rows()
        (found,) = advice.more_images(rows)
        assert found.numbers["needed"] == intervals.images_needed(0.5, 0.6, 1 - 2 * 0.05 / 9) > 388

    def test_none_where_they_are_told_apart(self, audit_of: Make) -> None:
        assert not [*advice.more_images(audit_of({"pgd-20": [10, 60, 90]}, (100,) * 3).rows())]
        assert not [*advice.more_images(audit_of({"pgd-20": [10]}, (100,)).rows())]


class TestChance:
    def test_paired(self, audit_of: Make) -> None:
        first, second, third = (audit_of({"pgd-20": right}, (100, 100)) for right in ([50, 50], [60, 60], [51, 50]))
        better, same = advice.of_comparison(compare({"a": first, "b": second, "c": third}))
        assert better.code == "beyond_chance"
        assert better.what.startswith("b is 10.0 points above a over all images (95% interval +")
        assert better.what.endswith("exact McNemar test of the same images, p < 0.001).")
        assert better.numbers["p_holm"] == pytest.approx(2 * 2 * 0.5**20)
        assert same.code == "within_chance"
        assert "p = 1.000" in same.what
        assert "Call them equal" in same.remedy

    def test_unpaired_says_so(self, audit_of: Make) -> None:
        runs = {"a": audit_of({"pgd-20": [50, 50]}, (100, 100)), "b": audit_of({"pgd-20": [40, 40]}, (99, 101))}
        (found,) = advice.of_comparison(compare(runs))
        assert found.what.startswith("b is 10.0 points under a")
        assert "Fisher's exact test of different images" in found.what
        assert found.numbers["paired"] is False


def test_an_undefended_model_is_not_told_to_lower_a_beta(audit_of: Make) -> None:
    """5% robust among three classes is less than guessing: no beta trained that, however one-to-one the errors are."""
    audit = audit_of({"pgd-20": [0, 10, 20]}, (200,) * 3)
    assert [found.code for found in advice.of_audit(audit)] == []
    robust = audit_of({"pgd-20": [100, 120, 180]}, (200,) * 3)
    assert next(found.code for found in advice.of_audit(robust)) == "lower_beta"


def test_an_audit_gathers_what_applies(audit_of: Make) -> None:
    audit = audit_of({"pgd-20": [50, 60, 90], "temperature_pgd-20": [20, 30, 90]}, (100,) * 3)
    codes = [found.code for found in advice.of_audit(audit)]
    assert list(dict.fromkeys(codes)) == ["lower_beta", "hidden_gradients", "more_images"]
    clean = audit_of({"clean": [50, 60, 90]}, (100,) * 3)
    assert [found.code for found in advice.of_audit(clean)] == ["more_images"]


def test_every_section_exists(audit_of: Make) -> None:
    audit = audit_of({"pgd-20": [50, 60, 90], "temperature_pgd-20": [20, 30, 90]}, (100,) * 3)
    found = [*advice.of_audit(audit), *advice.of_comparison(compare({"a": audit, "b": audit}))]
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
    headings = {re.sub(r"\W+", "-", title.lower()) for title in re.findall(r"^## (.+)$", page, flags=re.MULTILINE)}
    assert len({item.section for item in found}) == 4
    for item in found:
        path, _, anchor = item.section.partition("#")
        assert path == "docs/compare.md"
        assert anchor in headings
