"""Corruptions as data sets: names, the lazy view, its draws, and the released files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from classwise.core.errors import UserError
from classwise.data import cifar100_c, corruptions
from classwise.data import load as load_data
from classwise.data.corruption import corrupt
from classwise.data.images import ArrayPixels, Images
from for_each import for_each


def pictures(count: int = 6, side: int = 32, channels: int = 3) -> Images:
    """Smooth patches of full contrast with some grain: enough like photographs for blurs and noise to matter."""
    rng = np.random.default_rng(1)
    smooth = ndimage.gaussian_filter(rng.normal(size=(count, channels, side, side)), (0, 0, 3, 3))
    grained = smooth / smooth.std() * 50 + 128 + rng.normal(size=smooth.shape) * 6
    array = np.clip(grained, 0, 255).astype(np.uint8)
    return Images(ArrayPixels(array), np.arange(count) % 2, ("ant", "bee"), "pictures")


def rms(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).pow(2).mean().sqrt())


def everything(images: Images) -> torch.Tensor:
    return images.batch(np.arange(len(images)))[0]


def test_fifteen_are_the_benchmark_and_four_are_extra() -> None:
    assert len(corruptions.STANDARD) == 15
    assert corruptions.EXTRA == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert sorted(corruptions.NAMES) == sorted(name for names in corruptions.CATEGORIES.values() for name in names)
    standard = {
        kind: [name for name in names if name in corruptions.STANDARD] for kind, names in corruptions.CATEGORIES.items()
    }
    assert {kind: len(names) for kind, names in standard.items()} == {"noise": 3, "blur": 4, "weather": 4, "digital": 4}
    assert corruptions.category("spatter") == "weather"


@for_each("kind", corruptions.NAMES)
def test_each_corruption_changes_images_and_gives_whole_levels(kind: str) -> None:
    clean = pictures(3)
    before = everything(clean)
    for severity in corruptions.SEVERITIES:
        after = everything(corrupt(clean, kind, severity))
        assert after.shape == before.shape
        assert after.dtype == torch.float32
        torch.testing.assert_close((after * 255).round() / 255, after)
        assert 0.001 < rms(before, after) < 0.5
    torch.testing.assert_close(everything(clean), before, msg="the clean images were written to")


@for_each("kind", corruptions.NAMES)
def test_an_image_is_corrupted_alike_in_every_batch(kind: str) -> None:
    made = corrupt(pictures(), kind, 4, seed=3)
    whole = everything(made)
    torch.testing.assert_close(made.batch(np.array([4, 1]))[0], whole[[4, 1]], rtol=0, atol=0)
    kept = made.take(np.array([5, 2]))
    torch.testing.assert_close(kept.batch(np.array([1]))[0], whole[[2]], rtol=0, atol=0)


RANDOM = sorted(
    set(corruptions.NAMES)
    - {
        "defocus_blur",
        "zoom_blur",
        "brightness",
        "contrast",
        "pixelate",
        "jpeg_compression",
        "gaussian_blur",
        "saturate",
    }
)


@pytest.mark.slow
@for_each("kind", corruptions.NAMES)
def test_the_seed_matters_where_there_is_chance(kind: str) -> None:
    first, second = (everything(corrupt(pictures(), kind, 3, seed=seed)) for seed in (0, -1))
    assert (rms(first, second) > 0) == (kind in RANDOM)


def test_two_examples_with_the_same_pixels_differ_in_their_draws() -> None:
    array = np.repeat(pictures(1).pixels.array, 2, axis=0)
    noisy = everything(corrupt(Images(ArrayPixels(array), np.zeros(2), ("ant",)), "gaussian_noise"))
    assert rms(noisy[0], noisy[1]) > 0.05


def test_severities_and_kinds_draw_apart() -> None:
    array = np.full((1, 3, 32, 32), 128, np.uint8)
    grey = Images(ArrayPixels(array), np.zeros(1), ("ant",))
    noises = [everything(corrupt(grey, *which)).flatten() for which in (("gaussian_noise", 1), ("gaussian_noise", 5))]
    noises.append(everything(corrupt(grey, "speckle_noise", 5)).flatten())
    assert np.abs(np.corrcoef(torch.stack(noises).numpy()) - np.eye(3)).max() < 0.06


#: The original's others do not all grow with severity: glass blur softens what it shuffles, motion blur has the same σ
#: at 3 and 4, frost keeps less of the image at 4 but adds no more, elastic transform trades its affine part for
#: roughness, spatter turns from water to mud, saturate first takes colour away.
GROWING = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "defocus_blur", "gaussian_blur",
    "zoom_blur", "snow", "fog", "brightness", "contrast", "pixelate", "jpeg_compression",
)  # fmt: skip


@pytest.mark.slow
@for_each("kind", GROWING)
def test_distance_grows_with_severity(kind: str) -> None:
    clean = pictures(24)
    distances = [rms(everything(clean), everything(corrupt(clean, kind, s))) for s in corruptions.SEVERITIES]
    assert distances == sorted(distances)
    assert distances[4] > 1.3 * distances[0]


@pytest.mark.slow
@for_each("side", [8, 20, 64])
@for_each("kind", corruptions.NAMES)
def test_other_sizes_are_served(kind: str, side: int) -> None:
    clean = pictures(2, side)
    assert everything(corrupt(clean, kind, 5)).shape == (2, 3, side, side)


@for_each("kind", corruptions.NAMES)
def test_grey_images_are_served_or_refused(kind: str) -> None:
    grey = pictures(2, 16, channels=1)
    if kind in corruptions.COLOUR_ONLY:
        with pytest.raises(UserError, match=rf"{kind} needs colour, .*pictures have 1 channel\. These work: gaussian"):
            corrupt(grey, kind)
    else:
        assert rms(everything(grey), everything(corrupt(grey, kind))) > 0.001


def test_a_long_read_is_the_short_ones_in_a_row() -> None:
    clean = pictures(300, 8)
    made = corrupt(clean, "shot_noise", 2)
    one_by_one = torch.cat([made.batch(np.array([row]))[0] for row in (0, 255, 256, 299)])
    torch.testing.assert_close(everything(made)[[0, 255, 256, 299]], one_by_one, rtol=0, atol=0)
    assert made.batch(np.arange(0))[0].shape == (0, 3, 8, 8)


def test_a_spec_names_what_is_corrupted() -> None:
    images = load_data("corruption:of=digits,kind=contrast,severity=5,seed=7")
    clean = load_data("digits")
    assert images.name == "corruption:of=digits,kind=contrast,severity=5,seed=7"
    assert images.labels.tolist() == clean.labels.tolist()
    assert images.batch(np.arange(4))[0].std() < 0.2 * clean.batch(np.arange(4))[0].std()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("corruption:of=digits,kind=fogg", "unknown corruption 'fogg'; did you mean 'fog'"),
        ("corruption:of=digits,kind=fog,severity=6", r"severity must be .* from 1 \(mild\) to 5 \(severe\), got 6"),
        ("corruption:of=digit,kind=fog", "unknown data set 'digit'; did you mean 'digits'"),
        ("corruption:of=digits,sort=fog", "unknown setting of corruption 'sort'"),
        ("cifar10_c:kind=fog,severity=0", "severity must be"),
        ("cifar10_c:kind=mist", "unknown corruption 'mist'"),
    ],
)
def test_errors_name_what_is_wrong(spec: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=why):
        load_data(spec, root=tmp_path)


@pytest.mark.parametrize(("height", "width"), [(32, 24), (4, 4)])
def test_images_must_be_square_and_not_tiny(height: int, width: int) -> None:
    images = Images(ArrayPixels(np.zeros((1, 3, height, width), np.uint8)), np.zeros(1), ("ant",), "odd")
    with pytest.raises(UserError, match=f"square images of at least 8 pixels; those of odd are {height}×{width}"):
        corrupt(images, "fog")


def photograph(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (200, 240)) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def test_frost_of_the_users_photographs(tmp_path: Path) -> None:
    shades = range(10, 70, 10)
    for number, shade in enumerate(shades, start=1):
        photograph(tmp_path / "frost" / f"frost{number}.png", (shade, shade, 200))
    clean = Images(ArrayPixels(np.full((60, 3, 32, 32), 100, np.uint8)), np.zeros(60), ("ant",), "grey")
    made = corrupt(clean, "frost", 5, frost=str(tmp_path / "frost"))
    values = (everything(made) * 255).round()
    # ⌊0.75·100 + 0.45·shade⌋; the sixth photograph is never drawn.
    assert set(values[:, 0].unique().tolist()) == {79.0, 84.0, 88.0, 93.0, 97.0}
    assert values[:, 2].unique().tolist() == [165.0]
    assert made.name.endswith(f",frost={tmp_path / 'frost'}")


def test_a_photograph_is_made_small_by_taking_every_fifth_pixel(tmp_path: Path) -> None:
    from classwise.data.corruptions.frost import photographs

    pixels = np.random.default_rng(0).integers(0, 256, (203, 199, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "pane.png")
    small = photographs(tmp_path, 32)[0]
    assert small.shape == (41, 40, 3), "as round(0.2·side)"
    # (i + ½)·5 − ½ = 5i + 2 is a whole number, where bilinear interpolation is the pixel itself.
    np.testing.assert_array_equal(small, pixels[2::5, 2::5])


def test_generated_frost_says_so() -> None:
    made = corrupt(pictures(), "frost")
    assert made.name == "corruption:of=pictures,kind=frost,severity=3,seed=0,frost=generated"


@pytest.mark.parametrize(
    ("size", "why"), [(None, "there is no folder '.*frost' with images in it"), ((100, 170), "longer than 160")]
)
def test_frost_needs_photographs_large_enough(tmp_path: Path, size: tuple[int, int] | None, why: str) -> None:
    if size is not None:
        photograph(tmp_path / "frost" / "frost1.png", (9, 9, 9), size)
    with pytest.raises(UserError, match=why):
        corrupt(pictures(), "frost", frost=str(tmp_path / "frost"))


def test_a_photograph_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "frost1.png").write_bytes(b"not a picture")
    with pytest.raises(UserError, match=r"frost: cannot read the image .*frost1\.png"):
        corrupt(pictures(), "frost", frost=str(tmp_path))


def released(folder: Path, count: int = 3, kind: str = "fog") -> np.ndarray:
    """A CIFAR-C folder of a few images at five severities, and its array."""
    folder.mkdir(parents=True)
    array = np.random.default_rng(2).integers(0, 256, (5 * count, 32, 32, 3), dtype=np.uint8)
    np.save(folder / f"{kind}.npy", array)
    np.save(folder / "labels.npy", np.tile(np.arange(count, dtype=np.uint8), 5))
    return array


def test_the_released_files_hold_one_severity_after_another(tmp_path: Path) -> None:
    array = released(tmp_path / "CIFAR-10-C")
    images = load_data("cifar10_c:kind=fog,severity=4", root=tmp_path)
    assert images.labels.tolist() == [0, 1, 2]
    assert images.positions.tolist() == [0, 1, 2], "the index is the clean test set's"
    assert images.name == "cifar10_c:kind=fog,severity=4"
    assert images.superclasses is not None
    x, y = images.batch(np.array([2, 0]))
    assert y.tolist() == [2, 0]
    np.testing.assert_array_equal((x * 255).round().permute(0, 2, 3, 1), array[[11, 9]])


def test_the_released_files_are_mapped_and_not_read(tmp_path: Path) -> None:
    released(tmp_path / "CIFAR-100-C")
    pixels = cifar100_c.load(tmp_path, kind="fog", severity=1).pixels
    base = pixels.array
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert cifar100_c.load(tmp_path, kind="fog").class_names[0] == "apple"


def test_a_released_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    released(tmp_path / "CIFAR-10-C")
    with pytest.raises(UserError, match=r"cifar10_c: there is no .*CIFAR-10-C.snow\.npy"):
        load_data("cifar10_c:kind=snow", root=tmp_path)
    with pytest.raises(UserError, match="unknown split of cifar10_c 'train'"):
        load_data("cifar10_c:kind=fog", root=tmp_path, split="train")


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("fog", np.zeros((14, 32, 32, 3), np.uint8), r"\(14, 32, 32, 3\) is not a colour test set at five severities"),
        ("fog", np.zeros((15, 32, 32, 3)), "float64 of shape"),
        ("fog", np.zeros((15, 32, 32), np.uint8), "is not a colour test set"),
        ("fog", np.array([{}]), "is damaged"),
        ("labels", np.zeros(14, np.uint8), r"labels\.npy is damaged: .*\(14,\), where 15 labels were expected"),
    ],
)
def test_a_released_file_with_a_wrong_content_is_named(
    tmp_path: Path, file: str, content: np.ndarray, why: str
) -> None:
    released(tmp_path / "CIFAR-10-C")
    np.save(tmp_path / "CIFAR-10-C" / f"{file}.npy", content, allow_pickle=True)
    with pytest.raises(UserError, match=why):
        load_data("cifar10_c:kind=fog", root=tmp_path)
