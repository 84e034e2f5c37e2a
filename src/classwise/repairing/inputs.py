"""What a repair is given, made into what it needs: the model, the images to fit on and to judge on, and its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from classwise import attacks as attack_files
from classwise.auditing.fingerprints import fingerprint_data, fingerprint_model
from classwise.auditing.inputs import device_of, expanded, grid, with_names
from classwise.auditing.prepare import evaluating, examples, module_by
from classwise.auditing.recorded import options, spec_of
from classwise.core.errors import UserError
from classwise.core.format import distance, level, listed
from classwise.core.repair_folder import RepairFolder
from classwise.core.run_config import check_same
from classwise.core.version import __version__
from classwise.data.images import Images
from classwise.models import check_model
from classwise.repairing.config import RepairConfig
from classwise.repairing.goal import Goal
from classwise.repairing.split import split
from classwise.stats import intervals

_ATTACK, _BLIND_ATTACK = "apgd_t:iterations=10", "square:queries=500"
_WIDTH = 0.05  # half of an interval, of which the number of images needed is told


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything a repair starts from. config: with the attacks that it was asked for, or that suit the model.

    remarks: what is known beforehand about how far the result can be trusted.
    """

    config: RepairConfig
    model: nn.Module
    calibration: Images
    judging: Images
    goal: Goal
    remarks: tuple[str, ...]

    @property
    def black_box(self) -> bool:
        return bool(getattr(self.model, "black_box", False))

    def named(self, names: tuple[str, ...]) -> Images:
        """The images that judge, with a name for each of the model's classes."""
        return dataclasses.replace(self.judging, class_names=names)

    def recorded(self) -> dict[str, Any]:
        """What was asked for, as the run folder keeps it."""
        knob, goal, judging = self.config.knob, self.config.goal, self.config.judging
        calibrate = judging.calibrate
        return {
            **dataclasses.asdict(knob),
            "goal": goal.goal,
            "keep_average": goal.keep_average,
            **({} if goal.keep_each is None else {"keep_each": goal.keep_each}),  # folders of before have none
            "min": dict(goal.min),
            "front": goal.front,
            "attacks": list(attack_files.parse(self.config.attacks.attacks)),
            "judge_attacks": list(attack_files.parse(judging.judge_attacks)),
            "calibrate": calibrate if isinstance(calibrate, str) else None if calibrate is None else "images given",
            "judge_share": None if calibrate is not None else judging.judge_share,
            "calibration_images": len(self.calibration),
            "judging_images": len(self.judging),
            "seed": self.config.attacks.seed,
            "model": spec_of(self.config.model.spec, self.model),
            "data": self.judging.name,
        }


def gather(config: RepairConfig) -> Inputs:
    """Load the model and the images, and check what can be checked before anything is attacked."""
    _check_radius(config)
    images = examples(config.audit(attacks=_seeded(config)))
    model = module_by(config.audit(), images)
    x = images.first().to(device_of(model))
    with evaluating(model):
        images = with_names(images, check_model(model, x))
    calibration, judging = _sets(config, images)
    config = _with_attacks(config, bool(getattr(model, "black_box", False)))
    minimums = {images.class_number(name): least for name, least in config.goal.min}
    goal = config.goal
    return Inputs(
        config=config,
        model=model,
        calibration=calibration,
        judging=judging,
        goal=Goal(
            name=goal.goal,
            keep_average=goal.keep_average,
            keep_each=goal.keep_each,
            minimums=minimums,
            front=goal.front,
        ),
        remarks=_remarks(config, calibration, judging),
    )


def open_folder(inputs: Inputs) -> RepairFolder | None:
    """The run folder, made or opened; an error where it was made with other settings."""
    config = inputs.config
    if config.folder is None:
        return None
    run = RepairFolder(config.folder)
    settings = {
        "repair": inputs.recorded(),
        "threat": {"norm": config.threat.norm, "eps": _written(config.threat.eps)},
        "model": {
            "spec": spec_of(config.model.spec, inputs.model),
            "fingerprint": fingerprint_model(inputs.model),
        },
        "data": {
            "classes": list(inputs.judging.class_names),
            "fingerprint": fingerprint_data(inputs.judging),
            "calibration_fingerprint": fingerprint_data(inputs.calibration),
        },
        "attacks": _described(config),
        "command": options(config, inputs.judging, "repair"),
        "versions": {"classwise": __version__},
    }
    stored = run.open_or_create(settings, config.output.overwrite)
    check_same(config.folder, stored, settings)
    return run


def _described(config: RepairConfig) -> dict[str, dict[str, Any]]:
    """Every attack with its settings."""
    both = {"": config.attacks.attacks, "judge:": config.judging.judge_attacks}
    return {
        f"{prefix}{name}": {key: str(value) for key, value in attack_files.settings(attack).items()}
        for prefix, given in both.items()
        for name, attack in attack_files.parse(given).items()
    }


