"""Models behind an address: the protocol, patience with servers, and sentences where patience ends."""

from __future__ import annotations

import base64
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
import torch
import urllib3
from numpy.typing import NDArray

from classwise.core.errors import UserError
from classwise.models import load_model
from classwise.models import serve as serve_module
from classwise.models.black_box import BlackBox
from classwise.models.http import encode
from classwise.models.serve import Server, decode_images

X = torch.rand(10, 1, 2, 3, generator=torch.Generator().manual_seed(0))
QUICK = "retries=3,backoff=0,timeout=5"


def scores_of(images: NDArray[np.float32]) -> NDArray[np.float64]:
    return images.reshape(len(images), -1)[:, :4].astype(np.float64) * np.pi


def good(images: NDArray[np.float32]) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps({"scores": scores_of(images).tolist()}).encode()


class Scripted(ThreadingHTTPServer):
    """Answers by a script, then well; keeps the requests' headers, and how many were under way at once."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[dict[str, str]] = []
        self.sizes: list[int] = []
        self.delay = 0.0
        self.active = self.most = 0
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/model"


class Handler(BaseHTTPRequestHandler):
    """One request, one line of the script. A body longer than its Content-Length says is a server that died."""

    server: Scripted

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.active += 1
            self.server.most = max(self.server.most, self.server.active)
            self.server.requests.append({**dict(self.headers), "path": self.path})
            images = decode_images(body)
            self.server.sizes.append(len(images))
            status, headers, reply = self.server.script.pop(0) if self.server.script else good(images)
        time.sleep(self.server.delay)
        with self.server.lock:
            self.server.active -= 1
        self.send_response(status)
        for name, value in {"Content-Length": str(len(reply)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: Any) -> None: ...


def running(server: ThreadingHTTPServer) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[Scripted]:
    yield from running(Scripted())


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """serve(score) -> the address of the reference server with that function behind it."""
    servers: list[Iterator[Server]] = []

    def start(score: Callable[[NDArray[np.float32]], Any]) -> str:
        servers.append(running(Server(score, port=0)))
        return next(servers[-1]).url

    yield start
    for server in servers:
        next(server, None)


class TestProtocol:
    def test_images_and_scores_arrive_to_the_last_bit(self, serve: Callable[..., str]) -> None:
        asked: list[NDArray[np.float32]] = []

        def score(images: NDArray[np.float32]) -> NDArray[np.float64]:
            asked.append(images)
            return scores_of(images)

        model = load_model(serve(score))
        logits = model(X.contiguous(memory_format=torch.channels_last))
        np.testing.assert_array_equal(asked[0], X.numpy())
        np.testing.assert_array_equal(logits, scores_of(X.numpy()).astype(np.float32))
        assert isinstance(model, BlackBox)

    @pytest.mark.parametrize(("dtype", "code"), [("float32", "<f4"), ("float64", "<f8")])
    def test_scores_as_bytes(self, server: Scripted, dtype: str, code: str) -> None:
        data = base64.b64encode(scores_of(X.numpy()).astype(code).tobytes()).decode()
        server.script = [(200, {}, json.dumps({"shape": [10, 4], "dtype": dtype, "data": data}).encode())]
        np.testing.assert_array_equal(load_model(server.url)(X), scores_of(X.numpy()).astype(np.float32))

    def test_a_request_as_documented(self) -> None:
        content = json.loads(encode(np.array([[[[0.5, 1.0]]]], np.float32)))
        assert content == {"shape": [1, 1, 1, 2], "dtype": "float32", "data": "AAAAPwAAgD8="}

    def test_a_batch_is_cut_and_put_together_in_its_order(self, server: Scripted) -> None:
        server.delay = 0.02
        logits = load_model(f"{server.url},chunk=2,concurrency=3")(X)
        np.testing.assert_array_equal(logits, scores_of(X.numpy()).astype(np.float32))
        assert server.sizes == [2] * 5
        assert 1 < server.most <= 3

    def test_headers_come_from_the_environment(self, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOKEN", "Bearer abc")
        monkeypatch.setenv("TENANT", "seven")
        model = load_model(f"{server.url},header=[Authorization:env:TOKEN, X-Tenant:env:TENANT]")
        model(X)
        assert server.requests[0]["Authorization"] == "Bearer abc"
        assert server.requests[0]["X-Tenant"] == "seven"
        assert server.requests[0]["Content-Type"] == "application/json"
        assert "abc" not in model.identity

    def test_a_proxy_of_the_environment(self, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/model"))
        load_model("http://model.invalid/ask")(X)
        assert server.requests[0]["path"] == "http://model.invalid/ask"

    def test_only_what_is_asked_enters_the_identity(self) -> None:
        one, other = (load_model(f"http://host/a?b=c,{settings}") for settings in ("timeout=1,budget=3", "chunk=2"))
        assert one.identity == other.identity == "http://host/a?b=c shape=nchw scale=1 scores=auto"
        assert one.identity != load_model("http://host/a").identity


class TestPatience:
    @pytest.mark.parametrize(
        "trouble",
        [
            (429, {}, b""),
            (500, {}, b""),
            (503, {"Retry-After": "0"}, b"busy"),
            (200, {"Content-Length": "999"}, b'{"scores": [['),  # died in the middle of its reply
        ],
    )
    def test_passing_trouble_is_waited_out(self, server: Scripted, trouble: tuple[int, dict[str, str], bytes]) -> None:
        server.script = [trouble] * 3
        state = random.getstate()
        np.testing.assert_array_equal(load_model(f"{server.url},{QUICK}")(X), scores_of(X.numpy()).astype(np.float32))
        assert len(server.requests) == 4
        assert random.getstate() == state

    @pytest.mark.parametrize(
        ("headers", "bounds"),
        [
            ({}, [(1, 2), (2, 4), (4, 8)]),
            ({"Retry-After": "7"}, [(7, 7)] * 4),
            ({"Retry-After": "86400"}, [(30, 30)] * 4),  # no longer than the timeout
            ({"Retry-After": "Fri, 31 Dec 2999 23:59:59 GMT"}, [(30, 30)] * 4),
            ({"Retry-After": "soon"}, [(1, 2), (2, 4), (4, 8)]),
            ({"Retry-After": "9" * 5000}, [(1, 2), (2, 4), (4, 8)]),
        ],
    )
    def test_waits_longer_each_time_or_as_long_as_told(
        self, server: Scripted, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], bounds: list[tuple[int, int]]
    ) -> None:
        waits: list[float] = []
        monkeypatch.setattr(urllib3.util.retry.time, "sleep", lambda s: waits.append(s) if s else None)
        server.script = [(503, headers, b"")] * 4
        load_model(f"{server.url},backoff=2,retries=4")(X)
        assert len(waits) == len(bounds)
        assert all(low <= wait <= high for wait, (low, high) in zip(waits, bounds, strict=True))

    def test_and_in_the_end_is_a_sentence(self, server: Scripted) -> None:
        server.script = [(503, {}, b"overloaded")] * 4
        with pytest.raises(UserError, match=r"answered 503 Service Unavailable: overloaded.*same command resumes"):
            load_model(f"{server.url},{QUICK}")(X)
        assert len(server.requests) == 4

    def test_nobody_there(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/"
        with pytest.raises(UserError, match=r"does not answer after 2 attempts .*refused.*the same command resumes"):
            load_model(f"{url},retries=1,backoff=0")(X)

    def test_too_slow(self, server: Scripted) -> None:
        server.delay = 0.4
        with pytest.raises(UserError, match=r"does not answer after 1 attempts .*timed out"):
            load_model(f"{server.url},retries=0,timeout=0.05")(X)

    @pytest.mark.parametrize(
        ("status", "headers", "message"),
        [
            (401, {}, "answered 401 Unauthorized: who are you"),
            (302, {"Location": "http://elsewhere.invalid/"}, "answered 302 Found: http://elsewhere.invalid/"),
        ],
    )
    def test_a_refusal_is_not_repeated_nor_carried_elsewhere(
        self, server: Scripted, status: int, headers: dict[str, str], message: str
    ) -> None:
        server.script = [(status, headers, b"who are you")]
        with pytest.raises(UserError, match=message):
            load_model(f"{server.url},{QUICK}")(X)
        assert len(server.requests) == 1


class TestBadReplies:
    @pytest.mark.parametrize(
        ("reply", "message"),
        [
            (b"<html>", r"answered b'<html>', expected \{\"scores\": .*JSONDecodeError"),
            (b"[[1, 2]]", "a list, not an object"),
            (b'{"probabilities": []}', "KeyError: 'data'"),
            (b'{"scores": [[1, 2], [3]]}', "ValueError"),
            (b'{"scores": [[NaN, 2]]}', "ValueError: NaN is not JSON"),
            (b'{"scores": [[1, -Infinity]]}', "ValueError: -Infinity is not JSON"),
            (b"[" * 200_000, "RecursionError"),
            (b'{"shape": [2, 2], "dtype": "float32", "data": "AAAA"}', "ValueError"),
            (b'{"shape": [1, 1], "dtype": "int8", "data": "AAAA"}', "KeyError: 'int8'"),
            (b'{"scores": [[1, 2]]}', r"for 10 images \S* returned scores of shape \(1, 2\), expected \(10, classes\)"),
        ],
    )
    def test_say_what_was_expected(self, server: Scripted, reply: bytes, message: str) -> None:
        server.script = [(200, {}, reply)]
        with pytest.raises(UserError, match=message):
            load_model(server.url)(X)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("http:///path", "names no host"),
        ("http://me:secret@host/", "a password in an address"),
        ("http://host/,timeot=3", "unknown setting of http://host/ 'timeot'; did you mean 'timeout'"),
        ("http://host/,timeout=0", "timeout must be positive"),
        ("http://host/,chunk=0", "chunk must be at least 1"),
        ("http://host/,retries=some", "http.retries must be a whole number, got 'some'"),
        ("http://host/,header=Authorization:abc", "not of the form Name:env:VARIABLE"),
        ("http://host/,header=A:env:NO_SUCH_VARIABLE", "environment variable NO_SUCH_VARIABLE, which is not set"),
    ],
)
def test_settings(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_model(spec)


class TestReferenceServer:
    def test_a_request_that_is_none(self, serve: Callable[..., str]) -> None:
        url = serve(scores_of)
        pool = urllib3.PoolManager()
        wrong_type, no_data = b'{"shape": [1], "dtype": "int8", "data": ""}', b'{"shape": [3], "dtype": "float32"}'
        for body in (b"junk", b"[1]", wrong_type, no_data):
            reply = pool.request("POST", url, body=body)
            assert reply.status == 400
            assert "not a batch of images" in reply.json()["error"]
        assert pool.request("POST", url, body=encode(X.numpy())).status == 200

    def test_a_model_that_fails(self, serve: Callable[..., str]) -> None:
        def fails(images: NDArray[np.float32]) -> None:
            raise KeyError("boom")

        with pytest.raises(UserError, match=r"answered 500 .*KeyError: 'boom'"):
            load_model(f"{serve(fails)},retries=0")(X)

    def test_its_command_serves_any_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served: list[Any] = []
        monkeypatch.setattr(serve_module, "serve", lambda *given: served.append(given))
        serve_module.main(["--model", "lenet", "--num-classes", "4", "--in-channels", "1", "--port", "81"])
        ((score, host, port, _),) = served
        assert (host, port) == ("127.0.0.1", 81)
        x = torch.rand(2, 1, 28, 28)
        with torch.no_grad():
            expected = load_model("lenet", num_classes=4, in_channels=1)(x)
        np.testing.assert_allclose(score(x.numpy()), expected, atol=1e-6)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--model", "lent", "--num-classes", "4"], "did you mean 'lenet'"),
            (["--model", "{url}"], "cannot listen on"),
        ],
    )
    def test_its_mistakes_are_sentences(
        self, server: Scripted, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        port = str(server.server_address[1])
        with pytest.raises(SystemExit) as stopped:
            serve_module.main([*(part.format(url=server.url) for part in arguments), "--port", port])
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err
