"""From torch.export's program to an ONNX model, exact where the usual translations are not."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from solera.serving.trace import axes_of

_INT64, _FLOAT64, _FLOATS = 7, 11, (1, 10, 11, 16)  # ONNX's numbers of types: float32, float16, float64, bfloat16


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """ONNX has no log1p, expm1 or logaddexp; as ln(1 + x), eˣ − 1 and ln(eˣ + eʸ) they lose what is small, or overflow.

    With u = fl(1 + x), ln(1 + x) = ln u + (x − (u − 1))/u to the last digit; eˣ − 1 is taken in float64. So are sums:
    onnxruntime adds float32 numbers one after the other, and is off by 4e-6 after a thousand classes.
    """
    from onnxscript import opset18

    op: Any = opset18

    def log1p(x: Any) -> Any:
        one = op.CastLike(1.0, x)
        more = op.Add(x, one)
        exact = op.Add(op.Log(more), op.Div(op.Sub(x, op.Sub(more, one)), more))
        return op.Where(op.Less(op.Abs(x), op.CastLike(0.5, x)), exact, op.Log(more))

    def expm1(x: Any) -> Any:
        return op.CastLike(op.Sub(op.Exp(op.Cast(x, to=_FLOAT64)), op.Cast(1.0, to=_FLOAT64)), x)

    def logaddexp(x: Any, y: Any) -> Any:
        smaller = log1p(op.Exp(op.Neg(op.Abs(op.Sub(x, y)))))
        apart = op.Add(op.Max(x, y), smaller)
        return op.Where(op.Equal(x, y), op.Add(x, op.CastLike(float(np.log(2)), x)), apart)

    def added(x: Any, dim: Any = None, keepdim: bool = False, dtype: int = -1) -> Any:
        kind = x.dtype if dtype in (-1, None) else dtype
        kind = kind if kind in _FLOATS else _INT64  # torch adds truth values and small integers as large ones
        wide = op.Cast(x, to=_FLOAT64 if kind in _FLOATS else _INT64)
        axes = [op.Constant(value_ints=dim)] if dim else []
        return op.Cast(op.ReduceSum(wide, *axes, keepdims=keepdim), to=kind)

    aten = torch.ops.aten
    return {
        aten.log1p.default: log1p,
        aten.expm1.default: expm1,
        aten.logaddexp.default: logaddexp,
        aten.sum.dim_IntList: added,
    }


def to_onnx(
    program: torch.export.ExportedProgram,
    names: Sequence[str],
    outputs: Sequence[str],
    named: Sequence[tuple[int | str, ...]] | None = None,
) -> Any:
    """The model, its inputs, outputs and free axes named; without the paths of source files that torch writes down.

    `named` are the axes of every input, where they are not `axes_of` the program: those that are free by name.
    """
    made = torch.onnx.export(
        program, input_names=list(names), dynamo=True, verbose=False, custom_translation_table=_translations()
    )
    assert made is not None
    graph = made.model.graph
    assert len({id(value) for value in graph.outputs}) == len(outputs)
    for node in graph.all_nodes():  # values inside that have the name of an output by chance
        for value in node.outputs:
            if value.name in (*names, *outputs):
                value.name = f"{value.name}_inside"
    for value, name in zip(graph.outputs, outputs, strict=True):
        value.name = name
    model = made.model_proto
    free = {}
    for value, axes in zip(model.graph.input, named or axes_of(program), strict=True):
        pairs = zip(value.type.tensor_type.shape.dim, axes, strict=True)
        free |= {dim.dim_param: axis for dim, axis in pairs if isinstance(axis, str)}
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in free:
                dim.dim_param = free[dim.dim_param]
        value.ClearField("metadata_props")
    for node in model.graph.node:
        node.ClearField("metadata_props")
    for part in ("value_info", "metadata_props"):
        model.graph.ClearField(part)
    return model
