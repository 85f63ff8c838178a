"""What shells complete: verbs, options, packaged names and known words, as the verbs themselves know them."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path
from select import select

import pytest
import typer
from phaze.solvers.scheduling import Method

from phaze.cli.main import app
from phaze.cost.fidelity import JUDGED, Fidelity
from phaze.explore.request.common_score import Combine
from phaze.explore.request.design_metrics import METRICS
from phaze.explore.request.explore_request import Designs, Objective
from phaze.explore.sampling.sampled_study import Sampler
from phaze.explore.services.service_request import ServiceObjective
from phaze.hardware.architecture import list_architectures
from phaze.hardware.cluster_network import list_networks
from phaze.hardware.hardware_fields import field_named
from phaze.hardware.spaces.space_file import list_spaces
from phaze.inputs.instances.instance_files import Compat
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import list_frameworks
from phaze.parallel.parallel_plan import RankOrder
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.report.exports.recipe_export import Target
from phaze.workload.operators.kv_cache import KvCache
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_library import list_workloads

ROOT = typer.main.get_command(app)
FOLDER = Path(sys.executable).parent
PATIENCE_S = 60

TRAINED = [schedule for schedule in Schedule if not schedule.forward_only]
WORDS = {
    "run": {
        "workload": [model.name for model in list_workloads()],
        "objective": {*Objective, *ServiceObjective},
        "axes": METRICS,
        "strategy": ["certified", "phaze", "wham", *Sampler],
        "combine": Combine,
        "designs": Designs,
        "mode": Mode,
        "kv_cache": KvCache,
        "attention": Attention,
        "network": list_networks(),
        "space": list_spaces(),
        "node": field_named("node", "node").choices,
    },
    "sweep": {"sampler": Sampler, "objectives": METRICS},
    "evaluate": {"arch": list_architectures(), "framework": list_frameworks(), "recompute": Recompute},
    "plan": {"schedule": TRAINED, "order": RankOrder, "rung": set(Fidelity) - {Fidelity.ROOFLINE}},
    "plan export": {"target": Target},
    "validate": {"rung": JUDGED},
    "solve schedule": {"method": Method},
    "solve placement": {"compat": Compat},
    "archs show": {"item": list_architectures()},
    "trace": {"format": ["json", "svg"]},
}
CASES = [(verb, name) for verb, names in WORDS.items() for name in names]


def offered(verb, name, typed=""):
    command = ROOT
    for word in verb.split():
        command = command.commands[word]
    parameter = next(p for p in command.params if p.name == name)
    with command.make_context(verb, [], resilient_parsing=True) as context:
        return [item.value for item in parameter.shell_complete(context, typed)]


@pytest.mark.parametrize(("verb", "name"), CASES)
def test_the_words_offered_are_those_that_the_verb_knows(verb, name):
    assert sorted(offered(verb, name)) == sorted(map(str, WORDS[verb][name]))


def test_lists_are_completed_word_by_word():
    assert offered("sweep", "objectives", "mfu,td") == ["mfu,tdp"]
    assert "mfu,mfu" not in offered("sweep", "objectives", "mfu,")


def completed(line, shell="bash", **environment):
    """(what is offered for the last word of a line, the heavy packages that this has loaded)."""
    code = (
        "import sys, phaze.cli.main as m\n"
        "try: m.main()\n"
        "finally:\n"
        "    heavy = set('numpy pyomo onnx optuna pint yaml pyarrow plotly networkx highspy numba'.split())\n"
        "    sys.stderr.write(' '.join(heavy & set(sys.modules)))"
    )
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    told = {**os.environ, **words, **environment, "_DSE_COMPLETE": f"complete_{shell}"}
    done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def test_bash_is_offered_names_and_nothing_heavy_is_loaded():
    out, heavy = completed("dse run --workload resnet1")
    assert out.split() == ["resnet101", "resnet152", "resnet18"]
    assert heavy == ""
    assert completed("dse repl")[0].split() == ["replay"]
    assert completed("dse run --time")[0].split() == ["--time-limit"]


def test_zsh_and_fish_are_offered_the_same():
    assert '"hgx-h100"' in completed("dse run --network hgx", "zsh")[0]
    out, _ = completed("dse run --network hgx", "fish", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert out.split() == ["hgx-a100", "hgx-b200", "hgx-h100"]


@pytest.mark.skipif(
    shutil.which("bash") is None or not (FOLDER / "dse").exists(), reason="needs bash and the dse script"
)
def test_the_tab_key_completes_in_a_real_bash():
    environment = {**os.environ, "PATH": f"{FOLDER}:{os.environ['PATH']}", "PS1": "> ", "TERM": "dumb"}
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
    try:
        os.write(terminal, b'eval "$(dse --show-completion)"; echo rea"dy"\n')
        seen = shown(terminal, b"ready\r")
        assert b"error" not in seen
        os.write(terminal, b"dse run --workload gpt3-med\t--objective throughput_\t")
        assert b"gpt3-medium --objective throughput_per_tdp" in shown(terminal, b"throughput_per_tdp")
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def shown(terminal, until):
    """What a terminal shows until some text is there; AssertionError if it never is."""
    seen, end = b"", time.monotonic() + PATIENCE_S
    while until not in seen:
        assert select([terminal], [], [], max(0.0, end - time.monotonic()))[0], seen
        seen += os.read(terminal, 4096)
    return seen
