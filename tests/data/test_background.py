"""Backgrounds: replaced behind masks, and coloured by class behind grey digits."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from classwise.core.errors import UserError
from classwise.data import load as load_data
from classwise.data.background import replace
from classwise.data.coloured import assignments, coloured, colours_of
from classwise.data.images import ArrayPixels, Images
from classwise.data.masks import Masks

DIGITS = tuple("0123456789")


def pictures(count: int = 4, channels: int = 3, side: int = 4) -> Images:
    pixels = np.random.default_rng(0).integers(0, 256, (count, channels, side, side), dtype=np.uint8)
    return Images(ArrayPixels(pixels), np.arange(count) % 2, ("cat", "dog"), "pictures")


def left_half(count: int = 4, side: int = 4) -> Masks:
    array = np.zeros((count, side, side), dtype=bool)
    array[:, :, : side // 2] = True
    return Masks(array)


def read(images: Images) -> torch.Tensor:
    return images.batch(np.arange(len(images)))[0]


def grey(labels: list[int]) -> Images:
    """One grey image of 1×3 pixels per label: no stroke, half a stroke, full stroke."""
    array = torch.tensor([0.0, 0.5, 1.0]).expand(len(labels), 1, 1, 3)
    return Images(ArrayPixels(array), np.asarray(labels), DIGITS, "mnist")


@pytest.mark.parametrize(
    ("colour", "values"),
    [
        ("white", (1, 1, 1)),
        ("black", (0, 0, 0)),
        ("grey", (128 / 255, 128 / 255, 128 / 255)),
        ("#ff8000", (1, 128 / 255, 0)),
        ((0.25, 0.5, 1.0), (0.25, 0.5, 1.0)),
    ],
)
def test_the_background_is_replaced_and_the_foreground_kept(
    colour: str | tuple[float, ...], values: tuple[float, ...]
) -> None:
    images = pictures()
    x, new = read(images), read(replace(images, left_half(), colour))
    assert torch.equal(new[..., :2], x[..., :2])
    torch.testing.assert_close(new[..., 2:], torch.tensor(values).float()[None, :, None, None].expand(4, 3, 4, 2))


def test_the_mean_is_that_of_the_images_own_background() -> None:
    images = pictures()
    x, new = read(images), read(replace(images, left_half(), "mean"))
    torch.testing.assert_close(new[..., 2:], x[..., 2:].mean((2, 3), keepdim=True).expand(4, 3, 4, 2))
    whole = Masks(np.ones((4, 4, 4), dtype=bool))
    assert torch.equal(read(replace(images, whole, "mean")), x)


def test_noise_belongs_to_the_example_and_the_seed() -> None:
    images = pictures()
    x, new = read(images), read(replace(images, left_half(), "noise"))
    alone = read(replace(images.take(np.array([3, 1])), left_half(), "noise"))
    assert torch.equal(alone, new[[3, 1]])
    assert torch.equal(new[..., :2], x[..., :2])
    assert len(new[..., 2:].unique()) == 4 * 3 * 4 * 2
    assert not torch.equal(new, read(replace(images, left_half(), "noise", seed=1)))


def test_masks_follow_the_index_and_not_the_place() -> None:
    images = pictures().take(np.array([2, 0]))
    array = np.zeros((2, 4, 4), dtype=bool)
    array[0] = True  # of example 0, all foreground; example 2 is all background
    new = replace(images, Masks(array, np.array([0, 2])), "white")
    assert torch.equal(read(new)[1], read(images)[1])
    assert (read(new)[0] == 1).all()
    assert new.positions.tolist() == [2, 0]
    assert new.labels.tolist() == images.labels.tolist()


def test_grey_images_take_only_a_grey() -> None:
    images = pictures(channels=1)
    assert (read(replace(images, left_half(), "white"))[..., 2:] == 1).all()
    with pytest.raises(UserError, match="the colour 'red' has 3 channels, but the images have 1"):
        replace(images, left_half(), "red")


@pytest.mark.parametrize("colour", ["wite", "#12", (0.0, 2.0, 0.0), ()])
def test_what_is_no_colour_is_named(colour: str | tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="is no colour of a background; give a CSS name such as white"):
        replace(pictures(), left_half(), colour)


def test_masks_that_do_not_fit_are_refused_before_anything_is_read() -> None:
    with pytest.raises(UserError, match=r"no mask for example 2 \(2 of 4 missing; it has 2, for 0…1\)"):
        replace(pictures(), left_half(2))
    with pytest.raises(UserError, match=r"masks of 6×6 pixels, but the images of pictures have 4×4"):
        replace(pictures(), left_half(side=6))


def test_a_colour_shows_where_the_digit_does_not() -> None:
    x = read(coloured(grey([0, 2]), "pairs"))
    assert x.shape == (2, 3, 1, 3)
    expected = torch.tensor([[[1.0, 1, 1], [0, 0.5, 1], [0, 0.5, 1]], [[0, 0.5, 1], [1, 1, 1], [0, 0.5, 1]]])
    torch.testing.assert_close(x[:, :, 0], expected)  # red behind 0, lime behind 2


@pytest.mark.parametrize("name", ["pairs", "both", "halves"])
def test_readings_of_the_paper_agree_with_its_text(name: str) -> None:
    colours = {digit: set(names) for digit, names in colours_of(DIGITS, name).items()}
    assert colours["2"] & colours["3"]
    assert not colours["2"] & colours["5"]


def test_how_classes_share_colours() -> None:
    def sharing(name: str, digit: str) -> set[str]:
        colours = colours_of(DIGITS, name)
        return {other for other in DIGITS if set(colours[other]) & set(colours[digit])} - {digit}

    assert sharing("pairs", "0") == {"1"}
    assert sharing("shifted", "0") == {"9"}
    assert sharing("shifted", "2") == {"1"}
    assert sharing("both", "0") == {"1", "9"}
    assert sharing("halves", "7") == {"5", "6", "8", "9"}
    assert sharing("random", "4") == sharing("black", "4") == set(DIGITS) - {"4"}
    assert assignments() == ["pairs", "shifted", "both", "halves", "random", "black"]


def test_an_odd_class_has_a_colour_too() -> None:
    assert [len(set(colours_of(("a", "b", "c"), name).values())) for name in ("pairs", "shifted")] == [2, 2]


def test_a_class_of_two_colours_has_both_by_index() -> None:
    images = grey([4] * 400)
    x = read(coloured(images, "both"))[:, :, 0, 0]
    found, counts = x.unique(dim=0, return_counts=True)
    assert len(found) == 2
    assert counts.min() > 150
    some = np.array([399, 7, 120])
    assert torch.equal(read(coloured(images.take(some), "both"))[:, :, 0, 0], x[some])
    assert not torch.equal(read(coloured(images, "both", seed=1))[:, :, 0, 0], x)


def test_colours_of_your_own() -> None:
    images = Images(ArrayPixels(np.zeros((2, 1, 1, 1), np.uint8)), np.array([0, 1]), ("ant", "bee"))
    x = read(coloured(images, {"ant": ["white"], "bee": ["blue"]}))
    assert x[:, :, 0, 0].tolist() == [[1, 1, 1], [0, 0, 1]]
    with pytest.raises(UserError, match="no background colour for the class bee"):
        coloured(images, {"ant": ["white"]})


def test_wrong_colourings_are_named() -> None:
    with pytest.raises(UserError, match="unknown assignment of background colours 'pair'; did you mean 'pairs'"):
        coloured(grey([0]), "pair")
    with pytest.raises(UserError, match="those of pictures have 3 channels"):
        coloured(pictures())
    with pytest.raises(UserError, match="at most 12 classes, here are 13"):
        colours_of([str(number) for number in range(13)])


def test_background_mnist_is_a_data_set(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    arrays = {"images-idx3": np.zeros((2, 28, 28), np.uint8), "labels-idx1": np.array([3, 5], np.uint8)}
    for kind, array in arrays.items():
        content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
        (raw / f"t10k-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    images = load_data("background_mnist:colours=halves", root=tmp_path)
    assert images.name == "mnist on halves colours"
    assert read(images)[:, :, 9, 9].tolist() == [[1, 0, 0], [0, 1, 0]]
    with pytest.raises(UserError, match="setting of background_mnist 'colour'; did you mean 'colours'"):
        load_data("background_mnist:colour=halves", root=tmp_path)
