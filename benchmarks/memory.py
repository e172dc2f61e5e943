"""Peak memory of the plume-shape run beyond its basis: 286,720 nodes, 50 modes, 8,000 labels, predictions included."""

import resource
import sys
import warnings

from sklearn.exceptions import ConvergenceWarning

from benchmarks import problems
from graphuq.inference.run import sample

LIMIT_GB = 1.5


def now_gb():
    """Resident memory now."""
    with open("/proc/self/status") as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return kilobytes / 2**20


def main() -> int:
    warnings.simplefilter("ignore", ConvergenceWarning)  # memory is measured here, not convergence
    problem = problems.plume()
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # forget the peak of making the data
    before = now_gb()
    from graphuq.inference.pcn import PCN

    posterior = sample(problem.prior, problem.model("probit"), PCN(), n_steps=2_000, thin=20, n_chains=16)
    posterior.labels()
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 2**20
    stored = posterior.z.nbytes / 2**20
    u_alone = 16 * 100 * problem.prior.n_nodes * 8 / 2**30
    print(
        f"basis and program {before:.2f} GB, peak {peak:.2f} GB: {peak - before:.2f} GB beyond (at most {LIMIT_GB})"
    )
    print(f"draws kept: {stored:.1f} MB; the same draws of u at all nodes would be {u_alone:.1f} GB")
    print(
        f"(getrusage peak of the whole process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB)"
    )
    return int(peak - before > LIMIT_GB)


if __name__ == "__main__":
    sys.exit(main())
