"""Entities in a batch of tag probabilities: where they stand, how sure they are, and which of them are right.

Everything is one number per token, at the first token of an entity, so that evaluation can stream and resample it.
Confidence is P(exactly this entity), its tokens and its type: Π_t Σ_{k allowed} p_t(k) over its tokens, whose tags are
given, and the token after it, which must not go on with it: the product of marginals of independent tags.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from solera.data import Span, Tags
from solera.data.tag_scheme import split_tags
from solera.nn import CRF

Counted = Bool[Tensor, "B T"]


class Spans(NamedTuple):
    """Entities by the place of their first token `[B, T]`."""

    starts: Bool[Tensor, "B T"]
    stop: Int[Tensor, "B T"]  # the place after the entity that a token belongs to
    kind: Int[Tensor, "B T"]  # its type, by number; −1 outside

    def listed(self, tags: Tags) -> list[Span]:
        """Them all, row by row."""
        rows, places = self.starts.nonzero(as_tuple=True)
        stops, kinds = self.stop[rows, places], self.kind[rows, places]
        columns = (rows.tolist(), places.tolist(), stops.tolist(), (tags.types[k] for k in kinds.tolist()))
        return [Span(*span) for span in zip(*columns, strict=True)]


@lru_cache(maxsize=16)
def _facts(tags: Tags) -> tuple[Tensor, Tensor, Tensor, Tensor, CRF]:
    """Of each tag whether it begins, goes on with or leaves open an entity, and its type; and what decodes them."""
    parts = split_tags(tags.names)
    begins = torch.tensor([prefix in "BS" for prefix, _ in parts])
    inside = torch.tensor([prefix in "IE" for prefix, _ in parts])
    leaves_open = torch.tensor([prefix in "BI" for prefix, _ in parts])
    kinds = torch.tensor([tags.types.index(kind) if kind else -1 for _, kind in parts])
    return begins, inside, leaves_open, kinds, CRF(len(tags), names=tags.names).requires_grad_(False)


def compressed(counted: Counted) -> Int[Tensor, "B T"]:
    """The order in which the tokens that count come first, in their own order."""
    steps = torch.arange(counted.shape[1], device=counted.device)
    return (steps + counted.shape[1] * (~counted).long()).argsort(-1)


def decoded(mean: Float[Tensor, "B T K"], counted: Counted, tags: Tags) -> Int[Tensor, "B T"]:
    """The likeliest tags that make up whole entities (Viterbi): no I-X after O; O where nothing counts."""
    *_, viterbi = _facts(tags)
    best = viterbi.decode(mean.cpu().double().log(), counted.cpu())
    return best.masked_fill(~counted.cpu(), tags.names.index("O"))


def spans_of(numbers: Int[Tensor, "B T"], tags: Tags) -> Spans:
    """The entities of tags (by number) without gaps; I-X that follows no X begins one, as conlleval reads it."""
    begins, inside, leaves_open, kinds, _ = _facts(tags)
    kind = kinds[numbers]
    before = torch.nn.functional.pad(numbers, (1, 0), value=tags.names.index("O"))[:, :-1]
    goes_on = inside[numbers] & leaves_open[before] & (kinds[before] == kind)
    starts = (begins | inside)[numbers] & ~goes_on
    size = numbers.shape[1]
    last = ~torch.nn.functional.pad(goes_on, (0, 1))[:, 1:]
    places = torch.where(last, torch.arange(1, size + 1), size + 1)
    stop = places.flip(1).cummin(1).values.flip(1)
    return Spans(starts, stop, kind)


def _log_confidence(
    mean: Float[Tensor, "B T K"], numbers: Int[Tensor, "B T"], found: Spans, tags: Tags
) -> Float[Tensor, "B T"]:
    """ln P(exactly the entity that begins here), of rows without gaps whose padding is O with certainty."""
    _, inside, _, kinds, _ = _facts(tags)
    own = mean.gather(-1, numbers.unsqueeze(-1)).squeeze(-1).log()
    impossible = own == -torch.inf  # counted apart: −∞ in a running sum would make NaN of all that follows

    def within(values: Tensor) -> Tensor:
        """Σ over the entity."""
        before = torch.nn.functional.pad(values.cumsum(-1), (1, 0))
        return before.gather(1, found.stop) - before[:, :-1]

    goes_on = torch.stack([mean[..., inside & (kinds == kind)].sum(-1) for kind in range(len(tags.types))], -1)
    after = found.stop.clamp(max=mean.shape[1] - 1)
    next_goes_on = goes_on.gather(1, after.unsqueeze(-1).expand_as(goes_on))
    next_goes_on = next_goes_on.gather(-1, found.kind.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    next_goes_on = next_goes_on.masked_fill(found.stop >= mean.shape[1], 0.0)
    inner = within(own.masked_fill(impossible, 0.0)).masked_fill(within(impossible.long()) > 0, -torch.inf)
    return inner + torch.log1p(-next_goes_on.clamp(max=1))


def _over_entity(values: Float[Tensor, "B T"], stop: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The mean from each token to the end of its entity."""
    sums = torch.nn.functional.pad(values.double().cumsum(-1), (1, 0))
    return (sums.gather(1, stop) - sums[:, :-1]) / (stop - torch.arange(values.shape[1]))


def entity_columns(
    mean: Float[Tensor, "B T K"],
    uncertainties: dict[str, Float[Tensor, "B T"]],
    counted: Counted,
    tags: Tags,
    target: Int[Tensor, "B T"] | None,
) -> dict[str, Tensor]:
    """`predicted` tags; `entity`: one begins here, with its `entity_confidence` and mean uncertainties, else 0.

    With a target: `gold`, a true entity begins here, and `entity_correct`, the predicted one is a true one.
    """
    mean, counted = mean.detach().cpu().double(), counted.cpu()
    outside = tags.names.index("O")
    order = compressed(counted)
    places = order.argsort(-1)
    numbers = decoded(mean, counted, tags)

    def front(values: Tensor) -> Tensor:
        return values.cpu().gather(1, order)

    packed, there = front(numbers), front(counted)
    certain = torch.nn.functional.one_hot(torch.tensor(outside), mean.shape[-1]).double()
    p = torch.where(there.unsqueeze(-1), mean.gather(1, order.unsqueeze(-1).expand_as(mean)), certain)
    found = spans_of(packed, tags)
    columns = {"entity": found.starts, "entity_confidence": _log_confidence(p, packed, found, tags).exp()}
    columns |= {f"entity_{name}": _over_entity(front(values), found.stop) for name, values in uncertainties.items()}
    columns = {key: column.masked_fill(~found.starts, 0) for key, column in columns.items()}
    if target is not None:
        true = spans_of(front(target).masked_fill(~there, outside), tags)
        same = (found.stop == true.stop) & (found.kind == true.kind)
        columns |= {"gold": true.starts, "entity_correct": found.starts & true.starts & same}
    return {"predicted": numbers} | {key: column.gather(1, places) for key, column in columns.items()}


def type_probabilities(mean: Float[Tensor, "*batch K"], tags: Tags) -> Float[Tensor, "*batch types"]:
    """P(a token belongs to an entity of this type): the sum over its tags."""
    *_, kinds, _ = _facts(tags)
    return torch.stack([mean[..., kinds == kind].sum(-1) for kind in range(len(tags.types))], -1)


def types_of(numbers: Int[Tensor, "*batch"], tags: Tags) -> Int[Tensor, "*batch"]:
    """The type of each tag, by number; −1 for O."""
    return _facts(tags)[3][numbers]
