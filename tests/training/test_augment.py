"""Augmentation, against images worked out by hand, and by the laws its random numbers must follow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from classwise.core import rng
from classwise.core.errors import UserError
from classwise.training import augment
from classwise.training.augment import Augment, Colour, Crop, Flip, ResizedCrop, Rotate

ALL = ["crop:padding=3", "crop:padding=2,fill=reflect", "flip", "colour", "rotate:degrees=20", "resized_crop-7"]


def images(count: int, channels: int = 3, height: int = 8, width: int = 8) -> Tensor:
    return rng.uniform(rng.keys(0, torch.arange(count)), (channels, height, width))


def keys(count: int, seed: int = 1) -> Tensor:
    return rng.keys(seed, torch.arange(count))


def column(*numbers: float) -> Tensor:
    """The uniforms of one example."""
    return torch.tensor([numbers])


GRID = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])[None, None] / 10


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        ("zero", [[0, 0, 0], [2, 3, 0], [5, 6, 0]]),
        ("reflect", [[5, 6, 5], [2, 3, 2], [5, 6, 5]]),
    ],
)
def test_a_crop_by_hand(fill: str, expected: list[list[float]]) -> None:
    """With one pixel of padding, the window from the top and the right."""
    found = augment.parse(f"crop:padding=1,fill={fill}").transforms[0].apply(GRID, column(0.1, 0.9))
    assert torch.equal(found[0, 0], torch.tensor(expected) / 10)


def test_crops_are_the_windows_of_the_padded_image() -> None:
    x, u = images(50, height=6, width=9), rng.uniform(keys(50), (2,))
    found = Crop(padding=2).apply(x, u)
    padded = F.pad(x, (2, 2, 2, 2))
    for place in range(50):
        top, left = int(u[place, 0] * 5), int(u[place, 1] * 5)
        assert torch.equal(found[place], padded[place, :, top : top + 6, left : left + 9])


def test_all_81_shifts_of_a_padded_crop_occur_alike() -> None:
    x = torch.zeros(8100, 1, 9, 9)
    x[:, :, 4, 4] = 1
    spots = augment.parse("crop:padding=4")(x, keys(8100)).flatten(1).argmax(1)
    counts = np.bincount(spots.numpy(), minlength=81)
    assert len(counts) == 81
    assert stats.chisquare(counts).pvalue > 1e-3


def test_half_of_the_images_are_flipped() -> None:
    x = images(4000, 1, 2, 2)
    found = augment.parse("flip")(x, keys(4000))
    flipped = (found == x.flip(3)).flatten(1).all(1)
    assert torch.equal(found[~flipped], x[~flipped])
    assert stats.binomtest(int(flipped.sum()), 4000).pvalue > 1e-3


def test_a_flip_by_hand() -> None:
    assert torch.equal(Flip().apply(GRID, column(0.2))[0, 0, 0], torch.tensor([0.3, 0.2, 0.1]))
    assert torch.equal(Flip().apply(GRID, column(0.7)), GRID)
    assert torch.equal(Flip(chance=0).apply(GRID, column(1e-7)), GRID)


PIXELS = torch.tensor([[0.2, 0.4], [0.6, 0.8], [0.0, 1.0]]).reshape(1, 3, 1, 2)


def test_brightness_by_hand() -> None:
    found = Colour(0.5, 0, 0).apply(PIXELS, column(0.75, 0.3, 0.3))  # a factor of 1.25
    torch.testing.assert_close(found.flatten(), torch.tensor([0.25, 0.5, 0.75, 1.0, 0.0, 1.0]))


def test_contrast_and_saturation_by_hand() -> None:
    """Luma .299 r + .587 g + .114 b of the two pixels; a factor of .75."""
    luma = torch.tensor([0.299 * 0.2 + 0.587 * 0.6, 0.299 * 0.4 + 0.587 * 0.8 + 0.114])
    contrast = Colour(0, 0.5, 0).apply(PIXELS, column(0.3, 0.25, 0.3))
    torch.testing.assert_close(contrast, 0.75 * PIXELS + 0.25 * luma.mean())
    saturation = Colour(0, 0, 0.5).apply(PIXELS, column(0.3, 0.3, 0.25))
    torch.testing.assert_close(saturation, 0.75 * PIXELS + 0.25 * luma)


def test_colours_stay_colours() -> None:
    found = augment.parse("colour:brightness=1,contrast=1,saturation=1")(images(200), keys(200))
    assert found.min() >= 0
    assert found.max() <= 1
    grey = augment.parse("colour:brightness=0,contrast=0,saturation=1")(images(3, channels=1), keys(3))
    assert torch.equal(grey, images(3, channels=1))


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_a_quarter_turn_by_hand(mode: str) -> None:
    turned = augment.parse(f"rotate:degrees=180,mode={mode}").transforms[0].apply(GRID, column(0.75))[0, 0]
    expected = GRID[0, 0].rot90(1)
    assert any(torch.allclose(turned, e, atol=1e-5) for e in (expected, expected.rot90(2)))
    other = Rotate(degrees=180).apply(GRID, column(0.25))[0, 0]
    torch.testing.assert_close(other.rot90(2), turned, atol=1e-5, rtol=0)


def test_oblong_images_are_turned_without_being_squeezed() -> None:
    """A quarter turn of a 3 × 5 image keeps its middle square, turned; the rest comes from outside."""
    x = images(1, 1, 3, 5)
    turned = Rotate(degrees=180).apply(x, column(0.75))[0, 0]
    square = x[0, 0, :, 1:4]
    assert any(torch.equal(turned[:, 1:4], square.rot90(k)) for k in (1, 3))
    assert not turned[:, [0, 4]].any()


def test_angles_fill_their_range() -> None:
    """Seen by where a bright pixel far from the middle goes: within ±10 degrees, on both sides, evenly."""
    x = torch.zeros(2000, 1, 65, 65)
    x[:, :, 31:34, 58:61] = 1
    found = augment.parse("rotate:degrees=10,mode=bilinear")(x, keys(2000))[:, 0]
    rows = torch.arange(65.0) - 32
    down, right = (found.sum(2) @ rows) / found.sum((1, 2)), (found.sum(1) @ rows) / found.sum((1, 2))
    degrees = torch.atan2(down, right).rad2deg().numpy()
    assert np.abs(degrees).max() < 10.1
    assert stats.kstest(degrees, stats.uniform(-10, 20).cdf).pvalue > 1e-3


def test_a_resized_crop_is_the_part_resized() -> None:
    """Against torch's own antialiased bilinear resizing of the part cut out, shrinking and enlarging."""
    x, u = images(30, height=20, width=28), rng.uniform(keys(30), (ResizedCrop.numbers,))
    transform = ResizedCrop(size=11, scale=(0.1, 1.0))
    found = transform.apply(x, u)
    heights, widths = transform.boxes(20, 28, u[:, :-2])
    assert found.shape == (30, 3, 11, 11)
    for place in range(30):
        h, w = int(heights[place]), int(widths[place])
        top, left = int(u[place, -2] * (21 - h)), int(u[place, -1] * (29 - w))
        part = x[place : place + 1, :, top : top + h, left : left + w]
        expected = F.interpolate(part, (11, 11), mode="bilinear", antialias=True)[0]
        torch.testing.assert_close(found[place], expected, atol=1e-5, rtol=0)


