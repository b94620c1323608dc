"""Teachers that are not torch modules."""

import sys
from pathlib import Path
from typing import Any

from torch import nn

from solera.teachers.adapters.arrays import Predictions
from solera.teachers.adapters.base import Adapter
from solera.teachers.adapters.callables import Function
from solera.teachers.adapters.forecasts import Forecasts
from solera.teachers.adapters.huggingface import SequenceClassifier, TokenClassifier, adapt_transformer
from solera.teachers.adapters.onnx import Onnx
from solera.teachers.adapters.pieces import word_pieces
from solera.teachers.adapters.sklearn import Estimator, Regressor

__all__ = [
    "Adapter",
    "Estimator",
    "Forecasts",
    "Function",
    "Onnx",
    "Predictions",
    "Regressor",
    "SequenceClassifier",
    "TokenClassifier",
    "adapt",
    "is_model",
    "word_pieces",
]

ACCEPTED = (
    "a torch module that gives logits, a Hugging Face classifier of sequences or tokens, a fitted estimator with "
    "predict_proba or predict (scikit-learn, LightGBM, XGBoost), the path of an .onnx file, or a function of the "
    "inputs that gives logits"
)


def _is_transformer(model: Any) -> bool:
    transformers = sys.modules.get("transformers")  # whoever has such a model has imported it
    return transformers is not None and isinstance(model, transformers.PreTrainedModel)


def writes_text(model: Any) -> bool:
    """Whether it is a Hugging Face model of the next token: seq2seq or causal. Such a module answers for itself."""
    return _is_transformer(model) and model.can_generate()


def is_model(model: Any) -> bool:
    """Whether `adapt` can make something of it."""
    if isinstance(model, (str, Path)):
        return str(model).endswith(".onnx")
    fitted = hasattr(model, "predict_proba") or hasattr(model, "predict")
    return not isinstance(model, type) and (fitted or callable(model))


def adapt(model: Any) -> nn.Module:
    """Any model as a torch module that gives logits or log-probabilities `[*batch, K]`, or means `[*batch, D]`."""
    if isinstance(model, type):
        raise TypeError(f"{model.__name__} is a class, not a model: pass a fitted instance")
    if not is_model(model):
        remedy = ": for predictions in files or arrays there is solera.teachers.adapters.Predictions"
        given = repr(str(model)) if isinstance(model, (str, Path)) else f"a {type(model).__name__}"
        raise TypeError(f"{given} is not a model; a member is {ACCEPTED}{remedy}")
    if _is_transformer(model) and not writes_text(model):
        return adapt_transformer(model)
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, (str, Path)):
        return Onnx(model)
    if hasattr(model, "predict_proba"):
        return Estimator(model)
    if hasattr(model, "predict"):
        return Regressor(model)
    return Function(model, probabilities=False)
