"""A linear-chain conditional random field: the last layer of a tagger whose neighbouring tags depend on each other."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from solera.core.checks import require_labels
from solera.data.tag_scheme import Span, exact_span, forbidden_tags
from solera.nn.chain import FORBIDDEN, Chain, possible


class CRF(nn.Module):
    """P(y | x) ∝ exp(Σ_t emission_t(y_t) + Σ_t transition(y_{t−1}, y_t)), emissions being a tagger's logits.

    With `ends`, there are also scores for the first and the last tag. With the tags' `names` (BIO, BIOES or BILOU),
    what the names rule out (I-X after O) has probability 0, whatever the scores. A score of −∞ rules out as well.

    `mask` is true (or 1) where a token counts. Others are passed over as if they were not there, at the end of a row or
    within it (the later pieces of a word): transitions join the neighbours that count.
    """

    transitions: nn.Parameter  # [previous, next]
    forbidden_start: Tensor | None
    forbidden_transitions: Tensor
    forbidden_end: Tensor

    def __init__(self, tags: int, ends: bool = False, names: Sequence[str] | None = None) -> None:
        super().__init__()
        if tags < 1:
            raise ValueError(f"a CRF needs at least one tag, got {tags}")
        if names is not None and len(names) != tags:
            raise ValueError(f"there must be a name for each of {tags} tags, got {len(names)}: {', '.join(names)}")
        self.settings = {"tags": tags, "ends": ends, "names": None if names is None else list(names)}
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        self.start = nn.Parameter(torch.zeros(tags)) if ends else None
        self.end = nn.Parameter(torch.zeros(tags)) if ends else None
        forbidden = (None, None, None) if names is None else forbidden_tags(names)
        for name, values in zip(("start", "transitions", "end"), forbidden, strict=True):
            self.register_buffer(f"forbidden_{name}", values, persistent=False)  # the settings know them

    def forward(
        self, emissions: Float[Tensor, "B T K"], mask: Shaped[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T K"]:
        """What a tagger with a CRF answers: `log_marginals`, which are logits of independent tags."""
        return self.log_marginals(emissions, mask)

    def log_partition(
        self, emissions: Float[Tensor, "B T K"], mask: Shaped[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B"]:
        """ln Σ_y e^{score(y)} over all tag sequences; −∞ where none is allowed, 0 for a row without tokens."""
        chain, _ = self._chain(emissions, mask)
        return chain.log_partition.to(_precision(emissions))

    def log_marginals(
        self, emissions: Float[Tensor, "B T K"], mask: Shaped[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T K"]:
        """ln P(y_t = k); −∞ for a tag that cannot be. Where a token does not count: −ln K, the even distribution."""
        chain, places = self._chain(emissions, mask)
        return _placed(possible(chain.log_marginals), places).to(_precision(emissions))

    def marginals(
        self, emissions: Float[Tensor, "B T K"], mask: Shaped[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T K"]:
        """P(y_t = k) = ∂ln Z/∂emission_t(k), by forward–backward; 0 where a token does not count."""
        chain, places = self._chain(emissions, mask)
        return _placed(chain.marginals, places).to(_precision(emissions))

    def log_prob(
        self, emissions: Float[Tensor, "B T K"], tags: Int[Tensor, "B T"], mask: Shaped[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B"]:
        """ln P(y) = score(y) − ln Z of a whole sequence; −∞ if it is forbidden."""
        if mask is not None:
            tags = tags.masked_fill(~mask.bool(), 0)  # padding is often labelled −100
        require_labels("tags", tags, self.transitions.shape[0])
        chain, places = self._chain(emissions, mask)
        if places is not None:
            tags = tags.gather(1, places.argsort(-1))
        return _difference(chain.score(tags), chain.log_partition).to(_precision(emissions))

    def entropy(
        self, emissions: Float[Tensor, "B T K"], mask: Shaped[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B"]:
        """H = −Σ_y P(y) ln P(y), over whole sequences, in nats."""
        chain, _ = self._chain(emissions, mask)
        return chain.entropy.to(_precision(emissions))

    def decode(
        self, emissions: Float[Tensor, "B T K"], mask: Shaped[Tensor, "B T"] | None = None
    ) -> Int[Tensor, "B T"]:
        """The likeliest sequence (Viterbi); 0 where a token does not count."""
        chain, places = self._chain(emissions, mask)
        best = chain.best()
        return best if places is None else best.gather(1, places)

    def allowed_log_prob(
        self,
        emissions: Float[Tensor, "B T K"],
        allowed: Bool[Tensor, "B T K"],
        mask: Shaped[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B"]:
        """ln P(every token has one of the tags allowed for it): the sum over those sequences ÷ Z."""
        chain, _ = self._chain(emissions, mask)
        constrained, _ = self._chain(emissions.masked_fill(~allowed, -torch.inf), mask)
        return _difference(constrained.log_partition, chain.log_partition).to(_precision(emissions))

    def span_log_prob(
        self, emissions: Float[Tensor, "B T K"], spans: Sequence[Span], mask: Shaped[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "N"]:
        """ln P(exactly this entity stands there), of each span: these tokens, this type, neither longer nor shorter."""
        names = self.settings["names"]
        if names is None:
            raise ValueError("a CRF without names does not know which tags make an entity: pass CRF(tags, names=[...])")
        batch, _, _ = emissions.shape
        if wrong := [span for span in spans if not 0 <= span.row < batch]:
            raise ValueError(f"{wrong[0]} is not in a batch of {batch} rows: number them from 0")
        if not spans:
            return emissions.new_zeros(0)
        counted = torch.ones(emissions.shape[:2], dtype=torch.bool) if mask is None else mask.bool().cpu()
        allowed = torch.stack([exact_span(names, counted[span.row], span) for span in spans]).to(emissions.device)
        rows = torch.tensor([span.row for span in spans], device=emissions.device)
        return self.allowed_log_prob(emissions[rows], allowed, None if mask is None else mask[rows])

    def _chain(
        self, emissions: Float[Tensor, "B T K"], mask: Shaped[Tensor, "B T"] | None
    ) -> tuple[Chain, Int[Tensor, "B T"] | None]:
        """The scores with all that counts moved to the front of its row; and where each token went, if any moved."""
        self._check(emissions, mask)
        batch, tokens, _ = emissions.shape
        steps = torch.arange(tokens, device=emissions.device)
        places, lengths, scores = None, steps.new_full((batch,), tokens), emissions
        if mask is not None:
            counted = mask.bool()
            lengths, scores = counted.sum(-1), scores.masked_fill(~counted.unsqueeze(-1), 0.0)
            if torch.compiler.is_exporting() or (counted[:, 1:] & ~counted[:, :-1]).any():
                order = (steps + tokens * (~counted).long()).argsort(-1)
                places, scores = order.argsort(-1), scores.gather(1, order.unsqueeze(-1).expand_as(scores))
        scores = scores.double()
        ends, transitions = self._scores()
        if ends is not None:
            last = steps == (lengths - 1).unsqueeze(-1)
            where = torch.stack([(steps == 0).expand_as(last), last], -1).double()
            scores = torch.addmm(scores.flatten(0, 1), where.flatten(0, 1), ends).view_as(scores)
        return Chain(scores, transitions, lengths), places

    def _scores(self) -> tuple[Float[Tensor, "two K"] | None, Float[Tensor, "K K"]]:
        """Scores of the first and the last tag, if there are any, and transitions: float64, with what is forbidden."""
        transitions, ends = self.transitions.double(), None
        if self.start is not None and self.end is not None:
            ends = torch.stack([self.start, self.end]).double()
        if self.forbidden_start is not None:
            transitions = transitions.masked_fill(self.forbidden_transitions, -torch.inf)
            ends = torch.zeros_like(transitions[:1]).expand(2, -1) if ends is None else ends
            ends = ends.masked_fill(torch.stack([self.forbidden_start, self.forbidden_end]), FORBIDDEN)
        return None if ends is None else ends.clamp(min=FORBIDDEN), transitions  # finite: they are multiplied by 0

    def _check(self, emissions: Tensor, mask: Tensor | None) -> None:
        tags = self.transitions.shape[0]
        if emissions.shape[-1] != tags:
            raise ValueError(
                f"emissions have {emissions.shape[-1]} tags, the CRF has {tags}: the last axis holds the tags"
            )
        if not emissions.shape[1]:
            raise ValueError("emissions must have at least one token per row, got none: drop empty batches")
        if mask is not None and mask.shape != emissions.shape[:2]:
            raise ValueError(f"a mask of shape {tuple(mask.shape)} does not fit emissions {tuple(emissions.shape)}")


def _precision(emissions: Tensor) -> torch.dtype:
    return torch.promote_types(emissions.dtype, torch.float32)


def _placed(values: Float[Tensor, "B T K"], places: Int[Tensor, "B T"] | None) -> Float[Tensor, "B T K"]:
    return values if places is None else values.gather(1, places.unsqueeze(-1).expand_as(values))


def _difference(part: Float[Tensor, "B"], whole: Float[Tensor, "B"]) -> Float[Tensor, "B"]:
    """ln(part ÷ whole), at most 0; −∞ where the part is impossible, be the whole so too."""
    return (part - whole).masked_fill(part == -torch.inf, -torch.inf).clamp(max=0.0)
