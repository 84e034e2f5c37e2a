"""Which changes are tried: first none, then those of the knob, then those in between that the goal asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from classwise.core.format import percent
from classwise.models.last_layer import Change
from classwise.repairing.goal import Goal
from classwise.repairing.knobs import Knob, Task
from classwise.repairing.trials import Proposal, Trial
from classwise.show.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class Search:
    """The changes tried, one after the other: first none, then those of the knob, then those in between."""

    knob: Knob
    goal: Goal
    task: Task

    def run(self, progress: bool | None, say: Callable[[str], None] = lambda text: None) -> list[Trial]:
        """Every change attacked from scratch; those of an earlier run are read back. say: told what each change did."""
        calibration = self.task.calibration
        most = 1 + self.knob.changes(self.task) + self.goal.most_between()
        whole = most * len(calibration.job.images) * len(calibration.job.attacks)
        trials: list[Trial] = []
        with progress_bar({"calibrating": whole}, show=progress) as report:
            told = dataclasses.replace(calibration, report=lambda finished: report("calibrating", finished))
            search = dataclasses.replace(self, task=dataclasses.replace(self.task, calibration=told))
            while (proposal := calibration.stored(len(trials)) or search._next(trials)) is not None:
                trials.append(told.attack(len(trials), proposal))
                say(f"{_named(trials[-1], most)}: {self._reached(trials[-1])} on the calibration images")
        return trials

    def _reached(self, trial: Trial) -> str:
        score = self.goal.score(trial.accuracy)
        return f"worst class {percent(score.worst)}, average {percent(score.average)}"

    def _next(self, trials: Sequence[Trial]) -> Proposal | None:
        """The change to try after these: a function of the trials alone, so that a repair can resume."""
        if not trials:
            return Proposal(change=Change.none(self.task.calibration.job.images.num_classes), kind="unchanged")
        between = [trial for trial in trials if trial.proposal.kind == "between"]
        if not between and (found := self.knob.propose(self.task, trials)) is not None:
            return found
        rounds = trials[: len(trials) - len(between)]
        scores = [self.goal.score(trial.accuracy) for trial in rounds]
        shares = {trial.proposal.about["share"]: self.goal.score(trial.accuracy) for trial in between}
        share = self.goal.next_share(scores, shares)
        end = rounds[self.goal.farthest(scores)]
        if share is None or end.number == 0:
            return None
        return self.knob.between(self.task, trials, end, share)


def _named(trial: Trial, most: int) -> str:
    """What was tried, as a line of progress begins."""
    return "unchanged" if trial.number == 0 else f"change {trial.number} of at most {most - 1}"
