"""The inner loops of the simulation, plain: compiled as machine code where it is worth it."""

from __future__ import annotations

from phaze.arrays import Flags, Floats, Integers


def sort(first: Integers, one: Integers, other: Integers, done: Flags, found: Integers) -> int:
    """Fill `found` (U,) with steps in an order in which each comes after what it waits for; how many there are.

    Fewer than all where some wait for one another. Device d runs steps first[d] .. first[d+1]-1 one after the other.
    `one`, `other` (U,): the steps whose results each of them needs, U for none. `done` (U + 1,): true for U alone.
    """
    at, count = first[:-1].copy(), len(one)
    length, before = 0, -1
    while before < length < count:
        before = length
        for device in range(len(at)):
            step = at[device]
            while step < first[device + 1] and done[one[step]] and done[other[step]]:
                done[step], found[length] = True, step
                length, step = length + 1, step + 1
            at[device] = step
    return length


def run(
    queue: Integers,
    before: Integers,
    source: tuple[Integers, Integers],
    seconds: Floats,
    way_s: tuple[Floats, Floats],
    sent_s: Floats,
    blocking: bool,
    end_s: Floats,
) -> None:
    """Fill `end_s` (U + 1,), ends of all steps, each as early as it can be; the last entry must be 0.

    `before` (U,): the step before it on its device, U for none. `way_s`: from its sources to it; where
    `blocking`, `sent_s` (U + 1,) is how long a device sends after a step.
    """
    source_one, source_other = source
    way_one_s, way_other_s = way_s
    for step in queue:
        free = end_s[before[step]]
        one, other = end_s[source_one[step]], end_s[source_other[step]]
        if blocking:
            received = max(free, one, other) + (way_one_s[step] + way_other_s[step])
            start = max(received, free + sent_s[before[step]])
        else:
            start = max(free, one + way_one_s[step], other + way_other_s[step])
        end_s[step] = start + seconds[step]


def run_many(
    queue: Integers,
    before: Integers,
    source: Integers,
    kind: Integers,
    chunk: Integers,
    way: Integers,
    seconds: Floats,
    way_s: Floats,
    end_s: Floats,
) -> None:
    """The same of N plans side by side whose transfers block nobody: fill `end_s` (U + 1, N), whose last row must be 0.

    `seconds` (kinds, C, N) of the step of a `kind` and `chunk` (U,); `way_s` (C, N) of the transfer behind chunk `way`
    (U, 2), 0 behind the last.
    """
    # Apart from plans that block, and with a name for each row, machine code takes several plans at once.
    plans = end_s.shape[1]
    for step in queue:
        free_s = end_s[before[step]]
        one_s = end_s[source[step, 0]]
        other_s = end_s[source[step, 1]]
        into_s = way_s[way[step, 0]]
        beside_s = way_s[way[step, 1]]
        lasting_s = seconds[kind[step], chunk[step]]
        found_s = end_s[step]
        for plan in range(plans):
            free = free_s[plan]
            one = one_s[plan] + into_s[plan]
            other = other_s[plan] + beside_s[plan]
            latest = one if one > free else free
            latest = other if other > latest else latest
            found_s[plan] = latest + lasting_s[plan]


def run_many_blocking(
    queue: Integers,
    before: Integers,
    source: Integers,
    kind: Integers,
    chunk: Integers,
    way: Integers,
    seconds: Floats,
    way_s: Floats,
    sent_s: Floats,
    end_s: Floats,
) -> None:
    """The same of plans whose transfers block; `sent_s` as large as `end_s`, all 0."""
    plans = end_s.shape[1]
    for step in range(len(queue)):
        for one in range(2):
            sender, each = source[step, one], way[step, one]
            for plan in range(plans):
                sent_s[sender, plan] += way_s[each, plan]
    for step in queue:
        free_s = end_s[before[step]]
        one_s = end_s[source[step, 0]]
        other_s = end_s[source[step, 1]]
        into_s = way_s[way[step, 0]]
        beside_s = way_s[way[step, 1]]
        busy_s = sent_s[before[step]]
        lasting_s = seconds[kind[step], chunk[step]]
        found_s = end_s[step]
        for plan in range(plans):
            free = free_s[plan]
            latest = one_s[plan] if one_s[plan] > free else free
            latest = other_s[plan] if other_s[plan] > latest else latest
            received = latest + (into_s[plan] + beside_s[plan])
            sent = free + busy_s[plan]
            found_s[plan] = (sent if sent > received else received) + lasting_s[plan]
