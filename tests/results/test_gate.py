"""Requirements: how they are written, and what they are asked of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from classwise.core.errors import UserError
from classwise.results import gate
from classwise.results.audit_result import Audit

Make = Callable[..., Audit]
NAMES = ("cat", "dog", "St. Bernard", "a>b")


@pytest.fixture
def audit(audit_of: Make) -> Audit:
    """Under pgd-20: 20%, 50%, 90%, 80% of 100, 100, 100 and 50 examples; overall 200/350, class mean 60%."""
    right = {"clean": [70, 80, 100, 45], "pgd-20": [20, 50, 90, 40]}
    return audit_of(right, (100, 100, 100, 50), NAMES)


class TestParse:
    @pytest.mark.parametrize(
        ("text", "parsed"),
        [
            ("worst>=0.25", ("worst", ">=", 0.25)),
            ("  worst  >=  25% ", ("worst", ">=", 0.25)),
            ("gap<2/5", ("gap", "<", 0.4)),
            ("clean.accuracy > 1e-1", ("clean.accuracy", ">", 0.1)),
            ("class[a>b]<=0.5", ("class[a>b]", "<=", 0.5)),
            ("pgd:step=0.003.class[St. Bernard]>=10%", ("pgd:step=0.003.class[St. Bernard]", ">=", 0.1)),
        ],
    )
    def test_reads(self, text: str, parsed: tuple[str, str, float]) -> None:
        assert gate.parse(text) == parsed

    @pytest.mark.parametrize("text", ["worst", "worst=0.25", ">=0.25", "worst>=", "worst>=much", ""])
    def test_nonsense(self, text: str) -> None:
        with pytest.raises(UserError, match=r"cannot read the requirement .*write it as worst>=0\.25"):
            gate.parse(text)

    @pytest.mark.parametrize("text", ["wrost>=0.25", "pgd-20.wrost>=0.25"])
    def test_an_unknown_quantity_before_the_audit(self, text: str) -> None:
        with pytest.raises(UserError, match="unknown quantity 'wrost'; did you mean 'worst'"):
            gate.parse(text)

    @pytest.mark.parametrize("text", ["worst>=8/0", "worst>=1.2.3"])
    def test_a_bad_number(self, text: str) -> None:
        with pytest.raises(UserError, match="expected a number such as 8/255"):
            gate.parse(text)


class TestCheck:
    @pytest.mark.parametrize(
        ("quantity", "value"),
        [
            ("accuracy", 200 / 350),
            ("average", 0.6),
            ("worst", 0.2),
            ("gap", 0.7),
            ("mcd", 0.7),
            ("tail20", 0.2),
            ("cv", 100**2 * (0.4**2 + 0.1**2 + 0.3**2 + 0.2**2) / 4),
            ("class[dog]", 0.5),
            ("class[St. Bernard]", 0.9),
            ("class[a>b]", 0.8),
            ("clean.worst", 0.7),
            ("clean.class[St. Bernard]", 1.0),
            ("worst_case.worst", 0.2),
        ],
    )
    def test_values(self, audit: Audit, quantity: str, value: float) -> None:
        below, above = gate.check(audit, [f"{quantity}>={value * 0.999}", f"{quantity}>{value * 1.001}"])
        assert below.value == pytest.approx(value)
        assert (below.passed, above.passed) == (True, False)

    @pytest.mark.parametrize(
        ("text", "passed"), [("worst>=0.2", True), ("worst>0.2", False), ("worst<=0.2", True), ("worst<0.2", False)]
    )
    def test_strict_and_not(self, audit: Audit, text: str, passed: bool) -> None:
        assert gate.check(audit, [text])[0].passed is passed

    def test_the_sentence_says_what_was_found(self, audit: Audit) -> None:
        outcomes = gate.check(audit, ["worst>=0.25", "class[cat]<=20%"])
        assert outcomes[0].sentence == "worst>=0.25: FAILED (worst under pgd-20 is 20.0%)"
        assert outcomes[1].sentence == "class[cat]<=20%: holds (class[cat] under pgd-20 is 20.0%)"

    def test_the_sentence_never_shows_the_bound_itself_for_a_number_that_misses_it(self, audit_of: Make) -> None:
        """2,499 of 10,000 is 25.0%, which would not fail worst>=0.25."""
        audit = audit_of({"pgd-20": [2_499, 9_000]}, (10_000, 10_000))
        assert gate.check(audit, ["worst>=0.25"])[0].sentence.endswith("(worst under pgd-20 is 24.99%)")
        assert gate.check(audit, ["worst>=0.2499"])[0].sentence.endswith("holds (worst under pgd-20 is 25.0%)")
        assert gate.check(audit, ["cv<=1e9"])[0].sentence.endswith("(cv under pgd-20 is 1056.6)")
        assert gate.check(audit, ["gini<=0.9"])[0].sentence.endswith("(gini under pgd-20 is 0.283)")

    def test_an_attack_whose_name_holds_dots(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20:step=0.003": [1, 2], "fgsm": [3, 4]}, (5, 5), ("a.b", "worst"))
        requirements = ["pgd-20:step=0.003.worst>=0.2", "pgd-20:step=0.003.class[a.b]<=0.2", "class[worst]<=0.4"]
        assert [outcome.passed for outcome in gate.check(audit, requirements)] == [True, True, True]

    def test_unknown_names(self, audit: Audit) -> None:
        with pytest.raises(UserError, match="unknown attack in this audit 'pgd-2'; did you mean 'pgd-20'"):
            gate.check(audit, ["pgd-2.worst>=0.1"])
        with pytest.raises(UserError, match="unknown class 'cta'; did you mean 'cat'"):
            gate.check(audit, ["class[cta]>=0.1"])

    def test_a_class_without_examples(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [1, 0]}, (5, 0), ("cat", "dog"))
        with pytest.raises(UserError, match="class 'dog' has no example in this audit"):
            gate.check(audit, ["class[dog]>=0.1"])
        assert [outcome.passed for outcome in gate.check(audit, ["gap<=0", "cv<=0", "tail20>=0.2"])] == [True] * 3


class TestConfident:
    def test_asks_the_unfavourable_bound(self, audit: Audit) -> None:
        """20 of 100: Wilson's 95% CI is [0.1334, 0.2888], Clopper and Pearson's lower bound 0.1267."""
        cat = gate.check(audit, ["class[cat]>=0.15", "class[cat]>=0.13", "class[cat]<=0.25", "class[cat]<=0.29"], True)
        assert [outcome.passed for outcome in cat] == [False, True, False, True]
        assert cat[0].value == pytest.approx(0.1334, abs=1e-4)
        assert cat[0].sentence.endswith("(class[cat] under pgd-20 is 20.0%, lower bound 13.3%)")
        assert cat[2].value == pytest.approx(0.2888, abs=1e-4)
        assert gate.check(audit, ["worst>=0.2"], True)[0].value == pytest.approx(0.1267, abs=1e-4)

    def test_a_gap_lies_between_bounds_that_hold_together(self, audit: Audit) -> None:
        upper, lower = gate.check(audit, ["gap<=0.7", "gap>=0.7"], True)
        assert 0.4 < lower.value < 0.7 < upper.value < 0.9
        assert not upper.passed
        assert not lower.passed

    def test_equal_classes_may_have_no_gap(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [50, 52]}, (100, 100))
        assert gate.check(audit, ["gap>=0"], True)[0].value == 0

    def test_what_has_no_interval_is_asked_itself(self, audit: Audit) -> None:
        assert gate.check(audit, ["average>=0.6"], True)[0].value == pytest.approx(0.6)


class TestGroups:
    def test_a_metric_over_the_classes_of_a_group(self, audit: Audit) -> None:
        """dog and St. Bernard: 50% and 90% of 100 each."""
        groups = {"dogs": ("dog", "St. Bernard"), "n/a": ("cat",)}
        texts = ["group[dogs].worst>=0.5", "group[dogs].average>=0.71", "clean.group[dogs].gap<=0.2"]
        texts += ["group[n/a].worst<0.3"]
        found = gate.check(audit, texts, groups=groups)
        assert [one.value for one in found] == pytest.approx([0.5, 0.7, 0.2, 0.2])
        assert [one.passed for one in found] == [True, False, True, True]
        assert found[1].sentence == f"{texts[1]}: FAILED (group[dogs].average under pgd-20 is 70.0%)"

    def test_the_interval_of_its_worst_class_is_of_that_many_classes(self, audit: Audit) -> None:
        """Of one class the exact interval itself: 20 of 100 are 12.7% to 29.2%."""
        low, high = gate.check(audit, ["group[one].worst>=0.1", "group[one].worst<=0.9"], True, {"one": ["cat"]})
        assert (low.value, high.value) == pytest.approx((0.1267, 0.2918), abs=1e-4)
        assert low.interval == "12.7%–29.2%"

    def test_superclasses_of_the_data_are_groups(self, audit: Audit) -> None:
        meta = dataclasses.replace(audit.records.meta, superclasses={"pets": ("cat", "dog"), "rest": NAMES[2:]})
        audit = dataclasses.replace(audit, records=dataclasses.replace(audit.records, meta=meta))
        assert gate.check(audit, ["group[pets].accuracy>=0.35"])[0].value == pytest.approx(0.35)

    def test_mistakes(self, audit: Audit) -> None:
        with pytest.raises(UserError, match="unknown group of classes 'dgs'; did you mean 'dogs'"):
            gate.check(audit, ["group[dgs].worst>=0.5"], groups={"dogs": ("dog",)})
        with pytest.raises(UserError, match="unknown class 'hound'"):
            gate.check(audit, ["group[dogs].worst>=0.5"], groups={"dogs": ("hound",)})
        with pytest.raises(UserError, match="unknown quantity"):
            gate.parse("group[dogs]>=0.5")
