"""The reference server: what it refuses, and what one client cannot take from the others."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from classwise.models import load_model
from classwise.models import serve as serve_module
from classwise.models.http import encode
from classwise.models.serve import Limits, Server

X = torch.rand(3, 1, 2, 2, generator=torch.Generator().manual_seed(0))
BODY = encode(X.numpy())
Start = Callable[..., Server]


def scores_of(images: NDArray[np.float32]) -> NDArray[np.float64]:
    return images.reshape(len(images), -1).astype(np.float64)


@pytest.fixture
def start() -> Iterator[Start]:
    """start(score, limits…) -> a server that answers, at a free port of this machine."""
    servers: list[Server] = []

    def begin(score: Callable[..., Any] = scores_of, **limits: Any) -> Server:
        servers.append(Server(score, port=0, limits=Limits(**limits)))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return servers[-1]

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(server: Server, head: str, body: bytes = b"", end: bool = False) -> tuple[int, dict[str, Any]]:
    """Send bytes as they are; the status of the reply, and its content."""
    with socket.create_connection(server.server_address[:2], timeout=20) as connection:  # type: ignore[arg-type]
        connection.sendall(f"POST / HTTP/1.1\r\n{head}\r\n\r\n".encode() + body)
        if end:
            connection.shutdown(socket.SHUT_WR)
        reply = connection.makefile("rb")
        status = int(reply.readline().split()[1])
        length = 0
        while (line := reply.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return status, json.loads(reply.read(length))


@pytest.mark.parametrize(
    ("lengths", "status", "words"),
    [
        ([], 411, "Content-Length is missing"),
        (["-5"], 400, "Content-Length is '-5', expected one whole number"),
        (["+5"], 400, "expected one whole number"),
        (["0x10"], 400, "expected one whole number"),
        (["²"], 400, "expected one whole number"),
        ([""], 400, "expected one whole number"),
        (["5", "6"], 400, "Content-Length is '5, 6'"),
        (["1001"], 413, "the body has 1001 bytes, at most 1000 are accepted"),
        (["9" * 5000], 413, "at most 1000 are accepted"),
    ],
)
def test_the_length_of_a_request_is_checked_before_it_is_read(
    start: Start, lengths: list[str], status: int, words: str
) -> None:
    head = "\r\n".join(["Host: localhost", *(f"Content-Length: {length}" for length in lengths)])
    found, content = ask(start(body=1000), head)  # nothing of the body is sent, and nothing waited for
    assert found == status
    assert words in content["error"]


def test_pieces_and_half_a_body_are_refused(start: Start) -> None:
    server = start()
    assert ask(server, "Host: localhost\r\nTransfer-Encoding: chunked")[0] == 411
    status, content = ask(server, f"Host: localhost\r\nContent-Length: {len(BODY)}", BODY[:-9], end=True)
    assert (status, content) == (400, {"error": f"the body ends after {len(BODY) - 9} of {len(BODY)} bytes"})


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("Host: localhost", 200),
        ("Host: LOCALHOST:8000", 200),
        ("Host: 127.0.0.1:1", 200),
        ("Host: 10.0.0.7", 200),
        ("Host: [::1]:8000", 200),
        ("Host: model.example:8000", 200),
        (f"Host: {socket.gethostname()}", 200),
        ("Host: evil.example", 403),
        ("Host: 127.0.0.1.evil.example:8000", 403),
        ("Host: localhost@evil.example", 403),
        ("Host:", 403),
        ("Host: [::1", 400),
        ("Accept: */*", 400),
        ("Host: localhost\r\nHost: evil.example", 400),
    ],
)
def test_by_a_name_that_is_not_its_own_it_is_not_spoken_to(start: Start, host: str, status: int) -> None:
    found, content = ask(start(hosts=("model.example",)), f"{host}\r\nContent-Length: {len(BODY)}", BODY)
    assert found == status, content
    if status == 403:
        assert "--allow-host" in content["error"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"shape": [NaN], "dtype": "float32", "data": ""}',
        b'{"shape": [0], "dtype": "float32", "data": "", "more": Infinity}',
        b'{"shape": [-1, 1], "dtype": "float32", "data": "AAAAAA=="}',
        b'{"shape": [true], "dtype": "float32", "data": "AAAAAA=="}',
        b'{"shape": 1, "dtype": "float32", "data": "AAAAAA=="}',
        b'{"shape": [1e0], "dtype": "float32", "data": "AAAAAA=="}',
        b"[" * 200_000,
        b"\xff\xfe",
    ],
)
def test_what_is_not_json_or_no_array_is_refused(start: Start, body: bytes) -> None:
    status, content = ask(start(), f"Host: localhost\r\nContent-Length: {len(body)}", body)
    assert status == 400
    assert content["error"].startswith("not a batch of images: ")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_json_does_not_know_are_an_error_of_the_model(start: Start, value: float) -> None:
    server = start(lambda images: np.full((len(images), 2), value))
    status, content = ask(server, f"Host: localhost\r\nContent-Length: {len(BODY)}", BODY)
    assert status == 500
    assert "Out of range float values" in content["error"]


@pytest.mark.slow
def test_two_hundred_slow_clients_hold_few_threads_and_nobody_else_up(start: Start) -> None:
    """Each sends a byte now and then and never ends; each is disconnected at the timeout."""
    server = start(connections=8, timeout=0.5)
    before, answers = threading.active_count(), []
    patient = load_model(f"{server.url},retries=1000,backoff=0,timeout=0.2")

    def honest() -> None:
        answers.append(patient(X))

    with contextlib.ExitStack() as stack:
        slow = []
        for _ in range(200):
            slow.append(stack.enter_context(socket.create_connection(server.server_address[:2], timeout=20)))  # type: ignore[arg-type]
            slow[-1].setblocking(False)
            with contextlib.suppress(OSError):
                slow[-1].send(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        asking = threading.Thread(target=honest)
        asking.start()
        most, end = 0, time.monotonic() + 30
        while asking.is_alive() and time.monotonic() < end:
            most = max(most, threading.active_count() - before)
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.send(b"x")
            asking.join(0.05)
        assert most <= 8 + 1  # the ninth is the honest client's own
        assert len(answers) == 1
        torch.testing.assert_close(answers[0].double(), X.flatten(1).double())
        end = time.monotonic() + 30
        while threading.active_count() > before + 1 and time.monotonic() < end:  # its kept connection ends too
            time.sleep(0.02)
    assert threading.active_count() <= before + 1


def test_one_more_than_its_connections_is_told_to_come_back(start: Start) -> None:
    server = start(connections=1, timeout=20)
    with socket.create_connection(server.server_address[:2], timeout=20) as one:  # type: ignore[arg-type]
        one.sendall(b"POST / HTTP/1.1\r\n")
        with socket.create_connection(server.server_address[:2], timeout=20) as other:  # type: ignore[arg-type]
            reply = other.makefile("rb").read()
    assert reply.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in reply
    patient = load_model(f"{server.url},retries=20,backoff=0.05,timeout=5")
    assert patient(X).shape == (3, 4)  # the first has gone, and its place is free


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--timeout", "0"], "the timeout must be a positive number of seconds, got 0"),
        (["--timeout", "nan"], "the timeout must be a positive number of seconds, got nan"),
        (["--connections", "0"], "connections must be at least 1, got 0"),
        (["--max-body", "-1"], "body must be at least 1"),
        (["--max-body", "inf"], "cannot convert float infinity to integer"),
    ],
)
def test_limits_that_are_none(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        serve_module.main(["--model", "lenet", *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_limits_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(serve_module, "serve", lambda *given: served.append(given[3]))
    model = ["--model", "lenet", "--num-classes", "4", "--in-channels", "1"]
    serve_module.main(model)
    serve_module.main([*model, "--timeout", "5", "--connections", "2", "--max-body", "0.5", "--allow-host", "a.b"])
    assert served == [Limits(), Limits(5.0, 2, 2**19, ("a.b",))]
