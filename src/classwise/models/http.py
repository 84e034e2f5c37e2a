"""A model queried over HTTP: ``https://host/path,timeout=10,chunk=32,header=Authorization:env:TOKEN``.

    POST {"shape": [n, c, h, w], "dtype": "float32", "data": base64 of the little-endian bytes}
    200  {"scores": [[…], …]}                                                      n rows, one column for each class
         {"shape": [n, k], "dtype": "float32", "data": …}                          the same, as bytes

Connection errors, timeouts, 429 and 5xx are tried again after base · 2^k seconds, less a random part, or after as long
as the server's Retry-After says, but never longer than the timeout. Proxies are those of the environment.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import random
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import urllib3
from numpy.typing import NDArray

from classwise.core.errors import UserError
from classwise.core.spec import Count, Natural, NonNegative, Positive, items, validate_fields
from classwise.core.version import __version__
from classwise.models.query import HOW_TO_RESUME, Query
from classwise.models.serve import no_constant

if TYPE_CHECKING:
    from typing import Self

_JITTER = random.Random()  # its own, so that no other random numbers depend on a server
_DTYPES = {"float32": "<f4", "float64": "<f8"}


class _Backoff(urllib3.Retry):
    """Exponential backoff with jitter, up to half of it, so that clients do not come back all at once.

    A server's Retry-After is obeyed up to `longest` seconds, and ignored where it is invalid.
    """

    longest: float = 30.0

    def get_backoff_time(self) -> float:
        return super().get_backoff_time() * _JITTER.uniform(0.5, 1)

    def get_retry_after(self, response: urllib3.BaseHTTPResponse) -> float | None:
        try:
            asked = super().get_retry_after(response)
        except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
            return None
        return None if asked is None else min(asked, self.longest)

    def new(self, **changes: Any) -> Self:
        made = super().new(**changes)
        made.longest = self.longest
        return made


@dataclass(frozen=True, kw_only=True)
class Http:
    """A function from a batch of images to scores.

    timeout: seconds for a connection, for a reply, and at most to wait where the server says Retry-After.
    retries: how often a request is tried again.
    backoff: seconds before the second retry; doubles.    chunk: images in a request.
    concurrency: requests under way at once.              header: Name:env:VARIABLE, several separated by |.
    """

    url: str
    timeout: Positive = 30.0
    retries: Natural = 5
    backoff: NonNegative = 1.0
    chunk: Count = 64
    concurrency: Count = 4
    header: str | None = None

    pattern: ClassVar[str] = "https?://.*"

    def __post_init__(self) -> None:
        validate_fields(self)
        address = urllib.parse.urlsplit(self.url)
        if not address.hostname:
            raise UserError(f"{self.url!r} names no host; write http://HOST:PORT/PATH.")
        if address.username is not None:
            raise UserError(
                "a password in an address would be kept in the run folder; use header=Authorization:env:NAME."
            )
        _ = self._headers  # a missing variable is an error now, not at the first request

    def query(self) -> Query:
        return Query(ask=self, name=self.url)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        chunks = [images[begin : begin + self.chunk] for begin in range(0, len(images), self.chunk)]
        if len(chunks) == 1:
            return self._ask(chunks[0])
        with ThreadPoolExecutor(self.concurrency) as pool:
            return np.concatenate(list(pool.map(self._ask, chunks)))

    def _ask(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        reply = self._post(encode(images))
        try:
            scores = decode_scores(reply)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f'{self.url} answered {reply[:80]!r}, expected {{"scores": [[…], …]}}: {type(error).__name__}: {error}.'
            ) from error
        if scores.ndim != 2 or len(scores) != len(images):
            raise UserError(
                f"for {len(images)} images {self.url} returned scores of shape {scores.shape}, "
                f"expected ({len(images)}, classes)."
            )
        return scores

    def _post(self, body: bytes) -> bytes:
        try:
            # A redirect is not followed: it would carry the headers' secrets to another address.
            reply = self._pool.request("POST", self.url, body=body, headers=self._headers, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            reason = getattr(error, "reason", None) or error
            raise UserError(
                f"{self.url} does not answer after {self.retries + 1} attempts ({type(reason).__name__}: {reason}). "
                f"Start the server or check the address. {HOW_TO_RESUME}."
            ) from error
        if reply.status != 200:
            reason = reply.headers.get("Location") or reply.data[:300].decode(errors="replace").strip() or "nothing"
            raise UserError(f"{self.url} answered {reply.status} {reply.reason or ''}: {reason}. {HOW_TO_RESUME}.")
        return reply.data

    @functools.cached_property
    def _pool(self) -> urllib3.PoolManager:
        retries = _Backoff(
            self.retries,
            status_forcelist={429, *range(500, 600)},
            allowed_methods=None,  # a repeated query does no harm
            backoff_factor=self.backoff / 2,  # the library doubles it before the first use
            raise_on_status=False,
        )
        retries.longest = self.timeout
        settings: dict[str, Any] = {"retries": retries, "timeout": self.timeout, "maxsize": self.concurrency}
        address = urllib.parse.urlsplit(self.url)
        proxy = urllib.request.getproxies().get(address.scheme)
        if proxy is None or urllib.request.proxy_bypass(address.hostname or ""):
            return urllib3.PoolManager(**settings)
        return urllib3.ProxyManager(proxy, **settings)

    @functools.cached_property
    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": f"classwise/{__version__}"}
        for text in filter(None, items(self.header or "", older=r"\|")):
            name, _, source = text.partition(":")
            kind, _, variable = source.partition(":")
            if kind != "env" or not variable:
                raise UserError(
                    f"header={text!r} is not of the form Name:env:VARIABLE. Values come from environment variables, so "
                    "that no secret is left in a command or a run folder."
                )
            if variable not in os.environ:
                raise UserError(f"the header {name} comes from the environment variable {variable}, which is not set.")
            headers[name.strip()] = os.environ[variable]
        return headers


def encode(array: NDArray[Any]) -> bytes:
    """An array of float32 as the body of a request."""
    data = base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()
    return json.dumps({"shape": array.shape, "dtype": "float32", "data": data}).encode()


def decode_scores(body: bytes) -> NDArray[np.float64]:
    """The scores in a reply; ValueError, KeyError or TypeError where there are none."""
    content = json.loads(body, parse_constant=no_constant)
    if not isinstance(content, dict):
        raise TypeError(f"a {type(content).__name__}, not an object")
    if "scores" in content:
        return np.array(content["scores"], dtype=np.float64)
    values = np.frombuffer(base64.b64decode(content["data"], validate=True), _DTYPES[content["dtype"]])
    return values.reshape(content["shape"]).astype(np.float64)
