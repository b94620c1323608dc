"""What a model may answer: mean, total, data, knowledge, log_prob."""

from solera.distributions.base import Prediction, SecondOrder, Targets
from solera.distributions.categorical import Categorical
from solera.distributions.dirichlet import Dirichlet
from solera.distributions.dirichlet_mixture import DirichletMixture
from solera.distributions.families import Family, family_named
from solera.distributions.gaussian import Gaussian
from solera.distributions.logistic_normal import LogisticNormal
from solera.distributions.mixture import Labelled, Mixture
from solera.distributions.normal_wishart import NormalWishart
from solera.distributions.sequence import SequencePrediction, aggregate
from solera.distributions.summary import Mean, Moments, Spread, TopK, summarize, summarize_top

__all__ = [
    "Categorical",
    "Dirichlet",
    "DirichletMixture",
    "Family",
    "Gaussian",
    "Labelled",
    "LogisticNormal",
    "Mean",
    "Mixture",
    "Moments",
    "NormalWishart",
    "Prediction",
    "SecondOrder",
    "SequencePrediction",
    "Spread",
    "Targets",
    "TopK",
    "aggregate",
    "family_named",
    "summarize",
    "summarize_top",
]
