"""The guide to many machines: its commands parse, its files are what Slurm and Kubernetes read."""

from __future__ import annotations

import ast
import math
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from phaze.cli.main import app
from phaze.inputs.options.search_options import SweepOptions
from phaze.inputs.sweep_inputs import make_plan

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "many-machines.md").read_text(encoding="utf-8")
VERBS = typer.main.get_command(app).commands


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands():
    """The lines of the page that run dse, without what the shell does around them."""
    for block in blocks("(?:sh|bash)"):
        for line in re.findall(r"^(?:\w+=\S+ )?(dse .*)$", block.replace("\\\n", " "), re.MULTILINE):
            yield re.sub(r"\$\(.*?\"\)|\$\w+", "x", line)


def sweeps():
    """What every `dse sweep` of the page asks for."""
    job = next(part for part in files() if part["kind"] == "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    lines = [*commands(), shlex.join(container["command"] + container["args"])]
    for _, verb, *words in map(shlex.split, lines):
        if verb == "sweep":
            yield VERBS[verb].make_context(verb, words).params


def files():
    (text,) = blocks("yaml")
    return list(yaml.safe_load_all(text))


def test_all_hosts_say_that_they_join():
    asked = list(sweeps())
    assert len(asked) == 4
    for options in asked:
        plan = make_plan(SweepOptions.of(options), options["storage"])
        assert plan.join
        assert plan.trials / plan.batch <= 20
        assert plan.place.storage.startswith("postgresql://dse@")


@pytest.mark.parametrize("language", ["bash", "sh"])
def test_the_shell_reads_the_scripts(language):
    for block in blocks(language):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)


def test_the_array_job_is_one_slurm_reads():
    script = blocks("bash")[0]
    options = re.findall(r"^#SBATCH --([\w-]+)", script, re.MULTILINE)
    assert options == ["job-name", "array", "cpus-per-task", "time", "requeue", "open-mode"]
    assert re.search(r"--cpus-per-task=(\d+)", script)[1] == re.search(r"--workers (\d+)", script)[1]


def test_the_parts_in_kubernetes_find_each_other():
    secret, service, database, job = files()
    assert [part["kind"] for part in files()] == ["Secret", "Service", "StatefulSet", "Job"]
    name, key = secret["metadata"]["name"], next(iter(secret["stringData"]))
    pod = database["spec"]["template"]
    assert (
        service["spec"]["selector"]
        == database["spec"]["selector"]["matchLabels"]
        == pod["metadata"]["labels"]
    )
    (postgres,), (dse,) = pod["spec"]["containers"], job["spec"]["template"]["spec"]["containers"]
    passwords = [
        entry["valueFrom"]["secretKeyRef"]
        for each in (postgres, dse)
        for entry in each["env"]
        if "valueFrom" in entry
    ]
    assert passwords == [{"name": name, "key": key}] * 2
    (url,) = (word for word in dse["args"] if "storage" in word)
    assert f"@{service['metadata']['name']}/" in url
    (claim,), (mount,) = database["spec"]["volumeClaimTemplates"], postgres["volumeMounts"]
    assert claim["metadata"]["name"] == mount["name"]
    assert job["spec"]["parallelism"] == job["spec"]["completions"]


def test_the_cluster_of_dask_is_python():
    (code,) = blocks("python")
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    assert {node.func.id for node in calls if isinstance(node.func, ast.Name)} >= {"SLURMCluster", "Client"}


def test_the_estimate_is_its_formula():
    """The table for many workers follows from the figures that stand above it."""
    found = dict(re.findall(r"^\| `([\w ]+)` \|.*\| ([\d.]+) \|$", PAGE, re.MULTILINE))
    figures = {name: float(value) for name, value in found.items()}
    cells = r"^\| `(\w+)` \| (\d+) \| (\d+) s \| (\d+) \| ([\d.]+) s \| (\d+) % \|$"
    rows = re.findall(cells, PAGE, re.MULTILINE)
    assert len(rows) == 8
    for sampler, *numbers in rows:
        workers, evaluation, batch, seconds, busy = map(float, numbers)
        rounds = math.ceil(figures["share"] * batch / workers)
        asked = batch * figures[f"ask {sampler}"] + rounds * evaluation + figures["pause"]
        expected = max(asked, batch * figures["write"])
        assert seconds == pytest.approx(expected, abs=0.051)
        used = figures["share"] * batch * evaluation / (workers * expected)
        assert busy == pytest.approx(100 * used, abs=0.51)
