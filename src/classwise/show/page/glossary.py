"""What every number of a page means, in the page itself: a term is listed where the page shows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

#: What a page may hold.
Part = Literal["audit", "comparison", "curve", "training", "seeds", "images", "gate", "board", "study"]


@dataclass(frozen=True)
class Term:
    """A term by its anchor, what it means, and the parts of a page that show it."""

    key: str
    name: str
    text: str
    parts: tuple[Part, ...] = ("audit",)


_EVERYWHERE: tuple[Part, ...] = ("audit", "training", "board", "study")

TERMS = (
    Term(
        "claim",
        "claim; held, did not hold, does not apply, not decided here, not enough images",
        "A claim is a sentence of a paper, or of a protocol, that a test can decide. It held if the test rejects in "
        "its direction, and did not hold if it rejects in the other one, or if an equivalence test with a stated "
        "margin does. It does not apply if its precondition did not hold: without a gain, no gain can vanish. Anything "
        "else is not decided here, which is no evidence against it; where there are fewer images than the test needs, "
        "that is said.",
        ("study",),
    ),
    Term(
        "test",
        "test, two-sided 5%",
        "How a claim was decided, and the probability of a false positive, both directions together. Bonferroni and "
        "Holm: corrected for so many tests, so that the probability of any false positive stays below that.",
        ("study",),
    ),
    Term(
        "sample",
        "sample",
        "How many of what the test counts there were, of classes the images of the smallest one. More of them decide "
        "more claims.",
        ("study",),
    ),
    Term(
        "needs",
        "would decide it",
        "How many of what the test counts would decide the claim with a probability of 80%, if the effect is as large "
        "as it was measured. An effect near zero needs many: then there may be none.",
        ("study",),
    ),
    Term(
        "source",
        "source",
        "The paper and the table or figure in it that says so, such as tian2021:table1; a protocol is a claim of the "
        "study itself.",
        ("study",),
    ),
    Term("clean", "clean accuracy", "Share of the unchanged images that the model predicts correctly.", _EVERYWHERE),
    Term(
        "robust",
        "robust accuracy",
        "Share of the images that the model predicts correctly whatever the attack tried within the radius. An attack "
        "can only find errors, never rule them out: robust accuracy is an upper bound of what a stronger attack would "
        "leave.",
        _EVERYWHERE,
    ),
    Term(
        "eps",
        "ε, radius, threat",
        "How far an attack may move an image whose pixels are in 0…1. L∞ ≤ 8/255: no pixel by more than 8 of 255 "
        "levels. L2: the Euclidean length of the whole change.",
        _EVERYWHERE,
    ),
    Term(
        "worst-case",
        "worst case",
        "An image counts as robust only if none of the attacks of the audit breaks it.",
    ),
    Term(
        "worst",
        "worst class",
        "The class of the lowest accuracy. It is called the worst class only where every other class is ruled out "
        "(Fisher's exact test, Bonferroni) and it has at least 10 images; otherwise the page says which classes may be "
        "the worst.",
        _EVERYWHERE,
    ),
    Term(
        "ci",
        "95% CI",
        "95% confidence interval (or of the level that was asked for): of 100 such intervals from 100 samples of "
        "images, about 95 contain the true share. Of single classes and of all images it is Wilson's.",
        _EVERYWHERE,
    ),
    Term(
        "ci-worst",
        "CI of the worst class",
        "Interval of the lowest of the true class accuracies. It is wider than that of the class that happened to be "
        "lowest, because the lowest of many is partly bad luck.",
        _EVERYWHERE,
    ),
    Term(
        "simultaneous",
        "simultaneous intervals",
        "Intervals that hold for all classes at once (Šidák's correction), so that any two classes may be compared.",
    ),
    Term(
        "p-worst",
        "p(worst)",
        "Posterior probability that the class is the worst, under Jeffreys' prior. It ranks the classes; the verdict "
        "does not rest on it.",
    ),
    Term("average", "average", "Mean of the class accuracies: every class counts the same.", _EVERYWHERE),
    Term(
        "mcd",
        "points from best to worst class (MCD)",
        "Accuracy of the best class minus that of the worst, in percentage points.",
        ("audit", "board", "study"),
    ),
    Term(
        "cv",
        "CV",
        "Variance of the class accuracies, in percent² (Tian et al., KDD 2021). 0: all classes are equal.",
        ("comparison", "board", "seeds", "study"),
    ),
    Term(
        "misclassified",
        "misclassified as",
        "The wrong class that most errors of a class go to, with its share of the class's errors. In the confusion a "
        "cell is a share of all images of the true class, and an empty cell is no error at all.",
    ),
    Term(
        "groups",
        "groups, adjusted Rand index, purity",
        "Classes that are confused with each other more than with others. Against known superclasses: the adjusted "
        "Rand index is 1 for the same groups and 0 for chance; purity is the share of classes in the superclass most "
        "frequent in their group.",
    ),
    Term(
        "curve",
        "area, median distance",
        "Area under the curve: mean accuracy from ε = 0 to the largest radius. Median distance: half of the images of "
        "the class are known to break within it.",
        ("curve",),
    ),
    Term(
        "difference",
        "difference ×16",
        "What the attack added to the image, around mid-grey, multiplied by the factor that is written below it. "
        "Without that most attacks are invisible.",
        ("images",),
    ),
    Term(
        "fragile",
        "most fragile, most robust images",
        "The images of a class that the attack broke at the smallest radius or, at one radius, with the largest loss; "
        "and those that survive every attack with the smallest loss.",
        ("images",),
    ),
    Term(
        "beyond-chance",
        "p (Holm), beyond chance",
        "Probability of a difference at least this large if there were none: McNemar's exact test where both runs saw "
        "the same images, else Fisher's. Holm's correction keeps the chance of any false alarm among all tests below "
        "5%. Chance is that of drawing the images; another training seed makes another model.",
        ("comparison", "seeds", "board", "study"),
    ),
    Term(
        "rho",
        "ρ",
        "Relative gain of the worst class minus relative loss of the average, against the base (Li & Liu, WAT). Above "
        "0: the worst class gained more than the average lost.",
        ("comparison",),
    ),
    Term(
        "tau", "τ", "Kendall's rank correlation: 1 if both runs order the classes alike, 0 for chance.", ("comparison",)
    ),
    Term(
        "which-beta-to-lower",
        "β, one to one",
        "TRADES weighs robustness by β. Lowering the β of class j makes j less robust and helps the class whose errors "
        "go to j. It is recommended where a class is one to one with j: most of its errors go there, and no other "
        "class is misclassified as j at a higher rate (Tian et al., KDD 2021).",
    ),
    Term(
        "hidden-gradients",
        "masked or hidden gradients",
        "Gradients that do not lead an attack to errors that are there: robust accuracy then looks higher than it is. "
        "The signs: an attack without gradients finds more, more steps find less, or an unbounded attack does not "
        "reach every image.",
    ),
    Term(
        "how-many-images",
        "how many images",
        "The number of images of each class with which the test would tell the two lowest classes apart in 80% of the "
        "cases (its power), if they truly differ as much as they seem to.",
    ),
    Term(
        "gate",
        "requirement",
        "What the model had to meet, such as worst>=0.25: the lowest class accuracy is at least 25%. A confident "
        "requirement is asked of the unfavourable end of the interval.",
        ("gate",),
    ),
    Term(
        "selected",
        "selected epoch",
        "The epoch whose weights were kept, by the rule of the recipe, on held-out images. Numbers on those images are "
        "optimistic: an audit on test images is what counts.",
        ("training",),
    ),
    Term(
        "seeds",
        "mean ± standard deviation, over seeds",
        "Over trainings that differ in the seed alone. An interval of a difference takes in both the seeds and the "
        "images.",
        ("seeds",),
    ),
    Term(
        "rank",
        "rank 1–3",
        "The ranks a model may have at the confidence of the board, simultaneous over all models.",
        ("board",),
    ),
    Term(
        "bottom",
        "bottom 10%",
        "Mean accuracy of the lowest tenth of the classes, where there are many.",
        ("board",),
    ),
)

#: Terms by the anchor that sections of the documentation have.
BY_KEY: Mapping[str, Term] = {term.key: term for term in TERMS}


def of(parts: Collection[Part]) -> list[Term]:
    """The terms of a page with these parts, in order."""
    return [term for term in TERMS if set(term.parts) & set(parts)]


def anchor(section: str) -> Term | None:
    """The term that explains what a section of the documentation does, such as docs/compare.md#beyond-chance."""
    return BY_KEY.get(section.rpartition("#")[2])
