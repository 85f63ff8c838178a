"""What is fuzzed: per kind of input, valid documents to start from, and command lines that read them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml
from hostile import NUMBERS, WORDS, content
from small_cases import DECODER

TEMPLATES = Path(str(files("phaze.arch_templates")))
WORKLOADS = Path(str(files("phaze.workloads")))
DATA = Path(__file__).parents[1] / "data"
FIXED = (
    "--devices 1 --microbatch 1 --recompute none --data-parallel 1 --tensor-parallel 1 --pipeline-parallel 1"
)


@dataclass(frozen=True)
class Kind:
    """Documents of a kind, and command lines in which FILE is one, each with how often it is taken."""

    suffix: str
    documents: tuple[object, ...]
    commands: tuple[tuple[int, str], ...]

    def case(self, random, folder):
        """Write the file of one case; the arguments of its command line."""
        file = folder / f"case{self.suffix}"
        file.write_bytes(content(random, random.choice(self.documents), yaml=self.suffix == ".yaml"))
        (command,) = random.choices([c for _, c in self.commands], [n for n, _ in self.commands])
        return [str(file) if word == "FILE" else word for word in command.split()]


def documents(folder, *names):
    return tuple(yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in names)


def instances():
    from instances import MODES, PLACEMENT, SCHEDULE

    return (SCHEDULE, MODES), (
        PLACEMENT,
        *(json.loads(file.read_text()) for file in small(DATA / "placement")),
    )


def small(folder):
    return [file for file in sorted(folder.glob("*.json")) if file.stat().st_size < 3_500]


@cache
def kinds(run):
    """Every kind by name; `run`: a folder with a workload, a space and finished runs.

    The documents of all kinds are read once, not once a case: that would be most of what a case takes.
    """
    schedules, placements = instances()
    tiny = yaml.safe_load(DECODER)
    answers = tuple(json.loads(file.read_text()) for file in sorted((DATA / "documents").glob("*.json")))
    answers += tuple(json.loads((run / name / "result.json").read_text()) for name in RUNS)
    evaluated = f"evaluate --arch tpuv4 --workload {run}/tiny.yaml --json {FIXED}"
    return {
        "workload": Kind(
            ".yaml",
            (
                tiny,
                tiny,
                *documents(WORKLOADS, "gpt3", "deepseek-v2", "bert-base", "resnet50", "dlrm", "vgg16"),
                *({**recurrent, "sequence_length": 10} for recurrent in documents(WORKLOADS, "gnmt4")),
            ),
            (
                (5, "workloads show FILE"),
                (3, "graph FILE"),
                (1, "graph FILE --mode decode --format json"),
                (1, f"evaluate --arch tpuv4 --workload FILE --json {FIXED}"),
            ),
        ),
        "architecture": Kind(
            ".yaml",
            (
                *documents(TEMPLATES, "a100", "h100", "tpuv4", "mi300x"),
                {"schema_version": 1, "name": "x", "base": "a100"},
            ),
            (
                (5, "archs show FILE"),
                (2, "archs export FILE --out out --quiet"),
                (2, "archs export FILE --for accelforge --out out"),
                (1, f"evaluate --arch FILE --workload {run}/tiny.yaml --json {FIXED}"),
            ),
        ),
        "space": Kind(
            ".yaml",
            (
                yaml.safe_load(files("phaze.hardware").joinpath("space_template.yaml").read_text()),
                yaml.safe_load((run / "small.yaml").read_text()),
            ),
            (
                (8, "spaces show FILE"),
                (
                    1,
                    f"run --devices 1 -w {run}/tiny.yaml --space FILE --time-limit 1s --no-cache --out out --json",
                ),
            ),
        ),
        "network": Kind(
            ".yaml",
            documents(
                TEMPLATES / "networks", "default", "hgx-h100", "tpu-v4-pod", "nvl72", "mi300x", "dgx1-v100"
            ),
            (
                (3, "networks show FILE"),
                (5, "networks cost FILE --arch a100 --json"),
                (2, "networks cost FILE --collective all_to_all --devices 64"),
                (1, f"{evaluated} --network FILE"),
            ),
        ),
        "framework": Kind(
            ".yaml",
            documents(
                TEMPLATES / "frameworks",
                "ideal",
                "eager",
                "megatron-lm-2022",
                "torchtitan-2024",
                "maxtext-2024",
            ),
            ((3, "frameworks show FILE"), (1, f"{evaluated} --framework FILE")),
        ),
        "plans": Kind(
            ".yaml",
            documents(TEMPLATES / "plans", "any", "full", "megatron", "phaze"),
            (
                (3, "plans show FILE"),
                (1, f"plan -a a100 -w {run}/tiny.yaml --devices 4 --json --plans FILE"),
                (1, f"whatif -a a100 -w {run}/tiny.yaml --devices 4 --vary zero=0,1 --json --plans FILE"),
            ),
        ),
        "calibration": Kind(
            ".yaml",
            (
                {
                    "schema_version": 1,
                    "chip": "a100",
                    "family": "ampere",
                    "laws": {"products.yaml": {"efficiency": 0.9}},
                },
            ),
            ((1, f"evaluate --arch a100 --workload {run}/tiny.yaml --json --calibration FILE {FIXED}"),),
        ),
        "schedule": Kind(
            ".json",
            schedules,
            (
                (4, "solve schedule FILE --json --time-limit 1s"),
                (1, "solve schedule FILE --time-limit 1s"),
                (1, "solve schedule FILE --method critical-path --gantt out.svg"),
                (1, "solve schedule FILE --method ilp --json --time-limit 1s"),
            ),
        ),
        "placement": Kind(
            ".json",
            placements,
            (
                (4, "solve placement FILE --json"),
                (1, "solve placement FILE"),
                (1, "solve placement FILE --compat phaze"),
            ),
        ),
        "document": Kind(
            ".json",
            answers,
            (
                (4, "report FILE --out out.html --quiet"),
                (2, "trace FILE --out out.json --quiet"),
                (1, "trace FILE --format svg --out out.svg"),
                (2, "pareto FILE"),
                (2, f"diff FILE {run}/run"),
                (1, "explain FILE --quiet"),
                (1, "plan export FILE --for megatron"),
            ),
        ),
    }


RUNS = ("run", "sweep", "plan")

LINES = (
    "run --devices 8 -w RUN/tiny.yaml --space RUN/small.yaml --time-limit 1s --no-cache --out out --quiet --json",
    "sweep --devices 8 -w RUN/tiny.yaml --space RUN/small.yaml --trials 2 --no-cache --out out --quiet --json",
    "evaluate --devices 8 -a a100 -w RUN/tiny.yaml --json",
    "compare --devices 8 -a a100 -a h100 -w RUN/tiny.yaml --json",
    "plan --devices 8 -a a100 -w RUN/tiny.yaml --json",
    "plan serving --devices 8 -a a100 -w RUN/tiny.yaml --input-tokens 100 --output-tokens 10 --json",
    "whatif --devices 8 -a a100 -w RUN/tiny.yaml --vary clock_hz=1GHz --json",
    "graph RUN/tiny.yaml",
    "workloads show RUN/tiny.yaml",
    "workloads list",
    "workloads new mine",
    "archs show a100",
    "archs export a100",
    "spaces show RUN/small.yaml",
    "spaces new mine",
    "networks show hgx-h100",
    "networks cost hgx-h100",
    "frameworks show ideal",
    "explain tdp",
    "explain RUN/run",
    "schema",
    "pareto RUN/run",
    "report RUN/run --out out.html",
    "trace RUN/run --out out.json",
    "diff RUN/run RUN/run",
    "runs RUN",
    "cache",
    "help run",
    "certify RUN/run --samples 1",
    "solve schedule RUN/schedule.json",
    "solve placement RUN/placement.json",
)
LIKELY = (
    *(
        "8",
        "16",
        "1",
        "2",
        "0.5",
        "400W",
        "300mm2",
        "1GHz",
        "N7",
        "none",
        "any",
        "all",
        "throughput",
        "tdp,throughput",
    ),
    *(
        "flash",
        "unfused",
        "decode",
        "prefill",
        "full",
        "selective",
        "1f1b",
        "zb-v",
        "hgx-h100",
        "eager",
        "calibrated",
    ),
    *(
        "tensor_cores=8",
        "hbm=hbm3x6",
        "gpt3=2",
        "seq=5",
        "fp8",
        "weights+optimizer",
        "random",
        "wham",
        "nsga2",
        "csv",
    ),
    *(
        "json",
        "svg",
        "html",
        "parquet",
        "result",
        "plan",
        "out.svg",
        "out",
        "a/b/c",
        "/dev/null",
        "/dev/full",
        ".",
        "RUN",
    ),
)
# As many trials or samples as these take their time, and that is no fault of the command line.
LARGE = frozenset({"--trials", "--samples"})


def line(random, run, options):
    """One command line: one that works, with a few options and words of it changed; `options` of each command."""
    words = random.choice(LINES).replace("RUN", str(run)).split()
    own = options(words)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        action = random.choices(("option", "replace", "remove", "repeat"), (6, 2, 1, 1))[0]
        place = random.randrange(len(words))
        if action == "option" and own:
            words += option(random, run, own)
        elif action == "replace":
            words[place] = value(random, run)
        elif action == "remove" and len(words) > 1:
            del words[place]
        else:
            words.insert(place, words[place])
    return words


def option(random, run, own):
    """An option of the command with a value that may be right."""
    name, takes = random.choice(own)
    if not takes:
        return [name]
    if name in LARGE:
        return [name, random.choice(("0", "-1", "1", "7", "64", "nan", "1e3", "", "x"))]
    return [name, value(random, run)]


def value(random, run):
    pool = random.choice((LIKELY, LIKELY, WORDS, tuple(map(str, NUMBERS[:-2]))))
    return random.choice(pool).replace("RUN", str(run)).replace("\0", "")[:2_000]
