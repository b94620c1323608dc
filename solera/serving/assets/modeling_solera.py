"""A classifier distilled from an ensemble: its logits are ln α of a Dirichlet over the class probabilities.

softmax(logits) is the Dirichlet's mean, the probabilities to use; logsumexp(logits) is ln α₀, how much the model has
seen of the like. Knowledge uncertainty is total − data:

    a = logits.double().exp(); p = a / a.sum(-1, keepdim=True)
    total = -(p * p.log()).sum(-1)
    data = (p * (torch.digamma(a.sum(-1, keepdim=True) + 1) - torch.digamma(a + 1))).sum(-1)
"""

from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig as StockConfig
from transformers import BertForTokenClassification as StockModel


def log_concentration(
    z: Tensor,
    offset: float,
    mean_temperature: float,
    mean_offset: float,
    precision_slope: float,
    precision_shift: float,
) -> Tensor:
    """ln α: of α = e^z + offset, or, without an offset, of mean ∝ e^{z/T} + d and ln α₀ = a·lse(z) + b."""
    z = z.float()
    if offset:
        return torch.logaddexp(z, z.new_tensor(offset).log())
    mean = z / mean_temperature
    if mean_offset:
        mean = torch.logaddexp(mean, mean.new_tensor(mean_offset).log())
    return mean.log_softmax(-1) + precision_slope * z.logsumexp(-1, keepdim=True) + precision_shift


class SoleraConfig(StockConfig):
    """That of the network, and under `solera` what its outputs mean."""

    model_type = "solera_bert"


class BertForTokenClassification(StockModel):
    """The network as it was trained, with ln α for logits."""

    config_class = SoleraConfig

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the stock class, always with a named answer."""
        answer: Any = super().forward(*args, **{**kwargs, "return_dict": True})
        answer.logits = log_concentration(answer.logits, **self.config.solera)
        return answer
