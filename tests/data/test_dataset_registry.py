"""The data sets as a whole: every file is found, described, and rejects what it does not know."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from classwise import data
from classwise.core.errors import UserError
from classwise.data import load as load_data
from classwise.data.images import Images
from for_each import for_each

PUBLIC = [
    "arrays", "background_mnist", "cifar10", "cifar100", "cifar100_c", "cifar10_c", "coloured", "corruption", "digits",
    "fashion_mnist", "folder", "imagenet", "mnist", "parquet", "replaced", "stl10", "svhn", "tiny_imagenet",
    "webdataset",
]  # fmt: skip
IN_FILES = ("parquet", "webdataset")  # whatever is in them


def test_names_are_the_files_that_load() -> None:
    assert data.names() == PUBLIC


@for_each("name", PUBLIC)
def test_every_data_set_is_described_in_one_line(name: str) -> None:
    line = data.describe(name)
    assert 20 < len(line) <= 120
    assert "\n" not in line


@for_each("name", PUBLIC)
def test_every_load_has_the_common_arguments(name: str) -> None:
    parameters = inspect.signature(data._REGISTRY.find(name).object).parameters
    assert list(parameters)[:3] == ["root", "split", "download"]
    assert parameters["split"].default == "test"
    assert parameters["download"].default is False


@for_each("name", sorted(set(PUBLIC) - {"arrays", "digits"}))
def test_missing_data_names_the_path_and_the_remedy(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load_data(name, root=tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(error.value)
    own = {"imagenet": "cannot be downloaded", "folder": "one sub-folder per class"}
    own |= dict.fromkeys(IN_FILES, "Give the folder that holds them")
    remedy = own.get(name, "--download")
    assert remedy in str(error.value)


# The splits of a data set made of another one are that one's.
@for_each("name", sorted(set(PUBLIC) - {"arrays", "folder", "coloured", "corruption", "replaced", *IN_FILES}))
def test_an_unknown_split_gives_the_near_miss(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"unknown split of {name} 'tets'; did you mean 'test'"):
        load_data(name, root=tmp_path, split="tets")


@for_each("name", ["cifar10", "cifar100", "stl10"])
def test_superclasses_share_out_all_classes(name: str) -> None:
    module = data._REGISTRY.find(name).module
    members = [member for group in module.SUPERCLASSES.values() for member in group]
    assert sorted(members) == sorted(module.CLASS_NAMES)
    assert len(set(members)) == len(members)


def test_what_a_data_set_says_of_its_size_is_true() -> None:
    digits = data.size("digits")
    assert digits is not None
    assert digits[2:] == tuple(len(load_data("digits", split=split)) for split in ("train", "test"))
    for name in PUBLIC:
        known, classes = data.size(name), data.class_names(name)
        assert known is None or classes is None or known.classes == len(classes)
    assert data.size("coloured:of=fashion_mnist") == (data.size("fashion_mnist") or digits)._replace(shape=(3, 28, 28))


def test_an_unknown_data_set_gives_the_near_miss() -> None:
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        load_data("cifar-10")


def test_a_support_module_is_not_a_data_set() -> None:
    with pytest.raises(UserError, match="unknown data set 'images'"):
        load_data("images")


def test_an_unknown_setting_gives_the_near_miss(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="setting of folder 'resise'; did you mean 'resize'"):
        load_data("folder:resise=32", root=tmp_path)


def test_root_split_and_download_are_not_settings(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown setting of folder 'split'"):
        load_data("folder:split=train", root=tmp_path)


def test_a_data_set_without_settings_says_so() -> None:
    with pytest.raises(UserError, match="digits has no settings; in 'digits:size=8' leave out size"):
        load_data("digits:size=8")


def test_settings_are_converted_to_their_types(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"folder\.resize must be a whole number, got '3\.5'"):
        load_data("folder:resize=3.5", root=tmp_path)


def test_the_default_root_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there is no data/MNIST/raw/t10k-images-idx3-ubyte"):
        load_data("mnist")


def test_load_gives_images() -> None:
    assert isinstance(load_data("digits", split="train"), Images)
