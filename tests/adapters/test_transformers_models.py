"""Classifiers and CLIP of transformers: tiny, untrained, saved to a folder, against what the library computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import classwise as cw
from classwise.core.errors import UserError
from classwise.models import load_model, save_checkpoint

pytestmark = [pytest.mark.adapters, pytest.mark.slow]

transformers: Any = pytest.importorskip("transformers")

CLASSES = ("cat", "dog", "ship")
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
PREPROCESSORS = {
    "square": ("ViTImageProcessor", {"size": {"height": 24, "width": 24}}),
    "shorter side, crop": (
        "CLIPImageProcessor",
        {"size": {"shortest_edge": 30}, "crop_size": {"height": 24, "width": 24}},
    ),
    "crop only": ("CLIPImageProcessor", {"do_resize": False, "crop_size": {"height": 24, "width": 24}}),
    "share": ("ConvNextImageProcessor", {"size": {"shortest_edge": 24}, "crop_pct": 0.8}),
    "to −1…1": (
        "EfficientNetImageProcessor",
        {"size": {"height": 24, "width": 24}, "rescale_factor": 1 / 127.5, "rescale_offset": True, "resample": 2},
    ),
    "not normalised": ("ViTImageProcessor", {"size": {"height": 24, "width": 24}, "do_normalize": False}),
}


def images(height: int, width: int, channels: int = 3) -> tuple[list[Image.Image], Tensor]:
    """Smooth pictures of 8 bits, as files and in [0,1]."""
    rng = np.random.default_rng(0)
    coarse = torch.from_numpy(rng.random((4, channels, 5, 5), np.float32))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)
    pixels = (smooth * 255).round().byte()
    shown = [Image.fromarray(one.permute(1, 2, 0).squeeze(-1).numpy()) for one in pixels]
    return shown, pixels.float() / 255


def saved_vit(folder: Path, processor: str = "square") -> Path:
    torch.manual_seed(0)
    config = transformers.ViTConfig(**SMALL, image_size=24, patch_size=8, num_labels=3)
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    name, settings = PREPROCESSORS[processor]
    getattr(transformers, name)(**settings).save_pretrained(folder)
    return folder


def saved_clip(folder: Path) -> Path:
    """With a tokenizer whose words are letters."""
    torch.manual_seed(0)
    letters = [*"abcdefghijklmnopqrstuvwxyz."]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = transformers.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    text = {**SMALL, "vocab_size": len(words), "max_position_embeddings": 24, "bos_token_id": 0, "eos_token_id": 1}
    vision = {**SMALL, "image_size": 24, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    transformers.CLIPModel(config).save_pretrained(folder)
    name, settings = PREPROCESSORS["shorter side, crop"]
    getattr(transformers, name)(**settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class TestClassifier:
    @pytest.mark.parametrize("size", [(24, 24), (40, 32), (32, 60)])
    @pytest.mark.parametrize("processor", list(PREPROCESSORS))
    def test_preprocesses_as_the_library(self, tmp_path: Path, processor: str, size: tuple[int, int]) -> None:
        if processor == "to −1…1" and not hasattr(transformers, "EfficientNetImageProcessor"):
            pytest.skip("no such preprocessor in this version")
        folder = saved_vit(tmp_path, processor)
        shown, x = images(*size)
        theirs = transformers.AutoImageProcessor.from_pretrained(folder)(shown, return_tensors="pt")["pixel_values"]
        model: Any = load_model(f"hf:{folder}")
        ours = model.preprocess(x)
        step = 1 / 255 / float(model.preprocess.normalize.std.min())
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() < 1.6 * step  # they round to 8 bits

    def test_answers_as_the_library(self, tmp_path: Path) -> None:
        folder = saved_vit(tmp_path)
        shown, x = images(24, 24)
        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        theirs = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
        with torch.no_grad():
            expected = theirs(**processor(shown, return_tensors="pt")).logits
            torch.testing.assert_close(load_model(f"hf:{folder}")(x), expected, rtol=1e-4, atol=1e-5)

    def test_an_audit_attacks_the_pixels_of_the_data(self, tmp_path: Path) -> None:
        folder = saved_vit(tmp_path)
        _, x = images(40, 40)
        y = load_model(f"hf:{folder}")(x).argmax(1)
        audit = cw.audit(f"hf:{folder}", (x, y), ["pgd-10"], eps=0.3, progress=False)
        assert audit.rows("clean").correct.all()
        assert audit.records.frame["distance"].max() <= 0.3 + 1e-6
        assert not audit.rows("pgd-10").correct.all()

    def test_grey_images_get_three_channels(self, tmp_path: Path) -> None:
        model = load_model(f"hf:{saved_vit(tmp_path)}", in_channels=1)
        _, x = images(24, 24, channels=1)
        torch.testing.assert_close(model(x), model(x.expand(-1, 3, -1, -1)))

    def test_a_checkpoint_loads_without_the_weights_of_the_folder(self, tmp_path: Path) -> None:
        folder = saved_vit(tmp_path / "vit")
        model = load_model(f"hf:{folder}")
        torch.nn.init.ones_(model.body.classifier.weight)  # type: ignore[union-attr,arg-type]
        save_checkpoint(tmp_path / "best.pt", model, f"hf:{folder}", 3, 3)
        (folder / "model.safetensors").unlink()
        _, x = images(24, 24)
        torch.testing.assert_close(load_model(tmp_path / "best.pt")(x), model(x))

    def test_resize_false_leaves_the_size(self, tmp_path: Path) -> None:
        model: Any = load_model(f"hf:{saved_vit(tmp_path)},resize=false")
        assert model.preprocess(torch.rand(1, 3, 8, 8)).shape[-2:] == (8, 8)


class TestZeroShot:
    def test_answers_as_the_library(self, tmp_path: Path) -> None:
        folder = saved_clip(tmp_path / "clip")
        shown, x = images(30, 30)
        prompts = [f"a photo of a {name}." for name in CLASSES]
        images_of = transformers.AutoImageProcessor.from_pretrained(folder)
        texts = transformers.AutoTokenizer.from_pretrained(folder)
        inputs = {**images_of(shown, return_tensors="pt"), **texts(prompts, padding=True, return_tensors="pt")}
        with torch.no_grad():
            expected = transformers.AutoModel.from_pretrained(folder).eval()(**inputs).logits_per_image
            ours = load_model(f"hf:{folder}", class_names=CLASSES)(x)
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-3)

    def test_an_audit_makes_the_prompts_of_the_datas_classes(self, tmp_path: Path) -> None:
        folder = saved_clip(tmp_path / "clip")
        _, x = images(30, 30)
        y = load_model(f"hf:{folder}", class_names=["class 0", "class 1", "class 2"])(x).argmax(1)
        audit = cw.audit(f"hf:{folder}", (x, y), ["pgd-5"], eps=0.2, num_classes=3, progress=False)
        assert audit.records.num_classes >= int(y.max()) + 1

    def test_templates_are_averaged(self, tmp_path: Path) -> None:
        spec = f"hf:{saved_clip(tmp_path / 'clip')},classes=[cat, dog, ship]"
        one, two, both = (
            load_model(f"{spec},template={template}").text_features
            for template in ("a photo of a {}.", "(a drawing, of a {}.)", "[a photo of a {}., (a drawing, of a {}.)]")
        )
        mean = torch.nn.functional.normalize((one + two) / 2, dim=-1)  # type: ignore[operator]
        torch.testing.assert_close(both, mean)
        assert not torch.allclose(one, two)  # type: ignore[arg-type]

    def test_a_checkpoint_keeps_the_text_features(self, tmp_path: Path) -> None:
        folder = saved_clip(tmp_path / "clip")
        model = load_model(f"hf:{folder}", class_names=CLASSES)
        save_checkpoint(tmp_path / "best.pt", model, f"hf:{folder}", 3, 3)
        _, x = images(24, 24)
        torch.testing.assert_close(load_model(tmp_path / "best.pt")(x), model(x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (",templates=x", "unknown setting of hf.*'templates'; did you mean 'template'"),
        ("", r"add classes=\[cat, dog\]"),
        (",classes=[a, b],template=a photo", "where the class is named"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, settings: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_model(f"hf:{saved_clip(tmp_path / 'clip')}{settings}")


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be loaded"):
        load_model(f"hf:{tmp_path / 'nothing'}")


def test_a_model_that_classifies_nothing_is_said(tmp_path: Path) -> None:
    saved_vit(tmp_path)
    transformers.ViTModel(transformers.ViTConfig(**SMALL, image_size=24, patch_size=8)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="neither an image classifier nor an image-text model"):
        load_model(f"hf:{tmp_path}")


def test_a_classifier_takes_no_prompts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="classes of its own; leave out template"):
        load_model(f"hf:{saved_vit(tmp_path)},template=a {{}}")
