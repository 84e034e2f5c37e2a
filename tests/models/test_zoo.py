"""Models of the zoo by name: from a folder, from a server, and what is wrong with either."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import classwise as cw
from classwise.cli.main import app
from classwise.models import zoo
from classwise.models.checkpoint import read_checkpoint, save_checkpoint
from small_zoo import NAME, made_zoo

SPEC = f"zoo:{NAME}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_zoo(tmp_path_factory.mktemp("zoo"))


@pytest.fixture
def folder(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo that is in use."""
    monkeypatch.setenv(zoo.SETTING, str(shared))
    return shared


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo that is in use, to be damaged."""
    found = made_zoo(tmp_path)
    monkeypatch.setenv(zoo.SETTING, str(found))
    return found


class TestInAFolder:
    def test_the_model_and_its_weights(self, folder: Path) -> None:
        x = torch.rand(3, 1, 8, 8)
        model, same = cw.load_model(SPEC), cw.load_model(folder / NAME / "best.pt")
        torch.testing.assert_close(model(x), same(x), rtol=0, atol=0)
        other = cw.load_model("resnet:width=2,blocks=[1]", weights=SPEC, num_classes=10, in_channels=1, seed=5)
        torch.testing.assert_close(other(x), same(x), rtol=0, atol=0)
        assert model.trained_threat == ("linf", 0.15)

    def test_a_checkpoint_made_from_it_names_the_network(self, folder: Path, tmp_path: Path) -> None:
        save_checkpoint(tmp_path / "m.pt", cw.load_model(SPEC), SPEC, 10, 1)
        assert read_checkpoint(tmp_path / "m.pt")["classwise"]["model"] == "resnet:width=2,blocks=[1]"

    def test_an_unknown_name_gets_the_nearest(self, folder: Path) -> None:
        with pytest.raises(cw.UserError, match=f"did you mean '{NAME}'"):
            cw.load_model("zoo:digits/resnet2/trade-0")

    def test_it_brings_its_own_weights(self, folder: Path) -> None:
        with pytest.raises(cw.UserError, match="leave weights out"):
            cw.load_model(SPEC, weights=SPEC)

    def test_a_changed_file_is_refused(self, changed: Path) -> None:
        path = changed / NAME / "best.pt"
        path.write_bytes(path.read_bytes() + b"\0")
        with pytest.raises(cw.UserError, match=r"best\.pt is not the file that .*index\.json lists"):
            cw.load_model(SPEC)

    def test_an_index_alone_names_the_remedy(self, changed: Path) -> None:
        (changed / NAME / "best.pt").unlink()
        assert not zoo.open_zoo().holds(NAME)
        with pytest.raises(cw.UserError, match=f"set {zoo.SETTING} to the folder zoo of a clone"):
            cw.load_model(SPEC)

    @pytest.mark.parametrize("path", ["../secret", "a/../../b", "/etc/passwd", "a//b", ".git/config"])
    def test_nothing_leads_out_of_the_folder(self, changed: Path, path: str) -> None:
        index = changed / zoo.INDEX
        content = json.loads(index.read_text())
        content["models"][NAME]["files"][path] = "0" * 64
        index.write_text(json.dumps(content))
        with pytest.raises(cw.UserError, match=r"damaged .* is no name of a model or file"):
            cw.load_model(SPEC)

    def test_a_newer_index(self, changed: Path) -> None:
        (changed / zoo.INDEX).write_text('{"format": 99, "models": {}}')
        with pytest.raises(cw.UserError, match="upgrade"):
            cw.load_model(SPEC)

    def test_a_setting_that_is_no_zoo(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(zoo.SETTING, str(tmp_path))
        with pytest.raises(cw.UserError, match=f"{zoo.SETTING} is .* has no index.json"):
            cw.load_model(SPEC)

    def test_the_index_of_an_installed_package_goes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "site-packages" / "classwise"
        monkeypatch.setattr(zoo, "__file__", str(package / "models" / "zoo.py"))
        assert zoo.home() == tmp_path / "zoo"
        (package / "zoo").mkdir(parents=True)
        (package / "zoo" / zoo.INDEX).write_text("{}")
        assert zoo.home() == package / "zoo"


class TestList:
    def test_a_line_for_each_model(self, folder: Path) -> None:
        shown = CliRunner().invoke(app, ["list", "zoo"], env={"COLUMNS": "200"}).stdout.splitlines()
        assert shown[0].split() == ["name", "data", "method", "seed", "clean", "average", "worst", "class", "attack"]
        assert shown[1].split() == [NAME, "digits", "trades", "0"]

    def test_as_json(self, folder: Path) -> None:
        found = json.loads(CliRunner().invoke(app, ["list", "zoo", "--json"]).stdout)
        what = "trades on digits with resnet:width=2,blocks=[1], linf eps 0.15, 2 epochs, seed 0"
        assert found[NAME]["what"] == what

    def test_an_empty_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / zoo.INDEX).write_text('{"format": 1, "models": {}}')
        monkeypatch.setenv(zoo.SETTING, str(tmp_path))
        assert "holds no models" in CliRunner().invoke(app, ["list", "zoo"]).stdout

    def test_the_shipped_models_are_all_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(zoo.SETTING, raising=False)
        shipped = zoo.open_zoo()
        assert shipped.entries
        assert all(shipped.file(name, file) for name, entry in shipped.entries.items() for file in entry.files)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.HTTPServer]:
    """A server of the zoo, which is the one in use; what is fetched is kept below tmp_path."""
    handler = functools.partial(_Quiet, directory=str(changed))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        monkeypatch.setattr(zoo.pooch, "os_cache", lambda project: tmp_path / "cache" / project)
        monkeypatch.setenv(zoo.SETTING, f"http://127.0.0.1:{running.server_port}/")
        zoo._at.cache_clear()
        yield running
        running.shutdown()


class TestFromAServer:
    def test_files_are_fetched_once_and_then_need_no_server(
        self, server: http.server.HTTPServer, changed: Path, tmp_path: Path
    ) -> None:
        x = torch.rand(2, 1, 8, 8)
        expected = cw.load_model(changed / NAME / "best.pt")(x)
        torch.testing.assert_close(cw.load_model(SPEC)(x), expected, rtol=0, atol=0)
        kept = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        assert sorted(kept) == ["best.pt", "index.json"]
        server.shutdown()
        server.server_close()
        zoo._at.cache_clear()
        torch.testing.assert_close(cw.load_model(SPEC)(x), expected, rtol=0, atol=0)
        with pytest.raises(cw.UserError, match=r"could not download .*config\.toml.*folder zoo of a clone"):
            zoo.open_zoo().run(NAME)

    def test_a_corrupted_file_is_refused_and_not_kept(
        self, server: http.server.HTTPServer, changed: Path, tmp_path: Path
    ) -> None:
        path = changed / NAME / "best.pt"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
        with pytest.raises(cw.UserError, match=r"best\.pt is not the expected file"):
            cw.load_model(SPEC)
        assert not list((tmp_path / "cache").rglob("best.pt"))

    def test_a_damaged_copy_is_fetched_again(
        self, server: http.server.HTTPServer, changed: Path, tmp_path: Path
    ) -> None:
        cw.load_model(SPEC)
        (copy,) = (tmp_path / "cache").rglob("best.pt")
        copy.write_bytes(b"damaged")
        cw.load_model(SPEC)
        assert copy.read_bytes() == (changed / NAME / "best.pt").read_bytes()

    def test_nothing_is_added_to_the_copy(self, server: http.server.HTTPServer, tmp_path: Path) -> None:
        ran = CliRunner().invoke(app, ["zoo", "add", str(tmp_path / "run"), "--as", NAME])
        assert isinstance(ran.exception, cw.UserError)
        assert "give --zoo FOLDER" in str(ran.exception)

    def test_nobody_answers(self, server: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
        server.shutdown()
        server.server_close()
        with pytest.raises(cw.UserError, match=f"could not read the zoo at .*Check {zoo.SETTING}"):
            cw.load_model(SPEC)

    def test_no_zoo_at_the_address(self, server: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(zoo.SETTING, f"http://127.0.0.1:{server.server_port}/nothing")
        with pytest.raises(cw.UserError, match=r"could not read the zoo at .*404"):
            cw.load_model(SPEC)
