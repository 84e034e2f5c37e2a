"""Rules about the images of an audit: clean accuracy, how many there are of each class, and how many it would take."""

from __future__ import annotations

from classwise.core.format import level, listed, percent
from classwise.core.records import CLEAN, Records
from classwise.metrics import accuracy, confound, overall, worst
from classwise.results.audit_result import Audit
from classwise.results.finding import Found
from classwise.stats.intervals import POWER

_MOST = 5  # classes named
_FEW = 30  # below this many examples a class's 95% interval is wider than about ±18 points


def is_near_chance(records: Records, confidence: float) -> bool:
    """Whether the odds of a correct prediction may be no more than half again those of guessing."""
    chance = 1 / records.num_classes
    return overall.compute(records, confidence=confidence).low <= 1.5 * chance / (1 + 0.5 * chance)


def near_chance(audit: Audit) -> Found:
    """The model predicts clean images about as well as guessing would."""
    clean, chance = audit.rows(CLEAN), 1 / audit.records.num_classes
    if is_near_chance(clean, audit.confidence):
        value = overall.compute(clean).value
        what = (
            f"Clean accuracy is {percent(value)}; guessing among {clean.num_classes} classes gives {percent(chance)}."
        )
        remedy = "Check the weights, the order of the classes and the normalisation before reading anything else here."
        yield what, remedy, {"accuracy": value, "chance": chance}


def wrong_without_attack(audit: Audit) -> Found:
    """Classes most of whose clean images are misclassified beyond chance: what an attack does to them says little.

    The upper bound of the clean accuracy, simultaneous over the classes, is below one half.
    """
    clean = audit.rows(CLEAN)
    if is_near_chance(clean, audit.confidence):
        return
    table = accuracy.compute(clean, confidence=audit.confidence, simultaneous=True).to_frame()
    wrong = table[(table["n"] > 0) & (table["high"] < 0.5)].sort_values("value", kind="stable")
    if wrong.empty:
        return
    others = confound.compute(clean)
    numbers = {str(row["class"]): float(row["value"]) for _, row in wrong.iterrows()}
    texts = [f"{name} {percent(value)}" for name, value in numbers.items()]
    which, are = ("class", "is") if len(numbers) == 1 else ("classes", "are")
    first = next(iter(numbers))
    other = others.names[clean.class_names.index(first)]
    mistaken = f"; {first} is most often misclassified as {other}" if other else ""
    yield (
        f"{len(numbers)} {which} of {audit.records.num_classes} {are} mostly wrong without any attack "
        f"({listed(texts, _MOST)} correct){mistaken}.",
        "The attack is not the reason: check the labels, the order of the classes, and on how many images of such a "
        "class the model was trained, before reading its robust accuracy.",
        {"classes": numbers},
    )


def few_images(audit: Audit) -> Found:
    """Classes whose intervals are wide."""
    few = _classes_with(audit, range(1, _FEW))
    if few:
        what = f"{len(few)} of {audit.records.num_classes} classes have fewer than {_FEW} images ({listed(few)})."
        yield what, "Their intervals are wide: use more images per class before comparing them.", {"classes": few}


def absent_class(audit: Audit) -> Found:
    """Classes of which nothing is known."""
    absent = _classes_with(audit, range(1))
    if absent:
        what = f"{len(absent)} of {audit.records.num_classes} classes have no images ({listed(absent)})."
        yield what, "They are left out of worst, average, CV and MCD; nothing is known of them.", {"classes": absent}


def _classes_with(audit: Audit, images: range) -> list[str]:
    _, support = accuracy.counts(audit.rows(CLEAN))
    return [name for name, n in zip(audit.records.class_names, support, strict=True) if n in images]


def worst_undecided(audit: Audit, power: float = POWER) -> Found:
    """Where the headline's verdict leaves the worst class open: which classes tie, or how many images would decide.

    The verdict and the number of images rest on the same test, see `metrics.worst`.
    """
    found = audit.verdict()
    if found.status not in ("tied", "undecided"):
        return
    lowest = worst.separation(audit.rows(), audit.confidence, power)
    (first, a, n), (second, b, m), need = lowest.first, lowest.second, lowest.needed
    more = {name: None if need is None else max(0, need - have) for name, _, have in (lowest.first, lowest.second)}
    if found.status == "tied":
        what = (
            f"{found.where}, {len(found.worst)} of {found.classes} classes tie for the worst with "
            f"{percent(found.accuracy)} ({listed(found.worst)})."
        )
        remedy = "Report them together: no number of images is known to separate classes of the same accuracy."
    else:
        what = (
            f"{found.where}, {n:,} and {m:,} images do not tell {first} ({percent(a)}) and {second} ({percent(b)}) "
            f"apart as the worst class at {level(audit.confidence)} confidence."
        )
        wanted = " and ".join(f"{count:,} more of {name}" for name, count in more.items() if count)
        remedy = "Report both: no realistic number of images would separate them."
        if need is not None:
            remedy = (
                f"Report both, or use more images: about {need:,} of each class would separate them with "
                f"{percent(power, 0)} power if the difference is real ({wanted})."
            )
    numbers = {"first": first, "second": second, "tied": list(found.worst), "needed": need, "more": more}
    yield what, remedy, {**numbers, "power": power, "confidence": audit.confidence}
