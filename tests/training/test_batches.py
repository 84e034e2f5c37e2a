"""Batches: a function of seed and epoch, every example once, extra ones in their share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from classwise.core.errors import UserError
from classwise.data.images import ArrayPixels, Images
from classwise.training.batches import Source
from classwise.training.pseudo import PseudoLabelled


def images(count: int) -> Images:
    """Image n is grey with value n/1000, and of class n % 3; their numbers begin at 100."""
    pixels = np.arange(100 + count, dtype=np.float32)[:, None, None, None] / 1000
    index = np.arange(100, 100 + count)
    return Images(ArrayPixels(pixels), index % 3, ("a", "b", "c"), index=index)


def extras(count: int) -> PseudoLabelled:
    pixels = 0.9 + np.arange(count, dtype=np.float32)[:, None, None, None] / 1000
    return PseudoLabelled(ArrayPixels(pixels), np.where(np.arange(count) % 2, 1, -1))


def flat(source: Source, epoch: int, size: int = 4, seed: int = 0) -> list[int]:
    return np.concatenate(source.batches(epoch, size, seed)).tolist()


def test_an_epoch_is_a_permutation_and_each_a_different_one() -> None:
    source = Source(images(10))
    epochs = [flat(source, epoch) for epoch in range(3)]
    assert all(sorted(rows) == list(range(10)) for rows in epochs)
    assert len({tuple(rows) for rows in epochs}) == 3
    assert [len(rows) for rows in source.batches(0, 4, seed=0)] == [4, 4, 2]


def test_the_same_seed_and_epoch_give_the_same_batches_and_another_seed_others() -> None:
    assert flat(Source(images(10)), 5) == flat(Source(images(10)), 5)
    assert flat(Source(images(10)), 5) != flat(Source(images(10)), 5, seed=1)


def test_a_last_batch_too_small_for_batch_norm_or_the_processes_is_left_out() -> None:
    source = Source(images(9))
    assert [len(rows) for rows in source.batches(0, 4, 0)] == [4, 4]
    assert [len(rows) for rows in Source(images(11)).batches(0, 4, 0, least=4)] == [4, 4]


def test_batches_that_cannot_be_made_are_an_error() -> None:
    with pytest.raises(UserError, match=r"train\.batch = 1 makes no batch of at least 2 of 9 examples"):
        Source(images(9)).batches(0, 1, 0)


def test_epochs_of_another_length_run_through_one_permutation_after_another() -> None:
    source = Source(images(10), epoch_size=6)
    rows = [row for epoch in range(5) for row in flat(source, epoch, 3)]
    assert len(rows) == 30
    for begin in (0, 10, 20):
        assert sorted(rows[begin : begin + 10]) == list(range(10))


def test_extra_examples_have_their_share_of_every_batch() -> None:
    source = Source(images(10), extras(7), fraction=0.5, epoch_size=24)
    for epoch in range(3):
        batches = source.batches(epoch, 8, 0)
        assert [len(rows) for rows in batches] == [8, 8, 8]
        assert [int((rows >= 10).sum()) for rows in batches] == [4, 4, 4]
        assert max(rows.max() for rows in batches) < 17
    labelled = [row for epoch in range(5) for row in flat(source, epoch, 8) if row < 10]
    assert np.bincount(labelled).tolist() == [6] * 10  # sixty places, each example in turn
    assert flat(source, 1, 8) == flat(source, 1, 8)
    drawn = [[row for row in flat(source, epoch, 8) if row >= 10] for epoch in range(2)]
    assert drawn[0] != drawn[1]


def test_a_share_rounded_up_to_the_whole_batch_leaves_room_for_one() -> None:
    source = Source(images(10), extras(7), fraction=0.99)
    assert [int((rows < 10).sum()) for rows in source.batches(0, 4, 0)] == [1, 1, 1]


def test_images_labels_and_numbers_belong_together() -> None:
    source = Source(images(10), extras(7))
    rows = np.array([12, 3, 16, 0])
    found = source.read(rows)
    torch.testing.assert_close(found.x.flatten(), torch.tensor([0.902, 0.103, 0.906, 0.100]))
    assert found.y.tolist() == [-1, 103 % 3, -1, 100 % 3]
    assert found.index[[1, 3]].tolist() == [103, 100]
    assert found.index[[0, 2]].min() > 2**39  # never the number of a labelled one
    assert len(set(found.index.tolist())) == 4


def test_the_stream_is_the_batches_in_order() -> None:
    source = Source(images(10), extras(3), fraction=0.5)
    batches = source.batches(0, 4, 0)
    for rows, found in zip(batches, source.stream(batches), strict=True):
        expected = source.read(rows)
        assert torch.equal(found.x, expected.x)
        assert found.index.tolist() == expected.index.tolist()
    assert not list(source.stream([]))


def test_drawn_batches_have_the_classes_by_their_probabilities_and_the_images_of_a_class_alike() -> None:
    source = Source(images(9))  # three of each class
    rows = np.concatenate([source.draw(np.array([0.6, 0.3, 0.1]), 60, 0, 2, step) for step in range(50)])
    classes, members = np.bincount(source.train.labels[rows]), np.bincount(rows)
    assert stats.chisquare(classes, [1800, 900, 300]).pvalue > 1e-3
    for label in range(3):
        assert stats.chisquare(members[source.train.labels == label]).pvalue > 1e-3


def test_a_drawn_batch_is_a_function_of_seed_epoch_step_and_probabilities() -> None:
    source, share = Source(images(9)), np.array([0.5, 0.25, 0.25])
    first = source.draw(share, 8, 0, 1, 2).tolist()
    assert first == Source(images(9)).draw(share, 8, 0, 1, 2).tolist()
    others = [(share, 1, 1, 2), (share, 0, 0, 2), (share, 0, 1, 3), (share[::-1], 0, 1, 2)]
    assert all(source.draw(wanted, 8, *rest).tolist() != first for wanted, *rest in others)


def test_classes_without_images_are_not_drawn() -> None:
    source = Source(images(9).take(np.arange(0, 9, 3)))  # one class of three
    label = int(source.train.labels[0])
    assert {*source.train.labels[source.draw(np.array([0.2, 0.2, 0.6]), 20, 0, 0, 0)]} == {label}
    nothing = np.where(np.arange(3) == label, 0.0, 1.0)
    with pytest.raises(UserError, match="no class that has training images can be drawn"):
        source.draw(nothing, 20, 0, 0, 0)
