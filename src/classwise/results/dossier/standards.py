"""Which section of a dossier speaks to which provision: a help for finding one's way, not legal advice."""

from __future__ import annotations

STANDARDS = ("EU AI Act", "ISO/IEC 24029", "NIST AI RMF 1.0")
NOTE = (
    "A help for finding one's way, not legal advice: whether a provision applies, and whether this dossier meets it, "
    "is for the reader to judge. EU AI Act: Regulation (EU) 2024/1689, Articles 9(8) and 15 and Annex IV points 2(g) "
    "and 3, which are about high-risk AI systems. ISO/IEC 24029: the steps of the typical workflow in TR 24029-1:2021; "
    "24029-2:2023 is about formal methods, which attacks are not. NIST AI RMF 1.0: subcategories of its functions."
)

#: Sections of the page, and what they speak to: EU AI Act, ISO/IEC 24029, NIST AI RMF.
MAPPING: tuple[tuple[str, str, str, str], ...] = (
    (
        "identity",
        "Annex IV 2(g): validation and testing data and their main characteristics",
        "Plan testing: system and data under test",
        "MEASURE 2.1",
    ),
    (
        "domain",
        "Art. 15(1): appropriate level of accuracy and robustness, in light of the intended purpose (recital 74)",
        "State robustness goals: domain of use",
        "MAP 1.1, MAP 3.3",
    ),
    (
        "threat",
        "Art. 15(5): attempts by third parties to alter outputs; of the attacks named there, adversarial examples only",
        "Plan testing: perturbations considered",
        "MEASURE 2.7",
    ),
    (
        "criteria",
        "Art. 9(8): testing against metrics and thresholds defined beforehand",
        "State robustness goals: criteria, and results compared with them",
        "MEASURE 1.1, MANAGE 1.1",
    ),
    (
        "results",
        "Annex IV 2(g): metrics of accuracy and robustness, and of potentially discriminatory impacts where classes "
        "represent groups of persons; Art. 15(3): levels of accuracy, which the instructions of use declare",
        "Analyse the outcome: statistical methods",
        "MEASURE 2.5, MEASURE 2.7; MEASURE 2.11 where classes represent groups of persons",
    ),
    (
        "statement",
        "Annex IV 2(g): validation and testing procedures",
        "Interpret results: confidence",
        "MEASURE 2.1, MEASURE 2.13",
    ),
    (
        "adequacy",
        "Annex IV 2(g): validation and testing procedures; Art. 15(5): adversarial examples",
        "Conduct testing: attacks and their strength",
        "MEASURE 2.7, MEASURE 2.13",
    ),
    (
        "drop",
        "Art. 15(4): resilience regarding errors, faults or inconsistencies, as far as corrupted images represent "
        "them; Art. 15(5): adversarial examples",
        "Analyse the outcome: performance under perturbation",
        "MEASURE 2.5, MEASURE 2.7",
    ),
    (
        "limits",
        "Annex IV 3: capabilities and limitations in performance",
        "Interpret results: limits",
        "MAP 2.2, MEASURE 2.5",
    ),
    (
        "signature",
        "Annex IV 2(g): test logs and all test reports dated and signed by the responsible persons",
        "–",
        "GOVERN 2.1",
    ),
)
