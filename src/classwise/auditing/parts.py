"""The parts of an audit's settings: frozen dataclasses whose fields are stated once (`classwise.auditing.config`).

`ModelPart` and `DataPart` are also those of a recipe. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from classwise.core.meta import Coverage, Norm, Protocol
from classwise.core.settings import REQUIRED, Part, setting
from classwise.core.spec import Bounds, Count, Natural, OpenShare, Seed

if TYPE_CHECKING:
    from classwise.results.criteria import Criteria

Amp = Literal["float16", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class ModelPart(Part):
    """A model, to audit or to train."""

    spec: Any = setting(
        REQUIRED,
        "Model spec, e.g. resnet-18, timm:NAME or net.py:make, or a checkpoint.",
        also="Or an nn.Module that takes images in [0,1] and returns logits, or a black box: a function of "
        "numpy images, a scikit-learn estimator, BlackBox.",
        option="--model -m",
        name="model",
    )
    weights: str | Path | None = setting(None, "Weights for the model.", option="--weights -w")
    normalize: Any = setting(
        None, "Normalising first layer: cifar10, imagenet, … or mean=…,std=….", also="Or (mean, std)."
    )


@dataclass(frozen=True, kw_only=True)
class DataPart(Part):
    """Examples, to audit or to train on."""

    name: Any = setting(
        REQUIRED,
        "Data set, e.g. cifar10 or folder:resize=32,crop=32.",
        also="Or tensors (x, y), a Dataset, a DataLoader, Images.",
        option="--data -d",
        name="data",
    )
    limit: Count | None = setting(None, "At most this many examples.")
    per_class: Count | None = setting(None, "At most this many examples of each class.")


@dataclass(frozen=True, kw_only=True)
class AuditedModel(ModelPart):
    """The model under audit."""

    num_classes: Count | None = setting(None, "Outputs of the model, if not the data's classes.")
    force: bool = setting(False, "Audit even if the model's inputs are outside [0,1].")
    trust: bool = setting(False, "Load files that run code: programs, checkpoints that name a Python file.")


@dataclass(frozen=True, kw_only=True)
class AuditedData(DataPart):
    """The examples attacked."""

    root: str | Path | None = setting(None, "Where data sets are; ./data by default.")
    split: str = setting("test", "Which split of the data set.")
    download: bool = setting(False, "Download the data set if it is not there.", recorded=False)
    classes: Sequence[str | int] | None = setting(None, "Only these classes, e.g. cat,dog.", takes=str)
    class_names: Sequence[str] | None = setting(None, "Names of the classes, where the data has none.", option="")


@dataclass(frozen=True, kw_only=True)
class ThreatPart(Part):
    """The norm and the radius, or several of them."""

    eps: Any = setting(
        "8/255",
        "Radius, with pixels in [0,1]. Several, 2/255,4/255,8/255, give a curve: every attack at each, the "
        "smallest first; what one radius breaks is broken at every larger one.",
        also='Or one for each class, {"cat": "4/255", "*": "8/255"} with "*" for all others, or one for each example.',
        option="--eps -e",
    )
    norm: Norm = setting("linf", "Norm of the ball: linf or l2.")
    eps_grid: Annotated[int, Bounds(least=2)] | None = setting(
        None, "A curve of this many equal steps up to eps.", mode="audit"
    )
    class_eps: Sequence[str] = setting((), "Another radius for one class: cat=4/255; repeatable.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_eps:  # the same as a radius for each class
            own = dict(text.partition("=")[::2] for text in self.class_eps)
            object.__setattr__(self, "eps", {"*": self.eps, **own})
            object.__setattr__(self, "class_eps", ())


@dataclass(frozen=True, kw_only=True)
class AttackPart(Part):
    """The attacks, and which of their points count."""

    attacks: Any = setting(
        "pgd-20",
        "Attack spec, by default pgd-20, e.g. pgd:steps=20,step=2/255,restarts=5, or @FILE.toml with a "
        "table for each; repeatable.",
        also="Or an attack object, or a list.",
        option="--attack -a",
        takes=list[str],
    )
    protocol: Protocol = setting(
        "any",
        "any (early stopping): robust if no point tried breaks it. final (last iterate): all steps on all "
        "examples, and the last point is judged, as in the papers' tables.",
        mode="audit",
    )
    coverage: Coverage | None = setting(
        None,
        "all: every attack on every example. survivors: only on those that no earlier attack broke. By "
        "default all, but survivors for a suite such as autoattack.",
        mode="audit",
    )
    distances: bool = setting(
        False,
        "Attacks that minimise the distance continue inside the ball and record it: robustness at any "
        "radius from one run.",
        mode="audit",
    )
    eot: Count = setting(1, "Draws to average gradients over, for randomised models.")
    seed: Seed = setting(0, "Seed of random starts and subsets.")


@dataclass(frozen=True, kw_only=True)
class ConfidencePart(Part):
    """The confidence level of every interval and test."""

    confidence: OpenShare = setting(0.95, "Confidence level of all intervals.")


@dataclass(frozen=True, kw_only=True)
class StatisticsPart(ConfidencePart):
    """The confidence level, and the search for the worst class."""

    find_worst: bool = setting(False, "Only find the worst class, attacking as few images as that takes.")
    tolerance: Annotated[float, Bounds(least=0, below=1, note="0.02 is two percentage points.")] = setting(
        0.0, "Stop the search once the classes left are this close, e.g. 0.02.", mode="find_worst"
    )


@dataclass(frozen=True, kw_only=True)
class ResourcesPart(Part):
    """What it runs on."""

    batch_size: Count | None = setting(
        None, "Examples in a batch; by default chosen for the model and device.", option="--batch-size -b"
    )
    workers: Count | None = setting(None, "Batches in flight at once on a CPU; its threads by default.")
    device: Any = setting(None, "cpu, cuda, cuda:1, mps; by default the best available.")
    amp: Amp | None = setting(None, "float16 or bfloat16 gradient passes, on a GPU; the judging model stays float32.")
    fold: bool = setting(True, "Fold batch-norm for the gradient passes.")
    compile: bool = setting(
        False,
        "Compile the passes of attacks by torch.compile, on a GPU as CUDA graphs; pays for many images.",
        mode="audit",
    )
    shard: str | None = setting(
        None,
        "Compute only part k of n, 2/4, into a run folder that all of them share; by default what torchrun or a SLURM "
        "array says of this process. The last to finish writes the summary.",
        also="In Python never by default; raises Unfinished while others are not done.",
        mode="audit",
        recorded=False,
    )
    engine: str = setting(
        "local",
        "Where the parts are computed: local, ray, ray://HOST:10001, slurm:partition=gpu,time=240, torchrun.",
        recorded=False,
    )
    jobs: Count | None = setting(
        None, "Processes at once; on a Ray cluster by default as many as it has room for.", recorded=False
    )
    cpus: Count | None = setting(None, "CPUs, and threads, of each process.", recorded=False)
    gpus: Annotated[float, Bounds(least=0)] = setting(
        0.0, "GPUs of each process of ray and slurm; 0.5 lets two share one.", recorded=False
    )
    devices: str | None = setting(
        None, "A process for each of these GPUs of this host: all, or their numbers, 0,2.", recorded=False
    )

    @property
    def several(self) -> bool:
        """Whether other processes compute."""
        return self.engine != "local" or (self.jobs or 1) > 1 or self.devices is not None


@dataclass(frozen=True, kw_only=True)
class OutputPart(Part):
    """What is written and shown."""

    out: str | Path | None = setting(
        None,
        "Run folder, or its URL, s3://bucket/run; the same command resumes where it stopped.",
        option="--out -o",
        recorded=False,
    )
    overwrite: bool = setting(False, "Start from scratch, and remove the earlier run in this folder.", recorded=False)
    save_adversarial: bool = setting(
        False, "Keep the adversarial images, exact and rounded to 8 bits, in the run folder.", mode="audit"
    )
    landscape: Natural | None = setting(
        None, "Write a slice of the loss around this many images into the run folder.", mode="audit"
    )
    probs: bool | None = setting(None, "Keep all probabilities; by default up to 100 classes.", mode="audit")
    csv: str | Path | None = setting(None, "Write the class table as CSV.", recorded=False)
    as_json: bool = setting(False, "Print the summary as JSON instead of tables.", option="--json", recorded=False)
    progress: bool | None = setting(
        None, "Show progress; by default bars on a terminal, else a line a minute.", recorded=False
    )


@dataclass(frozen=True, kw_only=True)
class GatePart(Part):
    """What must hold."""

    require: Sequence[str] = setting(
        (),
        "Exit 1 unless this holds, e.g. worst>=0.25, or @FILE.toml with those of classes and groups; repeatable.",
        mode="audit",
        recorded=False,
    )
    confident: bool = setting(
        False,
        "Check requirements against the unfavourable end of the interval.",
        mode="audit",
        recorded=False,
    )
    baseline: str | Path | None = setting(
        None,
        "Exit 1 if a class is less accurate than in this run folder, beyond chance.",
        mode="audit",
        recorded=False,
    )
    margin: Annotated[float, Bounds(least=0, below=1, note="0.02 is two percentage points.")] | None = setting(
        None,
        "The fall behind the baseline that is allowed, e.g. 0.02, instead of chance.",
        mode="audit",
        recorded=False,
    )
    junit: str | Path | None = setting(
        None, "Write the requirements' results as JUnit XML.", mode="audit", recorded=False
    )
    summary: str | Path | None = setting(
        None, "Write the requirements' results as Markdown, for a pull request.", mode="audit", recorded=False
    )

    def criteria(self) -> Criteria:
        """The requirements, read and checked."""
        from classwise.results.criteria import Criteria  # here: most audits have none

        return Criteria.of(self.require, self.confident, self.baseline, self.margin)
