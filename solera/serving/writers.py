"""A student that writes text as a folder of Hugging Face's, whose `generate` decodes by the student's mean."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solera.core.disk import write_bytes
from solera.data.tokenizers import END, PAD, START
from solera.distributions.categorical import Categorical
from solera.nn import Translator
from solera.training.card import CONFIG
from solera.training.student import Student

AttentionWeights = dict[str, Tensor]


def _attention(name: str, weights: dict[str, Tensor]) -> AttentionWeights:
    """Our attention's weights under the names of M2M100's."""
    found = {}
    for kind in ("weight", "bias"):
        keys, values = weights[f"pairs.{kind}"].chunk(2)
        parts = {"q_proj": weights[f"query.{kind}"], "k_proj": keys, "v_proj": values}
        parts["out_proj"] = weights[f"output.{kind}"]
        found |= {f"{name}.{part}.{kind}": value for part, value in parts.items()}
    return found


def _layer(name: str, layer: nn.Module, attentions: dict[str, tuple[str, str]]) -> dict[str, Tensor]:
    """One layer; `attentions` says which of our attentions, and which norm before it, has which name there."""
    own = dict(layer.state_dict())
    found: dict[str, Tensor] = {}
    for theirs, (ours, norm) in attentions.items():
        weights = {key.removeprefix(f"{ours}."): value for key, value in own.items() if key.startswith(f"{ours}.")}
        found |= _attention(f"{name}.{theirs}", weights)
        found |= {f"{name}.{theirs}_layer_norm.{kind}": own[f"{norm}.{kind}"] for kind in ("weight", "bias")}
    for kind in ("weight", "bias"):
        found[f"{name}.final_layer_norm.{kind}"] = own[f"norm_forward.{kind}"]
        found |= {f"{name}.fc{n}.{kind}": own[f"feed_forward.{place}.{kind}"] for n, place in ((1, 0), (2, 2))}
    return found


def _m2m100(network: Translator, temperature: float, start: int, end: int) -> nn.Module:
    """The same function as an M2M100: pre-norm layers, tied and scaled embeddings, sines and cosines for positions.

    There positions count from the padding token's number plus one, ours from 0: so that number is −1 in its config.
    """
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    given = network.settings
    config = M2M100Config(
        vocab_size=given["vocabulary"], d_model=given["width"], encoder_layers=given["encoder"],
        decoder_layers=given["decoder"], encoder_attention_heads=given["heads"], decoder_attention_heads=given["heads"],
        encoder_ffn_dim=given["inner"], decoder_ffn_dim=given["inner"], dropout=given["dropout"],
        attention_dropout=0.0, activation_dropout=0.0, activation_function="relu", scale_embedding=True,
        pad_token_id=-1, bos_token_id=start, eos_token_id=end, decoder_start_token_id=start, encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )  # fmt: skip
    model = M2M100ForConditionalGeneration(config)
    weights = {"model.shared.weight": network.embedding.weight}
    for number, layer in enumerate(network.encoder.layers):  # type: ignore[arg-type]
        weights |= _layer(f"model.encoder.layers.{number}", layer, {"self_attn": ("attention", "norm")})
    both = {"self_attn": ("attention", "norm"), "encoder_attn": ("cross", "norm_cross")}
    for number, layer in enumerate(network.decoder):
        weights |= _layer(f"model.decoder.layers.{number}", layer, both)
    for kind, value in network.encoder.norm.state_dict().items():  # type: ignore[union-attr]
        weights[f"model.encoder.layer_norm.{kind}"] = value
    for kind, value in network.norm.state_dict().items():
        weights[f"model.decoder.layer_norm.{kind}"] = value / temperature  # the output is linear in it
    missing, unknown = model.load_state_dict({key: value.detach() for key, value in weights.items()}, strict=False)
    tied = ("embed_tokens.weight", "lm_head.weight")
    assert not unknown, unknown
    assert all(key.endswith(tied) for key in missing), missing
    model.tie_weights()
    return model.eval()


def _temperature(student: Student) -> float:
    """T, where the mean is softmax(z/T); any other mean has no logits of its own."""
    z = torch.linspace(-2, 3, 7)
    said = student.method.predict(z)
    temperature = float(getattr(student.method, "mean_temperature", 1.0))
    if said.mean.shape != z.shape or not torch.allclose(said.mean, Categorical(z / temperature).mean, atol=1e-6):
        raise ValueError(
            f"the mean of {type(student.method).__name__} is not a softmax of the network's output, so generate cannot "
            "decode by it: export an EnD or ProxyDirichlet student without a mean offset"
        )
    return temperature


def _tokenizer(student: Student) -> Any:
    from transformers import PreTrainedTokenizerFast

    own = student.tokenizer
    assert own is not None
    inner: Any = getattr(own, "tokenizer", None)
    if inner is None or hasattr(inner, "save_pretrained"):
        return inner
    from tokenizers.processors import TemplateProcessing

    copied = type(inner).from_str(inner.to_str())
    copied.post_processor = TemplateProcessing(single=f"$A {END}", special_tokens=[(END, own.end)])
    return PreTrainedTokenizerFast(tokenizer_object=copied, pad_token=PAD, bos_token=START, eos_token=END)


def writes(student: Student) -> bool:
    """Whether it is one of these."""
    network: Any = student.model
    return isinstance(network, Translator) or (hasattr(network, "can_generate") and network.can_generate())


def writer_of(source: Student | str | Path) -> Student | None:
    """The student, or the one in this folder, if it writes text and has its tokenizer; else None."""
    if not isinstance(source, Student):
        config = Path(source) / CONFIG
        if not config.is_file() or json.loads(config.read_bytes()).get("tokenizer") is None:
            return None
        source = Student.load(source)
    return source if source.tokenizer is not None and writes(source) else None


def export_writer(student: Student, folder: str | Path) -> Path:
    """Writes the student for `AutoModelForSeq2SeqLM.from_pretrained(folder)` (a causal one: `AutoModelForCausalLM`).

    Its logits are those of the student's mean, so `generate` decodes by it; the logsumexp of a ProxyDirichlet's logits
    is the logarithm of its precision, which `config.solera` tells how to read. A `Translator` becomes an M2M100, a
    network of Hugging Face's stays what it is. The tokenizer goes with it, if `transformers` can read its kind.
    """
    try:
        import transformers
    except ImportError:
        raise ImportError("a Hugging Face folder is written by transformers: pip install 'solera[text]'") from None
    folder, temperature = Path(folder), _temperature(student)
    if isinstance(student.model, Translator):
        if student.tokenizer is None:
            raise ValueError("this student has no tokenizer, so nobody knows its start and end: distil it on Pairs")
        start, end, pad = student.tokenizer.start, student.tokenizer.end, student.tokenizer.pad
        model: Any = _m2m100(student.model, temperature, start, end)
        settings = {"pad_token_id": pad, "eos_token_id": end, "bos_token_id": start, "decoder_start_token_id": start}
        model.generation_config = transformers.GenerationConfig(num_beams=5, max_new_tokens=200, **settings)
    elif isinstance(student.model, transformers.PreTrainedModel) and temperature == 1:
        model = student.model
    else:
        raise ValueError(
            f"a {type(student.model).__name__} with mean_temperature={temperature} has no form among Hugging Face's: "
            "export a Translator, or a network of transformers that predicts with mean_temperature=1"
        )
    scale = {key: getattr(student.method, key, None) for key in ("precision_slope", "precision_shift")}
    model.config.solera = {"method": type(student.method).__name__, "mean_temperature": temperature, **scale}
    model.save_pretrained(folder)
    tokenizer = None if student.tokenizer is None else _tokenizer(student)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    write_bytes(
        folder / "solera.json", json.dumps({"fingerprint": student.fingerprint, **model.config.solera}).encode()
    )
    return folder
