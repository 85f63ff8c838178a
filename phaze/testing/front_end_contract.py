"""The contract of a front end."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from phaze.digest import digest
from phaze.errors import InputError
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.work import LayerChain
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import FrontEnd, LoadOptions


class FrontEndContract:
    """Contract of every front end; a subclass gives it, a good `source` and the text of a `broken` one."""

    @pytest.fixture
    def front_end(self) -> FrontEnd:
        """The front end under test."""
        raise NotImplementedError

    @pytest.fixture
    def source(self, tmp_path: Path) -> str:
        """Source, as a user types it, of a readable model whose file lies in a folder of the test's own."""
        raise NotImplementedError

    @pytest.fixture(params=[b"", b"no model at all", b"\x00\xff\xfe{[", b"{}"])
    def broken(self, request: pytest.FixtureRequest) -> bytes:
        """The content of a file that is no model."""
        content: bytes = request.param
        return content

    @pytest.fixture
    def options(self) -> LoadOptions:
        """Options for `source`, for instance sizes of its symbolic dimensions."""
        return LoadOptions()

    def test_makes_a_sound_graph(self, front_end: FrontEnd, source: str, options: LoadOptions) -> None:
        """Operators whose tensors are all there, each made once and before it is read."""
        graph = _loaded(front_end, source, options).operator_graph(2)
        known = {*graph.inputs, *(tensor.name for tensor in graph.parameters())}
        for operator in graph.operators:
            assert set(operator.inputs) <= known
            assert not known & set(operator.outputs)
            known |= set(operator.outputs)
        assert set(graph.outputs) <= known <= set(graph.tensors)

    @pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.PREFILL])
    def test_there_is_something_to_compute_and_to_move(
        self, front_end: FrontEnd, source: str, options: LoadOptions, mode: Mode
    ) -> None:
        """FLOPs and bytes are positive and finite, more for more samples; in training there are parameters."""
        workload = _loaded(front_end, source, replace(options, mode=mode))
        assert workload.name
        assert workload.parameter_count > 0
        assert workload.global_batch(4) >= 1
        one, two = (_totals(workload.chain(samples, 1)) for samples in (1, 2))
        assert all(0 < few < more < math.inf for few, more in zip(one, two, strict=True))

    def test_the_same_file_is_the_same_workload(
        self, front_end: FrontEnd, source: str, options: LoadOptions
    ) -> None:
        """By the digest that costs are remembered under."""
        first, again = (digest(_loaded(front_end, source, options).chain(1, 1)) for _ in range(2))
        assert first == again

    def test_names_its_file(self, front_end: FrontEnd, source: str) -> None:
        """The one whose hash a run keeps."""
        assert front_end.file(source).is_file()

    def test_a_broken_file_is_an_error_that_names_it(
        self, front_end: FrontEnd, source: str, options: LoadOptions, broken: bytes
    ) -> None:
        """Never a stack trace."""
        file = front_end.file(source)
        file.write_bytes(broken)
        with pytest.raises(InputError, match=re.escape(file.name)):
            _loaded(front_end, source, options).operator_graph(1)

    def test_a_missing_file_is_an_error_that_names_it(
        self, front_end: FrontEnd, source: str, options: LoadOptions
    ) -> None:
        """As well."""
        file = front_end.file(source)
        file.unlink()
        with pytest.raises(InputError, match=re.escape(file.name)):
            front_end.load(source, options)


def _loaded(front_end: FrontEnd, source: str, options: LoadOptions) -> GraphWorkload:
    workload = front_end.load(source, options)
    assert isinstance(workload, GraphWorkload)
    return workload


def _totals(chain: LayerChain) -> tuple[float, float]:
    """FLOPs of the model, and bytes that its forward pass moves."""
    works = (work for position in chain.index for work in chain.layers[position].forward.works)
    return chain.model_flops, sum(work.moved_bytes for work in works)