def _seeded(config: RepairConfig) -> Any:
    return dataclasses.replace(config.attacks, attacks="clean")


def _check_radius(config: RepairConfig) -> None:
    eps = config.threat.eps
    if grid(eps, None, config.threat.norm) or not isinstance(eps, (str, int, float, Mapping)):
        raise UserError(
            f"a repair needs one radius, such as 8/255, or one for each class; got {eps!r:.60}. Repair at the radius "
            "that matters, and audit the result at others."
        )


def _written(eps: Any) -> Any:
    return {str(key): str(value) for key, value in eps.items()} if isinstance(eps, Mapping) else str(eps)


def _with_attacks(config: RepairConfig, black_box: bool) -> RepairConfig:
    """The config with the attacks that suit the model, where none were asked for."""
    usual, asked = _BLIND_ATTACK if black_box else _ATTACK, config.judging.judge_attacks
    fitted = expanded(usual if config.attacks.attacks is None else config.attacks.attacks)
    judging = fitted if asked is None else expanded(asked)
    for name, attack in attack_files.parse([*fitted, *judging]).items():
        if name == "clean":
            raise UserError("a repair needs an attack; clean is none. Audits always report clean accuracy besides.")
        if black_box and attack.needs_gradient:
            raise UserError(
                f"{name} needs the gradient of the model, and a black box has none. Use --attack {_BLIND_ATTACK}, or "
                "nattack."
            )
    return dataclasses.replace(
        config,
        attacks=dataclasses.replace(config.attacks, attacks=fitted),
        judging=dataclasses.replace(config.judging, judge_attacks=judging),
    )


def _sets(config: RepairConfig, images: Images) -> tuple[Images, Images]:
    """(calibration, judging)."""
    wanted, part = config.judging.calibrate, config.data
    if wanted is None:
        return split(images, config.judging.judge_share, config.attacks.seed)
    if isinstance(wanted, (str, Path)):
        if not isinstance(part.name, str):
            raise UserError(
                f"calibrate={str(wanted)!r} names a split of a data set, and the images were given in Python; give the "
                "images to calibrate on instead."
            )
        if str(wanted) == part.split:
            raise UserError(
                f"calibrate={wanted} is the split that judges. Leave calibrate out, and the images are divided; or "
                "judge on another --split."
            )
        other = dataclasses.replace(part, split=str(wanted))
    else:
        other = dataclasses.replace(part, name=wanted, root=None, download=False, limit=None, per_class=None)
    found = examples(config.audit(other, attacks=_seeded(config)))
    if found.num_classes > images.num_classes:
        raise UserError(f"the calibration images have {found.num_classes} classes, the others {images.num_classes}.")
    return dataclasses.replace(found, class_names=images.class_names, superclasses=images.superclasses), images


def _remarks(config: RepairConfig, calibration: Images, judging: Images) -> tuple[str, ...]:
    confidence = config.statistics.confidence
    counts = np.bincount(judging.labels, minlength=judging.num_classes)
    fewest = int(counts[counts > 0].min())
    rarest = [name for name, count in zip(judging.class_names, counts, strict=True) if count == fewest]
    alike = len(rarest) == np.count_nonzero(counts)
    least = f"{fewest:,} of each class" if alike else f"as few as {fewest:,} of {listed(rarest, 2)}"
    width, needed = intervals.half_width(fewest, confidence), intervals.images_for(_WIDTH, confidence)
    found = [
        f"Fitted on {len(calibration):,} images, judged on {len(judging):,} others, {least}: the {level(confidence)} "
        f"interval of one class is at most ±{distance(width)} points. For ±{distance(_WIDTH)} points {needed:,} images "
        "of each class are needed to judge."
    ]
    if config.judging.calibrate == "train":
        found.append(
            "Calibrated on training images: where the model has seen them, its classes look better there than "
            "they are, and the change is fitted to that. Compare the gains on both sets."
        )
    elif config.judging.calibrate is None and isinstance(config.data.name, str) and config.data.split == "train":
        found.append(
            "Fitted and judged on training images: where the model has seen them, its classes look better than they "
            "are. Audit the result on images that it has not seen."
        )
    elif config.judging.calibrate is None and isinstance(config.data.name, str) and config.data.split == "test":
        found.append(
            "An audit of the whole test split would contain the images that the change was fitted on: rely on the "
            "numbers judged here, or audit other images."
        )
    without = [name for name, count in zip(judging.class_names, counts, strict=True) if not count]
    if without:
        found.append(f"Without images to judge, and so without a verdict: {listed(without)}.")
    return tuple(found)
