"""Models of torchvision, timm and RobustBench: built untrained, since no weights are fetched in a test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from classwise.core.errors import UserError
from classwise.models import check_model, load_model, save_checkpoint
from classwise.models.normalize import normalization_of

pytestmark = pytest.mark.adapters


class TestTorchvision:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("torchvision")

    def test_builds_with_the_classes_of_the_data(self) -> None:
        model = load_model("torchvision:resnet18", num_classes=7)
        assert check_model(model, torch.rand(2, 3, 64, 64)) == 7
        assert not model.training

    @pytest.mark.parametrize("name", ["resnet18", "resnet50"])
    def test_its_weights_load_into_our_resnet(self, name: str, tmp_path: Path) -> None:
        theirs = load_model(f"torchvision:{name}", num_classes=7, seed=4)
        torch.save(theirs.state_dict(), tmp_path / "w.pth")
        ours = load_model(f"resnet-{name[-2:]}:stem=imagenet", tmp_path / "w.pth", num_classes=7)
        x = torch.rand(2, 3, 64, 64)
        with torch.no_grad():
            torch.testing.assert_close(ours(x), theirs(x))

    def test_its_weights_load_into_our_inception(self, tmp_path: Path) -> None:
        theirs = load_model("torchvision:inception_v3,init_weights=false", num_classes=7)
        torch.save(theirs.state_dict(), tmp_path / "w.pth")
        ours = load_model("inception_v3", tmp_path / "w.pth", num_classes=7)
        x = torch.rand(1, 192, 35, 35)
        with torch.no_grad():  # past the stem both are the same network
            for name, module in ours.named_children():
                if name.startswith("Mixed"):
                    torch.testing.assert_close(module(x), theirs.get_submodule(name)(x))
                    x = module(x)

    def test_trained_weights_bring_their_normalisation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from torchvision.models import ResNet18_Weights, resnet18

        monkeypatch.setattr(ResNet18_Weights, "get_state_dict", lambda *_, **__: resnet18().state_dict())
        model = load_model("torchvision:resnet18,weights=DEFAULT")
        mean, std = normalization_of(model) or ((), ())
        assert mean == pytest.approx((0.485, 0.456, 0.406))
        assert std == pytest.approx((0.229, 0.224, 0.225))
        assert normalization_of(load_model("torchvision:resnet18,weights=DEFAULT", normalize="none")) is None

    def test_a_checkpoint_of_a_trained_model_fetches_nothing(self, tmp_path: Path) -> None:
        spec = "torchvision:resnet18,weights=DEFAULT"
        model = load_model("torchvision:resnet18", normalize="imagenet", seed=4)
        save_checkpoint(tmp_path / "a.pt", model, spec, 1000, 3)
        x = torch.rand(2, 3, 64, 64)
        with torch.no_grad():
            torch.testing.assert_close(load_model(tmp_path / "a.pt")(x), model(x))

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("torchvision:resnet19", "unknown torchvision model 'resnet19'; did you mean"),
            ("torchvision:resnet18,weights=DEFAULTS", "unknown weights .*'DEFAULTS'"),
            ("torchvision:resnet18,widht=3", "cannot be made .*widht"),
            ("torchvision:", "names no model"),
        ],
    )
    def test_errors(self, spec: str, message: str) -> None:
        with pytest.raises(UserError, match=message):
            load_model(spec, num_classes=7)

    def test_channels(self) -> None:
        with pytest.raises(UserError, match="3 channels, the data has 1"):
            load_model("torchvision:resnet18", in_channels=1)


class TestTimm:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("timm")

    def test_builds_with_classes_channels_and_settings(self) -> None:
        model = load_model("timm:resnet10t", num_classes=7, in_channels=1)
        assert check_model(model, torch.rand(2, 1, 32, 32)) == 7
        small = load_model("timm:vit_tiny_patch16_224,img_size=32,patch_size=8", num_classes=4)
        assert check_model(small, torch.rand(2, 3, 32, 32)) == 4

    def test_trained_weights_bring_their_normalisation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import timm

        create = timm.create_model
        monkeypatch.setattr(timm, "create_model", lambda **kw: create(**{**kw, "pretrained": False}))
        mean, _ = normalization_of(load_model("timm:resnet18.a1_in1k,pretrained=true", num_classes=7)) or ((), ())
        assert mean == pytest.approx((0.485, 0.456, 0.406))

    def test_errors(self) -> None:
        with pytest.raises(UserError, match="unknown timm model 'resnet18z'; did you mean"):
            load_model("timm:resnet18z")
        with pytest.raises(UserError, match=r"cannot be made .*widht"):
            load_model("timm:resnet18,widht=3")


class TestRobustBench:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("robustbench")

    def test_an_architecture_with_weights_from_a_file(self, tmp_path: Path) -> None:
        from robustbench.model_zoo import model_dicts
        from robustbench.model_zoo.enums import BenchmarkDataset, ThreatModel

        entry = model_dicts[BenchmarkDataset.cifar_10][ThreatModel.Linf]["Rebuffi2021Fixing_R18_ddpm"]
        network = entry["model"]().eval()
        torch.save({"state_dict": {f"module.{k}": v for k, v in network.state_dict().items()}}, tmp_path / "w.pt")
        model = load_model("robustbench:cifar10/Linf/Rebuffi2021Fixing_R18_ddpm", weights=tmp_path / "w.pt")
        x = torch.rand(2, 3, 32, 32)
        with torch.no_grad():
            torch.testing.assert_close(model(x), network(x))

    def test_its_loader_is_called_with_the_names_and_a_cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import robustbench.utils

        seen: dict[str, str] = {}
        monkeypatch.setattr(robustbench.utils, "load_model", lambda **kw: seen.update(kw) or torch.nn.Flatten())
        load_model("robustbench:cifar10/Linf/Carmon2019Unlabeled")
        assert {k: v for k, v in seen.items() if k != "model_dir"} == {
            "model_name": "Carmon2019Unlabeled",
            "dataset": "cifar10",
            "threat_model": "Linf",
        }
        assert "classwise" in seen["model_dir"]

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("cifar11/Linf/Standard", "unknown RobustBench data set 'cifar11'"),
            ("cifar10/L1/Standard", "unknown RobustBench threat model 'L1'"),
            ("cifar10/Linf/Carmon2019", "did you mean 'Carmon2019Unlabeled'"),
            ("Carmon2019Unlabeled", "DATASET/THREAT/NAME"),
            ("cifar10/Linf/Standard,x=1", "no settings"),
        ],
    )
    def test_errors(self, name: str, message: str) -> None:
        with pytest.raises(UserError, match=message):
            load_model(f"robustbench:{name}")
