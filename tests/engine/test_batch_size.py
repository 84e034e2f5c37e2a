"""How many images at once, by rule."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from classwise.engine.batch_size import at_most, choose_batch, choose_workers, out_of_memory


def images(size: int = 8) -> Tensor:
    return torch.zeros(4, 3, size, size)


class TestBatch:
    def test_the_largest_activation_of_all_workers_stays_within_the_cache(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.Flatten(), nn.Linear(64 * 32 * 32, 5))
        activation = 64 * 32 * 32 * 4  # bytes of one image's
        found = [choose_batch(model, images(32), workers) for workers in (1, 2, 4)]
        assert found == [8 * 2**20 // activation, 16, 16]  # never below 16

    def test_never_more_than_there_are_examples_and_a_power_of_two(self) -> None:
        most = choose_batch(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), images())
        assert [at_most(most, count) for count in (10**6, 100, 64, 1, 0)] == [1024, 64, 64, 1, 1]

    def test_no_hook_is_left_behind(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
        choose_batch(model, images())
        assert not any(module._forward_hooks for module in model.modules())

    def test_workers_are_for_processors(self) -> None:
        assert 1 <= choose_workers(torch.device("cpu")) <= 8
        assert choose_workers(torch.device("cuda")) == 1


def test_out_of_memory_is_told_from_other_errors() -> None:
    assert out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory"))
    assert out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
    assert out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    assert out_of_memory(MemoryError())
    assert not out_of_memory(RuntimeError("size mismatch"))
    assert not out_of_memory(ValueError("out of memory"))
