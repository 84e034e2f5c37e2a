"""Image classifiers and zero-shot models of Hugging Face's transformers, as models of images in [0,1].

    hf:google/vit-base-patch16-224                          an image classifier, by its name on the Hub
    hf:path/to/folder                                       the same, from a folder that save_pretrained wrote
    hf:openai/clip-vit-base-patch32                         zero-shot: the prompts are made of the data's class names
    hf:openai/clip-vit-base-patch32,classes=[cat, dog],template=a photo of a {}.

What the model's preprocessor does to an image (resize, centre crop, rescale, normalise) is done here by differentiable
operations, so that attacks reach the pixels of the original image and ε keeps its unit. PIL rounds to 8 bits after
resizing, which has no gradient and is left out: logits differ from the library's by that rounding.

The logits of a zero-shot model (Radford et al., ICML 2021) are s · cos(f(x), t_k) + b, where t_k is the mean of the
normalised text features of the prompts of class k, one for each template, normalised again; s and b are the model's.
The text features are computed once, when the model is loaded, and are kept with its weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from classwise.core.errors import UserError
from classwise.core.spec import check_keys, items
from classwise.models.normalize import Normalize

_MODES = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}  # by PIL's numbers
_LARGE = 384  # pixels from which ConvNeXT's preprocessor cuts nothing off
_TEMPLATE = "a photo of a {}."
_OPTIONS = ("revision", "resize", "classes", "template")


@dataclass(frozen=True)
class Resizing:
    """How images are resized and cropped.

    size: (height, width), or the length of the shorter side. crop: (height, width). None: not at all.
    """

    size: tuple[int, int] | int | None = None
    crop: tuple[int, int] | None = None
    mode: str = "bilinear"

    @classmethod
    def of(cls, processor: Mapping[str, Any], name: str) -> Resizing:
        """What a preprocessor says of it."""
        size, crop = processor.get("size") or {}, processor.get("crop_size") or {}
        cut = (crop["height"], crop["width"]) if processor.get("do_center_crop") else None
        if not processor.get("do_resize"):
            return cls(crop=cut)
        mode = _MODES.get(int(processor.get("resample", 2)))
        if mode is None:
            raise UserError(f"hf:{name} resizes by PIL's method {processor['resample']}, which has no gradient here.")
        if "height" in size and "width" in size:
            return cls((size["height"], size["width"]), cut, mode)
        if "shortest_edge" not in size:
            raise UserError(
                f"hf:{name} resizes to {size}, which is not known here; resize the data and add resize=false."
            )
        edge = size["shortest_edge"]
        if (share := processor.get("crop_pct")) is not None:  # ConvNeXT: the middle of a larger image
            return cls(int(edge / share), (edge, edge), mode) if edge < _LARGE else cls((edge, edge), None, mode)
        return cls(edge, cut, mode)

    def __call__(self, x: Tensor) -> Tensor:
        wanted = self._wanted(x.shape[-2], x.shape[-1])
        if tuple(x.shape[-2:]) != wanted:
            smooth = {} if self.mode == "nearest-exact" else {"antialias": True, "align_corners": False}
            x = F.interpolate(x, wanted, mode=self.mode, **smooth)
            x = x.clamp(0, 1) if self.mode == "bicubic" else x  # which reaches beyond the brightest pixel
        return x if self.crop is None else _cropped(x, *self.crop)

    def _wanted(self, height: int, width: int) -> tuple[int, int]:
        if self.size is None:
            return height, width
        if not isinstance(self.size, int):
            return self.size
        longer = int(self.size * max(height, width) / min(height, width))
        return (self.size, longer) if height <= width else (longer, self.size)


def _cropped(x: Tensor, height: int, width: int) -> Tensor:
    """The middle; of a smaller image all of it, with black around."""
    down, right = max(height - x.shape[-2], 0), max(width - x.shape[-1], 0)
    x = F.pad(x, (right - right // 2, right // 2, down - down // 2, down // 2))
    top, left = (x.shape[-2] - height) // 2, (x.shape[-1] - width) // 2
    return x[..., top : top + height, left : left + width]


class Preprocess(nn.Module):
    """Images in [0,1] as a model of transformers wants them; a single channel becomes three equal ones."""

    def __init__(self, resizing: Resizing, normalize: Normalize) -> None:
        super().__init__()
        self.resizing, self.normalize = resizing, normalize

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
        made: Tensor = self.normalize(self.resizing(x))
        return made


class Classifier(nn.Module):
    """A classifier of transformers: pixels in, logits out."""

    def __init__(self, preprocess: Preprocess, body: nn.Module) -> None:
        super().__init__()
        self.preprocess, self.body = preprocess, body

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.body(pixel_values=self.preprocess(x)).logits
        return logits


class ZeroShot(nn.Module):
    """An image-text model as a classifier by the text features of its classes, (classes, features)."""

    text_features: Tensor

    def __init__(self, preprocess: Preprocess, body: nn.Module, text_features: Tensor) -> None:
        super().__init__()
        self.preprocess, self.body = preprocess, body
        self.register_buffer("text_features", text_features)

    def forward(self, x: Tensor) -> Tensor:
        body: Any = self.body
        features = _pooled(body.get_image_features(pixel_values=self.preprocess(x)))
        logits: Tensor = F.normalize(features, dim=-1) @ self.text_features.T * body.logit_scale.exp()
        bias = getattr(body, "logit_bias", None)
        return logits if bias is None else logits + bias


@dataclass(frozen=True, kw_only=True)
class Named:
    """A model by its name or folder. fetch: with its weights; else only its shape, for weights of a file."""

    transformers: Any
    name: str
    revision: str | None = None
    fetch: bool = True

    def part(self, auto: str, **more: Any) -> Any:
        """What one of the library's Auto classes makes of the name."""
        where = {} if self.revision is None else {"revision": self.revision}
        return getattr(self.transformers, auto).from_pretrained(self.name, **where, **more)

    def model(self, auto: str, config: Any) -> Any:
        """The model in single precision, whatever its weights are stored in."""
        made = self.part(auto, config=config) if self.fetch else getattr(self.transformers, auto).from_config(config)
        return made.float().eval()


