"""Look into a model: `phaze.graph`, its layers and operators; `phaze.archs_export`, a chip and the products of a model
for other simulators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from phaze.api.at_hand import architecture_at_hand
from phaze.api.python_arguments import speaks_python
from phaze.api.result_tables import Table, columns_of
from phaze.api.self_display import Shown
from phaze.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from phaze.report.charts.operator_graph_chart import Drawing
    from phaze.workload.work import LayerChain
    from phaze.workload.workload import Workload

Row = dict[str, Any]
_NODES = ("name", "kind", "pass", "operators", "flops", "bytes")


class GraphFormat(StrEnum):
    """How a graph is written."""

    TEXT = "text"
    DOT = "dot"
    JSON = "json"
    SVG = "svg"
    MERMAID = "mermaid"
    CHAKRA = "chakra"
    ONNX = "onnx"

    @property
    def suffix(self) -> str:
        """Ending of its files."""
        return next(suffix for suffix, known in _SUFFIXES.items() if known is self)

    @property
    def is_binary(self) -> bool:
        """Whether it is no text."""
        return self in (GraphFormat.CHAKRA, GraphFormat.ONNX)


_SUFFIXES = {
    ".svg": GraphFormat.SVG,
    ".dot": GraphFormat.DOT,
    ".json": GraphFormat.JSON,
    ".mmd": GraphFormat.MERMAID,
    ".txt": GraphFormat.TEXT,
    ".et": GraphFormat.CHAKRA,
    ".onnx": GraphFormat.ONNX,
}


@dataclass(frozen=True, repr=False)
class Graph(Shown):
    """Layers of a model, or operators of one layer, forward and in training backward, and what waits for what."""

    drawing: Drawing
    workload: Workload | None = None

    @property
    def nodes(self) -> Table[Row]:
        """Every layer or operator of each pass, in an order that respects precedence."""
        rows = [
            {"id": node.id, "name": node.name, "kind": node.kind, "pass": node.side.value}
            | asdict(node.totals)
            for node in self.drawing.nodes
        ]
        return Table(self.drawing.title, rows, columns_of(rows), _NODES)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Pairs of ids: the first before the second."""
        nodes = self.drawing.nodes
        return tuple((nodes[before].id, nodes[after].id) for before, after in self.drawing.edges)

    def text(self, format: str = "text") -> str:
        """The graph as text, svg, dot, mermaid or json. Raises InputError for another format."""
        from phaze.inputs.named_choices import choose

        wanted = choose(GraphFormat, format, "format")
        if wanted.is_binary:
            raise InputError(f"format {wanted} is binary: save it as a file that ends in {wanted.suffix}")
        return graph_text(self.drawing, wanted, _plain_tables)

    def save(self, path: str | Path) -> Path:
        """Write the graph as its suffix says: .svg, .dot, .mmd, .json, .txt; of a whole model .et (a Chakra trace) or
        .onnx (its forward pass in operators of ONNX, weights without content).

        Raises InputError for another suffix, a trace or an ONNX file of one layer, operators that ONNX does not have,
        and where nobody can write there.
        """
        from phaze.runs.atomic_files import check_writable, write_atomically

        target = Path(path)
        if target.suffix.lower() not in _SUFFIXES:
            raise InputError(f"{target}: the name must end in one of {', '.join(_SUFFIXES)}")
        check_writable(target)
        wanted = _SUFFIXES[target.suffix.lower()]
        binary = wanted.is_binary
        made = graph_bytes(self.workload, self.drawing, wanted) if binary else self.text(wanted)
        write_atomically(target, made)
        return target

    def to_dataframe(self) -> pd.DataFrame:
        """The nodes as a pandas data frame."""
        return self.nodes.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.charts.operator_graph_chart import drawing_tables

        yield from drawing_tables(self.drawing)


@speaks_python
def graph(
    workload: object,
    *,
    layer: str | int | None = None,
    mode: str = "training",
    microbatch: int = 1,
    tensor_parallel: int = 1,
    attention: str = "flash",
    bind: Mapping[str, int] | Sequence[str] | None = None,
) -> Graph:
    """The layers of a workload, or the operators of one layer, as `dse graph` shows them.

    `workload`: a built-in name, a file, or a workload at hand. `layer`: operators of this one, by its number from 1 or
    its name. `bind`: sizes of symbolic dimensions of a file.

    Raises InputError where an argument is not valid, or there is no such layer.

    Example:
        >>> import phaze
        >>> model = phaze.graph("gpt3-xl", mode="prefill")
        >>> len(model.nodes)
        51
        >>> phaze.graph("gpt3-xl", layer=2, mode="prefill").nodes[0]["kind"]
        'norm'
    """
    model = opened(workload, mode, attention, bind)
    drawn = drawing(model, None if layer is None else str(layer), microbatch, tensor_parallel)
    return Graph(drawn, model)


