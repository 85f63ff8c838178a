"""Errors in workload files: one sentence with file, YAML path, value and remedy."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.workload.workload_file import parse_spec
from phaze.workload.workload_file_guide import reference_page
from phaze.workload.workload_library import find_workload
from phaze.workload.workload_loader import load_workload

GOOD = find_workload("gpt2-xl").read_text(encoding="utf-8")


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


BAD = {
    "twice": (GOOD + "name: other\n", r"m\.yaml, line \d+: the key 'name' is given twice"),
    "nested twice": (
        changed("  heads: 25\n", "  heads: 25\n  heads: 26\n"),
        "the key 'heads' is given twice",
    ),
    "negative": (changed("layers: 48", "layers: -48"), r"dimensions\.layers: .*greater than 0, found -48"),
    "text": (changed("layers: 48", "layers: many"), r"dimensions\.layers: .*whole number.*'many'"),
    "missing": (changed("  hidden: 1600\n", ""), r"dimensions\.hidden: missing"),
    "unknown": (
        changed("layers: 48", "layers: 48\n  laeyrs: 48"),
        r"dimensions\.laeyrs: no such field \(nearest: layers",
    ),
    "heads": (
        changed("heads: 25", "heads: 26"),
        r"hidden \(1600\) is not a multiple of heads \(26\)",
    ),
    "positions": (
        changed("sequence_length: 1024", "sequence_length: 2048"),
        "exceeds the model.s 1024 positions",
    ),
    "family": (
        changed("family: decoder", "family: convnet"),
        "family: must be 'decoder', 'encoder'.*'convnet'",
    ),
    "version": (changed("schema_version: 1", "schema_version: 9"), "schema_version: .*9"),
    "nested": (
        changed("activation: gelu_tanh", "experts: {number: 4, per_tokn: 2, hidden: 8}"),
        r"dimensions\.experts\.per_token: missing.*per_tokn: no such field",
    ),
    "experts": (
        changed("activation: gelu_tanh", "experts: {number: 4, per_token: 5, hidden: 8}"),
        r"dimensions\.experts: per_token \(5\) exceeds number \(4\)",
    ),
    "no experts": (
        changed("layers: 48", "layers: 3\n  experts: {number: 4, per_token: 2, hidden: 8, dense_layers: 3}"),
        r"experts\.dense_layers \(3\) leaves none of 3 layers",
    ),
    "latent": (
        changed(
            "heads: 25",
            "heads: 25\n  latent: {kv_lora_rank: 8, qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8}",
        ),
        "latent needs positions: rope, not learned",
    ),
    "parallel": (
        changed("norm_place: pre", "norm_place: post\n  parallel: true"),
        "parallel goes with none of experts, latent, qkv_bias and norm_place: post",
    ),
    "list": ("- 1\n", "must be a mapping"),
    "empty": ("", "must be a mapping"),
    "broken": ("name: [1, 2\n", r"m\.yaml, line \d+"),
    "no source": (
        changed("source:\n", "sourc:\n"),
        r"source: missing.*sourc: no such field \(nearest: source",
    ),
    "no vocabulary": (
        changed("vocabulary: 50257", "vocabulary: 0"),
        r"dimensions\.vocabulary: must be greater",
    ),
    "truth": (changed("layers: 48", "layers: true"), r"dimensions\.layers: must be a whole number"),
    "groups": (
        changed("heads: 25", "heads: 25\n  kv_heads: 7"),
        r"heads \(25\) is not a multiple of kv_heads",
    ),
    "odd rope": (
        changed("positions: learned", "positions: rope\n  head_size: 63"),
        "rope rotates pairs, but a head has 63 elements",
    ),
    "rows": (
        changed("heads: 25", "heads: 25\n  position_rows: 7"),
        r"position_rows \(7\) is below max_positions",
    ),
    "key": ("? [a, b]\n: 1\n", r"m\.yaml"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_one_clear_line(case, tmp_path):
    text, expected = BAD[case]
    path = tmp_path / "m.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=expected) as caught:
        load_workload(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_named_by_its_stem(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD, encoding="utf-8")
    workload = load_workload(str(path))
    assert workload.name == "mine"
    assert workload.parameter_count == load_workload("gpt2-xl").parameter_count


def test_missing_file_and_binary_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_workload(str(tmp_path / "none.yaml"))
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match="not a text file"):
        load_workload(str(binary))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_are_input_errors_or_fine(data):
    start = data.draw(st.integers(0, len(GOOD)))
    length = data.draw(st.integers(0, 40))
    junk = data.draw(st.text(max_size=12))
    try:
        parse_spec(GOOD[:start] + junk + GOOD[start + length :], "m.yaml")
    except InputError as error:
        assert "m.yaml" in str(error)


def test_the_reference_page_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "reference" / "workload-file.md"
    assert page.read_text(encoding="utf-8") == reference_page(), (
        "write phaze.workload.workload_file_guide to it"
    )
