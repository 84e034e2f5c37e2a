"""A model behind HTTP: the other end of ``--model http://…``, and a pattern for servers of your own.

    python -m classwise.serve --model resnet-18 --weights best.pt --num-classes 10 --port 8000

Everything above `main` needs numpy alone. To serve another model, copy this file and give `serve` a function from a
float32 array of images (n, channels, height, width) in [0,1] to an array of scores (n, classes):

    POST {"shape": [n, c, h, w], "dtype": "float32", "data": base64 of the little-endian bytes}
    200  {"scores": [[…], …]}          400 {"error": why the request was refused}          500 {"error": …}

It answers one request at a time, to whoever can reach the port: there is no password. Do not open it to a network
that you do not trust.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

Score = Callable[[NDArray[np.float32]], Any]


def decode_images(body: bytes) -> NDArray[np.float32]:
    """The images of a request."""
    content = json.loads(body)
    if content["dtype"] != "float32":
        raise ValueError(f"dtype is {content['dtype']!r}, expected 'float32'")
    values = np.frombuffer(base64.b64decode(content["data"], validate=True), "<f4")
    return values.reshape(content["shape"]).astype(np.float32)


class Server(ThreadingHTTPServer):
    """A server of one function. Port 0 takes any that is free; `url` says which."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, score: Score, host: str = "127.0.0.1", port: int = 8000) -> None:
        super().__init__((host, port), Handler)
        self.score = score
        self.turn = threading.Lock()  # models are seldom made for several threads

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"


class Handler(BaseHTTPRequestHandler):
    """One connection, kept open for many requests."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every reply waits for an acknowledgement of its headers

    def do_POST(self) -> None:
        try:
            images = decode_images(self.rfile.read(int(self.headers["Content-Length"])))
        except (ValueError, KeyError, TypeError) as error:
            return self._reply(400, {"error": f"not a batch of images: {type(error).__name__}: {error}"})
        try:
            with self.server.turn:
                scores = np.asarray(self.server.score(images))
        except Exception as error:
            return self._reply(500, {"error": f"{type(error).__name__}: {error}"})
        return self._reply(200, {"scores": scores.tolist()})

    def _reply(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 400:  # what may be left of the request is not the next one
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: an audit asks thousands of times."""


def serve(score: Score, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Answer until interrupted."""
    with Server(score, host, port) as server:
        print(f"serving at {server.url} (Ctrl-C stops it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a model that classwise can load."""
    import torch

    from classwise.errors import UserError
    from classwise.models import load_model

    parser = argparse.ArgumentParser("python -m classwise.serve", description="Put a model behind HTTP.")
    parser.add_argument("--model", required=True, help="any model spec, as of classwise audit")
    parser.add_argument("--weights", help="weights for the model")
    parser.add_argument("--num-classes", type=int, help="outputs of the model, where it needs to be told")
    parser.add_argument("--in-channels", type=int, help="channels of the images, where it needs to be told")
    parser.add_argument("--normalize", help="normalising first layer")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trust", action="store_true", help="load files that run code")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; default: only this machine")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any that is free")
    given = parser.parse_args(arguments)

    @torch.inference_mode()
    def score(images: NDArray[np.float32]) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = model(torch.from_numpy(images).to(given.device)).cpu().numpy()
        return logits

    try:
        model = load_model(
            given.model, given.weights, given.num_classes, given.in_channels, given.device, given.normalize,
            trust=given.trust,
        )  # fmt: skip
        serve(score, given.host, given.port)
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    except OSError as error:
        parser.exit(2, f"error: cannot listen at {given.host}:{given.port}: {error.strerror or error}\n")


if __name__ == "__main__":
    main()
