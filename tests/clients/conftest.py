"""What the clients' tests share: a server with the built-in model, and a browser.

CACHALOT_PROGRAM names the program (build/release/apps/cachalot otherwise); CACHALOT_URL a server that
runs already."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("CACHALOT_PROGRAM", str(ROOT / "build/release/apps/cachalot"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`cachalot serve` with the built-in model; stopped when the with block ends."""

    def __init__(self, *options, model="models/nano"):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.command = [PROGRAM, "serve", "-m", str(ROOT / model), "--host", "127.0.0.1",
                        "--port", str(port), "--threads", "1", *options]

    def __enter__(self):
        # A file: a pipe that nobody reads would fill and hold the server up.
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=self.log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                self.log.seek(0)
                raise RuntimeError(f"the server ended at its start: {self.log.read()}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return self
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise RuntimeError("the server was not ready after 60 s")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def server_url():
    if "CACHALOT_URL" in os.environ:
        yield os.environ["CACHALOT_URL"].rstrip("/")
        return
    with Server() as server:
        yield server.url


@pytest.fixture(scope="session")
def start_server():
    """with start_server("--api-key", "secret") as server: ... server.url"""
    return Server


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        pytest.fail("chromium not found: run tools/install_packages.sh clients")
    with sync_playwright() as playwright:
        # No sandbox: the tests may run as root in a container; they open their own server only.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()
