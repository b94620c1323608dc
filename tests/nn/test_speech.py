"""Log-mel features, and the network that hears them."""

import copy

import numpy as np
import pytest
import torch
from transformers.audio_utils import mel_filter_bank, spectrogram

from solera.data import UNLABELLED, Batch
from solera.nn import LogMel, Recogniser
from solera.nn.speech import mel_filters
from solera.tasks import Seq2Seq

RATE = 8000


def sound(*lengths):
    draw = torch.Generator().manual_seed(0)
    audio = torch.zeros(len(lengths), max(lengths))
    for row, length in enumerate(lengths):
        audio[row, :length] = 0.1 * torch.randn(length, generator=draw)
    return audio, torch.tensor(lengths)


def inputs(*lengths, tokens=4):
    audio, samples = sound(*lengths)
    prefix = torch.randint(3, 9, (len(lengths), tokens), generator=torch.Generator().manual_seed(1))
    return {"audio": audio, "samples": samples.unsqueeze(-1), "decoder_input_ids": prefix}


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Recogniser(9, width=16, encoder=1, heads=2, inner=16)


@pytest.mark.parametrize(("rate", "mels"), [(8000, 40), (16000, 80)])
def test_features_are_those_of_transformers(rate, mels):
    size, hop = 32 * rate // 1000, 20 * rate // 1000
    filters = mel_filter_bank(size // 2 + 1, mels, 0, rate / 2, rate, norm=None, mel_scale="htk")
    np.testing.assert_allclose(mel_filters(size // 2 + 1, mels, rate).numpy(), filters, atol=1e-6)
    audio, samples = sound(rate)
    theirs = spectrogram(
        audio[0].numpy(), torch.hann_window(size).numpy(), size, hop, power=2.0, center=False, mel_filters=filters,
        log_mel="log", mel_floor=1e-10,
    )  # fmt: skip
    ours, there = LogMel(rate, mels)(audio, samples)
    np.testing.assert_allclose(ours[0].numpy(), theirs.T, rtol=1e-4, atol=1e-4)
    assert there.all()


def test_loudness_changes_nothing_and_silence_is_a_sound():
    listen, (audio, samples) = LogMel(RATE, 40), sound(4000)
    loud, soft = (listen.scaled(*listen(gain * audio, samples)) for gain in (2.0, 0.1))
    torch.testing.assert_close(loud, soft, rtol=1e-4, atol=1e-4)
    silence = listen.scaled(*listen(0 * audio, samples))
    assert silence.isfinite().all()
    assert loud.min() >= -1
    assert loud.max() == 1


@torch.no_grad()
def test_padding_changes_nothing(network):
    lengths = (3000, 1999, 100)  # the last is shorter than a window
    given = inputs(*lengths)
    whole = network.eval()(given)
    for row, length in enumerate(lengths):
        alone = {key: value[row : row + 1] for key, value in given.items()}
        alone["audio"] = alone["audio"][:, :length]
        torch.testing.assert_close(network(alone), whole[row : row + 1], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_steps_with_a_cache_say_what_the_whole_says(network):
    given = inputs(3000, 2500)
    state, said = network.eval().begin(given), []
    for tokens in given["decoder_input_ids"].T:
        output, state = network.step(state, tokens)
        said.append(output)
    torch.testing.assert_close(torch.stack(said, 1), network(given), rtol=1e-4, atol=1e-5)


def test_it_has_the_size_it_is_said_to_have_and_is_made_again():
    network = Recogniser(13)
    assert 0.36e6 < sum(p.numel() for p in network.parameters()) < 0.39e6
    again = Recogniser(**network.settings)
    again.load_state_dict(network.state_dict())


def paths(log_probs, target, blank):
    """P(target) by going through every path of frames."""
    total = 0.0
    for path in np.ndindex(*[log_probs.shape[-1]] * len(log_probs)):
        merged = [k for k, before in zip(path, (None, *path[:-1]), strict=True) if k != before]
        if [k for k in merged if k != blank] == target:
            total += float(np.exp(sum(log_probs[t, k] for t, k in enumerate(path))))
    return total


def test_the_helper_is_a_sum_over_paths(network):
    network = Recogniser(4, width=16, encoder=1, heads=2, inner=16, ctc=0.3).eval()
    given = inputs(2200, 2200, tokens=3)
    target = torch.tensor([[1, 3, 2], [3, 2, UNLABELLED]])
    batch = Batch(given, torch.arange(2), target, (target != UNLABELLED).float())
    loss = network.helper_loss(batch)
    memory, there = network.encode(given)
    assert there.all()
    log_probs = network.aligned(memory).log_softmax(-1).detach().numpy().astype(float)
    wanted = [-np.log(paths(log_probs[row], end, 4)) for row, end in enumerate(([1, 3], [3]))]
    np.testing.assert_allclose(loss.sum(-1).detach().numpy(), 0.3 * np.array(wanted), rtol=1e-4)
    assert loss[1, 2] == 0


def test_labels_are_learned_with_the_helper_and_what_was_heard_is_used_once(network, monkeypatch):
    given = inputs(4000, 3000, tokens=3)
    target = torch.tensor([[4, 5, 2], [6, 2, UNLABELLED]])
    batch = Batch(given, torch.arange(2), target, (target != UNLABELLED).float())
    task, network = Seq2Seq(), network.train()
    for part in network.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    output = network(given)
    asked, encode = [], network.encode
    monkeypatch.setattr(network, "encode", lambda given: asked.append(1) or encode(given))
    loss = task.label_loss(network, task.of_member(output), batch)
    assert not asked
    alone = torch.nn.functional.cross_entropy(output.transpose(1, 2), target, reduction="none")
    torch.testing.assert_close(loss - network.helper_loss(batch), alone, rtol=1e-3, atol=1e-4)
    assert asked  # and not a second time: other weights would say something else
    loss.sum().backward()
    assert network.aligned.weight.grad.abs().sum() > 0
    assert copy.deepcopy(network)._asked is None


def test_without_a_helper_there_is_none(network):
    plain = Recogniser(9, width=16, encoder=1, heads=2, inner=16, ctc=0.0)
    given = inputs(3000, tokens=2)
    batch = Batch(given, torch.arange(1), torch.tensor([[4, 2]]), torch.ones(1, 2))
    assert plain.helper_loss(batch) is None
    assert plain.aligned is None
