"""Brightness, contrast and saturation."""

from __future__ import annotations

import numpy as np

from classwise.data.corruptions.chance import Bytes, Chance, Doubles, to_bytes


def contrast(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """Each channel drawn towards its mean: (x − x̄)·c + x̄."""
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    x = images / 255
    mean = x.mean(axis=(1, 2), keepdims=True)
    return to_bytes((x - mean) * factor + mean)


def brightness(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """V + c in HSV."""
    hue, saturation, value = to_hsv(images / 255)
    value = np.clip(value + (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1], 0, 1)
    return to_bytes(to_rgb(hue, saturation, value))


def saturate(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """a·S + b in HSV: the first two severities take colour away, the others add it."""
    factor, more = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[severity - 1]
    hue, saturation, value = to_hsv(images / 255)
    return to_bytes(to_rgb(hue, np.clip(saturation * factor + more, 0, 1), value))


def to_hsv(rgb: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Hue, saturation and value in [0,1]; grey has hue and saturation 0."""
    red, green, blue = np.moveaxis(rgb, -1, 0)
    value: Doubles = rgb.max(axis=-1)
    spread = value - rgb.min(axis=-1)
    colourless = spread == 0
    divisor = np.where(colourless, 1, spread)
    sixths = np.where(
        blue == value,
        4 + (red - green) / divisor,
        np.where(green == value, 2 + (blue - red) / divisor, (green - blue) / divisor),
    )
    hue = np.where(colourless, 0, (sixths / 6) % 1)
    return hue, spread / np.where(colourless, 1, value), value


def to_rgb(hue: Doubles, saturation: Doubles, value: Doubles) -> Doubles:
    """The colours of `to_hsv`, by the six sectors of the hue circle."""
    sector = np.floor(hue * 6)
    within = hue * 6 - sector
    low = value * (1 - saturation)
    falling = value * (1 - within * saturation)
    rising = value * (1 - (1 - within) * saturation)
    place = sector.astype(np.int64) % 6
    red = np.choose(place, [value, falling, low, low, rising, value])
    green = np.choose(place, [rising, value, value, falling, low, low])
    blue = np.choose(place, [low, low, rising, value, value, falling])
    return np.stack([red, green, blue], axis=-1)
