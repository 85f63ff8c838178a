"""Kills commands at random moments, continues them, and compares what they end in; a script of its own.

Everything is imported, and has run once, before processes are copied from this one: so they start at once.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from phaze.cli import main as cli

TIMES = ("started_utc", "wall_time_s", "command")
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
CHIP = "--power 300W --fix hbm=hbm3x4 --fix tensor_core_rows=128 --fix tensor_core_columns=128"
SMALL = (
    f"-w bert-base --mode prefill --devices 2 --global-batch 2 {CHIP} --fix vector_core_alus=256 "
    "--fix vector_cores=4 --fix global_buffer_bytes=32MiB"
)
MANY = "-w bert-base --mode prefill --devices 2 --global-batch 2 --space wide --power 300W --fix hbm=hbm3x4"
COMMANDS = (
    f"run {SMALL} --time-limit 1h",
    f"run {SMALL} --time-limit 1h --strategy random --evaluations 8",
    f"run {SMALL} --time-limit 1h --axes throughput,energy_per_sample",
    f"run {SMALL} -w clip-vit-b32 --time-limit 1h",
    f"run {SMALL} --time-limit 1h --robust",
    f"run {MANY} --time-limit 1h",
    f"sweep {SMALL} --trials 16 --sampler random",
    f"sweep {SMALL} --trials 20 --sampler tpe",
    f"sweep -w bert-base --mode prefill --devices 2 --global-batch 2 {CHIP} --trials 12 --storage STORE",
)


PLAN = "-w bert-base -a a100 --devices 4 --global-batch 64"
REPLACING = (
    ("plan {words} --out {folder}/plan", "plan/result.json"),
    ("whatif {words} --vary zero=0,1 --plot {folder}/plot.svg", "plot.svg"),
    ("whatif {words} --vary zero=0,1 --out {folder}/whatif", "whatif/result.json"),
    ("report {run} --out {folder}/page.html --quiet", "page.html"),
)
"""Commands that write one file, over an old one where they may."""
OLD = b"what was there before"


def main(folder: Path, kills: int, seed: int) -> None:
    """As many kills as asked for, over all commands in turn; an exception where something ends differently."""
    os.environ["DSE_CACHE"] = str(folder / "cache")
    chosen, done, finished = random.Random(seed), 0, 0
    for k, command in enumerate(COMMANDS):
        called([*command.split(), "--out", str(folder / f"reference-{k}"), "--no-cache", "--quiet"])
    needed_s = {command: cost_s(folder, command) for command in COMMANDS}
    while done < kills:
        k = finished % len(COMMANDS)
        cached = chosen.random() < 0.5
        killed = ended(folder / "killed", COMMANDS[k], needed_s[COMMANDS[k]], chosen, cached=cached)
        compare(folder / f"reference-{k}", folder / "killed")
        shutil.rmtree(folder / "killed")
        (folder / "killed.db").unlink(missing_ok=True)
        shutil.rmtree(folder / "cache", ignore_errors=True)
        done, finished = done + killed, finished + 1
    replaced = sum(replacing(folder, kills // 5, chosen))
    used = os.times()
    processor_s = used.user + used.system + used.children_user + used.children_system
    sys.stdout.write(json.dumps({"kills": done + replaced, "runs": finished, "processor_s": processor_s}))


def replacing(folder: Path, kills: int, chosen: random.Random) -> Iterator[int]:
    """Kill commands that write one file, and find the old one, the new one, or, in a folder of its own, none."""
    run = folder / "reference-0"
    for k in range(kills):
        command, name = REPLACING[k % len(REPLACING)]
        place = folder / "replaced"
        words = command.format(words=PLAN, folder=place, run=run).split()
        place.mkdir()
        first = os.wait4(started(words), 0)
        assert first[1] == 0, command
        new, own = content(place / name), "/" in name
        shutil.rmtree(place)
        place.mkdir()
        if not own:
            (place / name).write_bytes(OLD)
        process = started(words)
        kill_after(process, chosen.uniform(0.0, first[2].ru_utime + first[2].ru_stime))
        _, status = os.waitpid(process, 0)
        if (place / name).exists() or not own:
            assert content(place / name) in {new, OLD}, command
        shutil.rmtree(place)
        yield int(os.WIFSIGNALED(status))


def content(file: Path) -> bytes:
    """The bytes of a file; of a document without times, its own and those of plans within it."""
    if file.suffix != ".json":
        return file.read_bytes()
    document = json.loads(file.read_text(), object_hook=timeless)
    return json.dumps(document, sort_keys=True).encode()


def timeless(found: dict[str, object]) -> dict[str, object]:
    """An object of a document; if it is a manifest, without times."""
    return {name: value for name, value in found.items() if name not in TIMES or "inputs_sha256" not in found}


def cost_s(folder: Path, command: str) -> float:
    """Processor time of a command that is not disturbed."""
    process = started([*command.split(), "--out", str(folder / "measured"), "--no-cache", "--quiet"])
    _, status, usage = os.wait4(process, 0)
    assert status == 0
    shutil.rmtree(folder / "measured")
    return usage.ru_utime + usage.ru_stime


def ended(folder: Path, command: str, needed_s: float, chosen: random.Random, *, cached: bool) -> int:
    """Run a command to its end, through up to five kills; how often it was killed."""
    words = [*command.split(), "--out", str(folder), "--quiet", *([] if cached else ["--no-cache"])]
    for killed in range(6):
        process = started([*words, "--resume"])
        if killed < 5:
            kill_after(process, chosen.uniform(0.0, needed_s))
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0, f"{command} ended with status {status}"
            return killed
        assert os.WTERMSIG(status) == signal.SIGKILL
        whole(folder)
    raise AssertionError(command)


def started(words: list[str]) -> int:
    """The number of a copy of this process that does a command."""
    if process := os.fork():
        return process
    os._exit(called(words))


def called(words: list[str]) -> int:
    """The exit code of a command in this process, which prints nothing."""
    store = f"sqlite:///{words[words.index('--out') + 1]}.db" if "STORE" in words else ""
    sys.argv, stdout = ["dse", *(word if word != "STORE" else store for word in words)], os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        cli.main()
    except SystemExit as leave:
        sys.stdout.flush()
        return int(leave.code or 0)
    finally:
        os.dup2(stdout, 1)


def kill_after(process: int, seconds: float) -> None:
    """Kill a process once it has used so much processor time, if it is still there."""
    while True:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if fields[0] == "Z":
            return
        if (int(fields[11]) + int(fields[12])) * TICK_S >= seconds:
            os.kill(process, signal.SIGKILL)
            return
        time.sleep(0.002)


def whole(folder: Path) -> None:
    """Files that are there are whole."""
    for file in (*folder.glob("result.json"), *folder.glob("manifest.json")):
        json.loads(file.read_text())


def compare(reference: Path, other: Path) -> None:
    """Both folders hold the same to the last digit, but for times."""
    for name in ("designs.csv", "frontier.csv", "architecture.yaml"):
        if (reference / name).exists():
            assert (reference / name).read_bytes() == (other / name).read_bytes(), name
    if (reference / "result.json").exists():
        assert answer(reference) == answer(other)
    assert not (other / ".lock").exists()
    assert not (other / "evaluations.sqlite").exists()


def answer(folder: Path) -> str:
    """The result document without times."""
    document = json.loads((folder / "result.json").read_text())
    for name in TIMES:
        del document["manifest"][name]
    if told := document.get("strategy"):
        for one in (told, *told["history"]):
            one.update({name: 0 for name in one if name in ("runtime_s", "elapsed_s")})
    return json.dumps(document, sort_keys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
