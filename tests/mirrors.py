"""Servers on this machine that break off, forbid, lie and stall, as a test tells them."""

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Mirror(ThreadingHTTPServer):
    """A server of `files` whose faults are switched on by its fields; it logs what it is asked."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = dict(files)
        self.asked = []  # names
        self.lengths = True
        self.break_after = {}  # name -> bytes of the answer after which it hangs up
        self.stall = False  # keep the line open instead of hanging up
        self.missing = set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/d/"

    def handle_error(self, *_):
        """Clients that leave are no fault here."""


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        name = self.path.removeprefix("/d/")
        server.asked.append(name)
        if name in server.missing or name not in server.files:
            return self.send_error(404)
        body = server.files[name]
        self.send_response(200)
        if server.lengths:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.break_after.get(name)])
        if name in server.break_after and server.stall:
            self.wfile.flush()
            time.sleep(600)


@contextlib.contextmanager
def served(files):
    """A mirror that serves while the block runs."""
    with Mirror(files) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
