"""A page on this machine only, read only, that shows something while it runs."""

import json
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from pacfl.errors import ConfigError, PacflError
from pacfl.report import prometheus
from pacfl.report.page import LIVE_POLICY, Live, page
from pacfl.report.progress import Watched
from pacfl.report.summary import ReportData

HOST: Final = "127.0.0.1"
SECONDS: Final = 10.0  # for a client to send its request
HEADERS: Final = {
    "Content-Security-Policy": f"{LIVE_POLICY}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


@contextmanager
def serving(watched: Watched, port: int = 0, *, with_metrics: bool = False) -> Iterator[str]:
    """Serve until the block is left; the address. port 0: a free one. with_metrics: also for Prometheus."""
    try:
        server = _Server((HOST, port), _Handler)
    except OSError as error:
        raise ConfigError(f"port {port} of {HOST} cannot be used ({error.strerror}); choose another --port") from None
    server.site = Site(watched, with_metrics)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Site:
    """What the addresses show. The page is made again only when there is more to report."""

    def __init__(self, watched: Watched, with_metrics: bool) -> None:
        """Nothing is made yet."""
        self._watched, self._with_metrics = watched, with_metrics
        self._lock, self._page, self._version = threading.Lock(), "", ""

    def answer(self, path: str) -> tuple[HTTPStatus, str, str]:
        """Status, type and content for a path."""
        makers = {"/": self._html, "/state.json": self._json}
        if self._with_metrics:
            makers["/metrics"] = self._metrics
        if path not in makers:
            more = "; metrics are served with --prometheus" if path == "/metrics" else ""
            return HTTPStatus.NOT_FOUND, TEXT, f"there are {', '.join(makers)}{more}\n"
        with self._lock:  # one at a time: it reads files and holds what it has read
            try:
                return HTTPStatus.OK, *makers[path]()
            except (PacflError, OSError) as error:
                return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"{error}\n"

    def _json(self) -> tuple[str, str]:
        return JSON, json.dumps(self._watched.state().as_json(time.time()), allow_nan=False)

    def _metrics(self) -> tuple[str, str]:
        return prometheus.CONTENT_TYPE, prometheus.metrics(self._watched.state(), time.time())

    def _html(self) -> tuple[str, str]:
        state = self._watched.state()
        if state.version != self._version:
            try:
                found = self._watched.report()
            except PacflError:  # nothing to report yet, or it is being written right now: the page asks again
                found = None
            if found is not None or not self._page:
                self._page = page(found or ReportData(()), Live(state.name, state.version if found else ""))
            self._version = state.version if found is not None else ""
        return HTML, self._page


class _Server(ThreadingHTTPServer):
    site: Site
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked may be gone before the answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def server_bind(self) -> None:
        """Without a look at the name of this machine, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # of IPv4


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "pacfl", ""
    timeout = SECONDS

    def do_GET(self) -> None:
        """The only method."""
        if self.headers.get("Host") not in [f"{name}:{self.server.server_port}" for name in (HOST, "localhost")]:
            # A page elsewhere may have let its own name lead to this machine, and would then read what is served here
            self._send(HTTPStatus.MISDIRECTED_REQUEST, TEXT, "this address serves 127.0.0.1 and localhost only\n")
            return
        self._send(*self.server.site.answer(urlsplit(self.path).path))

    def do_POST(self) -> None:
        """Refused, as all others: nothing can be changed here."""
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, "this page can only be read\n", Allow="GET")

    do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST  # noqa: N815

    def _send(self, status: HTTPStatus, kind: str, content: str, **more: str) -> None:
        body = content.encode()
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: whoever polls would fill the terminal."""
