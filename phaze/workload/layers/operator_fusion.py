"""Fusion of steps linked by tensor names into a `Pass`, views, and the effect of each rule of fusion on a model.

Element-wise work rides on the operator that makes its operand. Views vanish, the precedence through them stays.

All of it is standard in vendor libraries (cuBLASLt and cuDNN epilogues, fused norm and softmax kernels):

- An element-wise step is absorbed by a product, convolution, norm, softmax, gather or element-wise step whose
  only reader it is. The tensor between them never reaches HBM, unless backward keeps it: then it is written
  but not read. A residual sum is absorbed through one of its operands.
- A reduction that only feeds a parameter gradient is absorbed by the step that makes the gradient it reads;
  the second read disappears.

The kind of the host says which rule of `Fusion` that is. Of several possible hosts the one that saves most is
taken. Multiply-accumulates and vector cycles are the same before and after. A guest that makes more bytes than
the tensor it rides on (a broadcast) stays on its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from phaze.workload.fusion_rules import ALL_FUSION, Fused, Fusion
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.operators.operator_steps import Step
from phaze.workload.work import LayerChain, Pass, Unit, Work

LONGEST_NAME = 200
_BUT_NAME = attrgetter(*(one.name for one in fields(Work)[1:]))
_BY_HOST = {OpKind.NORM: Fusion.NORM_RESIDUAL, OpKind.SOFTMAX: Fusion.SOFTMAX}


def fuse(
    steps: Iterable[Step], kept: Collection[str], outputs: Collection[str], rules: Collection[Fusion]
) -> tuple[tuple[Step, ...], tuple[Fused, ...]]:
    """Absorb what the rules allow, and say what was done in order.

    `kept` tensors still go to HBM, `outputs` are never swallowed.
    """
    if not rules:
        return tuple(steps), ()
    fuser = _Fuser(steps, kept, outputs, rules)
    for place in range(len(fuser.slots)):
        fuser.visit(place)
    return tuple(step for step in fuser.slots if step is not None), tuple(fuser.applied)


class _Fuser:
    """Steps in their slots; a guest leaves its slot empty, or takes its host's place after it."""

    def __init__(
        self,
        steps: Iterable[Step],
        kept: Collection[str],
        outputs: Collection[str],
        rules: Collection[Fusion],
    ) -> None:
        self.slots: list[Step | None] = list(steps)
        self.applied: list[Fused] = []
        self._kept, self._outputs, self._rules = kept, outputs, rules
        self._readers = Counter(t for step in self.slots if step for t in step.reads)
        self._maker: dict[str, int] = {}

    def visit(self, place: int) -> None:
        """Let the step in a slot ride on the host that saves most, if there is one."""
        guest = self.slots[place]
        if guest is None:
            return
        if guest.work is not None and (found := self._best(guest, guest.work)) is not None:
            slot, merged, application = found
            self.slots[slot] = self.slots[place] = None
            place = place if guest.writes else slot
            self.slots[place] = guest = merged
            self.applied.append(application)
        self._maker.update(dict.fromkeys(guest.writes, place))

    def _best(self, guest: Step, work: Work) -> tuple[int, Step, Fused] | None:
        """Slot of the host that saves most, both as one step, and what that saves; a product where several do."""
        sink = guest.kind is OpKind.REDUCE and not guest.writes
        best: tuple[tuple[float, bool, int], Step, Fused] | None = None
        for tensor in guest.reads:
            slot = self._maker.get(tensor, -1)
            host = self.slots[slot] if slot >= 0 else None
            if host is None or host.work is None or not host.hosts:
                continue
            rule = Fusion.BIAS_GRADIENT if sink else self._rule(host, host.work, guest)
            if rule not in self._rules or not (sink or self._may_ride(guest, host, tensor)):
                continue
            merged = _merge(host, host.work, guest, work, tensor, kept=tensor in self._kept)
            saved = _moved(host) + _moved(guest) - _moved(merged)
            order = saved, bool(host.work.gemms), slot
            if best is None or order > best[0]:
                best = order, merged, Fused(rule, host.name, guest.name, saved)
        return None if best is None else (best[0][2], *best[1:])

    def _rule(self, host: Step, work: Work, guest: Step) -> Fusion:
        """Rule that lets an element-wise step ride on a host.

        Where epilogues are off, a bias rides by its own rule, and softmax takes its scale.
        """
        if not work.gemms:
            return _BY_HOST.get(host.kind, Fusion.ELEMENTWISE)
        if Fusion.EPILOGUE in self._rules:
            return Fusion.EPILOGUE
        own = Fusion.SOFTMAX if guest.scales else Fusion.EPILOGUE
        return Fusion.BIAS if guest.bias else own

    def _may_ride(self, guest: Step, host: Step, tensor: str) -> bool:
        """Whether nothing but the guest needs the tensor, and the guest makes no more of it."""
        alone = self._readers[tensor] == 1 and len(host.writes) == 1 and tensor not in self._outputs
        return guest.epilogue and alone and sum(guest.writes.values()) <= guest.reads[tensor]