def load(named: Named, settings: Mapping[str, Any], num_classes: int | None, class_names: Sequence[str]) -> nn.Module:
    """The classifier, or the zero-shot model for these classes. settings: those of the spec but `revision`."""
    check_keys(settings, dict.fromkeys(_OPTIONS), f"hf:{named.name}")
    config, processor = named.part("AutoConfig"), named.part("AutoImageProcessor").to_dict()
    resizing = Resizing.of(processor, named.name) if settings.get("resize", True) else Resizing()
    preprocess = Preprocess(resizing, Normalize(*_constants(processor)))
    if any(kind.endswith("ForImageClassification") for kind in config.architectures or ()):
        if extra := {"classes", "template"} & set(settings):
            raise UserError(
                f"hf:{named.name} is a classifier with classes of its own; leave out {', '.join(sorted(extra))}."
            )
        if not named.fetch and num_classes is not None:
            config.num_labels = num_classes
        return Classifier(preprocess, named.model("AutoModelForImageClassification", config))
    if type(config) not in named.transformers.AutoModelForZeroShotImageClassification._model_mapping:
        kinds = ", ".join(config.architectures or ["an unknown kind"])
        raise UserError(
            f"hf:{named.name} is a model of {kinds}, neither an image classifier nor an image-text model. Fine-tune "
            "it, or choose another."
        )
    body = named.model("AutoModel", config)
    if not hasattr(body, "logit_scale") or not hasattr(body, "get_text_features"):
        raise UserError(f"hf:{named.name} has no text features of its own; choose a model such as CLIP or SigLIP.")
    return ZeroShot(preprocess, body, _text_features(named, body, settings, num_classes, class_names))


def _text_features(
    named: Named, body: Any, settings: Mapping[str, Any], num_classes: int | None, class_names: Sequence[str]
) -> Tensor:
    """Those of the classes; where the weights come from a file, they do too, and here are only their size."""
    classes = _listed(settings["classes"]) if "classes" in settings else list(class_names)
    if not named.fetch and (count := len(classes) or num_classes):
        return torch.zeros(count, _pooled(body.get_text_features(torch.zeros(1, 2, dtype=torch.long))).shape[1])
    if len(classes) < 2:
        raise UserError(f"hf:{named.name} classifies by the names of the classes: add classes=[cat, dog] to it.")
    tokenizer, longest = named.part("AutoTokenizer"), body.config.text_config.max_position_embeddings
    total = torch.zeros(())
    for template in _listed(settings.get("template", _TEMPLATE)):
        if "{}" not in template:
            raise UserError(f"a template has {{}} where the class is named, such as {_TEMPLATE!r}; got {template!r}.")
        prompts = [template.replace("{}", name.replace("_", " ")) for name in classes]
        # SigLIP was trained on texts padded to the full length; CLIP ignores what comes after the end.
        tokens = tokenizer(prompts, padding="max_length", truncation=True, max_length=longest, return_tensors="pt")
        with torch.no_grad():
            total = total + F.normalize(_pooled(body.get_text_features(**tokens)), dim=-1)
    return F.normalize(total, dim=-1)


def _pooled(features: Any) -> Tensor:
    """The projected features, which later versions return inside an output."""
    found: Tensor = features if isinstance(features, Tensor) else features.pooler_output
    return found


def _listed(value: Any) -> list[str]:
    """``[a, b]``, or a single text."""
    if isinstance(value, (list, tuple)):
        return [str(item) for item in value]
    return items(value) if str(value).startswith("[") else [str(value)]


def _constants(processor: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """(mean, std) such that (x − mean)/std of x in [0,1] is what the preprocessor makes of 255·x.

    It normalises r·255·x − o, with the factor r, usually 1/255, and an offset o of 1 for models of [−1,1].
    EfficientNet's (include_top) divides by std twice.
    """
    factor = 255 * processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 255.0
    offset = 1.0 if processor.get("rescale_offset") else 0.0
    means, stds = [0.0], [1.0]
    if processor.get("do_normalize", True):
        means, stds = processor.get("image_mean") or means, processor.get("image_std") or stds
    power = 2 if processor.get("include_top") else 1
    return [(float(mean) + offset) / factor for mean in means], [float(std) ** power / factor for std in stds]
