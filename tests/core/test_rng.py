"""Random numbers belong to an example: to its key, and to nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from classwise.core import rng

INDEX = torch.arange(500)


def sample(seed: int = 0, count: int = 400, shape: tuple[int, ...] = (50,), stream: int = 0) -> np.ndarray:
    return rng.uniform(rng.keys(seed, torch.arange(count)), shape, stream).numpy()


def test_keys_are_splitmix64() -> None:
    """With seed 0 the keys of 1, 2, … are the generator's published sequence from state 0."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    found = [key % 2**64 for key in rng.keys(0, torch.arange(1, 5)).tolist()]
    assert found == published


def test_an_examples_numbers_do_not_depend_on_its_companions() -> None:
    keys = rng.keys(7, INDEX)
    order = torch.randperm(len(INDEX), generator=torch.Generator().manual_seed(0))
    for draw in (rng.uniform, rng.normal):
        whole = draw(keys, (3, 4), 2)
        assert torch.equal(draw(rng.keys(7, INDEX[order]), (3, 4), 2), whole[order])
        assert torch.equal(draw(rng.keys(7, INDEX[41:42]), (3, 4), 2)[0], whole[41])


def test_a_stream_may_be_given_per_example() -> None:
    keys = rng.keys(0, torch.arange(3))
    each = rng.uniform(keys, (4,), torch.tensor([0, 5, 2]))
    for row, stream in enumerate((0, 5, 2)):
        assert torch.equal(each[row], rng.uniform(keys, (4,), stream)[row])


@pytest.mark.parametrize("stream", [0, 1, 2, 100, 2**40])
def test_every_stream_can_be_drawn(stream: int) -> None:
    values = rng.uniform(rng.keys(0, INDEX), (20,), stream).numpy().ravel()
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def keyed(seed: int = 0, restart: int = 0) -> Tensor:
    return rng.keys(seed, INDEX, restart)


def test_seed_index_stream_and_restart_all_matter() -> None:
    base = rng.uniform(keyed(), (8,))
    others = [
        rng.uniform(keyed(seed=1), (8,)),
        rng.uniform(keyed(restart=1), (8,)),
        rng.uniform(keyed(), (8,), stream=1),
        rng.uniform(keyed().roll(1), (8,)),
    ]
    for other in others:
        assert not (base == other).all(1).any()
        assert abs(np.corrcoef(base.flatten().numpy(), other.flatten().numpy())[0, 1]) < 0.06  # 4 standard errors


def test_no_two_keys_of_a_run_are_equal() -> None:
    keys = torch.cat([rng.keys(seed, torch.arange(20_000), restart) for seed in (0, 1, -1) for restart in (0, 1)])
    assert len(keys.unique()) == len(keys)


@pytest.mark.parametrize("seed", [-1, 2**63 + 5, 2**64 + 3, -(2**70)])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    assert len(rng.keys(seed, INDEX).unique()) == len(INDEX)
    assert torch.equal(rng.keys(seed, INDEX), rng.keys(seed % 2**64, INDEX))


def test_uniforms_are_uniform_and_strictly_inside() -> None:
    values = sample(count=2000, shape=(100,)).ravel()
    assert values.min() > 0
    assert values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("bits", [0, -1])
def test_no_bits_at_all_can_reach_zero_or_one(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rng, "_mix", lambda z: torch.full_like(z, bits))
    value = rng.uniform(torch.zeros(1, dtype=torch.int64), (1,)).item()
    assert 0 < value < 1
    assert np.isfinite(rng.normal(torch.zeros(1, dtype=torch.int64), (1,)).item())


def test_normals_are_normal() -> None:
    values = rng.normal(rng.keys(1, torch.arange(1000)), (10, 10)).numpy()
    assert np.isfinite(values).all()
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-3


def test_neighbours_are_not_correlated() -> None:
    values = sample(count=4000, shape=(25,))
    error = 1 / np.sqrt(values[:-1].size)
    between_examples = np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1]
    between_positions = np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]
    assert abs(between_examples) < 4 * error
    assert abs(between_positions) < 4.1 * error


@pytest.mark.parametrize("high", [1, 2, 9, 999])
def test_integers_fill_their_range_evenly(high: int) -> None:
    values = rng.integer(rng.keys(0, torch.arange(20 * high + 1000)), high).numpy()
    counts = np.bincount(values, minlength=high)
    assert values.min() >= 0
    assert len(counts) == high
    assert high == 1 or stats.chisquare(counts).pvalue > 1e-3


def test_the_global_generator_is_not_touched() -> None:
    before, before_numpy = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    keys = rng.keys(0, INDEX)
    rng.uniform(keys, (3,))
    rng.normal(keys, (3,))
    rng.integer(keys, 5)
    rng.keys_from(torch.Generator().manual_seed(0), 5, torch.device("cpu"))
    rng.keys_from(None, 5, torch.device("cpu"))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (np.random.get_state()[1] == before_numpy).all()  # noqa: NPY002


def test_keys_from_a_generator_follow_it() -> None:
    device = torch.device("cpu")
    one, two = torch.Generator().manual_seed(4), torch.Generator().manual_seed(4)
    first = rng.keys_from(one, 6, device)
    assert torch.equal(first, rng.keys_from(two, 6, device))
    assert not torch.equal(first, rng.keys_from(one, 6, device))
    assert not torch.equal(rng.keys_from(None, 6, device), rng.keys_from(None, 6, device))
