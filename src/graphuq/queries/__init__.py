"""A posterior in; the most informative rows to label next, and the expected benefit of more labels, out."""

from graphuq.queries.choosing import LEARN_AGAIN, STRATEGIES, ExpectedGain, expected_gain, next_queries
from graphuq.queries.spreading import spread

__all__ = ["LEARN_AGAIN", "STRATEGIES", "ExpectedGain", "expected_gain", "next_queries", "spread"]
