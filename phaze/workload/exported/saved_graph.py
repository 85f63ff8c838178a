"""The graph in a saved program's JSON, with its symbols bound, as a description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from phaze.workload.exported.program import Node, Program, Ref, TensorInfo
from phaze.workload.exported.sizes import evaluate

Json = Mapping[str, Any]

LARGEST = 2**48  # elements along one dimension
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
    """Reads one graph and those nested in it; `symbols` are the sizes of its symbols."""

    source: str
    signature: Json
    symbols: Mapping[str, int]
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    scalars: dict[str, int] = field(default_factory=dict)

    def program(self, graph: Json, batch: int) -> Program:
        """The whole description. Raises KeyError, TypeError, ValueError or AttributeError for no such JSON."""
        self._read(graph, {})
        parameters, buffers, inputs = self._inputs()
        self._check_makers((*inputs, *parameters, *buffers))
        outputs = [o["user_output"]["arg"] for o in self.signature["output_specs"] if "user_output" in o]
        return Program(
            source=self.source,
            batch=batch,
            nodes=tuple(self.nodes),
            tensors=self.tensors,
            inputs=inputs,
            parameters=parameters,
            buffers=buffers,
            outputs=tuple(_name(o["as_tensor"]["name"], {}) for o in outputs if "as_tensor" in o),
        )

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

    def _read(self, graph: Json, names: Mapping[str, str]) -> None:
        """Append a graph's nodes; `names` are the outer names of a nested graph's inputs and results."""
        for name, size in (graph.get("sym_int_values") or {}).items():
            self.scalars[name] = self._scalar_value(size)
        for name, value in graph["tensor_values"].items():
            shape = tuple(self._size(size) for size in value["sizes"])
            self.tensors[names.get(name, name)] = TensorInfo(shape, _DTYPES.get(value["dtype"], "float32"))
        for node in graph["nodes"]:
            nested = next((i["arg"]["as_graph"] for i in node["inputs"] if "as_graph" in i["arg"]), None)
            if nested is None:
                self.nodes.append(self._node(node, names))
            else:
                self._inline(node, nested["graph"], names)

    def _inline(self, node: Json, graph: Json, names: Mapping[str, str]) -> None:
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
        self._read(graph, inner)

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
        return _whole(value["as_int"]) if "as_int" in value else self.scalars.get(value["as_name"], 0)

    def _scalar_value(self, value: Json) -> int:
        """A number computed from sizes; it may be negative."""
        return (
            _whole(value["as_int"])
            if "as_int" in value
            else evaluate(value["as_expr"]["expr_str"], self.symbols)
        )

    def _size(self, size: Json) -> int:
        """A dimension of a tensor. Raises ValueError for one below 0 or beyond any memory."""
        value = size["as_int"] if "as_int" in size else evaluate(size["as_expr"]["expr_str"], self.symbols)
        if not isinstance(value, int) or not 0 <= value < LARGEST:
            raise ValueError(f"{value!r} is no dimension")
        return value


def _whole(value: object) -> int:
    """A number in the graph. Raises ValueError for one that is not whole or beyond what torch can hold."""
    if not isinstance(value, int) or not -_WHOLE <= value <= _WHOLE:
        raise ValueError(f"{value!r} is no whole number of 64 bits")
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
