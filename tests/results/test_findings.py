"""Findings the rows themselves show, on records made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from classwise.core.records import AttackInfo
from classwise.results.audit_result import Audit
from classwise.results.findings import Finding, from_records

Make = Callable[..., Audit]
WIDE = (100, 100, 100)


def found(audit: Audit, confidence: float = 0.95) -> dict[str, Finding]:
    return {finding.code: finding for finding in from_records(audit.records, confidence)}


def test_a_sound_audit_has_none(audit_of: Make) -> None:
    assert found(audit_of({"pgd-20": [80, 40, 85]}, WIDE)) == {}


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


class TestUndecided:
    def test_says_how_many_images_it_would_take(self, audit_of: Make) -> None:
        """0.50 and 0.60 with a power of 80%: n = (1.96 √(2·0.55·0.45) + 0.84 √(0.25 + 0.24))²/0.1² = 387.3."""
        audit = audit_of({"pgd-20": [50, 60, 90]}, WIDE, ("cat", "dog", "ship"))
        finding = found(audit)["worst_undecided"]
        assert finding.what.startswith("Under pgd-20, cat (50.0%) and dog (60.0%) cannot be told apart")
        assert "about 388 images per class" in finding.remedy

    def test_depends_on_the_confidence(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [50, 60, 90]}, WIDE)
        assert "worst_undecided" not in found(audit, 0.7)
        assert "at 99% confidence" in found(audit, 0.99)["worst_undecided"].what

    def test_a_tie_needs_no_number(self, audit_of: Make) -> None:
        """Nobody can separate a difference of 0, so nothing is said of separating it."""
        finding = found(audit_of({"pgd-20": [50, 50, 90]}, WIDE, ("cat", "dog", "ship")))["worst_undecided"]
        assert finding.what == "Under pgd-20, 2 of 3 classes tie for the worst with 50.0% (cat, dog)."
        assert finding.remedy.startswith("Report them together")

    def test_never_asks_for_fewer_images_than_there_are(self, audit_of: Make) -> None:
        """0 of 1 against 1 of 1: the normal approximation would be content with none."""
        finding = found(audit_of({"pgd-20": [0, 1]}, (1, 1)))["worst_undecided"]
        assert "about 2 images per class" in finding.remedy

    def test_is_not_asked_of_clean_nor_of_a_single_class(self, audit_of: Make) -> None:
        assert found(audit_of({}, WIDE)) == {}
        assert found(audit_of({"pgd-20": [50, 0]}, (100, 0))).keys() == {"absent_class"}


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

    @pytest.mark.parametrize(("broken", "level"), [(60, "serious"), (6, "warning"), (5, None)])
    def test_temperature(self, audit_of: Make, broken: int, level: str | None) -> None:
        """k broken by the temperature alone, none by plain PGD alone: p = 2 · 2⁻ᵏ, below 0.05 from k = 6."""
        hot = AttackInfo({"name": "temperature_pgd", "inv_temperature": 5.0})
        attacks = {"pgd-20": (120, 10, 160), "temperature_pgd-20": (120 - broken, 10, 160)}
        audit = audit_of(attacks, (200, 200, 200), infos={"temperature_pgd-20": hot})
        finding = found(audit).get("temperature_beats_pgd")
        assert (finding and finding.level) == level
        if finding:
            assert finding.what.startswith(f"temperature_pgd-20 (1/T = 5) breaks {broken / 600:.1%} more of the")

    def test_attacks_on_what_still_stood_are_not_compared(self, audit_of: Make) -> None:
        standing = {name: AttackInfo({"name": name.partition("-")[0]}, coverage="standing") for name in ("pgd-20",)}
        audit = audit_of({"noise-10": [50, 5, 60], "pgd-20": [60, 5, 80]}, WIDE, infos=standing)
        assert found(audit) == {}

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
        name: AttackInfo({"name": family}, "final", "all", float(eps), family) for name, (family, eps) in split.items()
    }


def pgd(**settings: float) -> AttackInfo:
    return AttackInfo({"name": "pgd", "steps": 20, "step": None, "restarts": 1, **settings})


class TestMoreIsNotWeaker:
    """k examples that only the stronger attack leaves standing: p = 2 · 2⁻ᵏ, below 0.05 from k = 6."""

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
            AttackInfo({**pgd(steps=100).settings, "name": "margin_pgd"}),
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
    findings = found(audit_of({"pgd-20": [80, 40, 85]}, WIDE, stats=stats))
    assert findings["verification"].what.startswith("3 example(s) that pgd-20 seemed to break")
    assert findings["verification"].level == "note"
    assert findings["outside_ball"].what.startswith("2 point(s) that pgd-20 proposed lie outside the ball")
    assert findings["outside_ball"].level == "serious"
