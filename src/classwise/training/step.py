"""One step: a batch through the method's attack and loss, and the optimiser."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.attack import Model
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.core.run_folder import TrainingFolder
from classwise.core.storage import atomic_write
from classwise.data.images import IntArray
from classwise.engine.attack_copy import AMP, SyncedAttackCopy, channels_last, trains_channels_last
from classwise.methods.method import Batch, Loss, Method, State, TeacherName
from classwise.training.awp import Awp
from classwise.training.batches import Examples, Source
from classwise.training.norms import Synced, synced
from classwise.training.optimizer import set_rate
from classwise.training.processes import Processes
from classwise.training.profile import Profile
from classwise.training.recipe import Recipe
from classwise.training.schedule import Schedule
from classwise.training.teachers import Teacher


class Stepped(NamedTuple):
    """What a step leaves: its batch and loss, the method's state after it, and which of the wishes at least one process
    had. All processes get the same answer, so all of them save or stop after the same step."""

    batch: Batch
    loss: Loss
    state: State
    wished: tuple[bool, ...]


@dataclass(kw_only=True)
class TrainStep:
    """A model with all that changes its weights."""

    recipe: Recipe
    model: nn.Module
    optimizer: torch.optim.Optimizer
    lr: float
    schedule: Schedule
    awp: Awp | None
    synced_copy: SyncedAttackCopy
    scaler: torch.amp.GradScaler
    processes: Processes
    profile: Profile
    folder: TrainingFolder | None = None
    teachers: Mapping[TeacherName, nn.Module] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @functools.cached_property
    def _channels_last(self) -> bool:
        return trains_channels_last(self.model, self.device)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs besides the weights."""
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, stored: Mapping[str, Any]) -> None:
        """Put weights, optimiser and scaler back to where a checkpoint has them."""
        try:
            self.model.load_state_dict(stored["weights"])
            self.optimizer.load_state_dict(stored["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"the checkpoint to resume from is of another model: {str(error).splitlines()[0]} Give the same model, "
                "or train from scratch with --overwrite."
            ) from error
        self.scaler.load_state_dict(stored["scaler"])

    def batches(self, source: Source, epoch: int, size: int) -> list[IntArray]:
        """The rows of every batch of an epoch. Every process needs an example of each, and batch-norm two."""
        world = self.processes.world
        return source.batches(epoch, size, self.recipe.train.seed, max(2, world) if self.sync_norm else 2 * world)

    def rate(self, t: float) -> float:
        """The learning rate after t epochs."""
        return self.lr * self.schedule.at(t, self.recipe.train.epochs)

    def __call__(
        self,
        examples: Examples,
        augment: Callable[[Tensor, Tensor], Tensor],
        state: State,
        epoch: int,
        done: float,
        count: int,
        wishes: Callable[[], Sequence[bool]] = tuple,
    ) -> Stepped:
        """Train on this process's share of a batch of `count`; `done` is the fraction of the epoch before it.
        wishes: what this process wants to be done after the step, asked for as late as can be; see `Stepped`."""
        set_rate(self.optimizer, self.rate(epoch + done))
        with self.profile.part("data"):
            batch = self.prepare(examples, augment, epoch, done)
        method, model = self.recipe.method, self.model.train()
        share = self.processes.world / count
        batch = dataclasses.replace(
            batch,
            average=self._mean_over(len(batch.x), count),
            total=self.processes.total,
            normed_together=self.processes.total if self.sync_norm else lambda value: value,
        )
        with self.randomness(epoch, done), self.synced(model) as shared:
            with self._precision():
                with self.profile.part("attack"):
                    batch = dataclasses.replace(batch, x_adv=method.attack(model, batch, state).detach())
                with self.profile.part("outer pass"), self._perturbed(batch, state, share, epoch + done):
                    loss = method.loss(model, batch, state)
                    self.optimizer.zero_grad(set_to_none=True)
                    self.scaler.scale(share * loss.value.sum()).backward()  # type: ignore[no-untyped-call]
            with self.profile.part("outer pass"):
                bad = (~torch.isfinite(loss.value)).sum()
                found = [bad.float(), shared.astray, *(torch.tensor(float(wish)) for wish in wishes())]
                flags = torch.stack([flag.to(self.device, torch.float32) for flag in found])
                diverged, astray, *wished = self.processes.average_gradients(model, flags)
                self._require_together(astray)
                self._require_finite(batch, examples, loss, diverged, count)
                self._descend()
            with self.profile.part("state"), self._precision(), torch.no_grad():
                state = method.after_step(model, batch, state, loss)
        self.processes.same_buffers(model, self.sync_norm)
        if type(method).after_step is not Method.after_step:
            state = self.processes.same_state(state)
        return Stepped(batch, loss, state, tuple(wish > 0 for wish in wished))

    @property
    def sync_norm(self) -> bool:
        """Whether batch-norms see the batch of all processes together."""
        return self.processes.world > 1 and self.recipe.train.sync_norm

    def synced(self, model: nn.Module) -> Any:
        """The model's batch-norms over all processes, where that is asked for."""
        return synced(model, self.processes.world) if self.sync_norm else nullcontext(Synced(self.processes.world))

    def _descend(self) -> None:
        """The optimiser's step, with the gradients of all processes."""
        if self.recipe.train.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.train.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def survey(
        self, examples: Examples, augment: Callable[[Tensor, Tensor], Tensor], state: State, epoch: int
    ) -> tuple[Batch, Loss]:
        """The method's survey of a batch before an epoch; augmented by other random numbers than in the epoch."""
        batch = self.prepare(examples, augment, epoch, 0.0, stream=-1 - epoch)
        with self._precision():
            z = self.recipe.method.survey(batch, state).detach()
        return batch, Loss(cross_entropy(z, batch.y), z)

    def prepare(
        self,
        examples: Examples,
        augment: Callable[[Tensor, Tensor], Tensor],
        epoch: int,
        done: float,
        stream: int | None = None,
    ) -> Batch:
        """The batch on its device, augmented; the same for an example whatever batch and process it is in."""
        recipe, index = self.recipe, torch.from_numpy(examples.index)
        key = rng.keys(recipe.train.seed, index, stream=epoch + 1 if stream is None else stream)
        if examples.draw is not None:
            key = rng.keys(0, key + torch.from_numpy(examples.draw))
        key = key.to(self.device)
        x = augment(examples.x.to(self.device, non_blocking=True), key)
        x = channels_last(x) if self._channels_last else x.contiguous()
        taught: dict[str, Any] = {name: Teacher(network) for name, network in self.teachers.items()}
        return Batch(
            x=x,
            y=examples.y.to(self.device, non_blocking=True),
            key=key,
            eps=torch.full((len(x),), recipe.threat.eps, device=self.device),
            fast=self._current(),
            threat=recipe.threat,
            epoch=epoch + done,
            epochs=recipe.train.epochs,
            joint=recipe.train.joint,
            smoothing=recipe.train.smoothing,
            **taught,
        )

    def _mean_over(self, mine: int, count: int) -> Callable[[Tensor], Tensor]:
        """From the means over each process's share of a batch of `count`, the one over all of it."""
        return lambda mean: self.processes.average(mean * (mine * self.processes.world / count))

    def _current(self) -> Model:
        """The attack copy, synchronised with the current weights at its first use."""
        stale = True

        def answer(x: Tensor) -> Tensor:
            nonlocal stale
            if stale:
                self.synced_copy.refresh()
                stale = False
            return self.synced_copy.attack_copy(x)

        return answer

    def _perturbed(self, batch: Batch, state: State, share: float, t: float) -> Any:
        if self.awp is None:
            return nullcontext()

        def objective(model: nn.Module) -> Tensor:
            value = share * self.recipe.method.loss(model, batch, state).value.sum()
            scaled: Tensor = self.scaler.scale(value)  # only its direction counts, and small float16 values underflow
            return scaled

        return self.awp.perturbed(self.model, objective, t, self.processes.average)

    def _precision(self) -> Any:
        amp = self.recipe.train.amp
        return nullcontext() if amp is None else torch.autocast(self.device.type, dtype=AMP[amp])

    @contextmanager
    def randomness(self, epoch: int, done: float) -> Iterator[None]:
        """Dropout and the like draw from the global generator: seed it for this step, and restore it after."""
        steps = int(done * 2**32)
        words = [self.recipe.train.seed % 2**32, epoch, steps, self.processes.rank]
        seed = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))
        gpu = self.device.type == "cuda"
        with torch.random.fork_rng(devices=[self.device] if gpu else []):
            torch.default_generator.manual_seed(seed)
            if gpu:
                torch.cuda.default_generators[self.device.index or 0].manual_seed(seed)
            yield

    def _require_together(self, astray: float) -> None:
        if astray > 0:
            raise UserError(
                "the processes went through different batch-norms at the same time: the network takes branches at "
                "random, or by its input. Set train.sync_norm to false, so that each process normalises by itself."
            )

    def _require_finite(self, batch: Batch, examples: Examples, loss: Loss, bad: float, count: int) -> None:
        """Raise, in all processes, where the loss of `bad` of the batch's examples is not finite."""
        if not bad:
            return
        mine = self.folder is not None and not torch.isfinite(loss.value).all()
        saved = self._keep(batch, examples, loss, self.folder) if mine and self.folder is not None else ""
        raise UserError(
            f"the loss of {bad:.0f} of {count} examples is not finite after {batch.epoch:.2f} epochs: the "
            f"training has diverged.{saved} Lower the learning rate, clip gradients (train.clip), or check the data."
        )

    def _keep(self, batch: Batch, examples: Examples, loss: Loss, folder: TrainingFolder) -> str:
        """Save the batch that the training diverged on; returns a sentence about it."""
        path = folder.not_finite(self.processes.rank)
        content = {
            "x": batch.x, "x_adv": batch.x_adv, "y": batch.y, "index": torch.from_numpy(examples.index),
            "loss": loss.value.detach(), "logits": loss.logits.detach(), "weights": self.model.state_dict(),
        }  # fmt: skip
        try:
            with atomic_write(path) as handle:
                torch.save(content, handle)
        except (OSError, RuntimeError) as error:  # of a full disk; the error about the loss matters more
            return f" (The batch could not be written to {path}: {error}.)"
        return f" The batch and the weights are in {path}."