def _moved(step: Step) -> float:
    """HBM bytes of a step with every operand of its products moved once."""
    return step.work.moved_bytes if step.work is not None else 0.0


def _merge(host: Step, work: Work, guest: Step, extra: Work, tensor: str, *, kept: bool) -> Step:
    """One step for two; the tensor between them is not moved through HBM, but for writing it where it is kept."""
    size, out = guest.reads[tensor], sum(guest.writes.values())
    gemms = work.gemms
    shared = sum(b for t, b in guest.reads.items() if t in host.reads and not gemms)
    stream = work.stream_bytes + extra.stream_bytes - size - shared
    if guest.writes:
        stream += size if kept else 0.0
        if gemms:  # the product now writes the guest's result in place of its own
            gemms = (*gemms[:-1], replace(gemms[-1], c_bytes=out))
            stream -= out
        else:
            stream -= size
    joint = Work(
        _joint_name(host.name, guest.name),
        work.kind,
        Unit.TENSOR_VECTOR if gemms else Unit.VECTOR,
        gemms,
        work.vector_cycles + extra.vector_cycles,
        stream,
        rows=work.rows,
    )
    reads = {t: b for t, b in {**host.reads, **guest.reads}.items() if t != tensor}
    return Step(joint.name, host.kind, joint, reads, guest.writes or host.writes, hosts=True)


def _joint_name(host: str, guest: str) -> str:
    """Both names, the guest's without the path it shares with its host; long ones end in an ellipsis."""
    if len(host) > LONGEST_NAME:
        return host if host.endswith("+...") else f"{host}+..."
    parts, others = guest.split("."), host.split(".")
    shared = 0
    while shared < min(len(parts) - 1, len(others)) and parts[shared] == others[shared]:
        shared += 1
    return f"{host}+{'.'.join(parts[shared:])}"


