"""docs/performance.md and its picture from docs/reproduction/performance.json: `python -m benchmarks.page`."""

from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.record import PATH, read
from graphuq.files import whole_file

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PICTURE = PATH.with_suffix(".png")
GROWTH, LARGE, GPU = "growth with ", "large, ", "gpu, "


def shown(value):
    """Three digits, or a dash."""
    return "–" if value is None else f"{value:.3g}"


def short(n):
    """1k for a thousand, 1M for a million."""
    return f"{n / 1e6:g}M" if n >= 1e6 else f"{n / 1e3:g}k" if n >= 1e3 else f"{n:g}"


def draw(growth) -> None:
    """Seconds against what grows, on logarithmic axes."""
    figure, axes = plt.subplots(
        1, len(growth), figsize=(3.6 * len(growth), 3.2), layout="constrained", squeeze=False
    )
    for axis, (name, found) in zip(axes[0], growth.items(), strict=True):
        axis.loglog(found["sizes"], found["seconds"], "o-", label=f"graphuq, exponent {found['exponent']:.2f}")
        if found["peer_seconds"]:
            label, some = (
                f"{found.get('peer_name', 'LabelSpreading')}, {found['peer_exponent']:.2f}",
                found["sizes"][: len(found["peer_seconds"])],
            )
            axis.loglog(some, found["peer_seconds"], "s--", label=label, color="0.6")
        axis.set_xticks(found["sizes"], map(short, found["sizes"]))
        axis.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        axis.set(xlabel=name.removeprefix(GROWTH), ylabel="seconds")
        axis.legend(frameon=False, fontsize="small")
        axis.spines[["top", "right"]].set_visible(False)
    with whole_file(PICTURE) as part:
        figure.savefig(part, dpi=130, format="png")


def told_of_large(large):
    """Features on disk, under a cap on memory."""
    lines = [
        "",
        "## Larger than memory",
        "",
        "Features in a file, fitted and answered under a cap on memory that the kernel enforces (`python -m "
        "benchmarks.large`), against one read of the file and the bare matrix products of the computation in the same "
        "run. Memory is the process's own: pages of the file aside. The load is what other programs put on the "
        "machine when it began: seconds of cores, unlike those on the clock, do not depend on it.",
        "",
        "| features | cap, GB | peak, GB | seconds | one read | Tflop | bare products | of cores: ours | bare products | "
        "ours / bare | load | right |",
        "|" + " --- |" * 12,
    ]
    keys = ("cap_gb", "peak_gb", "ours", "read", "teraflop", "products", "cpu", "products_cpu")
    for name, found in large.items():
        if found["peer"] is None:  # neighbors and their eigenvectors are no products with rows
            found = found | {"teraflop": None, "products": None, "products_cpu": None}
        times = None if found["peer"] is None else found["cpu"] / found["products_cpu"]
        numbers = [*(shown(found[key]) for key in keys), shown(times)]
        rest = [shown(found["load"]), f"{found['accuracy']:.1%}"]
        lines.append(f"| {name.removeprefix(LARGE)} | {' | '.join([*numbers, *rest])} |")
    return lines


def told_of_gpu(there):
    """What an accelerator brings."""
    lines = [
        "",
        "## On a GPU",
        "",
        "Where JAX finds a GPU, eigenvectors of large sparse graphs, chains, the sweeps of expectation propagation over "
        "many labels, and the probabilities of many rows and classes run there, with no change in your code (`python -m "
        "benchmarks.gpu`, an NVIDIA H200, against two cores of the same machine). The rest of a fit stays on the "
        "processor. The first fit of its kind in a process also compiles, unless the environment variable "
        "`JAX_COMPILATION_CACHE_DIR` names a folder where JAX keeps what it has compiled.",
        "",
        "| item | seconds | the first time | two cores | ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, found in there.items():
        numbers = " | ".join(shown(found.get(key)) for key in ("ours", "first", "peer", "ratio"))
        lines.append(f"| {name.removeprefix(GPU)} | {numbers} |")
    for found in there.values():
        if "terabytes" in found:
            share = found["terabytes"] / found["copy_terabytes"]
            lines += [
                "",
                "Ginzburg-Landau's Phi at all nodes is a polynomial of the few coordinates, which a step computes in the "
                f"place of u. One that looks at every node takes {1e6 * found['over_nodes']:.0f} us there in the place of "
                f"{1e6 * found['ours']:.0f}: it moves {found['terabytes']:.2f} TB a second, {share:.0%} of what a copy moves.",
            ]
    return lines


def main() -> int:
    everything = read()
    parts = {
        kind: {name: found for name, found in everything.items() if name.startswith(kind)}
        for kind in (GROWTH, LARGE, GPU)
    }
    growth, large, there = parts.values()
    items = {name: found for name, found in everything.items() if not any(name in each for each in parts.values())}
    some = next(iter(items.values()))
    lines = [
        "# How quick is it?",
        "",
        "Seconds on the clock, of default settings; the peer of fits and new labels is scikit-learn's `LabelSpreading`, which "
        "gives a point estimate and learns nothing of its prior, that of modes SciPy's `eigsh`, that of neighbors "
        "FAISS's inverted file, with as many cells, and that of steps and the plume the paper's algorithm in NumPy over all nodes; always in the "
        f"same run. Made by `python -m benchmarks.page` from what `python -m benchmarks` recorded, on {some['cores']} cores "
        f"({some['machine']}).",
        "",
        "| item | graphuq | peer | peer / graphuq | peak memory, GB |",
        "| --- | --- | --- | --- | --- |",
    ]
    columns = ("ours", "peer", "ratio", "peak_gb")
    lines += [f"| {name} | {' | '.join(shown(found[key]) for key in columns)} |" for name, found in items.items()]
    if growth:
        draw(growth)
        lines += [
            "",
            f"![Seconds against size on logarithmic axes](reproduction/{PICTURE.name})",
            "",
            "Exponents are those of the four largest sizes. " + " ".join(
                f"{name.capitalize()}, from {min(found['sizes']):,} to {max(found['sizes']):,}: "
                f"{found['exponent']:.2f}"
                + (f" (peer {found['peer_exponent']:.2f})." if found["peer_seconds"] else ".")
                for name, found in growth.items()
            ),
        ]  # fmt: skip
    if large:
        lines += told_of_large(large)
    if there:
        lines += told_of_gpu(there)
    lines += [
        "",
        "`python -m benchmarks` has more, each against a named peer: effective draws a second against NumPyro and "
        "BlackJAX, the spectrum against SciPy and PRIMME, the paper's algorithm over all nodes.",
    ]
    with whole_file(PAGE) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
