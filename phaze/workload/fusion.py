"""Fusion: element-wise work rides on the operator that makes its operand.

Two rules, both standard in vendor libraries (cuBLASLt and cuDNN epilogues):

- epilogue: an element-wise step is absorbed by a product, convolution, norm, softmax, gather or
  element-wise step whose only reader it is. The tensor between them never reaches HBM, unless backward
  keeps it: then it is written but not read. A residual sum is absorbed through one of its operands.
- bias gradient: a reduction that only feeds a parameter gradient is absorbed by the step that makes the
  gradient it reads; the second read disappears.

Multiply-accumulates and vector cycles are the same before and after. A guest that makes more bytes than
the tensor it rides on (a broadcast) stays on its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from phaze.workload.ir import OpKind
from phaze.workload.steps import Step
from phaze.workload.work import Unit, Work

LONGEST_NAME = 200


def fuse(steps: Iterable[Step], kept: Collection[str], outputs: Collection[str]) -> tuple[Step, ...]:
    """Absorb what can be absorbed; `kept` tensors still go to HBM, `outputs` are never swallowed."""
    slots: list[Step | None] = list(steps)
    readers = Counter(t for step in slots if step for t in step.reads)
    maker: dict[str, int] = {}
    for i, guest in enumerate(slots):
        if guest is None:
            continue
        place = i
        found = _host(guest, slots, maker, readers, outputs)
        if found is not None:
            tensor = found[1]
            place = found[0] if not guest.writes else i
            host = slots[found[0]]
            slots[found[0]] = slots[i] = None
            if host is not None:
                slots[place] = _merge(host, guest, tensor, kept)
        merged = slots[place]
        maker.update(dict.fromkeys(merged.writes, place) if merged else {})
    return tuple(step for step in slots if step is not None)


def _host(
    guest: Step,
    slots: list[Step | None],
    maker: dict[str, int],
    readers: Counter[str],
    outputs: Collection[str],
) -> tuple[int, str] | None:
    """Slot of the step that absorbs `guest` and the tensor between them: a product if there is one."""
    if guest.work is None:
        return None
    sink = guest.kind is OpKind.REDUCE and not guest.writes
    found: list[tuple[bool, int, str]] = []
    for tensor, size in guest.reads.items():
        slot = maker.get(tensor, -1)
        host = slots[slot] if slot >= 0 else None
        if host is None or host.work is None or not host.hosts:
            continue
        alone = readers[tensor] == 1 and len(host.writes) == 1 and tensor not in outputs
        if sink or (guest.epilogue and alone and sum(guest.writes.values()) <= size):
            found.append((bool(host.work.gemms), slot, tensor))
    return max(found)[1:] if found else None


def _merge(host: Step, guest: Step, tensor: str, kept: Collection[str]) -> Step:
    """One step for two; the tensor between them is not moved through HBM."""
    if host.work is None or guest.work is None:
        msg = "views are not fused"
        raise ValueError(msg)
    size, out = guest.reads[tensor], sum(guest.writes.values())
    shared = sum(b for t, b in guest.reads.items() if t in host.reads and not host.work.gemms)
    stream = host.work.stream_bytes + guest.work.stream_bytes - size - shared
    gemms = host.work.gemms
    if guest.writes:
        stream += size if tensor in kept else 0.0
        if gemms:  # the product now writes the guest's result in place of its own
            gemms = (*gemms[:-1], replace(gemms[-1], c_bytes=out))
            stream -= out
        else:
            stream -= size
    work = Work(
        _joint_name(host.name, guest.name),
        host.work.kind,
        Unit.TENSOR_VECTOR if gemms else Unit.VECTOR,
        gemms,
        host.work.vector_cycles + guest.work.vector_cycles,
        stream,
    )
    reads = {t: b for t, b in {**host.reads, **guest.reads}.items() if t != tensor}
    return Step(work.name, host.kind, work, reads, guest.writes or host.writes, hosts=True)


def _joint_name(host: str, guest: str) -> str:
    """Both names, the guest's without the path it shares with its host; long ones end in an ellipsis."""
    if len(host) > LONGEST_NAME:
        return host if host.endswith("+...") else f"{host}+..."
    parts, others = guest.split("."), host.split(".")
    shared = 0
    while shared < min(len(parts) - 1, len(others)) and parts[shared] == others[shared]:
        shared += 1
    return f"{host}+{'.'.join(parts[shared:])}"