def storage(steps: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    """Memory of every tensor, as the tensors that it lives in: views share their inputs' memory."""
    pieces: dict[str, tuple[str, ...]] = {}
    for step in steps:
        if step.work is None:
            base = tuple(dict.fromkeys(p for t in step.reads for p in pieces.get(t, (t,))))
            pieces.update(dict.fromkeys(step.writes, base))
    return pieces


def aliases(steps: Iterable[Step]) -> dict[str, str]:
    """Tensors that are another one under a new name (reshape, transpose, identity), and which."""
    same: dict[str, str] = {}
    for step in steps:
        if step.work is None and len(step.reads) == len(step.writes) == 1:
            (source, size), (target, target_size) = *step.reads.items(), *step.writes.items()
            if size == target_size:
                same[target] = same.get(source, source)
    return same


def resolve(steps: Iterable[Step], same: Mapping[str, str]) -> tuple[Step, ...]:
    """Drop the renaming views and use the first name everywhere."""
    kept = (step for step in steps if not (len(step.writes) == 1 and set(step.writes) <= same.keys()))
    return tuple(
        replace(step, reads={same.get(t, t): size for t, size in step.reads.items()})
        if any(t in same for t in step.reads)
        else step
        for step in kept
    )


@dataclass(frozen=True)
class Schedulable:
    """Steps of one pass after fusion, in an order that respects precedence, and how they were fused."""

    steps: tuple[Step, ...]
    outputs: frozenset[str]
    fused: tuple[Fused, ...] = ()

    def to_pass(self, prefix: str) -> Pass:
        """Drop views, keep the precedence through them; `prefix` is cut from operator names."""
        before: dict[str, frozenset[int]] = {}
        works: list[Work] = []
        edges: set[tuple[int, int]] = set()
        for step in self.steps:
            sources = frozenset(i for t in step.reads for i in before.get(t, ()))
            if step.work is not None:
                position = len(works)
                edges.update((i, position) for i in sources)
                works.append(_named(step.work, prefix))
                sources = frozenset((position,))
            before.update(dict.fromkeys(step.writes, sources))
        return Pass(tuple(works), tuple(sorted(edges)), self.fused)

    def peak_bytes(self, inputs: Mapping[str, float], resident: Collection[str]) -> float:
        """Largest sum of tensors alive at once, those in memory pieces `resident` not counted.

        `inputs`: tensors alive from the start; outputs stay alive to the end.
        """
        pieces = storage(self.steps)
        sizes = {t: b for s in self.steps if s.work is not None for t, b in s.writes.items()}
        sizes = {t: b for t, b in (*inputs.items(), *sizes.items()) if t not in resident}
        last = self._last_use(pieces)
        ending: dict[int, list[str]] = {}
        for tensor in sizes:
            ending.setdefault(last.get(tensor, -1), []).append(tensor)
        alive = sum(b for t, b in inputs.items() if t in sizes and t in last)
        peak = alive
        for i, step in enumerate(self.steps):
            alive += sum(sizes[t] for t in step.writes if t in sizes and t not in pieces)
            peak = max(peak, alive)
            alive -= sum(sizes[t] for t in ending.get(i, ()))
        return peak

    def _last_use(self, pieces: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
        """Position of the last step that touches each memory piece; outputs outlive all steps."""
        last = {p: len(self.steps) for t in self.outputs for p in pieces.get(t, (t,))}
        for i, step in reversed(tuple(enumerate(self.steps))):
            for tensor in (*step.reads, *step.writes):
                for piece in pieces.get(tensor, (tensor,)):
                    last.setdefault(piece, i)
        return last


def _named(work: Work, prefix: str) -> Work:
    """Work with a name relative to its layer, so that isomorphic layers read the same."""
    return Work(work.name.removeprefix(f"{prefix}." if prefix else ""), *_BUT_NAME(work))


def schedulable(
    steps: Sequence[Step],
    kept: Collection[str],
    outputs: Collection[str],
    *,
    fusion: Collection[Fusion] = ALL_FUSION,
) -> Schedulable:
    """Resolve renamings, then fuse by those rules."""
    same = aliases(steps)
    out = frozenset(same.get(t, t) for t in outputs)
    to_memory = frozenset(same.get(t, t) for t in kept)
    left, fused = fuse(resolve(steps, same), to_memory, out, fusion)
    return Schedulable(left, out, fused)


@dataclass(frozen=True, slots=True)
class Applied:
    """Uses of a rule on one device for one microbatch, and the HBM bytes that it saves in all."""

    times: int
    saved_bytes: float


def fusion_report(chain: LayerChain) -> Mapping[Fusion, Applied]:
    """Every rule over the whole model, forward and backward; one that is off, or finds nothing, has zeros.

    What rides on several hosts in turn counts under the rule of the first: a chain on a product is epilogues.
    """
    times: Counter[Fusion] = Counter()
    saved = dict.fromkeys(Fusion, 0.0)
    for unique, repeats in sorted(Counter(chain.index).items()):
        layer = chain.layers[unique]
        for fused in (*layer.forward.fused, *(layer.backward.fused if layer.backward else ())):
            times[fused.rule] += repeats
            saved[fused.rule] += repeats * fused.saved_bytes
    return {rule: Applied(times[rule], saved[rule]) for rule in Fusion}
