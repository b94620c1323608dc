"""The encoder–decoder, and how any network is asked step by step."""

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
)

from solera.nn import Translator, grow
from solera.nn.call import call
from solera.nn.stepwise import stepwise

CLASSES = 24


def inputs(rows=3, source=6, target=5):
    draw = torch.Generator().manual_seed(0)
    mask = torch.arange(source) < torch.tensor([[source], [source - 2], [source - 1]])
    ids = torch.randint(3, CLASSES, (rows, source), generator=draw).where(mask, 0)
    prefix = torch.randint(3, CLASSES, (rows, target), generator=draw)
    return {"input_ids": ids, "attention_mask": mask.long(), "decoder_input_ids": prefix}


def huggingface(kind):
    torch.manual_seed(0)
    if kind == "marian":
        return MarianMTModel(
            MarianConfig(
                vocab_size=CLASSES, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64,
                pad_token_id=0, eos_token_id=2, decoder_start_token_id=0, forced_eos_token_id=None, init_std=0.3,
            )
        ).eval()  # fmt: skip
    if kind == "t5":
        return T5ForConditionalGeneration(
            T5Config(
                vocab_size=CLASSES, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, pad_token_id=0,
                eos_token_id=2, decoder_start_token_id=0, initializer_factor=2.0,
            )
        ).eval()  # fmt: skip
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=CLASSES, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            initializer_range=0.3,
        )
    ).eval()  # fmt: skip


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Translator(CLASSES, width=16, encoder=2, decoder=2, heads=2).eval()


def stepped(network, given):
    """The outputs of one step after another, with the reordering that beam search does in between."""
    asked = stepwise(network)
    state, said = asked.begin(given), []
    for tokens in given["decoder_input_ids"].T:
        output, state = asked.step(state, tokens)
        said.append(output)
    return torch.stack(said, 1)


@torch.no_grad()
def test_steps_with_a_cache_say_what_the_whole_says(network):
    given = inputs()
    torch.testing.assert_close(stepped(network, given), network(given), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_heads_are_stepped_too(network):
    given, heads = inputs(), grow(network, 3).eval()
    assert heads(given).shape == (3, 5, 3, CLASSES)
    torch.testing.assert_close(stepped(heads, given)[:, :, 1], network(given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["marian", "t5"])
@torch.no_grad()
def test_models_of_hugging_face_are_stepped_with_their_own_caches(kind):
    network, given = huggingface(kind), inputs()
    torch.testing.assert_close(stepped(network, given), call(network, given), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_padding_changes_nothing(network):
    given = inputs()
    whole, alone = network(given), {key: value[1:2] for key, value in given.items()}
    alone |= {key: alone[key][:, :4] for key in ("input_ids", "attention_mask")}
    torch.testing.assert_close(network(alone), whole[1:2], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_no_token_sees_those_after_it(network):
    given = inputs()
    before = network(given)
    given["decoder_input_ids"][:, 3:] = 4
    torch.testing.assert_close(network(given)[:, :3], before[:, :3], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(network(given)[:, 3:], before[:, 3:])


def test_the_output_is_tied_to_the_embedding(network):
    assert network.output.weight is network.embedding.weight
    again = Translator(**network.settings)
    again.load_state_dict(network.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(inputs()), network(inputs()))


def test_a_width_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="multiple of heads=4"):
        Translator(CLASSES, width=18, heads=4)
