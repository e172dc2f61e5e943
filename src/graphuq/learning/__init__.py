"""A spectrum and labels in; hyper-parameters learned from the labels and a posterior averaged over them out."""

from graphuq.learning.hyperprior import Hyperparameters, Hyperprior, LogNormal
from graphuq.learning.learned import Learned, learn

__all__ = ["Hyperparameters", "Hyperprior", "Learned", "LogNormal", "learn"]
