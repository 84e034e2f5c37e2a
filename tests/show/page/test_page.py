"""The page: one file from run folders, without torch, everything escaped, within its size."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from classwise.core import adversarial_examples
from classwise.core.errors import UserError
from classwise.core.format import interval, percent
from classwise.core.meta import AttackInfo
from classwise.core.records import Records
from classwise.metrics import groups
from classwise.models.black_box import BlackBox
from classwise.results.audit_result import Audit
from classwise.show import figures
from classwise.show.page import build as build_page
from classwise.show.page import commands, data, gallery, sections
from classwise.show.page import page as report_page
from page_runs import CONFIG, NAMES, SCRIPT, write_run, write_training


class Page(HTMLParser):
    """The elements of a page, the text of its scripts, and what a reader sees."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.seen = ""
        self.inside: str | None = None
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = None

    def handle_data(self, text: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += text
        elif self.inside != "style":
            self.seen += text

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.tags if "id" in attributes]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "madry")
    write_run(root / "wat", right=(20, 18, 30, 31))
    write_training(root / "training" / "wat")
    return [root / "madry", root / "wat", root / "training" / "wat"]


@pytest.fixture(scope="module")
def page(folders: list[Path]) -> Page:
    return Page(build_page(folders, folders[0].parent / "report.html"))


def run_of(audit: Audit) -> dict[str, Any]:
    """What the page's script would read of an audit."""
    kept = gallery.Kept.of(audit)
    shown = gallery.collect({"run": kept}, gallery.Pool(10**6))
    return data.of_run("run", audit, groups.compute(audit.rows()), shown["run"], kept.why)


# ---- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_sections_are_there_in_order(page: Page) -> None:
    sections_there = [str(a["id"]) for tag, a in page.tags if tag == "section" and "id" in a]
    expected = ["comparison", "classes", "confusion", "intervals", "training", "findings", "groups", "settings"]
    expected.append("glossary")
    assert sections_there == expected
    links = [str(a["href"]) for tag, a in page.tags if tag == "a" and str(a.get("href", "")).startswith("#")]
    assert {f"#{name}" for name in expected} <= set(links)
    assert len(page.ids) == len(set(page.ids))


def test_nothing_is_fetched_and_only_its_own_script_may_run(page: Page) -> None:
    for tag, attributes in page.tags:
        for key in ("src", "href", "action", "data"):
            value = attributes.get(key) or ""
            assert value.startswith(("#", "data:")) or not value, (tag, value)
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "object", "embed", "base", "form")]
    policy = next(str(a["content"]) for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert re.search(r"script-src 'sha256-[\w+/=]{44}';", policy)
    assert not re.search(r"@import|url\((?!#)", page.source.split("<script")[0])


def test_a_class_may_bear_any_name(page: Page) -> None:
    """`<script>` is two script elements, the data and the program; the name is in the text as it is."""
    assert len(page.scripts) == 2
    assert SCRIPT in page.seen
    assert page.data["runs"][0]["classes"] == list(NAMES)
    assert SCRIPT not in page.source


def test_a_run_of_before_with_control_characters_in_its_names_has_a_page(tmp_path: Path) -> None:
    """The renderer of charts would end the whole process at one of them."""
    audit = write_run(tmp_path / "run", names=("c\x07t", "d\x00g", "ship", "\x1b[31mred"))
    build_page([tmp_path / "run"], tmp_path / "page.html", ["r\x07n"])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "c�t" in text
    assert not set(text) & set("\x00\x07\x1b")
    figures.save(figures.chart("forest", audit), tmp_path / "forest.png")
    assert (tmp_path / "forest.png").read_bytes().startswith(b"\x89PNG")


def test_charts_are_well_formed_and_escape_the_names(page: Page) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page.source, flags=re.DOTALL)
    assert len(drawings) == 5  # forest, gap, scatter, epochs, class_state
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert any(SCRIPT in "".join(ElementTree.fromstring(drawing).itertext()) for drawing in drawings)


