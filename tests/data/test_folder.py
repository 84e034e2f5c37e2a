"""Images in files: order, sizes, channels, splits, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from classwise.core.errors import UserError
from classwise.data import folder
from classwise.data import load as load_data
from classwise.data.decoding import Decoder
from classwise.data.files import FilePixels


def write(path: Path, colour: tuple[int, ...] | int = (10, 20, 30), size: tuple[int, int] = (4, 4)) -> Path:
    """A plain image; `size` is (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = "L" if isinstance(colour, int) else {3: "RGB", 4: "RGBA"}[len(colour)]
    Image.new(mode, size[::-1], colour).save(path)
    return path


def test_classes_are_folders_with_their_own_counts(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "bee" / f"{number}.png", (number, 0, 0))
    write(tmp_path / "ant" / "deep" / "x.PNG", (9, 0, 0))
    (tmp_path / "cow").mkdir()
    (tmp_path / "bee" / "notes.txt").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    images = folder.load(tmp_path)
    assert images.class_names == ("ant", "bee", "cow"), "an empty class stays"
    assert np.bincount(images.labels, minlength=3).tolist() == [1, 3, 0]
    x, y = images.batch(np.array([3, 0, 1, 2]))
    assert x.shape == (4, 3, 4, 4)
    assert (x[:, 0, 0, 0] * 255).round().tolist() == [2, 9, 0, 1], "the order asked for is kept"
    assert y.tolist() == [1, 0, 1, 1]


def test_many_files_keep_their_order(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / f"{number}.png", number, (3, 3))) for number in range(60)]
    rows = np.random.default_rng(0).permutation(60)
    x = FilePixels(paths, Decoder(channels=1)).read(rows)
    assert (x[:, 0, 0, 0] * 255).round().int().tolist() == rows.tolist()


def test_splits_share_one_class_list(tmp_path: Path) -> None:
    write(tmp_path / "train" / "ant" / "a.png")
    write(tmp_path / "train" / "bee" / "a.png")
    write(tmp_path / "test" / "bee" / "a.png")
    test = folder.load(tmp_path)
    assert test.class_names == ("ant", "bee")
    assert test.labels.tolist() == [1]
    with pytest.raises(UserError, match=r"unknown split of .* 'val'.*Known: test, train"):
        folder.load(tmp_path, "val")


def test_a_class_called_train_is_a_class(tmp_path: Path) -> None:
    for name in ("bus", "train"):
        write(tmp_path / name / "a.png")
    assert folder.load(tmp_path).class_names == ("bus", "train")


def test_a_folder_without_splits_is_not_served_for_training(tmp_path: Path) -> None:
    write(tmp_path / "ant" / "a.png")
    with pytest.raises(UserError, match="has no split 'train'; make"):
        folder.load(tmp_path, "train")


def test_different_sizes_ask_for_resize(tmp_path: Path) -> None:
    write(tmp_path / "ant" / "a.png", size=(6, 8))
    write(tmp_path / "ant" / "b.png", size=(10, 5))
    with pytest.raises(UserError, match=r"a.png is 6×8, .*b.png is 10×5\. Pass resize=5"):
        folder.load(tmp_path)
    x, _ = load_data("folder:resize=5", root=tmp_path).batch(np.arange(2))
    assert x.shape == (2, 3, 5, 5)
    x, _ = load_data("folder:resize=5,crop=4,channels=1", root=tmp_path).batch(np.arange(2))
    assert x.shape == (2, 1, 4, 4)


def test_crop_alone_cuts_the_centre(tmp_path: Path) -> None:
    pixels = np.arange(6 * 8, dtype=np.uint8).reshape(6, 8)
    (tmp_path / "ant").mkdir()
    Image.fromarray(pixels).save(tmp_path / "ant" / "a.png")
    x, _ = folder.load(tmp_path, crop=2, channels=1).batch(np.array([0]))
    np.testing.assert_allclose(x[0, 0].numpy() * 255, pixels[2:4, 3:5], atol=1e-4)
    with pytest.raises(UserError, match=r"a.png is 6×8, smaller than crop=7"):
        folder.load(tmp_path, crop=7)


@pytest.mark.parametrize("size", [(10, 20), (20, 10), (7, 7)])
def test_resize_sets_the_shorter_side(tmp_path: Path, size: tuple[int, int]) -> None:
    ramp = np.linspace(0, 255, size[0] * size[1]).reshape(size).astype(np.uint8)
    path = tmp_path / "ramp.png"
    Image.fromarray(ramp).save(path)
    x = FilePixels([str(path)], Decoder(resize=5, channels=1)).read(np.array([0]))
    expected = Image.fromarray(ramp).resize((5 * size[1] // min(size), 5 * size[0] // min(size)), 2)
    np.testing.assert_allclose(x[0, 0].numpy() * 255, np.asarray(expected), atol=1e-4)


@pytest.mark.parametrize(
    ("colour", "expected"), [(50, [50, 50, 50]), ((1, 2, 3, 0), [1, 2, 3]), ((7, 8, 9), [7, 8, 9])]
)
def test_grey_and_transparent_images_become_colour(
    tmp_path: Path, colour: tuple[int, ...] | int, expected: list[int]
) -> None:
    x = FilePixels([str(write(tmp_path / "a.png", colour))]).read(np.array([0]))
    assert (x[0, :, 0, 0] * 255).round().int().tolist() == expected


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    good = write(tmp_path / "ant" / "good.jpg", size=(64, 64))
    bad = tmp_path / "ant" / "cut.jpg"
    bad.write_bytes(good.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"cannot read the image .*cut\.jpg"):
        folder.load(tmp_path).batch(np.arange(2))
    bad.write_bytes(b"hello")
    with pytest.raises(UserError, match=r"cannot read the image .*cut\.jpg"):
        folder.load(tmp_path)


def test_deep_pixels_are_refused_rather_than_clipped(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((2, 2), 40000, dtype=np.uint16)).save(path)
    with pytest.raises(UserError, match=r"deep\.png has pixels of more than 8 bits"):
        FilePixels([str(path)]).read(np.array([0]))


def test_files_changed_meanwhile_are_named(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / "a.png")), str(write(tmp_path / "b.png", size=(4, 5)))]
    with pytest.raises(UserError, match=r"a.png is 4×4, .*b.png is 4×5"):
        FilePixels(paths).read(np.arange(2))


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    write(tmp_path / "ant" / "a.png")
    for options, message in (
        ("channels=2", "channels must be 1"),
        ("resize=0", "resize must be at least 1 and at most 8192, got 0"),
        ("resize=1000000", "resize must be at least 1 and at most 8192, got 1000000"),
        ("resize=3,crop=4", "crop=4 does not fit into resize=3"),
    ):
        with pytest.raises(UserError, match=message):
            load_data(f"folder:{options}", root=tmp_path)


def test_folders_with_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no sub-folders"):
        folder.load(tmp_path)
    (tmp_path / "ant").mkdir()
    with pytest.raises(UserError, match="no image in the 1 class folder"):
        folder.load(tmp_path)
