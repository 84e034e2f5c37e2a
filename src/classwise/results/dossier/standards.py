"""Which section of a dossier speaks to which provision: a help for finding one's way, not legal advice."""

from __future__ import annotations

STANDARDS = ("EU AI Act", "ISO/IEC 24029", "NIST AI RMF 1.0")
NOTE = (
    "A help for finding one's way, not legal advice: whether a provision applies, and whether this dossier meets it, "
    "is for the reader to judge. EU AI Act: Regulation (EU) 2024/1689, Article 15 and Annex IV point 2(g). ISO/IEC "
    "24029: the steps of TR 24029-1:2021; 24029-2:2023 is about formal methods, which attacks are not. NIST AI RMF "
    "1.0: subcategories of its functions."
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
        "Art. 15(1): accuracy and robustness appropriate to the purpose",
        "State robustness goals: domain of use",
        "MAP 1.1, MEASURE 2.3",
    ),
    (
        "threat",
        "Art. 15(5): attempts to alter outputs by exploiting vulnerabilities, such as adversarial examples",
        "Plan testing: perturbations considered",
        "MEASURE 2.7",
    ),
    (
        "criteria",
        "Art. 15(3): levels of accuracy and the metrics they are declared in",
        "State robustness goals: criteria",
        "MEASURE 1.1, MANAGE 1.1",
    ),
    (
        "results",
        "Annex IV 2(g): metrics of accuracy and robustness, potentially discriminatory impacts",
        "Analyse the outcome: statistical methods",
        "MEASURE 2.5, MEASURE 2.11",
    ),
    (
        "statement",
        "Annex IV 2(g): validation and testing procedures",
        "Interpret results: confidence",
        "MEASURE 2.1, MEASURE 2.13",
    ),
    (
        "adequacy",
        "Art. 15(5): how strong the simulated attacks were",
        "Conduct testing: empirical methods",
        "MEASURE 2.7, MEASURE 2.13",
    ),
    (
        "drop",
        "Art. 15(4): resilience regarding errors, faults and inconsistencies",
        "Analyse the outcome: performance under perturbation",
        "MEASURE 2.5, MEASURE 2.6",
    ),
    (
        "limits",
        "Art. 15(3): what the declared levels do not cover",
        "Interpret results: limits",
        "MAP 2.2, MEASURE 2.5",
    ),
    (
        "signature",
        "Annex IV 2(g): test logs and test reports dated and signed by the responsible persons",
        "–",
        "GOVERN 2.1",
    ),
)
