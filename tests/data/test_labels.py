"""Images labelled by a CSV file, names of classes in a file, a share held out as the test split, and squares."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from classwise.core.errors import UserError
from classwise.data import load
from classwise.data.decoding import Decoder
from classwise.data.files import FilePixels
from classwise.data.images import Images


def write(path: Path, grey: int = 0, size: tuple[int, int] = (4, 4)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size[::-1], (grey, grey, grey)).save(path)
    return path


def shown(images: Images) -> dict[int, str]:
    """The class of each image by its grey."""
    x, y = images.batch(np.arange(len(images)))
    greys = (255 * x[:, 0, 0, 0]).round().int().tolist()
    return {grey: images.class_names[label] for grey, label in zip(greys, y.tolist(), strict=True)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(4):
        write(tmp_path / "img" / f"{number}.png", number)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "file,label\nimg/0.png,cat\nimg/1.png,dog\nimg/2.png,cat\nimg/3.png,ant\n",
        "what,ever\nimg/0.png,cat\nimg/1.png,dog\nimg/2.png,cat\nimg/3.png,ant\n",
        "img/0.png,cat\nimg/1.png,dog\nimg/2.png,cat\nimg/3.png,ant",
        "\ufefffile;label\r\nimg/0.png;cat\r\nimg/1.png;dog\r\n\r\nimg/2.png;cat\r\nimg/3.png;ant\r\n",
        "id,breed\n0,cat\n1,dog\n2,cat\n3,ant\n",
        "Width,ClassId,Path\n4,cat,img/0.png\n4,dog,img/1.png\n4,cat,img/2.png\n4,ant,img/3.png\n",
        "label\tn\tfilename\ncat\t1\t0.png\ndog\t1\t1.png\ncat\t1\t2.png\nant\t1\t3.png\n",
    ],
)
def test_a_row_labels_an_image_however_the_table_is_written(root: Path, text: str) -> None:
    (root / "labels.csv").write_text(text, encoding="utf-8")
    found = load("folder:labels=labels.csv", root)
    assert found.class_names == ("ant", "cat", "dog")
    assert shown(found) == {0: "cat", 1: "dog", 2: "cat", 3: "ant"}


def test_columns_may_be_named(root: Path) -> None:
    (root / "t.csv").write_text("a,b,c\nx,img/0.png,cat\nx,img/1.png,dog\nx,img/2.png,dog\nx,img/3.png,dog\n")
    assert shown(load("folder:labels=t.csv,file=b,label=c", root)) == {0: "cat", 1: "dog", 2: "dog", 3: "dog"}
    with pytest.raises(UserError, match=r"unknown column of .*t\.csv 'd'.*Known: a, b, c"):
        load("folder:labels=t.csv,file=b,label=d", root)
    with pytest.raises(UserError, match=r"which column is the file\? It has a, b, c; name it: .*,file=COLUMN"):
        load("folder:labels=t.csv", root)


def test_numbers_are_in_the_order_of_numbers(root: Path) -> None:
    (root / "l.csv").write_text("file,label\nimg/0.png,10\nimg/1.png,9\nimg/2.png,2\nimg/3.png,10\n")
    assert load("folder:labels=l.csv", root).class_names == ("2", "9", "10")


def test_a_column_or_a_file_for_each_split(root: Path) -> None:
    (root / "l.csv").write_text(
        "file,label,split\nimg/0.png,a,train\nimg/1.png,b,Training\nimg/2.png,a,test\nimg/3.png,b,validation\n"
    )
    assert shown(load("folder:labels=l.csv", root, "train")) == {0: "a", 1: "b"}
    assert shown(load("folder:labels=l.csv", root, "val")) == {3: "b"}
    (root / "Train.csv").write_text("Path,ClassId\nimg/0.png,0\nimg/1.png,2\n")
    (root / "Test.csv").write_text("Path,ClassId\nimg/2.png,1\nimg/3.png,2\n")
    assert shown(load("folder:labels={split}.csv", root, "test")) == {2: "1", 3: "2"}
    train = load("folder:labels={split}.csv", root, "train")
    assert train.class_names == ("0", "1", "2"), "those of all splits"
    assert train.labels.tolist() == [0, 2]
    with pytest.raises(UserError, match=r"unknown split of .* 'val'"):
        load("folder:labels={split}.csv", root, "val")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "file,label\nimg/0.png,a\nimg/9.png,b\n",
            r"l\.csv, line 3: there is no image 'img/9\.png' in .*correct the row",
        ),
        ("file,label\nimg/0.png,\n", r"line 2: 'img/0\.png' has no label"),
        ("file,label\nimg/0.png,a\nimg/0.png,b\n", r"two rows for .*0\.png that differ: 'a' and 'b'"),
        ("file,label\nimg/0.png\n", r"line 2: 1 cells where the header has 2"),
        ("file,label,split\nimg/0.png,a,tset\n", r"unknown split in line 2 of .* 'tset'; did you mean 'test'"),
        ("file\nimg/0.png\n", r"has one column; it needs two"),
        ("\n\n", r"is empty"),
    ],
)
def test_a_table_that_cannot_be_used_says_where(root: Path, text: str, message: str) -> None:
    (root / "l.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load("folder:labels=l.csv", root)


def test_files_that_are_not_there(root: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file 'l\.csv' in .*a row per image"):
        load("folder:labels=l.csv", root)
    with pytest.raises(UserError, match=r"there is no train\.csv in"):
        load("folder:labels={split}.csv", root)
    with pytest.raises(UserError, match=r"give it as labels=FILE\.csv"):
        load("folder:file=a", root)
    with pytest.raises(UserError, match=r"there is no file 'n\.txt' in .*names of the classes"):
        load("folder:names=n.txt", root)


def test_an_image_in_no_row_is_a_warning(root: Path) -> None:
    (root / "l.csv").write_text("file,label\nimg/0.png,a\nimg/1.png,b\n")
    with pytest.warns(UserWarning, match=r"2 of 4 images are in no row of l\.csv and are left out: .*2\.png"):
        assert len(load("folder:labels=l.csv", root)) == 2


def test_a_table_elsewhere_names_images_beside_it(root: Path) -> None:
    (root / "empty").mkdir()
    (root / "l.csv").write_text("file,label\nimg/0.png,a\nimg/1.png,a\nimg/2.png,b\nimg/3.png,b\n")
    spec = f"folder:labels={root / 'l.csv'},test=0.5"
    train, test = (load(spec, root / "empty", split) for split in ("train", "test"))
    assert {**shown(train), **shown(test)} == {0: "a", 1: "a", 2: "b", 3: "b"}
    assert len(train) == len(test) == 2


def test_a_name_that_is_there_twice_asks_for_the_path(root: Path) -> None:
    write(root / "more" / "0.png")
    (root / "l.csv").write_text("id,label\n0,a\n")
    with pytest.raises(UserError, match=r"line 2: '0' may be .*0\.png or .*0\.png; write the path"):
        load("folder:labels=l.csv", root)


# ---- names --------------------------------------------------------------------------------------------------------


def test_names_by_line_order_the_classes(root: Path) -> None:
    (root / "l.csv").write_text("file,label\nimg/0.png,2\nimg/1.png,0\nimg/2.png,0\nimg/3.png,2\n")
    (root / "n.txt").write_text("stop\nyield\nright\n\nleft\n")
    found = load("folder:labels=l.csv,names=n.txt", root)
    assert found.class_names == ("stop", "yield", "right", "left")
    assert shown(found) == {0: "right", 1: "stop", 2: "stop", 3: "right"}
    (root / "l.csv").write_text("file,label\nimg/0.png,4\nimg/1.png,1\nimg/2.png,1\nimg/3.png,2\n")
    assert shown(load("folder:labels=l.csv,names=n.txt", root)) == {0: "left", 1: "stop", 2: "stop", 3: "yield"}
    (root / "l.csv").write_text("file,label\nimg/0.png,left\nimg/1.png,stop\nimg/2.png,stop\nimg/3.png,left\n")
    assert load("folder:labels=l.csv,names=n.txt", root).labels.tolist() == [3, 0, 0, 3]
    (root / "l.csv").write_text("file,label\nimg/0.png,7\nimg/1.png,0\nimg/2.png,0\nimg/3.png,0\n")
    with pytest.raises(UserError, match=r"n\.txt has 4 names for 2 classes \(0, 7\)"):
        load("folder:labels=l.csv,names=n.txt", root)


def test_names_of_folders(tmp_path: Path) -> None:
    for number, name in enumerate(("0", "1", "10", "2")):
        write(tmp_path / name / "a.png", number)
    (tmp_path / "n.txt").write_text("\n".join(f"name {k}" for k in range(11)))
    found = load("folder:names=n.txt", tmp_path)
    assert shown(found) == {0: "name 0", 1: "name 1", 2: "name 10", 3: "name 2"}
    assert found.labels.tolist() == [0, 1, 10, 2], "the line is the number of the class"
    (tmp_path / "n.csv").write_text("ClassId,SignName\n" + "\n".join(f'{k},"sign {k}, round"' for k in range(11)))
    found = load("folder:names=n.csv", tmp_path)
    assert found.class_names == ("sign 0, round", "sign 1, round", "sign 10, round", "sign 2, round"), "only renamed"
    (tmp_path / "n.json").write_text(json.dumps({"00": "a", "1": "b", "2": "c"}))
    with pytest.raises(UserError, match=r"names no class 10"):
        load("folder:names=n.json", tmp_path)
    (tmp_path / "n.json").write_text("[1, 2]")
    with pytest.raises(UserError, match=r"must hold names, which are text"):
        load("folder:names=n.json", tmp_path)


# ---- splits -------------------------------------------------------------------------------------------------------


def test_a_share_of_each_class_is_the_test_split(tmp_path: Path) -> None:
    for name, count in (("ant", 20), ("bee", 5), ("cow", 2), ("dog", 1)):
        for number in range(count):
            write(tmp_path / name / f"{number}.png", number)
    train, test = (load("folder:test=0.2", tmp_path, split) for split in ("train", "test"))
    assert np.bincount(test.labels, minlength=4).tolist() == [4, 1, 1, 0]
    assert np.bincount(train.labels, minlength=4).tolist() == [16, 4, 1, 1]
    parts = [{str(path) for path in images.pixels.paths} for images in (train, test)]  # type: ignore[attr-defined]
    assert not parts[0] & parts[1]
    assert sorted(Path(path).name for path in parts[1] if "/ant/" in path) != ["0.png", "1.png", "2.png", "3.png"]
    with pytest.raises(UserError, match=r"unknown split of .* 'val'"):
        load("folder:test=0.2", tmp_path, "val")
    with pytest.raises(UserError, match=r"has no split 'train'; make .*folder:test=0\.2"):
        load("folder", tmp_path, "train")


def test_splits_in_any_case_and_nothing_held_out_of_them(tmp_path: Path) -> None:
    write(tmp_path / "Train" / "ant" / "a.png", 1)
    write(tmp_path / "validation" / "ant" / "a.png", 2)
    assert shown(load("folder", tmp_path, "train")) == {1: "ant"}
    assert shown(load("folder", tmp_path, "val")) == {2: "ant"}
    with pytest.raises(UserError, match=r"has the splits train, val; leave test=0\.2 out"):
        load("folder:test=0.2", tmp_path, "train")
    write(tmp_path / "val" / "ant" / "a.png", 2)
    with pytest.raises(UserError, match=r"are both the split val; rename one"):
        load("folder", tmp_path, "train")


# ---- squares ------------------------------------------------------------------------------------------------------


def halves(path: Path) -> Path:
    """4×8, white on the left and black on the right."""
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, :4] = 255
    Image.fromarray(pixels).save(path)
    return path


def test_fitting_an_image_that_is_no_square(tmp_path: Path) -> None:
    path = str(halves(tmp_path / "a.png"))
    made = {
        fit: FilePixels([path], Decoder(4, 4, 1, fit)).read(np.array([0]))[0, 0] for fit in ("crop", "stretch", "pad")
    }
    assert all(image.shape == (4, 4) for image in made.values())
    assert made["crop"].tolist() == [[1, 1, 0, 0]] * 4
    assert made["stretch"][:, 0].min() > 0.9
    assert made["stretch"][:, 3].max() < 0.1
    assert made["pad"][[0, 3]].max() == 0, "black bars above and below"
    assert made["pad"][1:3, 0].min() > 0.9
    tall = Image.open(path).rotate(90, expand=True)
    tall.save(tmp_path / "b.png")
    assert (
        FilePixels([str(tmp_path / "b.png")], Decoder(4, 4, 1, "pad")).read(np.array([0]))[0, 0, :, [0, 3]].max() == 0
    )


def test_fit_needs_a_side(root: Path) -> None:
    with pytest.raises(UserError, match=r"fit=pad makes squares of images: give their side"):
        load("folder:fit=pad", root)
    with pytest.raises(UserError, match=r"fit.*'pda'"):
        load("folder:fit=pda,resize=4", root)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load("folder:fit=pad,resize=6", root).batch(np.arange(1))[0].shape == (1, 3, 6, 6)
