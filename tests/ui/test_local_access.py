"""Who may talk to the page of `dse ui`, and what it gives away."""

from __future__ import annotations

import socket
import sys

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from local_page import local_page

from phaze.errors import InputError
from phaze.runs.run_directory import write_answer
from phaze.ui.runs_folder import RunsFolder


@pytest.fixture(scope="module")
def folder(document, tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    (home / "secret.txt").write_text("nobody's business")
    runs = home / "runs"
    (runs / "one").mkdir(parents=True)
    write_answer(runs / "one", document)
    (runs / "away").symlink_to(home)
    (runs / "one" / "frontier.csv").symlink_to(home / "secret.txt")
    return runs


@pytest.fixture(scope="module")
def stranger(folder):
    with local_page(folder) as client:
        yield client


@pytest.fixture(scope="module")
def client(folder):
    with local_page(folder) as client:
        yield client.enter()


def test_it_listens_on_loopback_alone(client):
    assert client.server.listening.getsockname()[0] == "127.0.0.1"
    assert len(client.token) >= 32


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/?token=", "/runs/one", "/static/ui.js", "/nothing"])
def test_nobody_comes_in_without_the_token(stranger, path):
    status, headers, text = stranger.ask(path)
    assert status == 403
    assert "token" in text
    assert "set-cookie" not in headers
    assert stranger.ask("/check", "POST", "{}")[0] == 403
    assert stranger.ask(path, Cookie=f"phaze-{stranger.port}=wrong")[0] == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}"],
)
def test_a_name_that_was_bound_anew_to_this_machine_is_refused(client, host):
    assert client.ask("/", Host=host.format(port=client.port))[0] == 421
    assert client.ask(f"/?token={client.token}", Host=host.format(port=client.port))[0] == 421
    assert client.ask("/", Host=f"localhost:{client.port}")[0] == 200


def test_other_pages_may_not_ask(client):
    body = '{"workload": "gpt3"}'
    assert client.ask("/check", "POST", body, Origin="http://evil.example")[0] == 403
    assert client.ask("/check", "POST", body, Origin="null")[0] == 403
    assert client.ask("/check", "POST", body, Content_Type="text/plain")[0] == 415
    assert client.ask("/check", "POST", body, Origin=f"http://127.0.0.1:{client.port}")[0] == 200


def test_the_cookie_stays_here_and_out_of_scripts(stranger):
    _, headers, _ = stranger.ask(f"/?token={stranger.token}")
    told = headers["set-cookie"].lower()
    assert "httponly" in told
    assert "samesite=strict" in told


def test_pages_run_no_script_but_their_own(client):
    _, headers, text = client.ask("/runs/one")
    policy = headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["cache-control"] == "no-store"
    assert "<script>" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/runs/..", "/runs/..%2Fruns", "/runs/%2e%2e", "/runs/away", "/runs/two",
        "/runs/one/files/..%2F..%2Fsecret.txt",
        "/runs/one/files/secret.txt", "/runs/one/files/frontier.csv", "/runs/away/files/secret.txt", "/at-work/9",
        "/static/..%2Fapp.py", "/static/app.py", "/together?run=one", "/together?run=one&run=..",
    ],
)  # fmt: skip
def test_nothing_leads_out_of_the_folder(client, path):
    status, _, text = client.ask(path)
    assert status == 404
    assert "nobody's business" not in text


def test_names_for_new_runs_stay_inside_and_are_free(folder):
    runs = RunsFolder(folder)
    first = runs.free("../../etc/x y")
    assert "/" not in first
    second = runs.free("../../etc/x y", taken=[first])
    assert second != first
    with pytest.raises(InputError, match="no run"):
        runs.run("../one")


def test_a_file_of_a_run_is_given_away(client, document):
    text = client.get("/runs/one/files/result.json")
    assert document.best.id in text


def test_a_port_that_is_taken_is_one_sentence(dse, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = dse("ui", tmp_path, "--port", taken.getsockname()[1], "--no-browser")
    assert (code, "cannot be used" in err) == (2, True)


def test_a_file_is_no_folder_of_runs(dse, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = dse("ui", tmp_path / "file")
    assert (code, "needs a folder" in err) == (2, True)


def test_without_the_extra_it_says_how_to_get_it(dse, monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.startswith("phaze.ui")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = dse("ui", tmp_path)
    assert (code, "pip install '.[ui]'" in err, err.count("\n")) == (2, True, 1)
