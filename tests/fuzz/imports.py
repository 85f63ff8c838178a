"""What is fuzzed of files from elsewhere: ONNX models, saved programs, measurements, and Hugging Face configs."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import struct
import zipfile
from functools import cache
from pathlib import Path

from hostile import BYTES, NUMBERS, WORDS, broken, content, mutated
from onnx_models import models, written

HERE = Path(__file__).parent
PROGRAM = HERE.parent / "data/exported/decoder.json"
LARGE = (0, -1, 2, 100, 70_000, 2_000_000, 2**31, 2**48, 2**62, 10**40)


def onnx(random, folder):
    """An ONNX model with a few things in it changed, or broken as bytes."""
    file = folder / "case.onnx"
    data = written(random, random.choice(models()))
    file.write_bytes(broken(random, data) if random.random() < 1 / 6 else data)
    bind = (
        ("--bind", f"time={random.choice((5, 5, *LARGE))}")
        if b"time" in data or random.random() < 0.1
        else ()
    )
    return [*shown(random, str(file)), *bind]


def shown(random, source):
    """Words of a command line that reads a workload."""
    command = random.choices(
        (
            "workloads show FILE --json",
            "graph FILE",
            "evaluate --devices 8 --arch a100 --workload FILE --json",
        ),
        (6, 2, 1),
    )[0]
    return [source if word == "FILE" else word for word in command.split()]


EXPRESSIONS = (
    *(
        "Pow(Integer(2), Pow(Integer(10), Integer(10)))",
        "Pow(2, Pow(10, 10))",
        "Pow(Integer(10), Integer(-3))",
    ),
    *("Pow(Pow(Pow(9, 9), 9), 9)", "Mul(Symbol('s52'), Symbol('s52'))", "Mod(Symbol('s52'), Integer(0))"),
    *("FloorDiv(Symbol('s27'), Integer(0))", "Max()", "Min(Integer(1))", "Integer('x')", "Float('inf')"),
    *(
        "TruncToInt(Float('nan'))",
        "Symbol()",
        "Symbol(3)",
        "Symbol('nobody')",
        "lambda: 1",
        "().x",
        "1 if 1 else 2",
    ),
    *(
        "Rational(Integer(1), Integer(3))",
        "Add(Symbol('s52'), -Integer(400))",
        "9" * 5_000,
        "1e400",
        "''",
        "'x'",
    ),
    *(
        "(" * 300 + "1" + ")" * 300,
        "-" * 5_000 + "1",
        "Add(" * 2_000 + "1" + ")" * 2_000,
        "Pow('2', 3)",
        "Pow(1)",
    ),
    *(
        "Mul(" + "Integer(99999), " * 3_000 + "1)",
        "Pow(Float('1e300'), Integer(5))",
        "Pow(0, -1)",
        "Pow(-8, 0.5)",
    ),
)
"""Sizes that are hard to work out, or none."""


def program(random, folder):
    """A saved program: its JSON with a few things changed, its sizes most of all, in an archive that may be broken."""
    document = json.loads(PROGRAM.read_text())
    if random.random() < 1 / 2:
        tensors = document["graph_module"]["graph"]["tensor_values"]
        info = tensors[random.choice(list(tensors))]
        size = random.choice(
            ({"as_int": random.choice(LARGE)}, {"as_expr": {"expr_str": random.choice(EXPRESSIONS)}})
        )
        info["sizes"][random.randrange(len(info["sizes"]))] = size
    if random.random() < 2 / 3:
        part = random.choice(("graph_module", "graph_module", "whole"))
        document = (
            mutated(random, document)
            if part == "whole"
            else {**document, part: mutated(random, document[part])}
        )
    data = json.dumps(document).encode("utf-8", "surrogatepass")
    data = broken(random, data) if random.random() < 1 / 10 else data
    (folder / "case.pt2").write_bytes(archived(random, data))
    tokens = random.choice((8, 32, 512) if random.random() < 0.8 else LARGE)
    bind = ("--bind", f"tokens[1]={tokens}") if random.random() < 0.95 else ()
    return [*shown(random, str(folder / "case.pt2")), *bind]


def archived(random, data):
    """An archive of a program, as it should be or with one of the faults that archives have."""
    fault = random.choices(
        ("none", "large", "encrypted", "cut", "bytes", "name", "method", "other"), (20, 1, 2, 2, 4, 1, 1, 1)
    )[0]
    if fault == "large":
        data = random.choice(
            (b"[" + b"[]," * 30_000_000 + b"1]", b"[" + b'{"":0},' * 5_000_000 + b"1]", b" " * 2**28)
        )
    if fault == "other":
        return random.choice(BYTES)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(
            "case/models/model.json"
            if fault != "name"
            else random.choice(WORDS)[:999].replace("\0", "x") or "x",
            data,
        )
    made = bytearray(stream.getvalue())
    if fault == "cut":
        del made[random.randrange(len(made)) :]
    if fault == "bytes":
        for _ in range(random.choice((1, 3, 30))):
            made[random.randrange(len(made))] = random.randrange(256)
    if fault in {"encrypted", "method"}:
        offset, value = (6, 1) if fault == "encrypted" else (8, random.choice((1, 9, 14, 98)))
        for place in (offset, made.index(b"PK\1\2") + offset + 2):
            made[place : place + 2] = struct.pack("<H", value)
    return bytes(made)


CELLS = (
    *("", " ", "x", "h100", "inf", "-inf", "nan", "0", "-1", "0.5", "1e400", "1e300", "1_000", "0x10", "4.0"),
    *(
        "7",
        "9" * 40,
        "9" * 5_000,
        "1e12",
        "2000000",
        "[[1]]",
        "[",
        "()",
        "(1,",
        "[[], [], []]",
        "[[0]]",
        "1;2;x",
        ";",
    ),
    *(
        "1x1x1x1x1",
        "0x0",
        "x",
        "é",
        "\0",
        "all_reduce",
        "alltoall",
        "A100",
        "fp8",
        "TP0 PP0",
        "TP8 PP64",
        "True",
    ),
    *(
        "=cmd()",
        "<b>",
        "[red]",
        "y" * 200_000,
        "a\nb",
        '"',
        "{}",
        "null",
        "[1, 2]",
        '["a"]',
        "[[1e9, 1e9]]",
        "-0",
    ),
)
"""What cells of a table hardly ever hold."""


@cache
def tables():
    """Two rows of every set under their header, in the form of the measurements."""
    return json.loads((HERE / "measured.json").read_text())


def measured(random, folder):
    """A folder with a table of measurements in which cells, rows and columns are changed."""
    name = random.choice(list(tables()))
    header, *rows = tables()[name]
    (folder / f"{name}.csv").write_bytes(table(random, header, rows * random.choice((1, 2))))
    rung = random.choice(("analytic", "analytic", "calibrated", "roofline"))
    return ["validate", "--data", str(folder), "--rung", rung, "-q", *random.choice(((), ("--json",)))]


def calibrated(random, folder):
    """A folder with products and collectives of one chip and one system, to fit constants to."""
    if random.random() < 1 / 3:
        header, *rows = tables()["coll_vidur"]
        (folder / "own.csv").write_bytes(table(random, header, rows * 4))
        return ["networks", "fit", str(folder / "own.csv"), "--out", str(folder / "out.yaml")]
    header = ["device", "dtype", "framework", "k", "latency_ms", "m", "n"]
    count = (
        12 if random.random() < 1 / 16 else 9
    )  # from ten rows on constants are fitted, which takes seconds
    sizes = [(2**i, 2 ** (11 - i // 2), 2**8) for i in range(count)]
    rows = [
        ["NVIDIA A100-SXM4-80GB", "bfloat16", "mine", str(k), str(4e-3 + 1e-11 * m * n * k), str(m), str(n)]
        for m, n, k in sizes
    ]
    (folder / "op_gemm_aiconfigurator.csv").write_bytes(table(random, header, rows))
    return ["calibrate", str(folder), "--arch", "a100-80gb", "--json", "-q"]


def table(random, header, rows):
    """The bytes of a table with a few faults."""
    header, rows = list(header), [list(row) for row in rows]
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        column, row = random.randrange(len(header)), random.choice(rows) if rows else []
        action = random.choices(
            ("cell", "scale", "column", "rename", "short", "long", "none"), (9, 6, 1, 1, 1, 1, 0.3)
        )[0]
        if action == "cell" and column < len(row):
            row[column] = random.choice((*CELLS, *map(str, NUMBERS[:-1])))
        elif action == "scale" and column < len(row):
            row[column] = rescaled(random, row[column])
        elif action == "column" and len(header) > 1:
            header.pop(column)
            rows = [cells[:column] + cells[column + 1 :] for cells in rows]
        elif action == "rename":
            header[column] = random.choice((header[0], header[-1], "", "x" * 300, header[column] + " "))
        elif action == "short" and row:
            row.pop()
        elif action == "long":
            row.append("1")
        elif action == "none":
            rows = []
    stream = io.StringIO()
    csv.writer(stream).writerows([header, *rows])
    data = stream.getvalue().encode()
    return broken(random, data) if random.random() < 1 / 10 else data


def rescaled(random, cell):
    """The cell with a number in it changed: too small, too large, with a rest, or of the other sign."""
    found = list(re.finditer(r"\d+(\.\d+)?", cell))
    if not found:
        return random.choice(CELLS)
    one = random.choice(found)
    factor = random.choice((0, -1, 0.5, 1 / 3, 3, 7, 1e3, 1e6, 1e9, 1e20))
    value = float(one.group()) * factor
    text = str(int(value)) if math.isfinite(value) and random.random() < 0.8 else repr(value)
    return cell[: one.start()] + text + cell[one.end() :]


LLAMA = {
    **{
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 256,
        "num_hidden_layers": 4,
    },
    **{"num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 1000},
    **{"max_position_embeddings": 128, "hidden_act": "silu", "tie_word_embeddings": False, "head_dim": 32},
}
_EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
_LATENT = {
    **{
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "q_lora_rank": 48,
    },
    **{
        "n_routed_experts": 8,
        "moe_intermediate_size": 64,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
    },
}
_BERT = {
    **{"hidden_dropout_prob": 0.1, "type_vocab_size": 2, "attention_probs_dropout_prob": 0.1},
    "hidden_act": "gelu",
}
CONFIGS = (
    LLAMA,
    {**LLAMA, "model_type": "qwen3"},
    {**LLAMA, "model_type": "gemma", "hidden_act": "gelu"},
    {**LLAMA, **_EXPERTS, "model_type": "mixtral"},
    {
        **LLAMA,
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    },
    {**LLAMA, **_LATENT, "model_type": "deepseek_v3", "n_shared_experts": 1},
    {**LLAMA, **_BERT, "model_type": "bert"},
    {**LLAMA, **_BERT, "model_type": "roberta"},
    {**LLAMA, "model_type": "falcon", "hidden_act": None, "activation": "gelu"},
    {**LLAMA, "model_type": "opt", "ffn_dim": 1024, "word_embed_proj_dim": 256, "do_layer_norm_before": True},
    {
        **LLAMA,
        **_BERT,
        "model_type": "vit",
        "architectures": None,
        "image_size": 32,
        "patch_size": 8,
        "num_channels": 3,
        "id2label": {"0": "a"},
    },
    {
        **{
            "model_type": "gpt2",
            "n_layer": 4,
            "n_embd": 256,
            "n_head": 8,
            "vocab_size": 1000,
            "n_positions": 128,
        },
        **{"n_inner": None, "activation_function": "gelu_new", "resid_pdrop": 0.1, "attn_pdrop": 0.1},
    },
    {
        **{"model_type": "t5", "num_layers": 4, "d_model": 256, "num_heads": 8, "d_kv": 32, "d_ff": 512},
        **{
            "vocab_size": 1000,
            "feed_forward_proj": "gated-gelu",
            "is_encoder_decoder": True,
            "n_positions": 64,
        },
    },
    {
        "model_type": "bloom",
        "n_layer": 4,
        "hidden_size": 256,
        "n_head": 8,
        "vocab_size": 1000,
        "seq_length": 128,
    },
)
"""Small configs of the types that are read as they are."""


def config(random, folder):
    """A config with a few keys changed: removed, of another type, or inconsistent."""
    own = dict(random.choice(CONFIGS))
    if random.random() < 1 / 2:
        numbers = [
            key for key, value in own.items() if isinstance(value, int) and not isinstance(value, bool)
        ]
        own[random.choice(numbers)] = random.choice((*LARGE, 3, 7, 1e3, 64))
    (folder / "config.json").write_bytes(content(random, own, yaml=False))
    return shown(random, f"hf:{folder / 'config.json'}")


KINDS = {"onnx": onnx, "program": program, "measured": measured, "calibrated": calibrated, "config": config}
"""What writes the file of a case, and returns the words of its command line."""
