from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from phaze.cli.main import app
from phaze.cli.manual.cli_reference import reference
from phaze.cli.manual.manual_page import children_of, page, wording
from phaze.cli.manual.option_groups import grouped_options
from phaze.cli.manual.result_reference import reference as documents
from phaze.explore.documents.document_record import meanings
from phaze.hardware.architecture import list_architectures
from phaze.hardware.cluster_network import list_networks
from phaze.parallel.framework import list_frameworks
from phaze.runs.document_schemas import Kind, schema
from phaze.workload.workload_library import list_workloads

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def commands(command, path="dse"):
    yield path, command
    for name, child in children_of(command).items():
        yield from commands(child, f"{path} {name}")


ROOT = typer.main.get_command(app)
ALL = [item for item in commands(ROOT) if item[0] != "dse"]
PACKAGED = {
    **dict.fromkeys(("--workload", "-w"), lambda: [model.name for model in list_workloads()]),
    "--arch": list_architectures,
    "--framework": list_frameworks,
    "--like": lambda: [*(model.name for model in list_workloads()), *list_architectures(), *list_networks()],
}
VERBS = [(path, command) for path, command in ALL if not children_of(command)]
NAMES = [path for path, _ in ALL]


def every(items):
    return pytest.mark.parametrize(("path", "command"), items, ids=[path for path, _ in items])


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run: python -m phaze.cli.manual.cli_reference > docs/reference/cli.md"
    )


@every(ALL)
def test_every_command_and_option_has_help_and_is_documented(path, command):
    assert f"## {path}\n" in PAGE.read_text(encoding="utf-8")
    assert wording(command.help).told
    for parameter in command.params:
        if parameter.name != "help":
            assert parameter.help, f"{path}: {parameter.name} has no help"
            assert parameter.param_type_name == "argument" or parameter.name in grouped_options(), (
                parameter.name
            )


@every(VERBS)
def test_examples_are_command_lines_that_parse(path, command):
    examples = wording(command.help).examples
    assert len(examples) >= (1 if path.endswith(" show") else 2)
    for line in examples:
        name, *arguments = shlex.split(line)
        assert name == "dse"
        assert parsed(ROOT, name, arguments) == path


@every(VERBS)
def test_names_in_examples_exist(path, command):
    for line in wording(command.help).examples:
        words = shlex.split(line)
        for option, name in pairwise(words):
            known = PACKAGED.get(option)
            if known is not None and not {"/", "."} & set(name):
                assert name in known(), line


def parsed(command, path, arguments):
    """The path of the verb that a command line names, its options checked; typer's error where they are wrong."""
    with command.make_context(path, arguments) as context:
        words = [*context._protected_args, *context.args] if hasattr(command, "commands") else []
        if not words:
            return path
        name, child, rest = command.resolve_command(context, words)
        return parsed(child, f"{path} {name}", rest)


@every(VERBS)
def test_what_it_refers_to_exists(path, command):
    words = wording(command.help)
    named = re.findall(r"\bdse((?: [a-z]+)+)", f"{words.see} {' '.join(words.told)}")
    for found in named:
        assert any(f"dse{found}".startswith(name) for name in NAMES), found


@pytest.mark.parametrize("columns", [80, 60, 40])
@every([("dse", ROOT), *ALL])
def test_a_manual_page_fits_the_terminal(path, command, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = re.sub(r"\x1b\[\d*m", "", page(command, path))
    assert max(map(len, shown.splitlines())) <= columns
    assert "…" not in shown
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert all(name in shown for name in parameter.opts)


def test_help_shows_the_page_of_a_verb(dse):
    assert dse("help", "plan", "export") == dse("plan", "export", "--help")
    assert dse("help") == dse("--help")
    code, out, err = dse("help", "plan", "exprt")
    assert (code, out, "did you mean export?" in err) == (2, "", True)


def test_the_page_of_documents_is_up_to_date():
    assert PAGE.with_name("result-fields.md").read_text(encoding="utf-8") == documents(), (
        "run: python -m phaze.cli.manual.result_reference > docs/reference/result-fields.md"
    )


def test_every_field_of_a_document_is_explained_or_a_record():
    rows = [line.split(" | ") for line in documents().splitlines() if line.startswith("| `")]
    assert len(rows) > 300
    assert not [row for row in rows if row[-1].strip() == "|" and "](#" not in row[1]]


def test_no_meaning_is_left_over():
    told = {name for kind in Kind for name in field_names(schema(kind))}
    assert set(meanings()) <= told


def field_names(found):
    return {name for part in (found, *found.get("$defs", {}).values()) for name in part.get("properties", {})}
