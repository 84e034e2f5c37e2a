"""A model behind HTTP: the other end of ``--model http://…``, and a pattern for servers of your own.

    python -m classwise.models.serve --model resnet-18 --weights best.pt --num-classes 10 --port 8000

Everything above `main` needs numpy alone. To serve another model, copy this file and give `serve` a function from a
float32 array of images (n, channels, height, width) in [0,1] to an array of scores (n, classes):

    POST {"shape": [n, c, h, w], "dtype": "float32", "data": base64 of the little-endian bytes}
    200  {"scores": [[…], …]}          4xx {"error": why the request was refused}          500 {"error": …}

It answers one request at a time, from anyone who can reach the port: there is no password. Do not open it to a network
that you do not trust. `Limits` bounds the time, memory and threads that one client can use.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import ipaddress
import json
import math
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

Score = Callable[[NDArray[np.float32]], Any]


@dataclass(frozen=True)
class Limits:
    """Limits for each client.

    timeout: seconds for a whole request to arrive, the wait for it included, and for a reply to be received.
    connections: clients at once; one more is told to come back (503).   body: bytes of a request.
    hosts: names by which the server may be addressed, besides localhost, this machine's own and any IP address. (Else
        a web page could reach it through a name of its own that it points to this machine.)
    """

    timeout: float = 60.0
    connections: int = 32
    body: int = 128 * 2**20
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise ValueError(f"the timeout must be a positive number of seconds, got {self.timeout:g}")
        for name in ("connections", "body"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


class Refused(ValueError):
    """A request that is not answered, with its HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def decode_images(body: bytes) -> NDArray[np.float32]:
    """The images of a request."""
    content = json.loads(body, parse_constant=no_constant)
    if content["dtype"] != "float32":
        raise ValueError(f"dtype is {content['dtype']!r}, expected 'float32'")
    shape = content["shape"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"shape is {shape!r}, expected a list of sizes")
    values = np.frombuffer(base64.b64decode(content["data"], validate=True), "<f4")
    return values.reshape(shape).astype(np.float32)


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python would read."""
    raise ValueError(f"{name} is not JSON")


class Server(ThreadingHTTPServer):
    """A server of one function. Port 0 takes any free port; `url` says which."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, score: Score, host: str = "127.0.0.1", port: int = 8000, limits: Limits | None = None) -> None:
        super().__init__((host, port), Handler)
        self.score, self.limits = score, limits or Limits()
        self.turn = threading.Lock()  # few models are thread-safe
        self.free = threading.BoundedSemaphore(self.limits.connections)
        self.names = {name.lower() for name in ("localhost", socket.gethostname(), host, *self.limits.hosts)}

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection, if one is left."""
        if not self.free.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self.free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Silent: a client that disconnects or is too slow is not an error of the server."""


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket up to a deadline that the handler sets, which slow senders cannot extend."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.deadline = connection, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self.connection.settimeout(left)
        return self.connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """One connection, kept open for many requests."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every reply waits for an acknowledgement of its headers

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.arriving = _DeadlineReader(self.connection)
        self.rfile = io.BufferedReader(self.arriving)

    def handle_one_request(self) -> None:
        self.arriving.deadline = time.monotonic() + self.server.limits.timeout
        super().handle_one_request()  # which ends the connection after a TimeoutError

    def do_POST(self) -> None:
        try:
            self._check_host()
            images = decode_images(self._body())
        except Refused as refused:
            return self._reply(refused.status, {"error": str(refused)})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return self._reply(400, {"error": f"not a batch of images: {type(error).__name__}: {error}"})
        try:
            with self.server.turn:
                scores = np.asarray(self.server.score(images))
            reply = json.dumps({"scores": scores.tolist()}, allow_nan=False)
        except Exception as error:
            return self._reply(500, {"error": f"{type(error).__name__}: {error}"})
        return self._reply(200, reply)

    def _check_host(self) -> None:
        given = self.headers.get_all("Host", [])
        if len(given) != 1:
            raise Refused(400, f"{len(given)} Host headers, expected one")
        name = urllib.parse.urlsplit(f"//{given[0]}").hostname or ""
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return
        if name not in self.server.names:
            raise Refused(403, f"this server is not called {name!r}; start it with --allow-host {name} if it is")

    def _body(self) -> bytes:
        """The body of the request, of the length that its one valid Content-Length states."""
        if "Transfer-Encoding" in self.headers:
            raise Refused(411, "the body must come in one piece, with Content-Length")
        given = self.headers.get_all("Content-Length", [])
        if not given:
            raise Refused(411, "Content-Length is missing")
        if len(set(given)) > 1 or not (given[0].isascii() and given[0].isdigit()):
            raise Refused(400, f"Content-Length is {', '.join(given)!r}, expected one whole number")
        most = self.server.limits.body
        if len(given[0]) > 18 or (length := int(given[0])) > most:
            raise Refused(
                413, f"the body has {given[0][:20]} bytes, at most {most} are accepted; send fewer images at once"
            )
        body = self.rfile.read(length)
        if len(body) < length:
            raise Refused(400, f"the body ends after {len(body)} of {length} bytes")
        return body

    def _reply(self, status: int, content: dict[str, Any] | str) -> None:
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.connection.settimeout(self.server.limits.timeout)  # for all of it, as sendall counts
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if 400 <= status < 500:  # the rest of the request, if any, is not the next one
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: an audit sends thousands of requests."""


