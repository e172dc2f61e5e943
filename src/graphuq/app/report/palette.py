"""A number of classes in; a color and a shape for each, distinguishable with any color vision, out."""

from __future__ import annotations

# The eight colors of Okabe and Ito for a light and a dark page: two classes are vermilion and blue, or their
# lighter counterparts on dark; yellow is darker on light, and black is the color of the text. Each of the others is,
# among readable ones, the farthest from all before it in the perceptual color space OKLab (Ottosson 2020).
LIGHT = (
    "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b5a500", "#1d1f24", "#821770",
    "#3f570f", "#1f1fad", "#bb26d9", "#98301b", "#22c322", "#324467", "#7d7de8", "#c32273", "#7322c3",
    "#827017", "#8e53ac", "#178217", "#e467e4", "#3a786e", "#563829", "#3c3cdd",
)  # fmt: skip
DARK = (
    "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#f0e442", "#e9eaec", "#26d926",
    "#d926d9", "#67e4bb", "#9167e4", "#f0a8f0", "#98831b", "#d6b8a9", "#8cb464", "#dd3c71", "#b093ec",
    "#1fad1f", "#a8ccf0", "#7581bd", "#a7dd3c", "#22c3a8", "#e88f7d", "#e467e4",
)  # fmt: skip
N_CHAINS = 8  # the chains of a sampler are drawn in the first colors
# Outlines in the square from -1 to 1, as SVG paths; their number and that of the colors
# have no common divisor, so that 200 classes differ in color or shape.
SHAPES = (
    "M-.9-.9H.9V.9H-.9Z",
    "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1-1 0Z",
    "M0-1.15 1.1.85H-1.1Z",
    "M0-1.25 1.15 0 0 1.25-1.15 0Z",
    "M0 1.15 1.1-.85H-1.1Z",
    "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "M0-1.1 1.05-.34.65.9H-.65L-1.05-.34Z",
    "M-1-.5-.5-1 0-.5.5-1 1-.5.5 0 1 .5.5 1 0 .5-.5 1-1 .5-.5 0Z",
)


def colors(n: int, *, dark: bool = False) -> list[str]:
    """n colors as #rrggbb, which begin again after the 25th."""
    return [(DARK if dark else LIGHT)[k % len(LIGHT)] for k in range(n)]


def variables(n: int) -> str:
    """The colors as CSS variables --k0, --k1, ... for both themes."""
    n = max(n, N_CHAINS)
    light, dark = ("".join(f"--k{k}:{each};" for k, each in enumerate(colors(n, dark=d))) for d in (False, True))
    return f':root{{{light}}}:root[data-theme="dark"]{{{dark}}}'
