"""Each corruption against its formula: worked by hand, by another library, or pixel by pixel as the original does."""

from __future__ import annotations

import colorsys
import io
import itertools
import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from classwise.core import rng
from classwise.data import corruptions
from classwise.data.corruptions import digital, spatter
from classwise.data.corruptions.blur import smear
from classwise.data.corruptions.chance import Bytes, Chance
from classwise.data.corruptions.weather import plasma

SEVERITIES = pytest.mark.parametrize("severity", corruptions.SEVERITIES)


def chance(count: int) -> Chance:
    return Chance(rng.keys(5, torch.arange(count)))


def apply(name: str, images: Bytes, severity: int) -> Bytes:
    return corruptions.find(name)(images, chance(len(images)), severity)


def random_images(count: int = 2, side: int = 32) -> Bytes:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def flat(value: int, count: int = 16, side: int = 32) -> Bytes:
    return np.full((count, side, side, 3), value, np.uint8)


def point(row: int = 16, column: int = 16) -> Bytes:
    image = flat(0, 1)
    image[0, row, column] = 255
    return image


@pytest.mark.parametrize(("severity", "sigma"), [(1, 0.04), (5, 0.10)])
def test_gaussian_noise_has_its_scale_everywhere(severity: int, sigma: float) -> None:
    for value in (102, 128):
        noise = apply("gaussian_noise", flat(value), severity) / 255 - (value - 0.5) / 255
        assert noise.std() == pytest.approx(sigma, rel=0.02)
        assert noise.mean() == pytest.approx(0, abs=0.002), "truncation takes off half a level"


@pytest.mark.parametrize(("severity", "sigma"), [(1, 0.06), (5, 0.2)])
def test_speckle_noise_grows_with_the_value(severity: int, sigma: float) -> None:
    for value in (60, 120):
        assert apply("speckle_noise", flat(value), severity).std() == pytest.approx(sigma * value, rel=0.03)


@pytest.mark.parametrize(("severity", "quanta"), [(1, 500), (3, 100), (5, 50)])
def test_shot_noise_is_poisson(severity: int, quanta: int) -> None:
    for value in (3, 90):
        made = apply("shot_noise", flat(value, 32), severity) / 255
        assert made.mean() == pytest.approx((value - 0.45) / 255, abs=0.0025)
        # Truncation to a level adds the variance of a uniform error.
        variance = value / 255 / quanta + 1 / 255**2 / 12
        assert made.var() == pytest.approx(variance, rel=0.08)
        counts = np.unique(apply("shot_noise", flat(value, 1), severity))
        assert set(counts) <= {int(count / quanta * 255) for count in range(quanta + 1)}
    assert not apply("shot_noise", flat(0, 1), severity).any()


@pytest.mark.parametrize(("severity", "amount"), [(1, 0.01), (5, 0.07)])
def test_impulse_noise_turns_values_to_black_or_white(severity: int, amount: float) -> None:
    made = apply("impulse_noise", flat(100, 64), severity)
    assert set(np.unique(made)) == {0, 100, 255}
    assert (made == 0).mean() == pytest.approx(amount / 2, rel=0.1)
    assert (made == 255).mean() == pytest.approx(amount / 2, rel=0.1)
    assert len(np.unique(made[made.std(axis=-1) > 0], axis=0)) > 2, "channels are struck one by one"


def test_defocus_is_a_softened_disk() -> None:
    plus = apply("defocus_blur", point(), 4)[0, 14:19, 14:19, 0]
    assert np.count_nonzero(plus) == 5
    assert set(plus[plus > 0]) <= {50, 51}
    box = apply("defocus_blur", point(), 5)[0, 14:19, 14:19, 0]
    np.testing.assert_array_equal(box[1:4, 1:4], np.full((3, 3), 28))
    assert box.sum() == 9 * 28
    # Radius 0.3 holds one pixel, so only the rim's Gaussian is left: exp(−1/(2·0.4²)) = 0.0439 beside 1.
    tap = math.exp(-1 / (2 * 0.4**2))
    mild = apply("defocus_blur", point(), 1)[0, 15:18, 15:18, 0]
    np.testing.assert_array_equal(mild[1], [int(255 * t / (1 + 2 * tap) ** 2) for t in (tap, 1, tap)])


def test_defocus_mirrors_about_the_border_pixel() -> None:
    beside, border = (apply("defocus_blur", point(0, column), 5)[0, 0, 0, 0] for column in (1, 0))
    assert (beside, border) == (56, 28), "pixel 1 is seen twice by pixel 0, itself only once"


