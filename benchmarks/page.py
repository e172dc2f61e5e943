"""docs/performance.md and its picture from docs/reproduction/performance.json: `python -m benchmarks.page`."""

from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.record import CONVERGED, DRAWS, PATH, read
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
    n_rows = -(-len(growth) // 2)
    figure, axes = plt.subplots(n_rows, 2, figsize=(8, 3.2 * n_rows), layout="constrained", squeeze=False)
    for axis in axes.flat[len(growth) :]:
        axis.axis("off")
    for axis, (name, found) in zip(axes.flat, growth.items(), strict=False):
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


def draws_section(draws):
    """Samplers and peers, by effective draws a second."""
    peers = list(dict.fromkeys(label for found in draws.values() for label in found["peers"]))
    ours = list(dict.fromkeys(label for found in draws.values() for label in found["samplers"]))
    columns = peers + [label for label in ours if label not in peers]
    lines = [
        "",
        "## Effective draws per second",
        "",
        "How many independent draws of the posterior does a second of sampling give? The table has the bulk effective sample size "
        "of the worst of 20 watched nodes (ten with a label), per second, without compilation and warm-up. The peers are NumPyro's "
        "NUTS and BlackJAX's elliptical slice sampler on the same posterior, written as their users would, with whitened spectral "
        "coefficients. All others are ours: `sample` uses `Orthant`, and `Referenced(PCN())` for the plume's many labels of probit "
        f"on few modes. A dash means that the chains did not converge (an R-hat of {CONVERGED:g} or more) in the time given, and an "
        "empty cell that the sampler does not apply, or was not run for ten digits: level-set has no gradient for "
        "NUTS, and `Refractive` (`experiments/refractive.py`) is for level-set alone. The ratio is the best of ours over the best "
        "peer. The posteriors are those of `benchmarks/problems.py`, and ten digits with five labels each "
        "(`python -m benchmarks effective_draws many_classes`).",
        "",
        f"| posterior | ratio | {' | '.join(columns)} |",
        "|" + " --- |" * (len(columns) + 2),
    ]
    for name, found in draws.items():
        cells = []
        for label in columns:
            rate, r_hat = found["samplers"].get(label, (None, None))
            cells.append("" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}")
            if r_hat is not None and not r_hat < CONVERGED:
                cells[-1] = "–"
        best = "no peer converged" if found["ratio"] is None else f"{found['ratio']:,.0f}"
        lines.append(f"| {name.removeprefix(DRAWS).replace('_', '-')} | {best} | {' | '.join(cells)} |")
    return lines


def large_section(large):
    """Features on disk, under a cap on memory."""
    lines = [
        "",
        "## Larger than memory",
        "",
        "Here the features are in a file. Fitting and predicting ran under a memory limit enforced by the kernel (`python -m "
        "benchmarks.large`). For comparison, the same run also timed one read of the file and the matrix products of the "
        "computation alone. Peak memory is the memory of the process itself, without cached pages of the file. CPU seconds do not "
        "depend on what else the machine is doing, but wall-clock seconds do; the load is that of other programs at the start.",
        "",
        "| features | memory limit, GB | peak, GB | seconds | one read, seconds | Tflop | products alone, seconds | CPU seconds | "
        "products alone, CPU seconds | CPU seconds / products alone | load | accuracy |",
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


def gpu_section(there):
    """What an accelerator brings."""
    lines = [
        "",
        "## On a GPU",
        "",
        "If JAX finds a GPU, these parts run on it without any change to your code: eigenvectors of large sparse graphs, chains, "
        "expectation propagation with many labels, and the probabilities of many rows and classes. The rest of a fit runs on the "
        "CPU. The table compares an NVIDIA H200 with two CPU cores of the same machine (`python -m benchmarks.gpu`). The first fit "
        "of its kind in a process also compiles code; to keep compiled code between processes, set the environment variable "
        "`JAX_COMPILATION_CACHE_DIR` to a folder.",
        "",
        "| item | seconds | first time, seconds | two cores, seconds | ratio |",
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
                "For Ginzburg-Landau, Phi over all nodes is a polynomial of the few coordinates, so a step computes that polynomial "
                f"instead of u. A step that visits every node takes {1e6 * found['over_nodes']:.0f} us on the GPU instead of "
                f"{1e6 * found['ours']:.0f} us; it moves {found['terabytes']:.2f} TB per second, {share:.0%} of the rate of a plain copy.",
            ]
    return lines


def main() -> int:
    everything = read()
    parts = {
        kind: {name: found for name, found in everything.items() if name.startswith(kind)}
        for kind in (GROWTH, DRAWS, LARGE, GPU)
    }
    growth, draws, large, there = parts.values()
    items = {name: found for name, found in everything.items() if not any(name in each for each in parts.values())}
    some = next(iter(items.values()))
    lines = [
        "# How fast is it?",
        "",
        "The table gives wall-clock seconds with default settings, and those of a peer: another tool for the same task, timed in "
        "the same run. A ratio above 1 means that graphuq is faster.",
        "",
        "The peers are:",
        "",
        "- for fits and new labels, scikit-learn's `LabelSpreading`, which gives a point estimate and learns no hyper-parameters;",
        "- for modes (eigenvectors of the graph Laplacian), SciPy's `eigsh`;",
        "- for neighbors, an inverted-file index of FAISS with the same number of cells;",
        "- for steps of chains and the plume, the paper's algorithm in NumPy over all nodes.",
        "",
        '"Answer to moved map" is the time from an answer in `graphuq label` until the map in the browser has been redrawn. '
        f"The times were measured by `python -m benchmarks` on {some['cores']} cores ({some['machine']}); "
        "`python -m benchmarks.page` writes this page from its records.",
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
            "If time grows as a power of the size, the exponent is the slope of a line on these axes; it is taken from the four "
            "largest sizes. " + " ".join(
                f"{name.capitalize()}, from {min(found['sizes']):,} to {max(found['sizes']):,}: "
                f"{found['exponent']:.2f}"
                + (f" (peer {found['peer_exponent']:.2f})." if found["peer_seconds"] else ".")
                for name, found in growth.items()
            ),
        ]  # fmt: skip
    if draws:
        lines += draws_section(draws)
    if large:
        lines += large_section(large)
    if there:
        lines += gpu_section(there)
    lines += [
        "",
        "`python -m benchmarks` runs more comparisons: the spectrum with SciPy and PRIMME, and the paper's algorithm over all nodes.",
    ]
    with whole_file(PAGE) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
