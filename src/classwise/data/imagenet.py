"""ImageNet: a thousand classes, resized to 256 and cropped to 224, 1,281,167 train and 50,000 val; read file by file.

Reads ``root/{train,val}/<wnid>/`` or ``root/imagenet/{train,val}/<wnid>/``. Classes are numbered by sorted WordNet id,
the standard numbering when all are there. A ``LOC_synset_mapping.txt`` or ``imagenet_class_index.json`` beside the
folders gives readable names, and keeps the numbering when some class folders are missing. The official test labels
were never released, so the split "test" means "val". It cannot be downloaded: access needs an account.
"""

from __future__ import annotations

from pathlib import Path

from classwise.core.errors import UserError
from classwise.data import wordnet
from classwise.data.decoding import Decoder
from classwise.data.files import FilePixels, class_folders, labelled
from classwise.data.images import Images, Size, check_split

PAPERS = ("deng2009",)
FLIPS = True
SIZE = Size((3, 224, 224), 1000, 1_281_167, 50_000)
NORMALIZATION = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and standard deviation of each channel
_FOLDERS = {"train": "train", "val": "val", "test": "val"}


def load(root: str | Path, split: str = "test", download: bool = False, resize: int = 256, crop: int = 224) -> Images:
    """The split "train" or "val" (also called "test"): shorter side to `resize`, then the central `crop` square."""
    check_split("imagenet", split, _FOLDERS)
    root = Path(root).expanduser()
    candidates = [root / _FOLDERS[split], root / "imagenet" / _FOLDERS[split]]
    folder = next(filter(Path.is_dir, candidates), None)
    if folder is None:
        raise UserError(
            f"imagenet: there is no {candidates[0]} nor {candidates[1]}. It cannot be downloaded for you: get it from "
            "https://image-net.org (an account is needed) and sort it into train/<wnid>/ and val/<wnid>/."
        )
    words = _words(folder.parent)
    splits = [folder.parent / name for name in ("train", "val")]
    wnids = sorted({*words, *(wnid for part in splits if part.is_dir() for wnid in class_folders(part))})
    paths, labels = labelled(folder, wnids)
    if not paths:
        raise UserError(f"imagenet: {folder} has no class folders with images; sort them into {folder}/<wnid>/.")
    return Images(FilePixels(paths, Decoder(resize, crop)), labels, wordnet.class_names(wnids, words), "imagenet")


def _words(folder: Path) -> dict[str, str]:
    mapping, class_index = folder / "LOC_synset_mapping.txt", folder / "imagenet_class_index.json"
    if mapping.is_file():
        return wordnet.read_words(mapping)
    return wordnet.read_class_index(class_index) if class_index.is_file() else {}
