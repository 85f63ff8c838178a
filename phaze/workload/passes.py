"""From steps linked by tensor names to a `Pass`: views vanish, the precedence through them stays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from phaze.workload.fusion import fuse
from phaze.workload.fusion_rules import ALL_FUSION, Fused, Fusion
from phaze.workload.steps import Step
from phaze.workload.work import Pass, Work


def storage(steps: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    """Which tensors' memory each tensor lives in: views share their inputs' memory."""
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
    return replace(work, name=work.name.removeprefix(f"{prefix}." if prefix else ""))


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