def test_the_parts_have_the_wanted_areas_and_proportions() -> None:
    transform = ResizedCrop(size=8, scale=(0.2, 0.6))
    heights, widths = transform.boxes(200, 200, rng.uniform(keys(4000), (20,)))
    area, ratio = (heights * widths / 200**2).numpy(), (widths / heights).log().numpy()
    assert stats.kstest(area, stats.uniform(0.2, 0.4).cdf).pvalue > 1e-3
    assert stats.kstest(ratio, stats.uniform(math.log(3 / 4), 2 * math.log(4 / 3)).cdf).pvalue > 1e-3
    assert (heights == heights.round()).all()


def test_the_first_box_that_fits_is_taken() -> None:
    """On a 10 × 40 image a share of .9 fits no proportion up to 4/3, a share of .1 does."""
    transform = ResizedCrop(size=4, scale=(0.1, 0.9))
    shares = [0.999, 0.999, 0.001, *[0.999] * 7]
    (h,), (w,) = transform.boxes(10, 40, column(*shares, *[0.5] * 10))
    assert (h.item(), w.item()) == (6, 6)  # √40 = 6.3
    (h,), (w,) = transform.boxes(10, 40, column(*[0.999] * 10, *[0.5] * 10))
    assert (h.item(), w.item()) == (10, 13)  # none fits: as high as there is, 4/3 as wide


