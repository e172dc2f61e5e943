"""The performance record: which rates count, and how the page shows them."""

from benchmarks.page import draws_section
from benchmarks.record import best_rates

FOUND = {"NumPyro NUTS": (300.0, 1.01), "BlackJAX": (900.0, 1.2), "Orthant": (6000.0, 1.0), "PCN": (9e4, 1.06)}
PEERS = ("NumPyro NUTS", "BlackJAX")


def test_only_converged_runs_count():
    assert best_rates(FOUND, PEERS) == (6000.0, 300.0)
    assert best_rates({"BlackJAX": FOUND["BlackJAX"], "Orthant": FOUND["Orthant"]}, PEERS) == (6000.0, 0.0)


def test_the_page_has_a_dash_for_what_did_not_converge_and_nothing_for_what_did_not_run():
    draws = {
        "effective draws, votes, probit": {"samplers": FOUND, "peers": PEERS, "ratio": 20.0},
        "effective draws, votes, level_set": {"samplers": {"PCN": (2.25, 1.0)}, "peers": PEERS, "ratio": None},
    }
    *_, heading, rule, probit, level_set = draws_section(draws)
    assert heading == "| posterior | ratio | NumPyro NUTS | BlackJAX | Orthant | PCN |"
    assert rule == "|" + " --- |" * 6
    assert probit == "| votes, probit | 20 | 300 | – | 6,000 | – |"
    assert level_set == "| votes, level-set | no peer converged |  |  |  | 2.2 |"
