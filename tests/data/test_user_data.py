"""`from_user`: tensors, arrays, data sets and loaders, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

from classwise.core.errors import UserError
from classwise.data import from_user
from classwise.data.images import Images

X = torch.arange(6 * 3 * 4 * 4).reshape(6, 3, 4, 4).float() / 288
Y = torch.tensor([0, 2, 1, 2, 0, 1])


class Items(Dataset[Any]):
    """A map-style data set that counts how often an item is read."""

    def __init__(self, images: Any, labels: Any, /, **attributes: Any) -> None:
        self.images, self._labels, self.reads = images, labels, 0
        for name, value in attributes.items():
            setattr(self, name, value)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        self.reads += 1
        return self.images[row], self._labels[row]


class Stream(IterableDataset[Any]):
    classes: ClassVar[list[str]] = ["ant", "bee", "cow"]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(X, Y, strict=True)


def everything(images: Images) -> tuple[Tensor, list[int]]:
    x, y = images.batch(np.arange(len(images)))
    return x, y.tolist()


def assert_is_xy(images: Images) -> None:
    x, y = everything(images)
    torch.testing.assert_close(x, X)
    assert y == Y.tolist()
    assert images.positions.tolist() == list(range(6))


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X, Y],
        (X.double(), Y.int()),
        (X.numpy(), Y.numpy()),
        (X.clone().requires_grad_(), Y.tolist()),
        TensorDataset(X, Y),
        Items(X, Y),
        Items(X.numpy(), Y.numpy()),
        [(x, int(y)) for x, y in zip(X, Y, strict=True)],
        DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1)),
        Stream(),
        DataLoader(Stream(), batch_size=4),
        DataLoader(Stream(), batch_size=None),
    ],
)
def test_every_form_gives_the_same_images(data: Any) -> None:
    images = from_user(data)
    assert_is_xy(images)
    assert images.num_classes == 3


def test_images_pass_through() -> None:
    images = from_user((X, Y), class_names=["ant", "bee", "cow"])
    assert from_user(images) is images
    assert from_user(images, num_classes=3, class_names=["ant", "bee", "cow"]) is images
    with pytest.raises(UserError, match="already have 3 named classes"):
        from_user(images, num_classes=4)


def test_bytes_are_scaled_and_floats_are_left_alone() -> None:
    bytes_ = (X * 255).round().to(torch.uint8)
    torch.testing.assert_close(everything(from_user((bytes_, Y)))[0], bytes_ / 255)
    torch.testing.assert_close(everything(from_user((bytes_.numpy(), Y)))[0], bytes_ / 255)
    torch.testing.assert_close(everything(from_user(Items(bytes_, Y)))[0], bytes_ / 255)
    assert everything(from_user((X * 300 - 5, Y)))[0].min() == -5, "values outside [0,1] are for the audit to report"


def test_pil_items() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 5, 6, 3), dtype=np.uint8)
    colour = from_user(Items([Image.fromarray(p) for p in pixels], [0, 1]))
    np.testing.assert_allclose(everything(colour)[0].numpy() * 255, pixels.transpose(0, 3, 1, 2), atol=1e-4)
    grey = from_user(Items([Image.fromarray(p[..., 0]) for p in pixels], [0, 1]))
    np.testing.assert_allclose(everything(grey)[0].numpy() * 255, pixels[:, None, :, :, 0], atol=1e-4)


@pytest.mark.parametrize("attribute", ["targets", "labels"])
@pytest.mark.parametrize("form", [list, np.asarray, torch.as_tensor])
def test_stored_labels_spare_a_pass(attribute: str, form: Any) -> None:
    dataset = Items(X, Y, **{attribute: form(Y.tolist())})
    images = from_user(dataset)
    assert images.labels.tolist() == Y.tolist()
    assert dataset.reads == 1


@pytest.mark.parametrize(
    "attributes",
    [
        {"targets": [0, 1]},
        {"targets": [0.0] * 6},
        {"targets": [["box"]] * 6},
        {"targets": [5] * 6},
        {"targets": [0] * 6, "target_transform": int},
        {},
    ],
)
def test_labels_that_cannot_be_trusted_are_read_from_the_items(attributes: dict[str, Any]) -> None:
    dataset = Items(X, Y, **attributes)
    assert from_user(dataset).labels.tolist() == Y.tolist()
    assert dataset.reads == 7


def test_a_data_set_is_read_only_where_asked() -> None:
    dataset = Items(X, Y, targets=Y)
    from_user(dataset).batch(np.array([5, 1]))
    assert dataset.reads == 3


@pytest.mark.parametrize("mode", ["I;16", "I"])
def test_deep_pil_items_are_refused_rather_than_clipped(mode: str) -> None:
    with pytest.raises(UserError, match=r"item 0 of the data set is torch\.u?int.*; give uint8"):
        from_user(Items([Image.new(mode, (4, 4), 300)], [0]))


def test_reading_a_stream_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    from_user(DataLoader(Stream(), batch_size=4))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_subset_uses_what_lies_behind_it() -> None:
    dataset = Items(X, Y, targets=Y, classes=["ant", "bee", "cow"])
    images = from_user(Subset(Subset(dataset, [5, 3, 1]), [2, 0]))
    assert images.labels.tolist() == [2, 1]
    assert images.class_names == ("ant", "bee", "cow")
    assert dataset.reads == 1
    torch.testing.assert_close(everything(images)[0], X[[1, 5]])


def test_a_sampler_of_some_indices_is_respected() -> None:
    images = from_user(DataLoader(TensorDataset(X, Y), sampler=SubsetRandomSampler([4, 1])))
    assert images.positions.tolist() == [1, 4]
    assert images.labels.tolist() == [2, 0]


def test_class_names_and_numbers() -> None:
    dataset = Items(X, Y, classes=["ant", "bee", "cow"])
    assert from_user(dataset).class_names == ("ant", "bee", "cow")
    assert from_user(dataset, class_names="xyz").class_names == ("x", "y", "z")
    assert from_user(dataset, num_classes=5).class_names == ("0", "1", "2", "3", "4")
    assert from_user((X, Y), num_classes=4).num_classes == 4
    assert from_user((X, Y)).class_names == ("0", "1", "2")
    for data in (DataLoader(dataset), Stream(), DataLoader(Stream())):
        assert from_user(data).class_names == ("ant", "bee", "cow")


class Labelled:
    pass


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ((X[0], Y), {}, r"shape \(N, C, H, W\), got \(3, 4, 4\)"),
        ((torch.zeros(6, 8, 8, 3), Y), {}, r"the shape \(6, 8, 8, 3\) .* NCHW.*permute\(0, 3, 1, 2\)"),
        ((X, Y.float()), {}, "labels are float32; pass integer class numbers"),
        ((X, Y[:5]), {}, "6 images but 5 labels"),
        ((X, torch.eye(3)[Y].long()), {}, r"got the shape \(6, 3\).*argmax"),
        ((X, Y), {"num_classes": 2}, r"label 2 in data is outside the class range 0…1"),
        ((X, Y), {"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ((X, Y), {"num_classes": 4, "class_names": ["a", "b", "c"]}, "3 class names but num_classes=4"),
        ((X, Y - 1), {}, "label -1"),
        ((torch.where(X > 0.9, torch.nan, X), Y), {}, "NaN or infinite"),
        ((torch.where(X > 0.9, torch.nan, X).numpy(), Y), {}, "NaN or infinite"),
        ((X.long(), Y), {}, "images are torch.int64; pass uint8"),
        ((X[:0], Y[:0]), {}, "no pixel to read"),
        (TensorDataset(X[:0], Y[:0]), {}, "the data set is empty"),
        (TensorDataset(X, Y.float()), {}, "a label must be one integer class number"),
        (TensorDataset(X), {}, r"\(image, label\) pairs, got a tuple"),
        (Items(X[:, 0], Y), {}, r"item 0 of the data set has the shape \(4, 4\), expected \(C, H, W\)"),
        (Items(np.zeros((6, 8, 8, 3), np.uint8), Y), {}, r"the shape \(8, 8, 3\) of item 0 .*channels last"),
        ([{"image": 1}], {}, r"\(image, label\) pairs, got a dict"),
        (DataLoader(Stream()), {"num_classes": 1}, "outside the class range"),
        (Labelled(), {}, "cannot read images from a Labelled. Pass a pair"),
        (None, {}, "cannot read images from a NoneType"),
    ],
)
def test_what_is_wrong_is_named(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_user(data, **options)


def test_a_bad_item_is_named_when_it_is_read() -> None:
    images = from_user(Items([X[0], torch.full_like(X[0], torch.nan), X[2][:, :3]], [0, 1, 2]))
    with pytest.raises(UserError, match="item 1 of the data set holds NaN"):
        images.batch(np.array([0, 1]))
    with pytest.raises(UserError, match=r"item 0 has the shape \(3, 4, 4\), item 2 \(3, 3, 4\)"):
        images.batch(np.array([0, 2]))


class Slow(Dataset[tuple[Tensor, int]]):
    """Items that name the process that made them."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.full((1, 2, 2), os.getpid() % 251 / 251), row % 3


@pytest.mark.slow
def test_a_loaders_processes_read_a_map_style_data_set() -> None:
    images = from_user(DataLoader(Slow(), batch_size=4, num_workers=2, shuffle=True))
    assert images.labels.tolist() == [row % 3 for row in range(300)]
    many, few = images.batch(np.arange(200))[0], images.batch(np.arange(5))[0]
    here = np.float32(os.getpid() % 251 / 251)
    assert set(few.unique().tolist()) == {float(here)}
    assert len(many.unique()) == 2
    assert float(here) not in many
