"""Processes that train one model stay together: each of these ended differently in two processes, or not at all."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import on_ranks, recorded
from small_runs import assert_same, dying_after, run, small
from torch import nn

import classwise as cw
from classwise.core.errors import UserError
from classwise.core.run_lock import writing
from classwise.core.stopping import Interrupted
from classwise.training.step import TrainStep

pytestmark = pytest.mark.slow

ODD = {"batch": 21}  # batches of 21, 21 and 18: shares of different sizes


class Net(nn.Module):
    """A small network; `rank` is the process's number, for those that behave differently in one."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.rank = int(os.environ.get("RANK", "0"))
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(36, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(x))
        return found


def trained(rank: int, folder: Path, tree: dict[str, Any], net: nn.Module, out: str = "out") -> dict[str, Any]:
    """A training of a given network in this process: its weights at the end, the class-wise state, why it stopped."""
    state = recorded(lambda: cw.train(tree, model=net, out=folder / out, progress=False))
    return {
        "weights": net.state_dict(),
        "state": state.method_state,
        "stopped": state.stopped,
        "history": [{**row, "seconds": 0} for row in state.history],
    }


def _own_seeds(rank: int, folder: Path, tree: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(rank)  # each process makes a network of its own
    net = Net()
    net.register_buffer("mark", torch.tensor([rank + 5.0]))
    return trained(rank, folder, tree, net)


@pytest.mark.parametrize("sync", [True, False], ids=["sync_norm", "own_norm"])
def test_two_differently_seeded_processes_end_bit_equal(sync: bool, tmp_path: Path) -> None:
    tree = small(tmp_path, train={**ODD, "sync_norm": sync}, method={"name": "wat", "steps": 2})
    one, two = on_ranks(_own_seeds, tmp_path, tree)
    assert_same(two, one)
    assert float(one["weights"]["mark"]) == 5  # the first process's


class Branching(Net):
    """Takes one branch in the first process and another in the second; `idle` is in neither."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = nn.ModuleList(nn.Linear(36, 10) for _ in range(2))
        self.idle = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        found: torch.Tensor = self.head(h) + self.sides[self.rank if self.training else 0](h)
        return found


def _branches(rank: int, folder: Path, tree: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(1)
    net = Branching()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    return {**trained(rank, folder, tree, net), "before": before}


def test_a_gradient_that_one_process_has_is_averaged_and_one_that_none_has_stays_absent(tmp_path: Path) -> None:
    tree = small(tmp_path, train=ODD, method={"name": "madry", "steps": 1})
    one, two = on_ranks(_branches, tmp_path, tree)
    assert_same(two, one)
    moved = {name for name, value in one["weights"].items() if not torch.equal(value, one["before"][name])}
    assert {"sides.0.weight", "sides.1.weight"} <= moved
    assert not moved & {"idle.weight", "idle.bias"}  # weight decay included, as in one process


class Overfitted(Net):
    """Wrong in eval mode in the second process, from the second epoch on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.passes += 1
        z = super().forward(x)
        return -z if self.rank == 1 and not self.training and self.passes > 20 else z


def _overfits(rank: int, folder: Path, tree: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(1)
    return trained(rank, folder, tree, Overfitted())


def test_processes_that_see_different_accuracies_stop_at_the_same_epoch(tmp_path: Path) -> None:
    train = {"epochs": 4, "stop_drop": 0.05, "fold": "no", "optimizer": "sgd:lr=0.2"}
    tree = small(tmp_path, train=train, method={"name": "standard"}, data={"per_class": 30})
    one, two = on_ranks(_overfits, tmp_path, tree)
    assert_same(two, one)
    assert "catastrophic overfitting" in one["stopped"]


class Diverging(Net):
    """Not a number in the second process, from its third pass in train mode on."""

    passes = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        z = super().forward(x)
        return z / 0 * 0 if self.rank == 1 and self.training and self.passes > 2 else z


def _diverges(rank: int, folder: Path, tree: dict[str, Any]) -> str:
    torch.manual_seed(1)
    with pytest.raises(UserError) as caught:
        trained(rank, folder, tree, Diverging())
    return str(caught.value)


def test_a_loss_that_is_not_finite_in_one_process_ends_all_at_the_same_step(tmp_path: Path) -> None:
    tree = small(tmp_path, train={"fold": "no"}, method={"name": "standard"})
    one, two = on_ranks(_diverges, tmp_path, tree)
    told = "the loss of 10 of 20 examples is not finite after 0.67 epochs: the training has diverged."
    assert one.startswith(told)
    assert two.startswith(told)
    assert {path.name for path in (tmp_path / "out").glob("not_finite*")} == {"not_finite_1.pt"}


def _signalled(rank: int, folder: Path, tree: dict[str, Any]) -> int:
    """The second process is asked to stop during its second step."""
    steps, step = [0], TrainStep.__call__

    def counted(self: TrainStep, *args: Any, **kwargs: Any) -> Any:
        steps[0] += 1
        if rank == 1 and steps[0] == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainStep, "__call__", counted)
        with pytest.raises(Interrupted):
            run(tree, folder / "out")
    return steps[0]


def test_a_signal_to_one_process_stops_all_after_the_same_step(tmp_path: Path) -> None:
    one, two = on_ranks(_signalled, tmp_path, small(tmp_path))
    assert one == two <= 3
    stored = torch.load(tmp_path / "out" / "last.pt", weights_only=True)["classwise"]["extra"]["training"]
    assert stored["step"] == one


def _plain(rank: int, folder: Path, tree: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(1)
    return trained(rank, folder, tree, Net(2))


def test_fewer_held_out_images_than_processes(tmp_path: Path) -> None:
    tree = small(tmp_path, data={"per_class": 20, "exclude": [str(k) for k in range(2, 10)], "validation": 1})
    found = on_ranks(_plain, tmp_path, tree, world=3)
    for other in found[1:]:
        assert_same(other, found[0])
    assert 0 <= found[0]["history"][-1]["clean"] <= 1


def _one_after_the_other(rank: int, folder: Path, tree: dict[str, Any]) -> list[Any]:
    return [trained(rank, folder, tree, Net(), f"out-{number}")["weights"] for number in range(6)]


def test_several_trainings_in_the_same_processes(tmp_path: Path) -> None:
    tree = small(tmp_path, train={"epochs": 1}, method={"name": "standard"})
    one, two = on_ranks(_one_after_the_other, tmp_path, tree)
    assert_same(two, one)


def _own_group(rank: int, folder: Path, tree: dict[str, Any]) -> list[Any]:
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    found = [trained(rank, folder, tree, Net(), f"out-{number}")["weights"] for number in range(2)]
    assert torch.distributed.is_initialized()  # still the caller's
    torch.distributed.destroy_process_group()
    return found


def test_a_process_group_of_the_callers_is_used_and_left_open(tmp_path: Path) -> None:
    tree = small(tmp_path, train={"epochs": 1}, method={"name": "standard"})
    one, two = on_ranks(_own_group, tmp_path, tree)
    assert_same(two, one)


def _resumed(rank: int, folder: Path, tree: dict[str, Any]) -> dict[str, Any]:
    """Stopped after four steps and resumed, each process with a folder of its own, as on disks that are not shared."""
    torch.manual_seed(1)
    with dying_after(4):
        trained(rank, folder, tree, Net(), f"out-{rank}")
    torch.manual_seed(1)
    return trained(rank, folder, tree, Net(), f"out-{rank}")


def test_the_first_process_reads_the_checkpoint_for_all(tmp_path: Path) -> None:
    tree = small(tmp_path, train={**ODD, "save_minutes": 0}, method={"name": "cfol", "steps": 2})
    one, two = on_ranks(_resumed, tmp_path, tree)
    assert_same(two, one)
    (expected, _) = on_ranks(_uninterrupted, tmp_path, tree)
    assert_same(one["weights"], expected["weights"])


def _uninterrupted(rank: int, folder: Path, tree: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(1)
    return trained(rank, folder, tree, Net(), f"whole-{rank}")


def _refused(rank: int, folder: Path, tree: dict[str, Any], by_rank: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        run({**tree, **(by_rank if rank else {})}, folder / "out")
    return str(caught.value)


def test_processes_with_different_recipes_are_an_error_in_all(tmp_path: Path) -> None:
    tree = small(tmp_path)
    one, two = on_ranks(_refused, tmp_path, tree, {"train": {**tree["train"], "seed": 7}})
    assert one == two
    assert one.startswith("process 1 of 2 has train.seed = 7, process 0 has 0: ")
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_an_error_in_all(tmp_path: Path) -> None:
    with writing(tmp_path / "out"):
        told = on_ranks(_refused, tmp_path, small(tmp_path), {})
    assert told[0] == told[1]
    assert f"process {os.getpid()} on" in told[0]


def test_an_error_of_the_first_process_alone_is_one_in_all(tmp_path: Path) -> None:
    run(small(tmp_path, train={"epochs": 1}), tmp_path / "out")  # another recipe, which only the first reads
    one, two = on_ranks(_refused, tmp_path, small(tmp_path), {})
    assert one == two
    assert "was made with other settings" in one


def _without_launcher(rank: int, folder: Path, tree: dict[str, Any]) -> str:
    """As ``srun`` starts tasks, without torchrun's environment."""
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[name]
    try:
        run(tree, folder / "out")
    except UserError as error:
        return str(error)
    return "trained"


def test_processes_that_do_not_know_of_each_other_do_not_share_a_folder(tmp_path: Path) -> None:
    tree = small(tmp_path, train={"epochs": 3, "save_minutes": 0}, data={"per_class": 60})
    told = sorted(on_ranks(_without_launcher, tmp_path, tree))
    assert told[1] == "trained"
    assert "is being written by process" in told[0]
