"""The papers' claims about Temperature-PGD, and their tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from classwise.metrics import accuracy, cvc
from classwise.stats.correlation import rank_test
from classwise.studies.runner.result import Claim
from classwise.studies.shared.temperature_sweep import VARIANTS, Sweep, gap
from classwise.studies.shared.together import HALVES, PAIRED, RANKS, halves, smallest
from classwise.studies.shared.verdicts import (
    Ruling,
    agree,
    all_held,
    classes,
    either,
    exceeds,
    falls_short,
    images,
    tails,
    undecided,
)

_LITTLE = 2.0  # points of accuracy that count as no change


def breaks_more(best: pd.DataFrame) -> Iterator[Claim]:
    for row in best.to_dict("records"):
        low, high = row["change_low"], row["change_high"]
        numbers = f"{row['change']:+.1f} points ({low:.1f} to {high:.1f}) at 1/T = {row['inv_temperature']:g}"
        text = f"Temperature-PGD ({row['variant']}) breaks more images of {row['model']} than PGD."
        test, sample = f"{PAIRED}, Bonferroni over the grid", images(row["images"], "images")
        yield Claim("tian2021:table3", text, falls_short(low, high, test=test, sample=sample), numbers)


def spreads(best: pd.DataFrame) -> Claim:
    own = best[best["variant"] == "float32"]
    numbers = "; ".join(
        f"{row['model']}: CV {row['cv_change']:+.1f} ({row['cv_change_low']:.1f} to {row['cv_change_high']:.1f}), "
        f"MCD {row['mcd_change']:+.1f} ({row['mcd_change_low']:.1f} to {row['mcd_change_high']:.1f})"
        for row in own.to_dict("records")
    )
    test, measured = f"{HALVES}, Bonferroni over the grid", own[["cv_change_low", "cv_change_high", "smallest"]]
    rulings = [exceeds(low, high, test=test, sample=images(n)) for low, high, n in measured.itertuples(index=False)]
    ruling = all_held(*rulings)
    return Claim("tian2021:table3", "At the best 1/T classes differ more than under PGD: CV grows.", ruling, numbers)


def rise(sweeps: Mapping[str, Sweep], sweep: pd.DataFrame) -> Claim:
    """Are models that look more robust at the largest 1/T also more robust in exact arithmetic?"""
    numbers: list[str] = []
    rulings: list[Ruling] = []
    for name, own in sweeps.items():
        t = own.grid[-1]
        plain, sound = (gap(own.pgd, own.rows[t, kind]) for kind in VARIANTS.values())
        sample = images(len(own.pgd), "images")
        if not exceeds(*plain[1:], test=PAIRED, sample=sample).held:
            continue
        row = sweep[(sweep["model"] == name) & (sweep["inv_temperature"] == t)].iloc[0]
        both = [f"{change:+.1f} ({low:.1f} to {high:.1f})" for change, low, high in (plain, sound)]
        numbers.append(f"{name}: {both[0]} in float32, {both[1]} sound; {row['no_gradient']:.0f}% without gradient")
        rounding = row["float32_minus_sound_low"], row["float32_minus_sound_high"]
        little = falls_short(*sound[1:], _LITTLE, test=f"{PAIRED}, margin {_LITTLE:g} points", sample=sample)
        only_rounding = all_held(exceeds(*rounding, test=PAIRED, sample=sample), little)
        rulings.append(either(exceeds(*sound[1:], test=PAIRED, sample=sample), only_rounding))
    text = "A steep model is more robust at large 1/T than under PGD, and not only by rounding."
    none = "no model looks more robust at the largest 1/T"
    ruling = agree(*rulings) if rulings else undecided(none)
    return Claim("tian2020:table6", text, ruling, "; ".join(numbers) or none)


def flat_classes(sweeps: Mapping[str, Sweep]) -> Claim:
    """CVC on one half of the images against robustness on the other, so that no image counts for both."""
    found, rulings = {}, []
    for name, own in sweeps.items():
        first, second = halves([own.clean, own.pgd])
        found[name] = rank_test(cvc.compute(first[0]).values, accuracy.compute(second[1]).values)
        sample = (images(smallest(own.pgd)), classes(found[name].n))
        rulings.append(tails(found[name].p_greater, found[name].p_less, test=RANKS, sample=sample))
    numbers = "; ".join(f"{name}: {each}" for name, each in found.items())
    text = "The outputs for vulnerable classes are flatter: CVC grows with robustness."
    return Claim("tian2021:figure3a", text, all_held(*rulings), numbers)


def flat_models(flat: pd.DataFrame, best: pd.DataFrame) -> Claim:
    own = best[best["variant"] == "sound"].set_index("model")["change"]
    mean = flat.groupby("model")["cvc"].mean().loc[own.index]
    found = rank_test(mean.to_numpy(), own.to_numpy())
    ruling = tails(found.p_greater, found.p_less, test=RANKS, sample=classes(found.n, "models"))
    pairs = "; ".join(f"{name}: CVC {mean[name]:.4f}, {own[name]:+.1f} points" for name in own.index)
    text = "The flatter a model's outputs, the more Temperature-PGD gains on it."
    return Claim("tian2021:table3", text, ruling, f"{found}; {pairs}")
