"""The first screen: what was audited, the verdict in a line, what spoils it, the gate; and the glossary at the end."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from board_runs import write_entry
from classwise.core.meta import AttackInfo
from classwise.core.run_config import write_config
from classwise.results.audit_result import Audit
from classwise.results.criteria import Criteria
from classwise.results.finding import Finding
from classwise.show.page import build, first_screen, glossary
from page_runs import write_run, write_training

RIGHT = [25, 30, 15, 10, 12, 16, 25, 27, 29, 28]


def hero(path: Path) -> str:
    """The text of the first screen, without tags."""
    section = path.read_text(encoding="utf-8").partition('<section class="hero"')[2].partition("</section>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", section).split())


class TestScope:
    def test_what_the_folder_says(self, tmp_path: Path) -> None:
        audit = write_entry(tmp_path / "run", RIGHT)
        config = {**audit.config, "command": {**audit.config["command"], "weights": "a/b/net.pt", "per_class": 40}}
        write_config(tmp_path / "run" / "config.toml", config)
        known = replace(Audit.load(tmp_path / "run"), timing={"finished": "2026-03-05"})
        assert dict(first_screen.scope(known)) == {
            "model": "resnet-18, weights net.pt",
            "data": "cifar10, 400 images of 10 classes, at most 40 a class",
            "threat": "L∞ ≤ 8/255",
            "attacks": "pgd-20",
            "date": "5 March 2026",
        }

    def test_a_curve_names_its_radii_and_its_attack_once(self, tmp_path: Path) -> None:
        audit = write_run(tmp_path / "run", images=False)
        family = {f"pgd@{k}": AttackInfo(eps=k / 255, family="pgd-10") for k in (8, 2)}
        meta = replace(audit.records.meta, attacks=family, norm="l2")
        scope = dict(first_screen.scope(replace(audit, records=replace(audit.records, meta=meta))))
        assert scope["threat"] == "L2 ≤ 2/255, 8/255"
        assert scope["attacks"] == "pgd-10, pgd-20"
        assert "model" not in scope  # the folder does not say
        assert "date" not in scope

    def test_several_runs_have_in_common_what_is_the_same(self, tmp_path: Path) -> None:
        audits = {name: write_entry(tmp_path / name, RIGHT, model=name) for name in ("one", "two")}
        scope = dict(first_screen.common(audits))
        assert scope["runs"] == "one, two"
        assert scope["threat"] == "L∞ ≤ 8/255"
        assert "model" not in scope


def test_the_worst_findings_first_and_the_number_of_the_others() -> None:
    severities = ("info", "warning", "warning", "error", "recommendation", "warning")
    found = [Finding(str(place), severity, "What.", "Do.") for place, severity in enumerate(severities)]
    alerts = first_screen.alerts(found)
    assert [one.code for one in alerts["shown"]] == ["3", "1", "2"]
    assert alerts["more"] == 1


@pytest.mark.slow
class TestPages:
    def test_of_one_run(self, tmp_path: Path) -> None:
        write_run(tmp_path / "run")
        made = build([tmp_path / "run"], tmp_path / "page.html", note="For the review.\nDraft.", title="Cats & dogs")
        text = hero(made)
        assert text.startswith('aria-labelledby="title"> Cats &amp; dogs For the review. Draft. data')
        assert "cat is the worst class: 20.0% robust (95% CI" in text
        assert "warning Train mode of" in text
        assert "--note" in made.read_text(encoding="utf-8")

    def test_the_gate_has_a_badge(self, tmp_path: Path) -> None:
        write_run(tmp_path / "run")
        made = build([tmp_path / "run"], tmp_path / "page.html", requirements=["worst>=0.1", "clean.worst>=0.99"])
        assert "passed 2 of 2 requirements hold." in hero(made)
        made = build([tmp_path / "run"], tmp_path / "page.html", requirements=["worst>=0.19"], confident=True)
        assert "failed 0 of 1 requirement holds." in hero(made)
        assert "FAILED (worst under pgd-20 is 20.0%, lower bound" in hero(made)
        assert "badge" not in hero(build([tmp_path / "run"], tmp_path / "page.html"))

    def test_the_gate_of_a_file_and_a_baseline(self, tmp_path: Path) -> None:
        """As the gate of an audit: classes of a TOML file, and no class below an earlier run."""
        for name, right in (("before", (20, 20, 36, 30)), ("now", (8, 20, 36, 30))):
            write_run(tmp_path / name, right, images=False)
        (tmp_path / "gate.toml").write_text('require = ["average>=0.5"]\n[classes]\ndog = 0.6\n', encoding="utf-8")
        out = tmp_path / "page.html"
        made = build(
            [tmp_path / "now"],
            out,
            requirements=[f"@{tmp_path / 'gate.toml'}"],
            baseline=tmp_path / "before",
            margin="10%",
        )
        text = hero(made)
        assert "failed 8 of 10 requirements hold." in text  # 1 + 1, and four classes clean and attacked
        assert "class[dog]&gt;=0.6: FAILED (class[dog] under pgd-20 is 50.0%)" in text
        assert "class[cat]&gt;=baseline-10%: FAILED (50.0% → 20.0%, −30.0 points under pgd-20)" in text
        assert text.index("class[cat]&gt;=baseline") < text.index("average&gt;=0.5: holds")
        assert "--margin 10%" in made.read_text(encoding="utf-8")
        made = build([tmp_path / "before"], out, baseline=tmp_path / "now")
        assert "passed 8 of 8 requirements hold." in hero(made)
        assert "A class that lost fewer than" in hero(made)

    def test_requirements_that_the_audit_recorded(self, tmp_path: Path) -> None:
        write_run(tmp_path / "run", images=False)
        write_run(tmp_path / "other", images=False)
        config = tmp_path / "run" / "config.toml"
        write_config(config, {"criteria": Criteria.of(["worst>=0.1"]).to_dict()})
        out = tmp_path / "page.html"
        assert "passed 1 of 1 requirement holds, recorded before the first attack." in hero(
            build([tmp_path / "run"], out)
        )
        assert "failed 0 of 1 requirement holds." in hero(build([tmp_path / "run"], out, requirements=["worst>=0.5"]))
        both = hero(build([tmp_path / "run", tmp_path / "other"], out))
        assert re.search(r"run cat 20.0% .*? passed other cat", both)
        config.write_text('[criteria]\nbaseline.run = "runs/gone"\n', encoding="utf-8")
        text = hero(build([tmp_path / "run"], out))
        assert "open The requirements that the audit recorded cannot be checked here." in text
        assert "runs/gone" in text

    def test_a_badge_lists_at_most_a_dozen_requirements(self, tmp_path: Path) -> None:
        names = [f"class {k}" for k in range(30)]
        audit = write_run(tmp_path / "run", [8] * 30, names, images=False)
        shown = first_screen.badge(audit, Criteria(classes={"*": 0.5}))
        assert shown is not None
        assert shown["text"] == "0 of 30 requirements hold"
        assert len(shown["sentences"]) == 13
        assert shown["sentences"][-1] == "and 18 more"

    def test_a_comparison_opens_with_its_own_verdict(self, tmp_path: Path) -> None:
        write_run(tmp_path / "madry")
        write_run(tmp_path / "wat", right=(30, 28, 36, 31), images=False)
        made = build([tmp_path / "madry", tmp_path / "wat"], tmp_path / "page.html", requirements=["worst>=0.5"])
        text = hero(made)
        verdict = text.index("wat has the higher worst class: 70.0% robust (95% CI")
        assert verdict < text.index("wat against madry, in percentage points") < text.index("cat is the worst class")
        assert "madry cat 20.0%" in text
        assert re.search(r"madry cat 20.0% .*? failed wat dog 70.0% .*? passed", text)
        assert "warning madry: Train mode of" in text

    def test_of_a_training(self, tmp_path: Path) -> None:
        made = build([write_training(tmp_path / "training")], tmp_path / "page.html")
        assert "cat is the worst class on held-out images: 30.0% robust" in hero(made)

    def test_every_link_into_the_page_leads_somewhere(self, tmp_path: Path) -> None:
        """Findings point to the glossary, the navigation to sections."""
        write_entry(tmp_path / "run", RIGHT)
        write_entry(tmp_path / "other", [39, *RIGHT[1:]])
        source = build([tmp_path / "run", tmp_path / "other"], tmp_path / "page.html").read_text(encoding="utf-8")
        body = source.partition('<script type="application/json"')[0]
        targets = set(re.findall(r' id="([^"]+)"', body))
        links = set(re.findall(r'<a [^>]*href="#([^"]+)"', body))
        assert "term-beyond-chance" in links
        assert links <= targets
        assert "docs/" not in re.sub(r"<[^>]*>", " ", body)


class TestGlossary:
    def test_only_what_the_page_shows(self) -> None:
        names = {term.key for term in glossary.of({"training"})}
        assert {"clean", "robust", "selected"} <= names
        assert not {"rho", "p-worst", "rank", "gate"} & names

    def test_terms_have_one_anchor_each_and_every_section_of_a_rule_has_its_term(self) -> None:
        from classwise.results.findings import RULES

        assert len({term.key for term in glossary.TERMS}) == len(glossary.TERMS)
        assert all(glossary.anchor(rule.section) for rule in RULES if rule.section)
        assert glossary.anchor("") is None
