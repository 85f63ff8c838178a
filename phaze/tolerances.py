"""Tolerances and limits of effort: one name for each, everywhere in the product; the solvers keep their own."""

SAME = 1e-9
"""Relative difference below which two ways to work out a figure agree: sums of many terms, in another order."""

RETOLD = 1e-6
"""Relative difference below which a document and its answer worked out again agree: other schedules may be found."""

BOUND_ROUNDING = 1e-11
"""Share by which bounds are relaxed: they are sums of some thousand rounded terms, and rounding must never prune."""

LAST_DIGITS = 1e-12
"""Relative difference of sums of a few terms: more than rounding leaves, less than any two durations differ by."""

FEW_STATES = 500
"""States of a first search for a schedule, or of one that is told: most are proven by then, the others can wait."""

PASS_STATES = 10_000
"""States of one schedule of a serving layer's pass: far more than it takes, and the same on every machine."""

DRAWN_STATES = 20_000
"""States of one schedule that is drawn: the same at every call; most are proven long before."""

SETTLED_STATES = 100_000
"""States of one schedule whose time must not depend on the clock: unlike seconds they give every machine one answer."""

POINT_STATES = 10_000_000
"""States of one schedule of a point on a frontier: finite, so that times do not depend on what is asked together."""
