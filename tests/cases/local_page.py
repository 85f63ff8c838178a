"""The server of `dse ui` in a thread, and a client that speaks to it as a browser, or as somebody else, would."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Client:
    """Requests to one port; the cookie of the page is kept."""

    port: int
    token: str
    cookie: str = ""
    server: object = None
    _headers: dict = field(default_factory=dict)

    def ask(self, path, method="GET", body=None, **headers):
        """(status, headers, text)."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        told = {"Host": f"127.0.0.1:{self.port}", **({"Cookie": self.cookie} if self.cookie else {}), **told}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        content = b"" if body is None else body.encode()
        if method == "POST":
            told.setdefault("Content-Type", "application/json")
            told["Content-Length"] = str(len(content))
        for name, value in told.items():
            connection.putheader(name, value)
        connection.endheaders(content)
        answer = connection.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
        connection.close()
        return found

    def enter(self):
        """Come in by the address that the command prints."""
        status, headers, _ = self.ask(f"/?token={self.token}")
        assert (status, headers["location"]) == (303, "/")
        self.cookie = headers["set-cookie"].partition(";")[0]
        return self

    def post(self, path, **content):
        """(status, JSON) of a question."""
        status, _, text = self.ask(path, "POST", json.dumps(content))
        return status, json.loads(text)

    def get(self, path):
        """The text of a page that is there."""
        status, _, text = self.ask(path)
        assert status == 200, (status, text)
        return text


@contextmanager
def local_page(folder):
    """A client of a server that shows a folder; not come in yet."""
    from phaze.ui.server import local_server

    with local_server(folder) as server:
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        base, _, token = server.address.partition("/?token=")
        yield Client(int(base.rpartition(":")[2]), token, server=server)
        server.server.should_exit = True
        thread.join(10)
