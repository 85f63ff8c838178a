"""The colours of every picture: those of the report's style by light, so that pages, files and slides look alike."""

from __future__ import annotations

from collections.abc import Mapping

PAGE, INK, SOFT, LINE, WASH = "#fff", "#1d232b", "#56606d", "#e2e6eb", "#f5f7f9"
BLUE, SKY, TEAL, ORANGE, VIOLET, GREY, PALE = LOOKS = (
    *("#1d5fa6", "#7fb3e0", "#2a9d8f", "#e5a13c", "#8a6fb0"),
    *("#aab3bd", "#d5dae0"),
)
"""The classes `c1` to `c7` of the style, in this order."""

CLASSES: Mapping[str, str] = {f"c{i}": colour for i, colour in enumerate(LOOKS, 1)}
ON: Mapping[str, str] = {
    **dict.fromkeys((BLUE, TEAL, VIOLET), "#fff"),
    SKY: "#10233a",
    ORANGE: "#2e1d00",
    **dict.fromkeys((GREY, PALE), INK),
}
"""The colour of a text on each."""

TINTS = {TEAL: "#93d1c9", ORANGE: "#f3d5a3", VIOLET: "#c9bbdd", BLUE: SKY}
"""A lighter one of the same hue."""

MANY = (BLUE, SKY, TEAL, TINTS[TEAL], ORANGE, TINTS[ORANGE], VIOLET, TINTS[VIOLET], GREY, PALE, SOFT, INK)
"""For more parts than there are hues: a hue and its tint follow each other."""