@pytest.mark.parametrize(
    "spec",
    [
        "crop:padding=0",
        "crop:padding=0,fill=reflect",
        "flip:chance=0",
        "colour:brightness=0,contrast=0,saturation=0",
        "rotate:degrees=0,mode=bilinear",
        "resized_crop:size=8,scale=1|1,ratio=1|1",
    ],
)
def test_identities_are_exact(spec: str) -> None:
    x = images(20)
    assert torch.equal(augment.parse(spec)(x, keys(20)), x)


@pytest.mark.parametrize("specs", [*[[spec] for spec in ALL], ALL])
def test_companions_do_not_matter(specs: Sequence[str]) -> None:
    """Re-batched, shuffled or alone, an example becomes the same image."""
    x, key, change = images(40), keys(40), augment.parse(specs)
    whole = change(x, key)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(change(x[order], key[order]), whole[order], atol=1e-6, rtol=0)
    torch.testing.assert_close(torch.cat([change(x[:7], key[:7]), change(x[7:], key[7:])]), whole, atol=1e-6, rtol=0)
    torch.testing.assert_close(change(x[5:6], key[5:6])[0], whole[5], atol=1e-6, rtol=0)
    assert not torch.equal(change(x, keys(40, seed=2)), whole)


def test_shifts_and_mirrors_do_not_round() -> None:
    x, key = images(40), keys(40)
    change = augment.parse(["crop-4", "flip"])
    assert torch.equal(torch.cat([change(x[:7], key[:7]), change(x[7:], key[7:])]), change(x, key))
    assert set(change(x, key).flatten().tolist()) <= {0.0, *x.flatten().tolist()}


def test_the_same_transform_twice_draws_twice() -> None:
    x, key = images(64, 1, 1, 2), keys(64)
    once, twice = augment.parse("flip")(x, key), augment.parse(["flip", "flip"])(x, key)
    assert not torch.equal(twice, x)
    assert not torch.equal(twice, once)


def test_attacks_draw_other_numbers_from_the_same_key() -> None:
    key = keys(2000)
    x = torch.zeros(2000, 1, 1, 2)
    x[..., 0] = 1
    flipped = augment.parse("flip")(x, key)[:, 0, 0, 1].numpy()
    for stream in range(8):
        start = rng.uniform(key, (1,), stream)[:, 0].numpy()
        assert abs(np.corrcoef(flipped, start)[0, 1]) < 0.09  # 4 standard errors


def test_inputs_and_the_global_generator_are_left_alone() -> None:
    x, before = images(10), torch.random.get_rng_state()
    kept = x.clone()
    augment.parse(ALL)(x, keys(10))
    assert torch.equal(x, kept)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_other_number_types_are_kept() -> None:
    x = images(5).double()
    assert augment.parse(ALL)(x, keys(5)).dtype == torch.float64


def test_ways_to_write_augmentation() -> None:
    assert augment.parse([]) == Augment()
    assert augment.parse("crop-4") == augment.parse(["crop:padding=4"]) == Augment((Crop(4),))
    assert augment.parse([{"name": "resized_crop", "size": 128, "scale": [0.08, 1]}, Flip()]) == Augment(
        (ResizedCrop(128), Flip())
    )
    x = images(2)
    assert augment.parse([])(x, keys(2)) is x


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("flop", "did you mean 'flip'"),
        ("crop:fill=black", "unknown value of crop.fill 'black'"),
        ("crop:pad=4", "did you mean 'padding'"),
        ("crop:padding=-1", "padding must be at least 0"),
        ("flip:chance=2", "chance must be at least 0 and at most 1"),
        ("colour:contrast=3", "contrast must be at least 0 and at most 1"),
        ("rotate:degrees=270", "degrees must be at least 0 and at most 180"),
        ("resized_crop:size=0", "size must be at least 1"),
        ("resized_crop:scale=1|0.5", "scale must be two increasing"),
        ("resized_crop:scale=0.5|2", "scale must be positive and at most 1, got 2"),
        ("resized_crop:scale=0.5|0.4", "scale must be two increasing"),
        ("resized_crop:ratio=1", "ratio must be two increasing"),
    ],
)
def test_bad_augmentation(wanted: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        augment.parse(wanted)


def test_images_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="8×8 images can reflect at most 7 pixels"):
        Crop(8, "reflect").apply(images(1), column(0.5, 0.5))
    with pytest.raises(UserError, match="1 or 3 channels, not 4"):
        Colour().apply(images(1, channels=4), column(0.5, 0.5, 0.5))
