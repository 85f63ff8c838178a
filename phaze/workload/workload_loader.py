"""Workloads from whatever names them, a built-in name, a YAML file, a program, a config; and how they are to be run.

Programs are ONNX files or PyTorch's. Each front end turns a source and the options into a `Workload`, and is found by
the suffix of a file or by what stands before a colon. One that needs a heavy package imports it when it is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from phaze.errors import InputError
from phaze.plugins import Registry, at_hand
from phaze.workload.families.model_family import Extent, FamilyDimensions
from phaze.workload.fusion_rules import ALL_FUSION, Fusion
from phaze.workload.graph_workload import GraphWorkload, answerable_mode
from phaze.workload.hugging_face.model_config import config_file, read_config, translate
from phaze.workload.layers.layer_reuse import Repeats, repeats_of
from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.operators.operator_graph import OperatorGraph
from phaze.workload.patterns.decode_step import DecodingModel
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_file import WorkloadSpec, check_spec, read_spec
from phaze.workload.workload_library import (
    WORKLOADS,
    YAML_SUFFIXES,
    find_workload,
    is_known,
    known_name,
    named_spec,
)

if TYPE_CHECKING:
    from phaze.workload.onnx import OnnxModel
    from phaze.workload.torch_export.exported_model import ExportedModel


@dataclass(frozen=True)
class LoadOptions:
    """Options of a caller beside the model.

    `sequence_length` and `global_batch` replace the model's own; `bind` gives sizes to symbolic
    dimensions. `context`: tokens of each sequence in the key-value cache before the pass (default: none in
    prefill, a whole sequence in decode), which `kv_cache` says the layout of and `kv_cache_format` the format (None:
    the model's own). `fusion`: rules that are on. `recipe`: of linear layers in 8 or 4 bits. Raises InputError for
    sizes below 1 and for what does not go together.
    """

    mode: Mode = Mode.TRAINING
    attention: Attention = Attention.FLASH
    sequence_length: int | None = None
    global_batch: int | None = None
    bind: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    fusion: Set[Fusion] = ALL_FUSION
    context: int | None = None
    kv_cache: KvCache = KvCache.CONTIGUOUS
    recipe: Recipe | None = None
    kv_cache_format: CacheFormat | None = None

    def __post_init__(self) -> None:
        """Check the sizes, and that there is a cache where it is spoken of."""
        for what in ("global_batch", "sequence_length", "context"):
            value = getattr(self, what)
            if value is not None and value < 1:
                raise InputError(f"{what} is {value}; it must be at least 1")
        paged = self.kv_cache is KvCache.PAGED
        if self.mode is Mode.TRAINING and (self.context is not None or paged or self.kv_cache_format):
            raise InputError(
                "training keeps no key-value cache: context, its layout and format are for prefill and decode"
            )
        if self.mode is Mode.TRAINING and self.recipe is not None and not self.recipe.trains:
            raise InputError(f"recipe {self.recipe} is for prefill and decode")
        if paged and self.attention is not Attention.FLASH:
            raise InputError("a paged key-value cache needs flash attention")

    def refuse_binding(self, source: str) -> None:
        """Raise InputError where sizes are given to a model without symbolic dimensions."""
        if self.bind:
            names = ", ".join(self.bind)
            raise InputError(f"{source}: only ONNX and .pt2 files have dimensions to bind ({names})")

    def refuse_cache(self, source: str, what: str) -> None:
        """Raise InputError where a key-value cache is asked of a model that has none we could fill."""
        paged = self.kv_cache is KvCache.PAGED
        if self.mode is Mode.DECODE or self.context is not None or paged or self.kv_cache_format:
            msg = f"{source}: {what} has no key-value cache to decode with; use training, or prefill without context"
            raise InputError(msg)

    def refuse_sequence(self, source: str, what: str) -> None:
        """Raise InputError where a sequence length is given to a model that has it among its own sizes."""
        if self.sequence_length is not None:
            msg = f"{source}: the sequence length of {what} is one of its dimensions; bind that instead"
            raise InputError(msg)


HUGGING_FACE = "hf:"  # before the path of a config.json, or of its folder


@dataclass(frozen=True)
class FrontEnd:
    """Loader of a `GraphWorkload` from a source and options; `file`: the file behind it, whose content decides.

    `load` raises InputError, with the name of the file, for what it cannot read and for options that it does not take.
    """

    load: Callable[[str, LoadOptions], Workload]
    file: Callable[[str], Path] = Path


@dataclass(frozen=True)
class FamilyModel:
    """Forward model of a workload file: dimensions, what goes through at once, and the choice of attention."""

    name: str
    spec: WorkloadSpec[FamilyDimensions]
    extent: Extent
    attention: Attention

    @property
    def heads(self) -> int | None:
        """Attention heads."""
        return self.spec.dimensions.heads_to_divide

    @property
    def kv_heads(self) -> int | None:
        """Heads of keys and values, where a family tells them apart."""
        found: int | None = getattr(self.spec.dimensions, "kv", None)
        return found

    def graph(self, batch: int) -> OperatorGraph:
        """Forward graph of `batch` samples."""
        return self.spec.dimensions.graph(self.name, replace(self.extent, batch=batch), self.attention)


def load_workload(
    source: str,
    mode: Mode = Mode.TRAINING,
    attention: Attention = Attention.FLASH,
    *,
    sequence_length: int | None = None,
    global_batch: int | None = None,
    bind: Mapping[str, int] | None = None,
    fusion: Set[Fusion] = ALL_FUSION,
    context: int | None = None,
    kv_cache: KvCache = KvCache.CONTIGUOUS,
    recipe: Recipe | None = None,
    kv_cache_format: CacheFormat | None = None,
) -> Workload:
    """Workload of a built-in name, a YAML, ONNX or `.pt2` file, or `hf:` and the path of a Hugging Face config.

    `sequence_length` and `global_batch` replace the file's own; `bind` gives sizes to the symbolic
    dimensions of an ONNX or `.pt2` file; that of an ONNX batch is the global batch. `context`,
    `kv_cache` and `kv_cache_format` describe the key-value cache of inference, and `recipe` linear layers in few
    bits, see `LoadOptions`. Raises InputError for an unknown name (with the nearest ones), a file that cannot be
    read or used, and sizes that make no sense.
    """
    options = LoadOptions(
        mode,
        attention,
        sequence_length,
        global_batch,
        bind or {},
        fusion,
        context,
        kv_cache,
        recipe,
        kv_cache_format,
    )
    found = _front_end(source)
    return _builtin(source, options) if found is None else _loaded(*found, source, options)


def _loaded(name: str, front_end: FrontEnd, source: str, options: LoadOptions) -> Workload:
    """Workload that a front end makes of a source. Raises InputError for anything but a `GraphWorkload`."""
    with FRONT_ENDS.blaming(name):
        workload = front_end.load(source, options)
        # The digests that costs are remembered under, and the certificate, rest on how it makes layers of its graph.
        if not isinstance(workload, GraphWorkload):
            raise FRONT_ENDS.refusal(
                name, f"made a {type(workload).__name__} of {source}, not a GraphWorkload"
            )
        if name not in FRONT_ENDS.built_in:
            workload.operator_graph(1)  # which is checked as it is made; later nobody would know whose it is
    return workload


def workload_of(content: object, where: str, options: LoadOptions) -> Workload:
    """Workload of a workload file's parsed content; `where` names it in errors. Raises InputError."""
    spec = check_spec(content, where)
    return _of_family(spec, spec.name, where, options)


def source_file(source: str) -> Path:
    """File behind a source of `load_workload`. Raises InputError for an unknown name."""
    found = _front_end(source)
    if found is None:
        return find_workload(_known(source))
    name, front_end = found
    with FRONT_ENDS.blaming(name):
        return front_end.file(source)


def source_versions(source: str) -> dict[str, str]:
    """Name and version of the distribution that brings a source or its front end; nothing where both are ours."""
    found = _front_end(source)
    if found is not None:
        return FRONT_ENDS.version(found[0])
    return {} if is_known(source) else WORKLOADS.version(find_workload(_known(source)))


def _front_end(source: str) -> tuple[str, FrontEnd] | None:
    """The front end of a source and its name; none for a workload of ours, and for what nothing reads."""
    names = () if is_known(source) else _endings(source)
    found = ((name, FRONT_ENDS.find(name)) for name in names)
    return next(((name, front_end) for name, front_end in found if front_end is not None), None)


def _known(source: str) -> str:
    """The workload of ours of that name. Raises InputError, which says what else could be read."""
    try:
        return known_name(source)
    except InputError as error:
        known = ", ".join(FRONT_ENDS.names())
        raise InputError(f"{error} (or give a file or a config: {known})") from None


def _endings(source: str) -> Iterator[str]:
    """Names that a front end of a source may have: its prefix with the colon, its suffix with the dot."""
    if prefix := re.match(r"\w{2,}:", source):
        yield prefix[0]
    if suffix := Path(source).suffix:
        yield suffix


def _onnx(source: str, options: LoadOptions) -> Workload:
    from phaze.workload.onnx import load_onnx

    options.refuse_sequence(source, "an ONNX file")
    model = load_onnx(source, options.bind)
    options = replace(options, global_batch=options.global_batch or model.bound_batch)
    return _of_program(model, options, source)


def _pt2(source: str, options: LoadOptions) -> Workload:
    from phaze.workload.torch_export.pt2_archive import load_pt2

    options.refuse_sequence(source, "a saved program")
    return _of_program(load_pt2(source, options.bind), options, source)


def _of_program(
    model: ExportedModel | OnnxModel, options: LoadOptions, source: str, tokens: int | None = None
) -> Workload:
    """Workload of a model that nothing describes but its program; `tokens` of a sample.

    Decode derives the key-value cache. Raises InputError where that cannot be, and for prefill after other tokens.
    """
    if options.mode is Mode.DECODE:
        step = DecodingModel.of(model, source, options.context, options.kv_cache, options.kv_cache_format)
        return GraphWorkload(
            step,
            options.mode,
            global_batch=options.global_batch,
            fusion=options.fusion,
            recipe=options.recipe,
            sequence_length=1,
            context=step.context,
        )
    options.refuse_cache(source, "a recorded program")
    if options.attention is not Attention.FLASH:
        model = replace(model, attention=options.attention, _graphs={})
    return GraphWorkload(
        model,
        answerable_mode(model, options.mode),
        global_batch=options.global_batch,
        fusion=options.fusion,
        recipe=options.recipe,
        sequence_length=tokens,
    )


def _config_file(source: str) -> Path:
    return config_file(source.removeprefix(HUGGING_FACE))


def _hugging_face(source: str, options: LoadOptions) -> Workload:
    path = source.removeprefix(HUGGING_FACE)
    options = _bound_sequence(source, options)
    where = str(config_file(path))
    config = read_config(path)
    content = translate(config, where)
    if content is not None:
        spec = check_spec(content, where)
        return _of_family(spec, spec.name, source, options)
    from phaze.workload.hugging_face.meta_device_build import build

    model, tokens = build(path, config, options.sequence_length)
    return _of_program(model, options, source, tokens)


def _bound_sequence(source: str, options: LoadOptions) -> LoadOptions:
    """The options with a bound `sequence`, the one free dimension of a config, as the sequence length."""
    bound = dict(options.bind)
    length = bound.pop("sequence", None)
    if bound:
        raise InputError(f"{source}: only 'sequence' can be bound, not {', '.join(bound)}")
    return replace(options, bind=bound, sequence_length=options.sequence_length or length)


def _file(source: str, options: LoadOptions) -> Workload:
    return _of_family(read_spec(Path(source)), Path(source).stem, source, options)


def _builtin(source: str, options: LoadOptions) -> Workload:
    spec = named_spec(_known(source))
    return _of_family(spec, spec.name, source, options)


def _of_family(
    spec: WorkloadSpec[FamilyDimensions], name: str, source: str, options: LoadOptions
) -> Workload:
    options.refuse_binding(source)
    spec = _with_sequence(spec, options.sequence_length)
    extent = _extent(spec, source, options)
    own_batch = None if options.mode is Mode.DECODE else spec.global_batch
    plan = spec.expert_plan
    model = FamilyModel(name, spec, extent, options.attention)
    return GraphWorkload(
        model,
        options.mode,
        global_batch=options.global_batch or own_batch,
        optimizer=spec.optimizer,
        precision=spec.precision,
        expert_plan=(plan.pipeline, plan.tensor, plan.data) if plan else None,
        noise_scale=spec.noise_scale,
        fusion=options.fusion,
        recipe=options.recipe,
        sequence_length=spec.sequence_length and extent.tokens,
        context=extent.context,
        short=_short(model),
    )


def _short(model: FamilyModel) -> tuple[FamilyModel, Repeats] | None:
    """The model with fewer blocks, where they repeat."""
    found = repeats_of(model.spec.dimensions)
    if found is None:
        return None
    dimensions, repeats = found
    return replace(model, spec=model.spec.model_copy(update={"dimensions": dimensions})), repeats


def _extent(spec: WorkloadSpec[FamilyDimensions], source: str, options: LoadOptions) -> Extent:
    """Extent of the model's input, but for the batch.

    Decode: one token, after as many as `context` says or a sample has. Prefill: a sample, after `context` ones.
    """
    tokens, limit = spec.sequence_length or 1, spec.dimensions.longest_sequence
    if not spec.dimensions.autoregressive:
        options.refuse_cache(source, f"family {spec.family}")
        return Extent(1, tokens)
    if options.mode is Mode.TRAINING:
        return Extent(1, tokens)
    decode = options.mode is Mode.DECODE
    context = options.context or (tokens if decode else 0)
    longest = context if decode else context + tokens
    if limit is not None and longest > limit:
        what = "a context of" if decode else f"context and {tokens} tokens more make"
        raise InputError(f"{source}: {what} {longest}, beyond the model's {limit} positions")
    return Extent(1, 1 if decode else tokens, context, options.kv_cache, options.kv_cache_format)


def _with_sequence(
    spec: WorkloadSpec[FamilyDimensions], length: int | None
) -> WorkloadSpec[FamilyDimensions]:
    """The workload at another sequence length."""
    if length is None:
        return spec
    try:
        spec.check_sequence(length)
    except ValueError as error:
        raise InputError(f"{spec.name}: {error}") from error
    return spec.model_copy(update={"sequence_length": length})


FRONT_ENDS: Registry[FrontEnd] = Registry(
    "phaze.front_ends",
    "front end",
    at_hand(
        {
            **dict.fromkeys(YAML_SUFFIXES, FrontEnd(_file)),
            ".onnx": FrontEnd(_onnx),
            ".pt2": FrontEnd(_pt2),
            HUGGING_FACE: FrontEnd(_hugging_face, _config_file),
        }
    ),
    lambda _, thing: "" if isinstance(thing, FrontEnd) else f"is a {type(thing).__name__}, not a FrontEnd",
)
