"""Speech to text: log-mel features, two strided convolutions, and an encoder–decoder on top."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import ctc_loss, pad

from solera.data.batch import UNLABELLED, Batch
from solera.nn.attention import Encoder, sinusoids
from solera.nn.transformer import EncoderDecoder

FLOOR = 1e-10  # the least energy there is: digital silence has a logarithm, too
RANGE = 8 * math.log(10)  # 80 dB: what is quieter than that below the loudest is heard as that quiet


def mel_filters(frequencies: int, mels: int, rate: int) -> Float[Tensor, "F mels"]:
    """Triangles whose corners lie evenly on the mel scale, 2595·log10(1 + f/700), from 0 to half the rate.

    `frequencies` are those of a Fourier transform, evenly from 0 to half the rate.
    """
    top = 2595 * math.log10(1 + rate / 2 / 700)
    corners = 700 * (10 ** (torch.linspace(0, top, mels + 2, dtype=torch.double) / 2595) - 1)
    at = torch.linspace(0, rate / 2, frequencies, dtype=torch.double).unsqueeze(-1)
    rising = (at - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - at) / (corners[2:] - corners[1:-1])
    return torch.minimum(rising, falling).clamp(min=0).float()


class LogMel(nn.Module):
    """The logarithm of the energy in each mel band, every 20 ms in a Hann window of 32 ms; whole windows alone count.

    `scaled` brings it to [−1, 1], the loudest of a recording to 1: how loud a recording is changes nothing.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, rate: int, mels: int) -> None:
        super().__init__()
        self.size, self.hop = round(0.032 * rate), round(0.020 * rate)
        self.register_buffer("window", torch.hann_window(self.size), persistent=False)
        self.register_buffer("filters", mel_filters(self.size // 2 + 1, mels, rate), persistent=False)

    def forward(
        self, audio: Float[Tensor, "B S"], samples: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B T mels"], Bool[Tensor, "B T"]]:
        """ln(energy), and where it is of the recording's own `samples`; a shorter one than a window gets one frame."""
        audio = pad(audio, (0, max(0, self.size - audio.shape[1])))
        frames = audio.unfold(-1, self.size, self.hop) * self.window
        energy = torch.fft.rfft(frames).abs().square()
        counts = (samples - self.size).clamp(min=0) // self.hop + 1
        there = torch.arange(frames.shape[1], device=audio.device) < counts.unsqueeze(-1)
        return (energy @ self.filters).clamp(min=FLOOR).log(), there

    @staticmethod
    def scaled(features: Float[Tensor, "B T mels"], there: Bool[Tensor, "B T"]) -> Float[Tensor, "B T mels"]:
        """1 + 2·(x − loudest)/80 dB, at least −1; 0 where there is nothing."""
        loudest = features.masked_fill(~there.unsqueeze(-1), -math.inf).amax((1, 2), keepdim=True)
        return (1 + 2 * (features - loudest) / RANGE).clamp(min=-1) * there.unsqueeze(-1)


class Recogniser(EncoderDecoder):
    """Audio of `rate` samples a second to text.

    Inputs: `audio`, `[B, S]` padded, `samples`, `[B, 1]` of each that are no padding, and `decoder_input_ids`.
    Forty log-mel features every 20 ms, two convolutions of stride 2 (one place every 80 ms), then a transformer. With
    `ctc` > 0 its training on labels has a helper: that much of a CTC loss of the encoder, which teaches it the order
    of the tokens (Watanabe et al., 2017); it is part of no prediction.
    """

    def __init__(
        self,
        vocabulary: int,
        rate: int = 8000,
        mels: int = 40,
        width: int = 96,
        encoder: int = 2,
        decoder: int = 1,
        heads: int = 4,
        inner: int = 320,
        dropout: float = 0.1,
        ctc: float = 0.3,
    ) -> None:
        super().__init__(
            Encoder(width, encoder, heads, inner, dropout), vocabulary, width, decoder, heads, inner, dropout
        )
        self.rate, self.ctc = rate, ctc
        self.listen = LogMel(rate, mels)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(inputs, width, kernel_size=3, stride=2, padding=1) for inputs in (mels, width)
        )
        self.aligned = nn.Linear(width, vocabulary + 1) if ctc else None  # the last class is CTC's blank
        self._asked: tuple[Any, Tensor, Tensor] | None = None  # the last inputs, and what the encoder said of them
        self.settings: dict[str, Any] = {
            "vocabulary": vocabulary,
            "rate": rate,
            "mels": mels,
            "width": width,
            "encoder": encoder,
            "decoder": decoder,
            "heads": heads,
            "inner": inner,
            "dropout": dropout,
            "ctc": ctc,
        }

    def encode(self, inputs: Mapping[str, Tensor]) -> tuple[Float[Tensor, "B S W"], Shaped[Tensor, "B S"]]:
        features, there = self.listen(inputs["audio"], inputs["samples"].reshape(-1))
        x = self.listen.scaled(features, there)
        for convolution in self.convolutions:
            x, there = convolution(x.transpose(1, 2)).relu().transpose(1, 2), there[:, ::2]
            x = x * there.unsqueeze(-1)  # as the zeros beyond a recording's end: padding changes nothing
        memory = self.encoder(self.dropout(x + sinusoids(0, x)), there)
        if self.training and self.aligned is not None:
            self._asked = inputs, memory, there
        return memory, there

    def helper_loss(self, batch: Batch) -> Float[Tensor, "B T"] | None:
        """`ctc` · −ln P(y) by CTC of each sequence but its end, in even parts for its labelled tokens; None without."""
        if self.aligned is None or batch.target is None:
            return None
        asked, self._asked = self._asked, None
        memory, there = asked[1:] if asked is not None and asked[0] is batch.inputs else self.encode(batch.inputs)
        known = batch.target != UNLABELLED
        log_probs = self.aligned(memory).log_softmax(-1).transpose(0, 1)
        tokens, counts = batch.target.clamp(min=0), known.sum(-1)
        whole = ctc_loss(
            log_probs, tokens, there.sum(-1), (counts - 1).clamp(min=0), self.aligned.out_features - 1,
            reduction="none", zero_infinity=True,
        )  # fmt: skip
        return self.ctc * (whole / counts.clamp(min=1)).unsqueeze(-1) * known

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_asked": None}  # a copy has not been asked anything
