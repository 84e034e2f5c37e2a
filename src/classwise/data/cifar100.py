"""CIFAR-100: a hundred classes in twenty superclasses, 32×32 colour, 50,000 train and 10,000 test.

Reads ``root/cifar-100-python/{train,test}``, with the fine labels. Source: Krizhevsky, 2009. Names and superclasses
are those of the official ``meta`` file and coarse labels.
"""

from __future__ import annotations

from pathlib import Path

from classwise.data.cifar_files import read_batches
from classwise.data.download import Remote, locate
from classwise.data.images import ArrayPixels, Images, Size, check_split

PAPERS = ("krizhevsky2009",)
FLIPS = True
SIZE = Size((3, 32, 32), 100, 50_000, 10_000)
NORMALIZATION = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))  # mean and standard deviation of each channel
SUPERCLASSES = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
#: The official numbering is alphabetical.
CLASS_NAMES = tuple(sorted(name for members in SUPERCLASSES.values() for name in members))

ARCHIVE = Remote("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "md5:eb9058c3a382ffc7106e4002c42a8d85")
_SPLITS = ("train", "test")


def load(root: str | Path, split: str = "test", download: bool = False) -> Images:
    """The split "train" or "test", uint8 in memory."""
    check_split("cifar100", split, _SPLITS)
    root = Path(root).expanduser()
    path = locate("cifar100", [root / "cifar-100-python" / split], ARCHIVE, root, download)
    images, labels = read_batches([path], "fine_labels")
    return Images(ArrayPixels(images), labels, CLASS_NAMES, "cifar100", superclasses=SUPERCLASSES)