@SEVERITIES
def test_gaussian_blur_by_hand(severity: int) -> None:
    sigma = (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]
    taps = np.exp(-(np.arange(-4, 5) ** 2) / (2 * sigma**2))
    taps[np.abs(np.arange(-4, 5)) > int(4 * sigma + 0.5)] = 0
    taps /= taps.sum()
    made = apply("gaussian_blur", point(), severity)[0, 12:21, 12:21, 1]
    np.testing.assert_array_equal(made, (255 * np.outer(taps, taps)).astype(np.uint8))


@SEVERITIES
def test_glass_blur_is_the_original_scan(severity: int) -> None:
    images, side = random_images(2, 12), 12
    sigma, passes = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]

    def blurred(image: Bytes) -> np.ndarray:
        return ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest")

    made = apply("glass_blur", images, severity)
    for number, image in enumerate(images):
        x = np.uint8(blurred(image) * 255)
        for turn in range(passes):
            moves = chance(2).uniform(2, side - 2, side - 2, stream=turn)[number] < 0.5
            for h, w in itertools.product(range(side - 1, 1, -1), repeat=2):
                there = h - moves[0, h - 2, w - 2], w - moves[1, h - 2, w - 2]
                x[h, w], x[there] = x[there], x[h, w]  # views, so this copies
        np.testing.assert_array_equal(made[number], np.uint8(blurred(x) * 255))


def test_a_smear_is_a_one_sided_gaussian() -> None:
    weights = [math.exp(-(k**2) / 8) for k in range(9)]
    made = smear(point()[..., :1], 4, 2.0, np.array([0.0]))[0, :, :, 0]
    expected = [round(255 * weight / sum(weights)) for weight in weights]
    np.testing.assert_array_equal(made[16, 8:17], expected[::-1])
    assert made.sum() == sum(expected), "one row only"


def test_a_smear_reads_along_its_angle_and_repeats_the_border() -> None:
    images, angles = random_images(3, 10), np.array([-31.0, 41.0, -134.0])
    made = smear(images, 3, 1.5, angles)
    weights = np.array([math.exp(-(k**2) / 4.5) for k in range(7)])
    for number, angle in enumerate(np.deg2rad(angles)):
        for row, column in [(0, 0), (4, 7), (9, 9), (5, 1)]:
            total = 0.0
            for k, weight in enumerate(weights / weights.sum()):
                there = row + round(k * math.sin(angle)), column + round(k * math.cos(angle))
                total += weight * images[number, min(max(there[0], 0), 9), min(max(there[1], 0), 9), 1]
            assert made[number, row, column, 1] == round(total)


def test_motion_blur_keeps_to_45_degrees() -> None:
    made = apply("motion_blur", np.repeat(point(), 64, axis=0), 5)[..., 0] > 0
    columns = made.any(axis=1).sum(axis=1)
    rows = made.any(axis=2).sum(axis=1)
    assert (columns >= rows).all()
    assert rows.min() < 3 < rows.max()


