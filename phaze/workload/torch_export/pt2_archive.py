"""Programs saved by `torch.export.save`: the archive's JSON is read, neither torch nor the weights are.

The graph in it becomes a description, with its symbols bound.

The format is PyTorch's own serialisation (torch/_export/serde/schema.py, schema version 8).
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from phaze.errors import MALFORMED, InputError
from phaze.workload.torch_export.exported_model import ExportedModel, join_recordings
from phaze.workload.torch_export.exported_program import (
    Node,
    Program,
    Ref,
    TensorInfo,
    results_of,
)
from phaze.workload.torch_export.symbolic_sizes import evaluate, symbols

Json = Mapping[str, Any]

LARGEST_DIMENSION = 2**48  # elements along one dimension
_WHOLE = 2**64  # bound on other whole numbers

# torch/_export/serde/schema.py, ScalarType
_DTYPES = dict(
    enumerate(
        (
            *("unknown", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
            *("complex32", "complex64", "complex128", "bool", "bfloat16"),
        )
    )
)
_DTYPES |= {28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2"}


@dataclass
class SavedGraph:
    """Reads one graph and those nested in it; `symbols` are the sizes of its symbols.

    `stored`: where the weight of each parameter lies in the archive, the same place for tied ones; empty where the
    archive does not say, as older ones.
    """

    source: str
    signature: Json
    symbols: Mapping[str, int]
    stored: Mapping[str, str]
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    scalars: dict[str, int] = field(default_factory=dict)

    def program(self, graph: Json, batch: int, fields: Sequence[tuple[str, int]]) -> Program:
        """The whole description; `fields`: see `results_of`.

        Raises KeyError, TypeError, ValueError or AttributeError for no such JSON.
        """
        self._read(graph, {}, detached=False)
        parameters, buffers, inputs = self._inputs()
        parameters = self._tied(parameters)
        self._check_makers((*inputs, *parameters, *buffers))
        given = (o["user_output"]["arg"] for o in self.signature["output_specs"] if "user_output" in o)
        outputs = [_name(o["as_tensor"]["name"], {}) if "as_tensor" in o else None for o in given]
        return Program(
            source=self.source,
            batch=batch,
            nodes=tuple(self.nodes),
            tensors=self.tensors,
            inputs=inputs,
            parameters=parameters,
            buffers=buffers,
            outputs=results_of(outputs, fields),
            frozen=frozenset(
                n for n in parameters if graph["tensor_values"][n].get("requires_grad") is False
            ),
        )

    def _tied(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """The parameters without further names of a weight that some node reads: of tied ones nodes read one.

        Without places, those that some node reads. Weights that were never allocated all lie at the same place.
        """
        read = {name for node in self.nodes for name in node.reads()}
        if not self.stored:
            return {name: called for name, called in parameters.items() if name in read}

        def weight(name: str) -> tuple[object, ...]:
            return self.stored.get(parameters[name], name), self.tensors[name]

        known = {weight(name) for name in parameters if name in read}
        return {n: called for n, called in parameters.items() if n in read or weight(n) not in known}

    def _check_makers(self, given: tuple[str, ...]) -> None:
        """Raise ValueError for a tensor that two nodes make, or that is given and made."""
        known = set(given)
        for node in self.nodes:
            for name in node.outputs:
                if name in known:
                    raise ValueError(f"tensor {name!r} has two producers, one is {node.name!r}")
                known.add(name)

    def _inputs(self) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
        """Parameters and buffers with their names in the model, and what comes from outside."""
        parameters, buffers, inputs = {}, {}, []
        for spec in self.signature["input_specs"]:
            ((kind, content),) = spec.items()
            if kind == "parameter":
                parameters[_name(content["arg"]["name"], {})] = _name(content["parameter_name"], {})
            elif kind == "buffer":
                buffers[_name(content["arg"]["name"], {})] = _name(content["buffer_name"], {})
            elif kind == "user_input" and "as_tensor" in content["arg"]:
                inputs.append(_name(content["arg"]["as_tensor"]["name"], {}))
        return parameters, buffers, tuple(inputs)

    def _read(self, graph: Json, names: Mapping[str, str], *, detached: bool) -> None:
        """Append a graph's nodes; `names` are the outer names of a nested graph's inputs and results."""
        for name, size in (graph.get("sym_int_values") or {}).items():
            self.scalars[name] = self._scalar_value(size)
        for name, value in graph["tensor_values"].items():
            shape = tuple(self._size(size) for size in value["sizes"])
            self.tensors[names.get(name, name)] = TensorInfo(shape, _DTYPES.get(value["dtype"], "float32"))
        for node in graph["nodes"]:
            nested = next((i["arg"]["as_graph"] for i in node["inputs"] if "as_graph" in i["arg"]), None)
            if nested is None:
                self.nodes.append(replace(self._node(node, names), detached=detached))
            else:
                self._inline(node, nested["graph"], names, detached=detached)

    def _inline(self, node: Json, graph: Json, names: Mapping[str, str], *, detached: bool) -> None:
        """A block under `no_grad` or `autocast` runs as if it stood in the graph around it."""
        if not node["target"].startswith("torch.ops.higher_order.wrap"):
            raise ValueError(f"control flow {node['target']} is not supported")
        position = next(i for i, given in enumerate(node["inputs"]) if "as_graph" in given["arg"])
        outer = [given["arg"] for given in node["inputs"][position + 1 :]]
        inside_names = (*graph["tensor_values"], *(n["name"] for n in graph["nodes"] if n.get("name")))
        inner = {name: _name(f"{node['name']}/{name}", names) for name in inside_names}
        for inside, outside in zip(graph["inputs"], outer, strict=True):
            if "as_tensor" in inside:
                inner[inside["as_tensor"]["name"]] = _name(outside["as_tensor"]["name"], names)
        results = [name for output in node["outputs"] for name in _tensor_names(output)]
        for inside, outside in zip(graph["outputs"], results, strict=False):
            for name in _tensor_names(inside):
                inner[name] = _name(outside, names)
        if "set_grad_enabled" in node["target"]:
            detached = node["inputs"][0]["arg"].get("as_bool") is False
        self._read(graph, inner, detached=detached)

    def _node(self, node: Json, names: Mapping[str, str]) -> Node:
        arguments = {
            given["name"] or str(i): self._argument(given["arg"], names)
            for i, given in enumerate(node["inputs"])
        }
        outputs = tuple(_name(n, names) for output in node["outputs"] for n in _tensor_names(output))
        target = str(node["target"]).removeprefix("torch.ops.")
        name = str(node.get("name") or (outputs[0] if outputs else target))
        return Node(_name(name, names), target, arguments, outputs, _module(node.get("metadata") or {}))

    def _argument(self, argument: Json, names: Mapping[str, str]) -> object:
        """Value of an argument: a union with one field."""
        ((kind, value),) = argument.items()
        if kind == "as_none" or value is None:
            return None
        if kind in {"as_tensor", "as_sym_int", "as_optional_tensor"}:
            if kind == "as_optional_tensor":
                return self._argument(value, names)
            return Ref(_name(value["name"], names)) if kind == "as_tensor" else self._scalar(value)
        if kind in {"as_tensors", "as_optional_tensors"}:
            items = ({"as_tensor": v} if "name" in v else v for v in value)
            return tuple(self._argument(item, names) for item in items)
        if kind == "as_sym_ints":
            return tuple(self._scalar(v) for v in value)
        return (
            tuple(value)
            if isinstance(value, list)
            else value
            if isinstance(value, int | float | str)
            else None
        )

    def _scalar(self, value: Json) -> int:
        """A size: given, or computed earlier in the graph."""
        return _whole_number(value["as_int"]) if "as_int" in value else self.scalars.get(value["as_name"], 0)

    def _scalar_value(self, value: Json) -> int:
        """A number computed from sizes; it may be negative."""
        return (
            _whole_number(value["as_int"])
            if "as_int" in value
            else evaluate(value["as_expr"]["expr_str"], self.symbols)
        )

    def _size(self, size: Json) -> int:
        """A dimension of a tensor. Raises ValueError for one below 0 or beyond any memory."""
        value = size["as_int"] if "as_int" in size else evaluate(size["as_expr"]["expr_str"], self.symbols)
        if not isinstance(value, int) or not 0 <= value < LARGEST_DIMENSION:
            raise ValueError(f"{value!r} is not a dimension")
        return value


def _whole_number(value: object) -> int:
    """A number in the graph. Raises ValueError for one that is not whole or beyond what torch can hold."""
    if not isinstance(value, int) or not -_WHOLE <= value <= _WHOLE:
        raise ValueError(f"{value!r} is not a whole number of 64 bits")
    return int(value)


def _name(name: object, names: Mapping[str, str]) -> str:
    """The outer name of a tensor or node. Raises TypeError for what is no name."""
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is no name")
    return names.get(name, name)


def _tensor_names(output: Json) -> Iterator[str]:
    """Tensors of one result."""
    if "as_tensor" in output:
        yield output["as_tensor"]["name"]
    for value in output.get("as_tensors", ()):
        yield value["name"]


def _module(metadata: Json) -> str:
    """Dotted path of the innermost module: the last entry `key,path,type` of the stack."""
    stack = str(metadata.get("nn_module_stack", ""))
    parts = stack.rpartition(";")[2].split(",")
    return parts[1] if len(parts) > 2 else ""


SCHEMA_VERSION = 8
MOST_BYTES = 2**26
"""Bytes of JSON; a program of 30 000 nodes has that many."""

MOST_VALUES = 2**22
"""Values in that JSON: of brackets alone it would become a hundred times as large in memory."""

_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 1  # flag of a file in an archive
BATCHES = (2, 14)  # a factor of 7 between them, a prime that is rare as a dimension


def load_pt2(path: str | Path, bind: Mapping[str, int] | None = None) -> ExportedModel:
    """Read a saved program without its weights.

    The first dimension of the inputs is the batch and must have been exported as dynamic; `bind` gives sizes
    to other dynamic dimensions, by symbol (`s33`) or place (`tokens[1]`). Raises InputError (one sentence,
    naming the file) for a file that is missing or damaged, a fixed batch, dimensions without a size,
    operators that are not supported, and programs that mix samples.
    """
    path = Path(path)
    document, stored = _document(path)
    try:
        graph = document["graph_module"]["graph"]
        signature = document["graph_module"]["signature"]
        fields = _fields(document["graph_module"].get("module_call_graph") or ())
        batch, values = _symbols(path, graph, signature, bind or {})
        first, second = (
            SavedGraph(str(path), signature, {**values, batch: size}, stored).program(graph, size, fields)
            for size in BATCHES
        )
        return join_recordings(path.stem, first, second)
    except MALFORMED as error:
        raise InputError(f"{path}: not a readable saved program ({error})") from error


def _document(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The program's JSON in the archive, and where the weight of each parameter lies in it."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path}: not a file"
        )  # an archive is read from its end, which a device may not have
    try:
        with zipfile.ZipFile(path) as archive:
            document: dict[str, Any] = json.loads(_content(path, archive, _GRAPHS))
            places = json.loads(_content(path, archive, _WEIGHTS) or b"{}").get("config", {})
            stored = {str(name): str(entry["path_name"]) for name, entry in places.items()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, *MALFORMED) as error:
        raise InputError(f"{path}: not a readable saved program (damaged or another format)") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, dict) or version.get("major") != SCHEMA_VERSION:
        raise InputError(f"{path}: schema version {version}; this reads major version {SCHEMA_VERSION}")
    return document, stored


_GRAPHS = ("models/model.json", "serialized_exported_program.json")
_WEIGHTS = ("weights/model_weights_config.json",)


def _content(path: Path, archive: zipfile.ZipFile, endings: tuple[str, ...]) -> bytes:
    """The first JSON in the archive with one of the names, as far as it can be read within bounds; weights may lack."""
    names = [n for ending in endings for n in archive.namelist() if n.endswith(ending)]
    if not names and endings == _WEIGHTS:
        return b""
    if not names:
        raise InputError(f"{path}: not a program saved by torch.export.save (it holds no graph)")
    entry = archive.getinfo(names[0])
    if entry.flag_bits & _ENCRYPTED:
        raise InputError(f"{path}: {entry.filename} is encrypted; save the program without a password")
    if entry.compress_type not in _METHODS:
        raise InputError(f"{path}: {entry.filename} is compressed in a way that torch.export.save never uses")
    if entry.file_size > MOST_BYTES:
        raise InputError(f"{path}: its graph has {entry.file_size} bytes; at most {MOST_BYTES} are read")
    content = archive.read(entry)
    if (values := sum(map(content.count, (b",", b"[", b"{")))) > MOST_VALUES:
        raise InputError(f"{path}: its graph has about {values} values; at most {MOST_VALUES} are read")
    return content


def _fields(calls: Sequence[Json]) -> list[tuple[str, int]]:
    """Names of what the program hands out, and how many values each holds; none where they have no names."""
    spec = next((c["signature"]["out_spec"] for c in calls if not c["fqn"] and c["signature"]), None)
    tree = json.loads(spec)[1] if spec else {}
    names = json.loads(tree.get("context") or "null")
    named = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return list(zip(names, map(_leaves, tree["children_spec"]), strict=True)) if named else []


def _leaves(tree: Json) -> int:
    return 1 if tree["type"] is None else sum(map(_leaves, tree["children_spec"]))


def _symbols(
    path: Path, graph: Mapping[str, Any], signature: Mapping[str, Any], bind: Mapping[str, int]
) -> tuple[str, dict[str, int]]:
    """The symbol of the batch, and the sizes of all others."""
    places = _places(graph, signature)
    firsts = {symbol for symbol, names in places.items() if any(name.endswith("[0]") for name in names)}
    if len(firsts) != 1:
        what = f"has {len(firsts)} independent sizes" if firsts else "is fixed"
        raise InputError(
            f"{path}: the first dimension of the inputs {what}; export it as one dynamic batch, for instance "
            "torch.export.export(model, inputs, dynamic_shapes=({0: torch.export.Dim('batch')},))"
        )
    batch = firsts.pop()
    values = {}
    for symbol, names in places.items():
        given = [bind[name] for name in (symbol, *names) if name in bind]
        if symbol != batch and not given:
            raise InputError(f"{path}: dynamic dimension {names[0]} needs a size: give --bind {names[0]}=...")
        values[symbol] = given[0] if given else 0
    known = {name for symbol, names in places.items() if symbol != batch for name in (symbol, *names)}
    for name, size in sorted(bind.items()):
        if name not in known or size < 1:
            what = (
                f"cannot be {size}"
                if name in known
                else f"is not one of {', '.join(sorted(known)) or 'none'}"
            )
            raise InputError(f"{path}: dynamic dimension {name!r} {what}")
    return batch, values


def _places(graph: Mapping[str, Any], signature: Mapping[str, Any]) -> dict[str, list[str]]:
    """Places in the inputs where each symbol is a dimension: `tokens[1]`."""
    found: dict[str, list[str]] = {}
    for spec in signature["input_specs"]:
        argument = spec.get("user_input", {}).get("arg", {})
        name = argument.get("as_tensor", {}).get("name")
        for axis, size in enumerate(graph["tensor_values"][name]["sizes"] if name else ()):
            if "as_expr" in size:
                for symbol in symbols(size["as_expr"]["expr_str"]):
                    found.setdefault(symbol, []).append(f"{name}[{axis}]")
    return found
