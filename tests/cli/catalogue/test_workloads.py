"""`dse workloads new` writes a file that loads, `dse workloads list` tells active parameters."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from phaze.cli.main import app
from phaze.errors import InputError
from phaze.workload.families.family_registry import FAMILIES, Family
from phaze.workload.workload_file import parse_spec
from phaze.workload.workload_file_guide import new_workload_text
from phaze.workload.workload_library import builtin_spec
from phaze.workload.workload_loader import load_workload


@pytest.fixture
def dse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(app, ["workloads", *arguments], catch_exceptions=False).stdout

    return call


def test_a_new_file_loads_and_is_not_overwritten(dse, tmp_path):
    assert "dse evaluate --arch h100 --workload mine.yaml" in dse("new", "mine")
    workload = load_workload(str(tmp_path / "mine.yaml"))
    assert workload.name == "mine"
    assert workload.parameter_count == load_workload("gpt3-small").parameter_count
    with pytest.raises(InputError, match=r"mine\.yaml exists; give another name"):
        dse("new", "mine", "--family", "vit")
    with pytest.raises(InputError, match="cannot be written"):
        dse("new", "nowhere/mine")
    with pytest.raises(InputError, match="'3 x' is not a name"):
        dse("new", "3 x")
    with pytest.raises(InputError, match="--family 'decodr' is not known"):
        dse("new", "other", "--family", "decodr")
    with pytest.raises(InputError, match="unknown workload 'mixtrall'"):
        dse("new", "other", "--like", "mixtrall")


@pytest.mark.parametrize("family", Family)
def test_a_file_of_every_family_explains_every_field(family):
    text = new_workload_text("mine", family)
    spec = parse_spec(text, "mine.yaml")
    assert (spec.name, spec.family) == ("mine", family)
    lines = [line.strip("# ") for line in text.splitlines()]
    for name, field in FAMILIES[family].model_fields.items():
        assert field.description, f"{family}: {name} has no description"
        assert [line for line in lines if line.startswith(f"{name}:") and line.endswith(field.description)]


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt3", "t5-11b", "vit-g14"])
def test_a_file_like_another_has_its_numbers(name):
    assert (
        parse_spec(new_workload_text("on", like=name), "on.yaml").dimensions == builtin_spec(name).dimensions
    )


@pytest.mark.parametrize("name", ["gpt3-small", "bert-base"])
def test_what_stands_behind_a_comment_is_the_default(name):
    """A field taken out of its comment, its value as it stands, changes nothing."""
    text = new_workload_text("mine", like=name)
    nested = ("experts", "latent", "indexer", "delta", "mamba", "expert_plan")
    uncommented, skip = [], False
    for line in text.splitlines():
        bare = line.replace("# ", "", 1) if line.lstrip().startswith("# ") else line
        key = bare.strip().partition(":")[0]
        skip = key in nested or (skip and line.lstrip().startswith("#   "))
        uncommented.append(line if skip or bare.startswith(("mine:", "Every")) else bare)
    read = yaml.safe_load("\n".join(uncommented))
    assert "kv_heads" in read["dimensions"]
    assert parse_spec("\n".join(uncommented), "m.yaml") == parse_spec(text, "m.yaml")


def test_the_list_tells_active_parameters(dse):
    rows = {row["name"]: row for row in json.loads(dse("list", "--json"))}
    mixtral = rows["mixtral-8x7b"]
    assert mixtral["parameters"] == 46_702_792_704
    assert mixtral["active_parameters"] == 12_879_925_248
    assert rows["gpt3"]["active_parameters"] == rows["gpt3"]["parameters"]
    shown = next(line for line in dse("list").splitlines() if line.startswith("mixtral-8x7b"))
    assert "46.7 B     12.9 B" in shown
