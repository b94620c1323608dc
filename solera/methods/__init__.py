"""One file per method: the pure loss on top, a frozen dataclass below."""

from solera.methods.ae_kd import AEKD, ae_kd_loss, ae_kd_weights
from solera.methods.base import Method
from solera.methods.batch_ensemble import BatchEnsemble, batch_ensemble_loss
from solera.methods.dirichlet_mixture import DirichletMixture, dirichlet_mixture_loss
from solera.methods.end import EnD, end_loss
from solera.methods.end2 import EnD2, end2_loss
from solera.methods.fused_head import fused_head
from solera.methods.hydra import Hydra, gaussian_hydra_loss, hydra_loss
from solera.methods.latent_be import LatentBE, latent_be_loss
from solera.methods.logistic_normal import LogisticNormal, logistic_normal_loss
from solera.methods.normal_wishart import NormalWishart, normal_wishart_loss
from solera.methods.prior_network import PriorNetwork, prior_network_loss
from solera.methods.proxy_dirichlet import ProxyDirichlet, proxy_dirichlet_loss, proxy_precision

__all__ = [
    "AEKD",
    "BatchEnsemble",
    "DirichletMixture",
    "EnD",
    "EnD2",
    "Hydra",
    "LatentBE",
    "LogisticNormal",
    "Method",
    "NormalWishart",
    "PriorNetwork",
    "ProxyDirichlet",
    "ae_kd_loss",
    "ae_kd_weights",
    "batch_ensemble_loss",
    "dirichlet_mixture_loss",
    "end2_loss",
    "end_loss",
    "fused_head",
    "gaussian_hydra_loss",
    "hydra_loss",
    "latent_be_loss",
    "logistic_normal_loss",
    "normal_wishart_loss",
    "prior_network_loss",
    "proxy_dirichlet_loss",
    "proxy_precision",
]