@speaks_python
def archs_export(
    arch: object,
    *,
    target: str = "scale-sim",
    workload: object = None,
    mode: str = "training",
    attention: str = "flash",
    microbatch: int = 1,
    tensor_parallel: int = 1,
    bind: Mapping[str, int] | Sequence[str] | None = None,
    out: str | Path | None = None,
) -> dict[str, str]:
    """Input files of another simulator by their names: the chip, and the products of a workload, as `dse archs export`
    writes them; comments say what is left out.

    `arch`: the chip by name, file, run directory or at hand, results included. `target`: scale-sim or accelforge.
    `workload`: whose matrix products are written, too. `out`: a folder to write the files into.

    Raises InputError where an argument is not valid, and for a chip without tensor cores.

    Example:
        >>> import phaze
        >>> sorted(phaze.archs_export("tpuv4", workload="gpt3-small"))
        ['architecture.cfg', 'layout.csv', 'topology.csv']
    """
    from phaze.runs.atomic_files import write_atomically
    from phaze.runs.run_directory import run_directory

    model = None if workload is None else opened(workload, mode, attention, bind)
    files = exported_files(architecture_at_hand(arch), target, "--target", model, microbatch, tensor_parallel)
    if out is not None:
        with run_directory(Path(out)) as folder:
            for name, text in files.items():
                write_atomically(folder / name, text)
    return files


def opened(
    workload: object, mode: str, attention: str, bind: Mapping[str, int] | Sequence[str] | None
) -> Workload:
    """A workload to look at, by name, file or at hand. Raises InputError."""
    from phaze.inputs.task_inputs import open_workload

    if not isinstance(workload, str | Path):
        return cast("Workload", workload)
    sizes = [f"{name}={size}" for name, size in bind.items()] if isinstance(bind, Mapping) else bind or ()
    return open_workload(str(workload), mode=mode, attention=attention, bind=sizes)


def drawing(model: Workload, layer: str | None, microbatch: int, width: int) -> Drawing:
    """A model, or one layer of it, to be drawn. Raises InputError."""
    from phaze.report.charts.operator_graph_chart import draw_layer, draw_model

    chain = admissible_chain(model, microbatch, width)
    return draw_model(chain, model.mode) if layer is None else draw_layer(chain, model.mode, layer)


def admissible_chain(model: Workload, microbatch: int, width: int) -> LayerChain:
    """The chain of layers at an admissible width. Raises InputError for another one."""
    if microbatch < 1:
        raise InputError(f"--microbatch is {microbatch}; it must be 1 or more")
    if width not in (widths := model.tensor_parallel_widths(max(1, width))):
        known = ", ".join(map(str, widths))
        raise InputError(f"--tensor-parallel {width} does not divide this workload; {known} would")
    return model.chain(microbatch, width)


def graph_text(drawing: Drawing, wanted: GraphFormat, tables: Callable[[Drawing], str]) -> str:
    """A graph as it is written; `tables`: how tables become text."""
    from phaze.report.charts.operator_graph_chart import to_dot, to_json, to_mermaid, to_svg

    writers: Mapping[GraphFormat, Callable[[Drawing], str]] = {
        GraphFormat.TEXT: tables,
        GraphFormat.DOT: to_dot,
        GraphFormat.JSON: to_json,
        GraphFormat.SVG: to_svg,
        GraphFormat.MERMAID: to_mermaid,
    }
    return writers[wanted](drawing)


def graph_bytes(model: Workload | None, drawing: Drawing, wanted: GraphFormat) -> bytes:
    """A whole model as a Chakra execution trace of a microbatch on one device, or as an ONNX file for any batch.

    Raises InputError for one layer alone, and in ONNX for a share of tensor parallelism and what ONNX does not have.
    """
    from phaze.report.exports.chakra_trace import to_chakra

    kind = "a Chakra trace" if wanted is GraphFormat.CHAKRA else "an ONNX file"
    if drawing.layer is not None:
        raise InputError(f"{kind} is of the whole model, without --layer")
    if wanted is GraphFormat.CHAKRA:
        return to_chakra(drawing.chain)
    if drawing.chain.tensor_parallel > 1 or model is None:
        raise InputError(f"{kind} is of the whole model, without --tensor-parallel")
    from phaze.report.exports.onnx.onnx_file import to_onnx

    return to_onnx(model)


def _plain_tables(drawing: Drawing) -> str:
    return f"{Graph(drawing)!r}\n"


def exported_files(
    arch: Any,  # noqa: ANN401 - whatever names a chip
    target: str,
    option: str,
    model: Workload | None,
    microbatch: int,
    width: int,
) -> dict[str, str]:
    """Texts of a simulator's files by their names; `option`: how the target was given. Raises InputError."""
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.named_choices import choose
    from phaze.report.exports.simulator_inputs import Simulator, matrix_products, simulator_files

    chip, simulator = find_architecture(arch), choose(Simulator, target, option)
    work = () if model is None else matrix_products(admissible_chain(model, microbatch, width))
    return simulator_files(chip, work, simulator)
