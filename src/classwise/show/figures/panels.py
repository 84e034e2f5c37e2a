"""A grid of images with captions: what an attack changed, or the effect of another background on the prediction.

Tian et al. (KDD 2021), Figure 6: the same animal on two backgrounds, with the most likely classes of the clean and of
the attacked image. `triples` makes the table of the other usual grid: clean, adversarial, and their difference.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from PIL import Image

from classwise.core.adversarial_examples import rounded
from classwise.core.errors import UserError
from classwise.core.format import UNKNOWN
from classwise.results.audit_result import Audit
from classwise.show.figures.frames import Tables, table_of, tidy
from classwise.show.figures.style import Chart, side_by_side, table, with_tooltips
from classwise.stats.intervals import Array

_PNG = "data:image/png;base64,"
_GAP = 8  # points between two images
_LINE = 11  # points of a line of a caption
_REACH = 0.35  # how far from mid-grey the largest difference is shown; 0.5 would be black or white
_SPACE = 3  # points between an image and its caption


def draw(data: pd.DataFrame, cell: float = 84) -> Chart:
    """One image per row and column of the grid, in the order of the table; a place without an image stays empty.

    data: one row per image: row, column (their names), image (H×W or H×W×C, 8-bit or floating point in [0, 1], grey or
    RGB; or what `data_uri` makes of one), and caption if wanted, whose lines are parted by a newline.
    cell: the side of an image, in points.
    """
    frame, tips = with_tooltips(*_texts(_grid(data)))
    rows, columns = (list(frame[side].unique()) for side in ("row", "column"))
    beneath = _GAP + _LINE * (1 + int(frame["caption"].str.count("\n").max()) if frame["caption"].any() else 0)
    scale = alt.Scale(paddingInner=0, paddingOuter=0)
    bare: dict[str, Any] = {"ticks": False, "domain": False, "labelOverlap": False}
    base = alt.Chart(table(frame), width=alt.Step(cell + beneath), height=alt.Step(cell + beneath)).encode(
        x=alt.X("column:N", sort=columns, scale=scale, title=None, axis=alt.Axis(orient="top", labelAngle=0, **bare))
    )
    left = alt.Axis(labelOffset=-beneath / 2, **bare)
    middle = alt.Y("row:N", sort=rows, scale=scale, title=None, axis=left)
    bottom = alt.Y("row:N", sort=rows, scale=scale, title=None, axis=left, bandPosition=1)
    # By the band's width and not the cell's, so that images follow where a file is made wider or narrower.
    room = alt.ExprRef(expr=f"max(1, bandwidth('x') - {beneath})")
    images = base.mark_image(width=room, height=room, yOffset=-beneath / 2, aspect=True, smooth=False, aria=True)
    text = base.mark_text(
        baseline="top", dy=_SPACE - beneath, lineHeight=_LINE, lineBreak="\n", limit=alt.ExprRef(expr="bandwidth('x')")
    )
    # Described, because a screen reader would read the address out.
    return images.encode(url="image:N", y=middle, **tips) + text.encode(text="caption:N", y=bottom)


def triples(
    clean: Sequence[Array], adversarial: Sequence[Array], names: Sequence[str], captions: Sequence[str] | None = None
) -> pd.DataFrame:
    """The table of clean images, adversarial ones and their amplified differences, a row of the grid per image.

    captions: of the adversarial images. All differences are amplified by the same factor, so that rows can be compared.
    """
    texts = [""] * len(names) if captions is None else list(captions)
    counts = {"clean": len(clean), "adversarial": len(adversarial), "names": len(names), "captions": len(texts)}
    if len(set(counts.values())) != 1 or not names:
        got = ", ".join(f"{count} {what}" for what, count in counts.items())
        raise UserError(f"triples takes one name, and one caption if any, for each pair of images; got {got}.")
    widest = max(float(np.abs(_unit(b) - _unit(a)).max()) for a, b in zip(clean, adversarial, strict=True))
    times = max(1, int(_REACH / widest + 1e-6)) if widest else 1
    rows: list[dict[str, Any]] = []
    for name, before, after, caption in zip(names, clean, adversarial, texts, strict=True):
        rows += [
            {"row": name, "column": "clean", "image": before, "caption": ""},
            {"row": name, "column": "adversarial", "image": after, "caption": caption},
            {"row": name, "column": f"difference ×{times}", "image": difference(before, after, times), "caption": ""},
        ]
    return pd.DataFrame(rows)


def difference(clean: Array, adversarial: Array, times: float) -> Array:
    """adversarial − clean, `times` as large, around mid-grey, as 8 bits."""
    return rounded(0.5 + times * (_unit(adversarial) - _unit(clean)))


def data_uri(image: Array | str) -> str:
    """An image, H×W or H×W×C, as a PNG in a data URI, so that a page or a chart includes it."""
    if isinstance(image, str):
        if not image.startswith(_PNG):
            raise UserError(f"an image is an array, or a text that begins with {_PNG}; got {image[:40]!r}.")
        return image
    held = io.BytesIO()
    Image.fromarray(rounded(_unit(image))).save(held, format="PNG", optimize=True)
    return _PNG + base64.b64encode(held.getvalue()).decode()


def _grid(data: pd.DataFrame) -> pd.DataFrame:
    """The table with its images as addresses and a caption in each row."""
    frame = tidy(data, "panels", names=("row", "column"), others=("image",))
    frame["caption"] = data["caption"].fillna("").astype(str).to_numpy() if "caption" in data else ""
    if (twice := frame.duplicated(["row", "column"])).any():
        row, column = frame.loc[twice, ["row", "column"]].iloc[0]
        raise UserError(f"two images share the row {row!r} and the column {column!r}; give each row its own name.")
    return frame.assign(image=frame["image"].map(data_uri))


def _texts(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, pd.Series[str]]]:
    """The images, and the texts of their tooltips, with captions where there are any."""
    texts = {"row": frame["row"], "column": frame["column"]}
    captions = frame["caption"].str.replace("\n", ", ").replace("", UNKNOWN)
    return frame, texts | ({"caption": captions} if frame["caption"].any() else {})


def _unit(image: Array) -> Array:
    """The pixels in [0, 1], of shape H×W or H×W×3."""
    pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if not pixels.size or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        raise UserError(
            f"an image is an array of H×W, H×W×1 or H×W×3; got the shape {'×'.join(map(str, np.shape(image)))}. "
            "Move the channels to the end with np.moveaxis(image, 0, -1)."
        )
    if pixels.dtype == np.uint8:
        return pixels / 255
    if not np.issubdtype(pixels.dtype, np.floating) or not (pixels.min() >= 0 and pixels.max() <= 1):
        raise UserError(
            f"an image holds 8-bit pixels or numbers in [0, 1]; got {pixels.dtype} "
            f"from {pixels.min():g} to {pixels.max():g}. Scale it first."
        )
    return pixels.astype(np.float64)


def from_runs(audits: Mapping[str, Audit], attack: str | None = None, count: int = 4) -> Chart:
    """The images that an audit kept and the attack broke: clean, adversarial, and the difference amplified.

    count: so many of each audit, the most confident errors, of different classes as far as there are.
    """
    if count < 1:
        raise UserError(f"panels.count must be at least 1, got {count}.")
    return side_by_side({name: draw(_broken(name, audit, attack, count)) for name, audit in audits.items()}, columns=1)


def _broken(name: str, audit: Audit, attack: str | None, count: int) -> pd.DataFrame:
    chosen = attack or audit.attacks[-1]  # of several radii the largest
    kept, rows, names = audit.adversarial(chosen), audit.rows(chosen), audit.records.class_names
    sure = pd.Series(rows.frame["confidence"].to_numpy(), index=rows.index).reindex(kept["index"]).to_numpy()
    if "clean" not in kept:
        raise UserError(f"{name} kept no clean images (a run of an earlier version); audit it again to show changes.")
    wrong = np.flatnonzero(kept["prediction"] != kept["label"])
    if not wrong.size:
        raise UserError(f"{chosen} broke no image that {name} kept; there is nothing to show.")
    order = wrong[np.argsort(-sure[wrong], kind="stable")]
    again = pd.Series(kept["label"][order]).groupby(kept["label"][order]).cumcount().to_numpy()
    shown = order[np.argsort(again, kind="stable")][:count]
    clean, attacked = (list(np.moveaxis(kept[part][shown], 1, -1)) for part in ("clean", "exact"))
    titles = [f"{names[kept['label'][at]]}, image {kept['index'][at]}" for at in shown]
    return triples(clean, attacked, titles, [names[kept["prediction"][at]] for at in shown])


def from_study(studies: Mapping[str, Tables]) -> Chart:
    """The pictures that background shows: the class in question, and the digits in front of their colours."""
    grids = {
        f"{study}: {title}" if len(studies) > 1 else str(title): draw(own)
        for study, frame in table_of(studies, "panels").items()
        for title, own in frame.groupby("model", sort=False)
    }
    return side_by_side(grids, columns=1)
