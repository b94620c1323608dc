"""Whether the student's last layer goes inside the loss, so that no logits are held."""

import torch
from torch import Tensor, nn

from solera.data import Batch, tensors_in
from solera.methods.base import Method
from solera.methods.fused_head import fused_head
from solera.nn.last_layer import Unfinished, last_linear
from solera.tasks import Task
from solera.teachers.base import Teacher
from solera.training.engine import precision_named
from solera.training.settings import Training

PRODUCT_DTYPES = {"32-true": None, "64-true": None, "bf16-mixed": torch.bfloat16}  # None: that of the loss
MANY = 1 << 24  # logits of a batch (64 MB): below that they are little beside the rest, and one product is faster


def _too_few(student: nn.Module, batch: Batch) -> bool:
    """By a bound that costs nothing: a batch has no more rows than numbers."""
    widest = max((layer.out_features for layer in student.modules() if isinstance(layer, nn.Linear)), default=0)
    return widest * max(tensor.numel() for tensor in tensors_in(batch.inputs)) < MANY


def _labels_differ(student: nn.Module, method: Method, task: Task, training: Training) -> str:
    """Why the labels' part of the loss is not −ln softmax(z)_y; nothing: it is."""
    if not training.label_share:
        return ""
    if not task.one_class or not method.softmax:
        return f"the labels' part of the loss of {type(method).__name__} is not the softmax's"
    own = [name for name in ("label_loss", "helper_loss") if hasattr(student, name)]
    return f"{type(student).__name__} has a likelihood of labels of its own ({own[0]})" if own else ""


def head_to_fuse(
    student: nn.Module, method: Method, task: Task, teacher: Teacher, batch: Batch, training: Training
) -> nn.Linear | None:
    """The student's last layer, if `training.fused_head` wants it inside the loss and that gives the same numbers.

    Decided by the first batch and the settings alone: a run that was killed decides as before.
    """
    wanted = training.fused_head
    if wanted is False or (wanted == "auto" and _too_few(student, batch)):
        return None
    why = _labels_differ(student, method, task, training)
    precision = precision_named(training.precision, training.device)
    if not why and precision not in PRODUCT_DTYPES:
        why = f"its gradients are made before {precision} scales them, and float16 would lose the small ones"
    device = next((p.device for p in student.parameters()), torch.device("cpu"))
    with torch.no_grad():
        layer, output = last_linear(student, batch.to(device).inputs)
        if not why and layer is None:
            why = f"the output of this {type(student).__name__} is not that of a linear layer"
        if not why and method.kernel(teacher(batch), output.shape[-1]) is None:
            why = f"{type(method).__name__} has no kernel"
    if wanted is True and why:
        raise ValueError(f"fused_head=True, but {why}: pass fused_head='auto' or False")
    return None if why or (wanted == "auto" and output.numel() < MANY) else layer


def fused_loss(
    output: Unfinished, teacher: Teacher, method: Method, task: Task, batch: Batch, training: Training
) -> Tensor:
    """The loss of each element, with this share of the labels' mixed in where there are labels."""
    with torch.no_grad():
        targets = teacher(batch)
    shape = output.hidden.shape[:-1]
    labels = share = None
    if training.label_share and batch.target is not None:
        labels = task.filled(batch.target)
        share = training.label_share * task.labelled(batch, len(shape)).to(output.hidden.dtype)
    mixed = PRODUCT_DTYPES[precision_named(training.precision, training.device)]
    product_dtype = mixed if torch.is_grad_enabled() else None  # held-out examples are asked without autocast
    return fused_head(
        output.hidden,
        output.layer.weight,
        output.layer.bias,
        targets,
        method,
        labels=labels,
        label_share=share,
        label_smoothing=training.label_smoothing,
        importance=None if batch.weight is None else batch.weight.expand(shape),
        product_dtype=product_dtype,
    )
