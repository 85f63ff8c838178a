"""The server behind `dse ui`: on loopback alone, under a token, until Ctrl-C."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from phaze.errors import InputError
from phaze.ui.app import LocalPage
from phaze.ui.local_access import LocalAccess
from phaze.ui.runs_folder import RunsFolder

HOST = "127.0.0.1"


@dataclass(frozen=True)
class LocalServer:
    """A server that is bound already: its address is known before it runs."""

    page: LocalPage
    server: uvicorn.Server
    listening: socket.socket
    address: str

    def run(self) -> None:
        """Serve until somebody ends it."""
        self.server.run(sockets=[self.listening])


@contextmanager
def local_server(
    folder: Path, port: int = 0, token: Callable[[int], str] = secrets.token_urlsafe
) -> Iterator[LocalServer]:
    """A server of a folder of runs; port 0 is any that is free. Its commands end with it.

    Raises InputError where the port is taken.
    """
    page, key = LocalPage(RunsFolder(folder.resolve())), token(24)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
            listening.listen()  # whoever is early waits
        except OSError as error:
            raise InputError(f"--port {port} cannot be used: {error.strerror}") from error
        here = listening.getsockname()[1]
        config = uvicorn.Config(
            LocalAccess(page.app(), key, here),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        try:
            yield LocalServer(page, uvicorn.Server(config), listening, f"http://{HOST}:{here}/?token={key}")
        finally:
            page.commands.end()
