"""`GraphClassifier` and its parts: settings, what a table tells without labels, and the posterior given labels."""

from graphuq.estimator.classifier import GraphClassifier

__all__ = ["GraphClassifier"]