@pytest.mark.slow
def test_the_page_is_made_without_torch(folders: list[Path], tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'torch': raise ImportError('no torch here')\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "from classwise.show import page\n"
        f"page.build([Path({str(folders[0])!r})], Path({str(tmp_path / 'page.html')!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_names_are_given_or_taken_from_the_paths(folders: list[Path], tmp_path: Path) -> None:
    write_run(tmp_path / "madry", images=False)
    found = report_page.read([folders[0], tmp_path / "madry", folders[2]])
    assert [*found.audits] == [folders[0].parent.name, tmp_path.name]  # both are called madry
    assert [*found.histories] == ["wat"]
    named = report_page.read(folders, names=["before", "after", "how"])
    assert [*named.audits, *named.histories] == ["before", "after", "how"]


def test_a_training_alone_has_a_page(folders: list[Path], tmp_path: Path) -> None:
    found = Page(build_page(folders[2:], tmp_path / "page.html", title="Ours & theirs"))
    assert "<title>Ours &amp; theirs</title>" in found.source
    assert [str(a["id"]) for tag, a in found.tags if tag == "section" and "id" in a] == [
        "training",
        "settings",
        "glossary",
    ]


def test_a_training_has_a_headline_a_class_table_and_its_settings(tmp_path: Path) -> None:
    folder = write_training(tmp_path / "wat", config=CONFIG)
    found = Page(build_page([folder], tmp_path / "page.html"))
    assert (
        "wat on folder:resize=32: 3 epochs, of which epoch 3 was selected by the worst class on held-out images. On "
        "held-out images under pgd-10, cat is the worst class: 30.0% robust (95% CI of the worst class" in found.seen
    )
    assert "the average of the classes is 35.0%" in found.seen
    assert "<b>30.0%</b>" in found.source
    rows = re.findall(
        r'<tr class="weakest"><th scope="row"><span class="swatch[^>]*></span>(\w+)<span class="tag">worst',
        found.source,
    )
    assert rows == ["cat"]
    assert "Accuracy on 20 held-out images of each class after epoch 3, the selected one" in found.seen
    assert "epoch 3 selected" in found.source
    assert f"classwise train {folder / 'config.toml'} --root photos --out AGAIN" in found.seen
    for text in ("8/255", "eta", "0.5", "folder:resize=32"):
        assert text in found.seen.partition("Settings")[2], text


def test_a_training_says_on_its_page_what_it_said_at_its_end(tmp_path: Path) -> None:
    folder = write_training(tmp_path / "wat")
    (folder / "remarks.json").write_text(json.dumps(["Theorem 1: 2 < 3.", "Theorem 2: δ = 0.05."]), encoding="utf-8")
    source = Page(build_page([folder], tmp_path / "page.html")).source
    assert "<h3>wat</h3>" in source
    assert "<li>Theorem 1: 2 &lt; 3.</li>" in source
    assert "<li>Theorem 2: δ = 0.05.</li>" in source
    (folder / "remarks.json").write_text("[", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot read .*remarks\.json"):
        build_page([folder], tmp_path / "page.html")


def test_mistakes_are_reported(folders: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    with pytest.raises(UserError, match="at least one run folder"):
        build_page([], out)
    with pytest.raises(UserError, match="nowhere is not a folder"):
        build_page([tmp_path / "nowhere"], out)
    with pytest.raises(UserError, match="given twice"):
        build_page([folders[0], folders[0]], out)
    with pytest.raises(UserError, match="2 run folders need as many different names; got a, a"):
        build_page(folders[:2], out, names=["a", "a"])
    with pytest.raises(UserError, match="no finished audit"):
        build_page([tmp_path], out)
    assert not out.exists()


# ---- what it says ----------------------------------------------------------------------------------------------------


def test_the_numbers_of_the_class_table(page: Page) -> None:
    run = page.data["runs"][0]
    view = run["views"][run["headline"]]
    assert view["attack"] == "pgd-20"
    assert view["rows"]["accuracy"] == [0.2, 0.5, 0.9, 0.75]
    assert view["rows"]["n"] == [40, 40, 40, 40]
    assert view["rows"]["predicted"] == [1, 2, 3, 0]
    assert view["errors"] == [0, 1, 31, 0, 3, 1, 1, 0, 1, 1, 2, 19, 2, 1, 1, 2, 3, 3, 3, 0, 9, 3, 2, 1]
    assert run["slugs"] == ["cat", "dog", "ship-sail", "script-alert-1-script"]
    assert "Under pgd-20, cat is the worst class: 20.0% robust" in page.seen


def test_findings_comparison_and_settings(page: Page) -> None:
    assert f"Train mode of {SCRIPT}." in page.seen
    assert "Recommendations" in page.seen
    assert "wat against madry" in page.seen
    assert "docs/" not in page.seen  # what is meant is said in the page
    assert "classwise report" in page.seen
    assert "this call" in page.seen


def test_runs_that_cannot_be_compared_say_why(folders: list[Path], tmp_path: Path) -> None:
    other = write_run(tmp_path, right=(1, 2), names=("yes", "no"), images=False)
    found = sections.comparison({"madry": Audit.load(folders[0]), "other": other})
    assert found is not None
    assert "do not have the same classes" in found["problem"]
    assert sections.comparison({"other": other}) is None


def test_superclasses_are_summed(tmp_path: Path) -> None:
    """A group's accuracy counts an example only if its class is right: (8 + 20) / 80 and (36 + 30) / 80."""
    known = {"pets": ("cat", "dog"), "things": ("ship", "car")}
    found = run_of(write_run(tmp_path, names=("cat", "dog", "ship", "car"), superclasses=known))
    assert found["rollup"] == {"kind": "superclasses", "names": ["pets", "things"], "of": [0, 0, 1, 1]}
    assert found["views"][1]["groups"]["accuracy"] == [0.35, 0.825]
    assert sum(found["views"][1]["groups"]["p_worst"]) == pytest.approx(1, abs=1e-3)
    assert sorted(found["order"][:2]) == [0, 1]


def test_slugs_are_distinct_and_safe() -> None:
    made = data.slugs(["A b", "a-b", "犬", "!!", "a b"])
    assert made == ["a-b", "a-b-1", "犬", "3", "a-b-4"]


def test_a_class_without_images_is_null(tmp_path: Path) -> None:
    audit = write_run(tmp_path, images=False)
    rest = audit.records.take(np.flatnonzero(audit.records.label != 2))
    found = run_of(Audit(rest))
    rows = found["views"][1]["rows"]
    assert (rows["accuracy"][2], rows["low"][2], rows["p_worst"][2], rows["n"][2]) == (None, None, None, 0)
    assert found["order"][-1] == 2


def test_the_settings_as_a_command(tmp_path: Path) -> None:
    audit = write_run(tmp_path, images=False)
    assert commands.of_audit(audit) is None
    pgd = {"name": "pgd", "steps": 20, "step": 0.003, "clamp": True}
    config = {
        "audit": {"norm": "l2", "eps": 8 / 255, "protocol": "any", "seed": 3, "save_adversarial": True},
        "model": {"spec": "resnet:width=16"},
        "data": {"name": "cifar10"},
        "attacks": {"clean": {}, "pgd-20@2/255": {**pgd, "eps": 2 / 255}, "pgd-20@8/255": {**pgd, "eps": 8 / 255}},
    }
    made = commands.of_audit(Audit(audit.records, config=config, folder=Path("runs/a b")))
    assert made == (
        "classwise audit --model resnet:width=16 --weights WEIGHTS --data cifar10 --root DIR "
        "--attack pgd:steps=20,step=0.003,clamp=true --eps 2/255,8/255 --norm l2 --seed 3 --save-adversarial "
        "--out 'runs/a b'"
    )
    assert commands.radius(0.15) == "0.15"


@pytest.mark.parametrize(
    ("model", "asks"),
    [
        ("resnet-18", True),
        ("net.py:make", True),
        ("timm:resnet50.a1_in1k", True),
        ("torchvision:resnet50,weights=DEFAULT", False),
        ("timm:resnet50.a1_in1k,pretrained=true", False),
        ("robustbench:cifar10/Linf/Carmon2019Unlabeled", False),
        ("my runs/trades/best.pt", False),
    ],
)
def test_the_command_asks_for_weights_unless_the_model_brings_them(model: str, asks: bool, tmp_path: Path) -> None:
    config = {"model": {"spec": model}, "data": {"name": "cifar10"}}
    made = commands.of_audit(Audit(write_run(tmp_path, images=False).records, config=config))
    assert made is not None
    words = shlex.split(made)
    assert words[words.index("--model") + 1] == model
    assert ("--weights WEIGHTS" in made) is asks


def test_the_command_leaves_a_black_box_to_the_reader(tmp_path: Path) -> None:
    said = BlackBox(lambda x: np.zeros((len(x), 2))).identity
    config = {"model": {"spec": said}, "data": {"name": "cifar10"}}
    made = commands.of_audit(Audit(write_run(tmp_path, images=False).records, config=config))
    assert made is not None
    assert made.startswith("classwise audit --model MODEL --data cifar10")


def test_bars_of_a_comparison_stay_in_their_span(folders: list[Path]) -> None:
    made = sections.comparison({path.name: Audit.load(path) for path in folders[:2]})
    assert made is not None
    rows = made["against"][0]["rows"]
    assert [row["class"] for row in rows][:1] == ["cat"]  # gained most: 8 to 20 of 40
    assert rows[0]["difference"] == "+30.0"
    for row in rows:
        assert 0 <= row["low"] <= row["low"] + row["span"] <= 100.01
        assert 0 <= row["left"] <= row["left"] + row["width"] <= 100.01


def test_what_cannot_be_drawn_or_read_is_said_with_the_reason(tmp_path: Path) -> None:
    """A history without held-out images, and adversarial images that are damaged."""
    audit = write_run(tmp_path / "run")
    (damaged,) = (tmp_path / "run" / "adversarial").iterdir()
    damaged.write_bytes(b"PK\x03\x04 no more")
    history = tmp_path / "training" / "history.csv"
    history.parent.mkdir()
    history.write_text("epoch,train_loss\n1,0.5\n2,0.4\n")
    found = Page(build_page([tmp_path / "run", history.parent], tmp_path / "page.html"))
    assert "This chart cannot be drawn: this history has no robust accuracy of classes" in found.seen
    assert "run: The images of pgd-20 cannot be shown: cannot read the adversarial images " in found.seen
    assert "cannot read" in found.data["runs"][0]["views"][1]["why"]
    assert audit.folder is not None


def test_what_does_not_apply_is_not_a_problem(page: Page) -> None:
    """One radius has no curve, a run without images none to show: neither is an error."""
    assert "cannot be drawn" not in page.seen
    assert "cannot be shown" not in page.seen


def test_a_number_has_one_text_everywhere(tmp_path: Path, audit_of: Callable[..., Audit]) -> None:
    """23 of 939 is 2.4494%: cut to 0.0245 before it is rounded it would be 2.5%."""
    made = audit_of({"pgd-20": [23, 500, 700]}, (939, 1000, 1000), ("cat", "dog", "ship"))
    made.records.write(tmp_path / "records" / "00-all-00000.parquet")
    made.save(tmp_path)
    found = Page(build_page([tmp_path], tmp_path / "page.html"))
    view = found.data["runs"][0]["views"][1]
    row = made.by_class().iloc[0]
    assert (percent(row["accuracy"]), percent(round(row["accuracy"], 4))) == ("2.4%", "2.5%")
    assert view["rows"]["accuracy"][0] == 23 / 939  # in full: the script rounds it by the same rule
    assert view["rows"]["interval"][0] == interval(row["low"], row["high"])
    assert "cat is the worst class: 2.4% robust" in found.seen
    assert "2.5%" not in found.seen
    labels = re.findall(r'aria-label="([^"]*class: cat[^"]*)"', found.source)
    values = {part.partition(": ")[2] for label in labels for part in label.split("; ") if part.startswith("value")}
    assert values == {"2.4%", "100.0%"}  # under attack, and clean
    assert not re.search(r'aria-label="[^"]*\d\.\d{4}', found.source)  # nor is any number read out in full


def test_superclasses_that_nothing_can_be_said_of_get_no_number() -> None:
    said = sections._agreement(groups.Superclasses(float("nan"), float("nan"), 1.0))
    assert said == "Agreement with the known superclasses is not defined here."
    assert ", p < 0.001: more than" in sections._agreement(groups.Superclasses(0.5, 0.0001, 1.0))


# ---- images ----------------------------------------------------------------------------------------------------------


def decoded(text: str) -> Any:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def test_a_cell_has_its_images(page: Page) -> None:
    run = page.data["runs"][0]
    entry = run["views"][1]["gallery"]["0,1"][0]
    assert (entry["true"], entry["predicted"], entry["attack"]) == (0, 1, "pgd-20")
    clean, attacked, difference = (decoded(page.data["images"][number]) for number in entry["images"])
    level = entry["index"] % 200
    assert np.unique(clean).tolist() == [level]
    assert attacked[0, 0].tolist() == [level + 8, level, level]
    assert difference[0, 0].tolist() == [255, 128, 128]
    assert entry["factor"] == 16  # 0.5 / (8/255)


def test_the_budget_gives_every_cell_an_image_before_any_gets_two(folders: list[Path]) -> None:
    kept = {path.name: gallery.Kept.of(Audit.load(path)) for path in folders[:2]}
    pool = gallery.Pool(10**9)
    whole = gallery.collect(kept, pool)
    spent = sum(map(len, pool.images))
    smaller = gallery.Pool(spent // 3)
    tight = gallery.collect(kept, smaller)
    assert sum(map(len, smaller.images)) < spent // 3 + 1000
    cells = {name: views["pgd-20"] for name, views in tight.items()}
    assert {name: set(own) for name, own in cells.items()} == {n: set(v["pgd-20"]) for n, v in whole.items()}
    counts = [len(found) for own in cells.values() for found in own.values()]
    assert max(counts) - min(counts) <= 1
    empty = gallery.Pool(0)
    none = gallery.collect(kept, empty)
    assert not any(none.values())
    assert not empty.images


def test_an_image_broken_at_a_smaller_radius_is_found_there(tmp_path: Path) -> None:
    radii = {"pgd-20": 0.1, "pgd-20@2": 0.2}
    infos = {name: AttackInfo(settings={"name": "pgd"}, eps=eps, family="pgd-20") for name, eps in radii.items()}
    audit = write_run(tmp_path)
    again = audit.records.of("pgd-20").frame.assign(attack="pgd-20@2")
    meta = dataclasses.replace(audit.records.meta, attacks={"clean": AttackInfo(), **infos})
    both = Records(pd.concat([audit.records.frame, again], ignore_index=True), meta)
    kept = gallery.Kept.of(Audit(both, folder=tmp_path))
    found = gallery.collect({"run": kept}, gallery.Pool(10**9))
    assert found["run"]["pgd-20@2"]["0,1"][0]["attack"] == "pgd-20"


def test_without_images_the_page_says_how_to_get_them(tmp_path: Path) -> None:
    views = run_of(write_run(tmp_path, images=False))["views"]
    assert views[1]["gallery"] == {}
    assert "--save-adversarial" in views[1]["why"]
    assert "clean images" in views[0]["why"]


def test_large_and_grey_images_become_small_pngs() -> None:
    assert Image.open(io.BytesIO(gallery.png(np.zeros((300, 200, 3), np.uint8)))).size == (64, 96)
    assert Image.open(io.BytesIO(gallery.png(np.zeros((8, 8, 1), np.uint8)))).mode == "L"


def test_an_unchanged_image_has_a_grey_difference() -> None:
    difference, factor = gallery.amplified(np.zeros((2, 2, 1)), np.zeros((2, 2, 1)))
    assert np.unique(difference).tolist() == [128]
    assert factor == 1


def test_a_few_large_changes_do_not_hide_the_others() -> None:
    """In L2 one pixel may change a hundred times more than the others: those set the factor, and the one is clipped."""
    attacked = np.full((20, 20, 1), 0.001)
    attacked[0, 0] = 0.1
    difference, factor = gallery.amplified(np.zeros((20, 20, 1)), attacked)
    assert factor == 500  # 0.5 / 0.001
    assert np.unique(difference).tolist() == [255]


# ---- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ten_classes_with_images_stay_under_five_megabytes(tmp_path: Path) -> None:
    """Three runs whose images, of noise, no PNG makes small: made in five seconds of one processor."""
    rng = np.random.default_rng(0)
    names, folders = [f"class {number}" for number in range(10)], []
    for run in ("madry", "trades", "wat"):
        audit = write_run(tmp_path / run, right=rng.integers(0, 40, 10).tolist(), names=names, images=False)
        rows = audit.records.of("pgd-20")
        broken = rows.frame[~rows.correct]
        before = rng.random((len(broken), 3, 32, 32), dtype=np.float32)
        after = (before + rng.choice(np.float32([-8, 8]) / 255, before.shape)).clip(0, 1)
        place = tmp_path / run / "adversarial" / "01-pgd-20-00000.npz"
        columns = {key: broken[key].to_numpy() for key in ("index", "label", "prediction")}
        adversarial_examples.write(place, "pgd-20", **columns, exact=after, clean=before)
        folders.append(tmp_path / run)
    begin = time.process_time()
    out = build_page(folders, tmp_path / "page.html")
    assert time.process_time() - begin < 5
    assert 2_000_000 < out.stat().st_size < 5_000_000


@pytest.mark.slow
def test_a_thousand_classes_make_a_small_page_quickly(tmp_path: Path) -> None:
    names = [f"class {number}" for number in range(1000)]
    right = [number % 26 for number in range(1000)]
    audit = write_run(tmp_path, right=right, names=names, images=False)
    assert len(audit.records) == 80_000
    begin = time.perf_counter()
    out = build_page([tmp_path], tmp_path / "page.html")
    assert time.perf_counter() - begin < 60
    assert out.stat().st_size < 2_000_000