def serve(score: Score, host: str = "127.0.0.1", port: int = 8000, limits: Limits | None = None) -> None:
    """Answer until interrupted."""
    with Server(score, host, port, limits) as server:
        print(f"serving at {server.url} (Ctrl-C stops it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a model that classwise can load."""
    import torch

    from classwise.core.errors import UserError
    from classwise.models import load_model

    usual = Limits()
    parser = argparse.ArgumentParser("python -m classwise.models.serve", description="Put a model behind HTTP.")
    parser.add_argument("--model", required=True, help="any model spec, as of classwise audit")
    parser.add_argument("--weights", help="weights for the model")
    parser.add_argument("--num-classes", type=int, help="outputs of the model, where the spec does not say")
    parser.add_argument("--in-channels", type=int, help="channels of the images, where the spec does not say")
    parser.add_argument("--normalize", help="normalising first layer")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trust", action="store_true", help="load files that run code")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: only this machine")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free port")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name by which clients address it, besides localhost, this machine's and IP addresses; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, default=usual.timeout,
        help=f"seconds for a request to arrive and for a reply to be received; default: {usual.timeout:g}",
    )  # fmt: skip
    parser.add_argument(
        "--connections", type=int, default=usual.connections, help=f"clients at once; default: {usual.connections}"
    )
    parser.add_argument(
        "--max-body", type=float, default=usual.body / 2**20, metavar="MB",
        help=f"size of a request in megabytes; default: {usual.body // 2**20}",
    )  # fmt: skip
    given = parser.parse_args(arguments)

    @torch.inference_mode()
    def score(images: NDArray[np.float32]) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = model(torch.from_numpy(images).to(given.device)).cpu().numpy()
        return logits

    try:
        limits = Limits(given.timeout, given.connections, int(given.max_body * 2**20), tuple(given.allow_host))
    except (ValueError, OverflowError) as error:
        parser.exit(2, f"error: {error}.\n")
    try:
        model = load_model(
            given.model, given.weights, given.num_classes, given.in_channels,
            device=given.device, normalize=given.normalize, trust=given.trust,
        )  # fmt: skip
        serve(score, given.host, given.port, limits)
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    except OSError as error:
        parser.exit(2, f"error: cannot listen on {given.host}:{given.port}: {error.strerror or error}\n")


if __name__ == "__main__":
    main()
