"""`GraphClassifier`, and what it is made of: settings, what it has seen of a table, what it believes of the labels."""

from graphuq.estimator.classifier import GraphClassifier

__all__ = ["GraphClassifier"]
