"""SmallCNN: the four-convolution MNIST network of TRADES (312,202 parameters).

Zhang et al., ICML 2019. Convolutions are unpadded: 28→26→24→12→10→8→4. Images of another size are average-pooled
to the same 4×4 map, which at 28×28 changes nothing. Parameter names are those of the authors' checkpoints.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from classwise.core.spec import Fraction
from classwise.models.networks.network import Network

PAPERS = ("zhang2019",)


class SmallCNN(Network):
    last = "classifier.fc3"

    def __init__(self, num_classes: int, in_channels: int, dropout: float) -> None:
        super().__init__()
        self.feature_extractor = nn.Sequential(
            OrderedDict[str, nn.Module](
                conv1=nn.Conv2d(in_channels, 32, 3),
                relu1=nn.ReLU(inplace=True),
                conv2=nn.Conv2d(32, 32, 3),
                relu2=nn.ReLU(inplace=True),
                maxpool1=nn.MaxPool2d(2),
                conv3=nn.Conv2d(32, 64, 3),
                relu3=nn.ReLU(inplace=True),
                conv4=nn.Conv2d(64, 64, 3),
                relu4=nn.ReLU(inplace=True),
                maxpool2=nn.MaxPool2d(2),
                resize=nn.AdaptiveAvgPool2d(4),
                flatten=nn.Flatten(),
            )
        )
        self.classifier = nn.Sequential(
            OrderedDict[str, nn.Module](
                fc1=nn.Linear(64 * 4 * 4, 200),
                relu1=nn.ReLU(inplace=True),
                drop=nn.Dropout(dropout),
                fc2=nn.Linear(200, 200),
                relu2=nn.ReLU(inplace=True),
                fc3=nn.Linear(200, num_classes),
            )
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def features(self, x: Tensor) -> Tensor:
        features: Tensor = self.classifier[:-1](self.feature_extractor(x))
        return features


def build(num_classes: int, *, in_channels: int = 1, dropout: Fraction = 0.5) -> nn.Module:
    return SmallCNN(num_classes, in_channels, dropout)