@SEVERITIES
def test_zoom_blur_is_the_mean_of_zooms(severity: int) -> None:
    image = random_images(1)[0]
    count, end = ((7, 1.06), (12, 1.11), (16, 1.16), (21, 1.21), (26, 1.26))[severity - 1]
    x = (image / 255).astype(np.float32)
    factors = np.arange(1, end, 0.01)
    assert len(factors) == count
    total = x.copy()
    for factor in factors:
        crop = math.ceil(32 / factor)
        top = (32 - crop) // 2
        zoomed = ndimage.zoom(x[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
        cut = (len(zoomed) - 32) // 2
        total += zoomed[cut : cut + 32, cut : cut + 32]
    expected = (total / (count + 1) * 255).astype(np.uint8)
    made = apply("zoom_blur", image[None], severity)[0]
    difference = np.abs(made.astype(int) - expected)
    assert difference.max() <= 1
    assert (difference == 0).mean() > 0.999, "a last bit may tip the truncation"


@pytest.mark.parametrize(("severity", "share"), [(1, 0.95), (2, 0.9), (5, 0.8)])
def test_snow_bleaches_and_falls_from_both_sides(severity: int, share: float) -> None:
    images = flat(51, 8)  # 0.2: bleached to 1.5·0.2 + 0.5 = 0.8
    made = apply("snow", images, severity)
    assert made.min() == pytest.approx(255 * (share * 0.2 + (1 - share) * 0.8), abs=1)
    np.testing.assert_array_equal(made, made[:, ::-1, ::-1])
    assert made.max() > 100
    assert (made[..., 0] == made[..., 2]).all(), "snow has no colour"


def test_fog_pales_and_black_stays_black() -> None:
    assert not apply("fog", flat(0, 2), 5).any()
    for severity, c in ((1, 0.2), (5, 1.5)):
        made = apply("fog", flat(255, 4), severity) / 255
        heights = plasma(chance(4), 32, (3.0, 3.0, 2.5, 2.0, 1.75)[severity - 1])
        np.testing.assert_allclose(made[..., 0], np.minimum(1, (1 + c * heights) / (1 + c)), atol=1.01 / 255)


def test_plasma_is_diamond_square_on_a_torus() -> None:
    side, decay = 8, 2.5
    made = plasma(chance(2), side, decay)
    for number in range(2):
        grid = np.zeros((side, side))
        for level, step in enumerate((8, 4, 2)):
            half, reach, count = step // 2, 100 / decay**level, side // step
            wobble = chance(2).uniform(3, count, count, low=-reach, high=reach, stream=level)[number] * reach

            def mean(places: list[tuple[int, int]], grid: np.ndarray = grid) -> float:
                return sum(grid[row % side, column % side] for row, column in places) / 4

            cells = list(itertools.product(range(count), repeat=2))
            for i, j in cells:
                corners = [(a, b) for a in (i * step, i * step + step) for b in (j * step, j * step + step)]
                grid[i * step + half, j * step + half] = mean(corners) + wobble[0, i, j]
            for which, (down, right) in ((1, (0, half)), (2, (half, 0))):
                for i, j in cells:
                    row, column = i * step + down, j * step + right
                    near = [(row - half, column), (row + half, column), (row, column - half), (row, column + half)]
                    # The other kind of diamond is not read: the four neighbours are corners and centres.
                    grid[row, column] = mean(near) + wobble[which, i, j]
        grid -= grid.min()
        np.testing.assert_allclose(made[number], grid / grid.max(), atol=1e-12)
    assert plasma(chance(3), 20, 3.0).shape == (3, 32, 32)


@SEVERITIES
def test_contrast_by_hand(severity: int) -> None:
    image, factor = random_images(1, 8), (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    made = apply("contrast", image, severity)
    for row, column, channel in [(0, 0, 0), (3, 5, 1), (7, 7, 2)]:
        mean = sum(image[0, :, :, channel].ravel().tolist()) / 64
        assert made[0, row, column, channel] == int((image[0, row, column, channel] - mean) * factor + mean)


@SEVERITIES
@pytest.mark.parametrize("name", ["brightness", "saturate"])
def test_hue_saturation_value_as_in_the_standard_library(name: str, severity: int) -> None:
    image = random_images(1, 16)
    image[0, 0, :4] = [[0, 0, 0], [255, 255, 255], [90, 90, 90], [10, 200, 200]]
    more = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    factor, plus = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    expected = []
    for pixel in image.reshape(-1, 3) / 255:
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        changed = (h, s, min(v + more, 1)) if name == "brightness" else (h, min(s * factor + plus, 1), v)
        expected.append([255 * value for value in colorsys.hsv_to_rgb(*changed)])
    made = apply(name, image, severity).reshape(-1, 3)
    np.testing.assert_array_less(np.abs(made + 0.5 - np.array(expected)), 0.5 + 1e-6)  # truncated, up to a last bit


@SEVERITIES
def test_pixelate_and_jpeg_are_pillows(severity: int) -> None:
    images = random_images(2)
    side = (30, 28, 27, 24, 20)[severity - 1]
    quality = (80, 65, 58, 50, 40)[severity - 1]
    pixelated, compressed = apply("pixelate", images, severity), apply("jpeg_compression", images, severity)
    for number, array in enumerate(images):
        picture = Image.fromarray(array)
        box = Image.Resampling.BOX
        np.testing.assert_array_equal(pixelated[number], picture.resize((side, side), box).resize((32, 32), box))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        np.testing.assert_array_equal(compressed[number], Image.open(buffer))


@pytest.mark.parametrize(("mirror_pixel", "mode"), [(True, "mirror"), (False, "reflect")])
def test_sampling_beyond_the_border(mirror_pixel: bool, mode: str) -> None:
    rng = np.random.default_rng(3)
    image, places = rng.random((9, 9)), rng.uniform(-6, 14, (2, 9, 9))
    made = digital._sample(torch.from_numpy(image)[None, None], places[None], mirror_pixel)[0, 0]
    np.testing.assert_allclose(made, ndimage.map_coordinates(image, places[::-1], order=1, mode=mode), atol=1e-9)


def test_the_affine_map_brings_the_moved_corners_back() -> None:
    np.testing.assert_allclose(digital._affine(chance(1), 32, 0.0)[0], digital._grid(32), atol=1e-9)
    places = digital._affine(chance(3), 32, 3.0)
    moves = chance(3).uniform(3, 2, low=-3, high=3)
    for number in range(3):
        for corner, move in zip(([26, 26], [26, 6], [6, 6]), moves[number], strict=True):
            column, row = corner + move
            back = [ndimage.map_coordinates(plane, [[row], [column]], order=1)[0] for plane in places[number]]
            np.testing.assert_allclose(back, corner, atol=1 / 32)


def test_the_elastic_field_is_as_long_as_its_constants_say() -> None:
    ramp = np.broadcast_to(np.arange(32, dtype=np.uint8)[:, None] * 8, (1, 32, 32))[..., None]
    ramps = np.repeat(np.repeat(ramp, 40, axis=0), 3, axis=-1)
    for severity, most in ((1, 8), (5, 8)):
        moved = (apply("elastic_transform", ramps, severity).astype(float) - ramps)[:, 10:22, 10:22, 0] / 8
        assert 0.3 < np.abs(moved).mean() < 2
        assert np.abs(moved).max() < most
    rough, smooth = (np.diff(apply("elastic_transform", ramps, s).astype(float), 2, axis=1).std() for s in (5, 2))
    assert rough > 1.5 * smooth


def test_chamfer_distance_against_every_target() -> None:
    targets = np.random.default_rng(4).random((2, 14, 14)) < 0.02
    assert targets.any(axis=(1, 2)).all()
    made = spatter.chamfer(targets)
    for number, row, column in np.ndindex(2, 14, 14):
        distances = []
        for r, c in np.argwhere(targets[number]):
            long, short = sorted((abs(r - row), abs(c - column)), reverse=True)
            knights, rest = min(short, long - short), long - 2 * min(short, long - short)
            # Knight's moves as far as they go, then straight or diagonal for what is left.
            distances.append(2.1969 * knights + (rest if short <= long / 2 else 1.4 * (2 * short - long)))
        assert made[number, row, column] == pytest.approx(min(distances), abs=1e-3)
    assert np.isinf(spatter.chamfer(np.zeros((1, 4, 4), bool))).all()


def test_edges_of_a_step() -> None:
    step = np.zeros((1, 8, 8), np.int64)
    step[..., 4:] = 200
    found = spatter.edges(step)[0]
    # The gradient is the same in columns 3 and 4; of two equals the left one is the edge.
    np.testing.assert_array_equal(np.flatnonzero(found.any(axis=0)), [3])
    assert found[:, 3].all()
    assert np.flatnonzero(spatter.edges(step.transpose(0, 2, 1))[0].any(axis=1)).tolist() == [3]
    assert not spatter.edges(step // 20).any(), "a gradient of 40 is no edge"


def test_a_weak_edge_needs_a_strong_one() -> None:
    weak = np.zeros((2, 12, 8), np.int64)
    weak[..., 4:] = 25  # gradient 100: above the lower threshold, below the upper
    assert not spatter.edges(weak).any()
    weak[1, 8:, 4:] = 100
    found = spatter.edges(weak)
    assert not found[0].any(), "images do not lend each other edges"
    assert found[1, :6, 3].all()


def test_equalising_spreads_the_values() -> None:
    images = np.array([[[0, 0, 1, 3]], [[2, 2, 2, 2]]])
    np.testing.assert_array_equal(spatter.equalise(images), [[[0, 0, 128, 255]], [[2, 2, 2, 2]]])


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_water_only_brightens_towards_turquoise(severity: int) -> None:
    added = apply("spatter", flat(20), severity).astype(int) - 20
    assert added.min() >= -1, "a value may lose its last bit to truncation"
    assert (added[..., 1:].max(axis=(1, 2, 3)) == 119).all(), "½·238 at the brightest drop"
    assert added[..., 0].max() == pytest.approx(0.5 * 175, abs=1)
    assert 0.01 < (added > 2).mean() < 0.5


@pytest.mark.parametrize("severity", [4, 5])
def test_mud_covers(severity: int) -> None:
    made = apply("spatter", flat(200), severity).reshape(-1, 3)
    covered = made[made[:, 0] < 199]
    assert 0.005 < len(covered) / len(made) < 0.4
    share = (200 - covered.astype(float)) / (200 - np.array([63, 42, 20]))
    assert share.min() > 0.79
    assert share.max() < 1.02
