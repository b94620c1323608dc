"""From recordings to text: members, an ensemble, a student, and what they are measured by."""

import jiwer
import numpy as np
import pytest
import soundfile
import torch

from solera import (
    Ensemble,
    ProxyDirichlet,
    Recordings,
    Student,
    Training,
    capture,
    distill,
    evaluate,
    fit,
    metrics,
    report,
    transcribe,
    translate,
)
from solera.data import train_words
from solera.evaluation import Evaluation
from solera.metrics import speech
from solera.nn import Recogniser
from solera.tasks import Seq2Seq, Transcription

RATE = 8000
PITCHES = {"low": 300.0, "mid": 900.0, "high": 2400.0}
TOKENS = train_words(PITCHES)


def strings(count, seed):
    """Tones for words: enough for a network to learn within seconds."""
    draw, audio, text = np.random.default_rng(seed), [], []
    for _ in range(count):
        words = draw.choice(list(PITCHES), draw.integers(1, 4))
        times = np.arange(1600) / RATE
        parts = [np.concatenate([np.sin(2 * np.pi * PITCHES[w] * times), np.zeros(800)]) for w in words]
        audio.append((0.3 * np.concatenate(parts) + 0.003 * draw.normal(size=2400 * len(words))).astype(np.float32))
        text.append(" ".join(words))
    return audio, text


def network():
    return Recogniser(len(TOKENS), width=24, encoder=1, heads=2, inner=32, dropout=0.0)


@pytest.fixture(scope="module")
def train():
    return Recordings(*strings(60, 0), TOKENS, seconds=6)


@pytest.fixture(scope="module")
def test():
    return Recordings(*strings(20, 1), TOKENS)


@pytest.fixture(scope="module")
def members(train):
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        training = Training(epochs=14, lr=5e-3, warm_up=0.1, clip=1.0, seed=seed)
        found.append(fit(network(), train, training, task=Seq2Seq()))
    return found


@pytest.fixture(scope="module")
def ensemble(members):
    return Ensemble(members)


@pytest.fixture(scope="module")
def student(ensemble, train, tmp_path_factory):
    kept = capture(ensemble, train, tmp_path_factory.mktemp("memory"))
    torch.manual_seed(5)
    training = Training(epochs=14, lr=5e-3, warm_up=0.1, clip=1.0, label_weight=0.2)
    return distill(kept, network(), train, ProxyDirichlet(), training, task=Seq2Seq())


def test_words_are_heard_and_errors_are_those_of_jiwer(ensemble, members, test):
    said = {"ensemble": {"test": transcribe(ensemble, test)}, "single": {"test": transcribe(members[0], test)}}
    found = evaluate(said, test, task=Transcription())
    for name, sets in said.items():
        wanted = jiwer.wer(test.target_text, sets["test"].target_text)
        assert found.rows[name]["WER"] == pytest.approx(wanted, abs=1e-12)
    assert found.rows["ensemble"]["WER"] < 0.2
    assert isinstance(said["ensemble"]["test"], Recordings)
    again = said["ensemble"]["test"].of(torch.arange(3))
    assert set(again.take([0]).inputs) == {"audio", "samples", "decoder_input_ids"}


def test_noise_is_less_known_and_rejection_is_measured(ensemble, student, test, tmp_path):
    draw = np.random.default_rng(2)
    noise = Recordings([0.1 * draw.normal(size=5000) for _ in range(12)], None, TOKENS)
    sets = {"test": test, "noise": noise}
    said = {
        name: {where: transcribe(model, some, 2) for where, some in sets.items()}
        for name, model in {"ensemble": ensemble, "student": student}.items()
    }
    found = evaluate(said, test, task=Transcription(), unfamiliar={"noise": noise}, resamples=8)
    both = torch.cat([said["ensemble"]["test"].knowledge, said["ensemble"]["noise"].knowledge])
    row = found.rows["ensemble"]
    assert row["OOD noise knowledge"] == pytest.approx(metrics.auroc(both, np.repeat([0, 1], [20, 12])), abs=1e-12)
    assert row["OOD noise total"] > 0.8
    again = Evaluation.load(found.save(tmp_path / "kept"))
    assert again.rows["ensemble"]["WER"] == row["WER"]
    assert "WER of what is kept" in report(found, tmp_path / "report.html").read_text()
    (curve,) = found.task.figures(found.columns["ensemble"]["test"], found.target)
    assert curve.y[0] == pytest.approx(row["WER"])
    with pytest.raises(ValueError, match="not among the translated sources"):
        evaluate({"e": {"test": said["ensemble"]["noise"]}}, test.of(torch.arange(12)), task=Transcription())


def test_a_student_hears_arrays_and_files_and_is_kept(student, test, tmp_path):
    audio, text = strings(6, 4)
    soundfile.write(tmp_path / "a.wav", audio[0], RATE, subtype="FLOAT")
    said = student.transcribe([tmp_path / "a.wav", *audio])
    assert said[0].text == said[1].text
    assert said[0].source.endswith("a.wav")
    assert all(one.knowledge > 0 for one in said)
    assert speech.wer(speech.word_errors([one.text for one in said[1:]], text)) < 0.5
    student.save(tmp_path / "student")
    again = Student.load(tmp_path / "student").transcribe(audio)
    assert [one.text for one in again] == [one.text for one in said[1:]]
    assert [word.text for word in said[1].words] == said[1].text.split()


def test_silence_is_answered_and_other_rates_are_refused(student, members):
    (said,) = student.transcribe([np.zeros(4000, np.float32)])
    assert np.isfinite(said.total)
    with pytest.raises(ValueError, match=r"have 16000 samples a second, this model hears 8000.*resample"):
        transcribe(student, [np.zeros(4000)], rate=16000)
    with pytest.raises(ValueError, match="have 16000 samples a second"):
        transcribe(student, Recordings([np.zeros(4000)], None, TOKENS, rate=16000))
    with pytest.raises(ValueError, match="need a tokenizer"):
        transcribe(members[0], [np.zeros(4000)])
    with pytest.raises(ValueError, match="pass rate"):
        transcribe(torch.nn.Identity(), [np.zeros(4000)], tokenizer=TOKENS)


def test_it_is_translation_of_recordings_and_goes_on_after_a_kill(ensemble, test, tmp_path):
    few = test.of(torch.arange(5))
    said = transcribe(ensemble, few, 2, folder=tmp_path)
    assert said.written == translate(ensemble, few, 2).written
    assert transcribe(ensemble, few, 2, folder=tmp_path).written == said.written
    assert max(map(len, said.written)) <= few.longest


def test_counts_add_up_to_jiwers_rate():
    written, wanted = ["a b c", "", "x y z", "same"], ["a c d", "one two", "x", "same"]
    counts = speech.word_errors(written, wanted)
    assert speech.wer(counts) == pytest.approx(jiwer.wer(wanted, written))
    assert speech.wer(counts[1:3]) == pytest.approx(jiwer.wer(wanted[1:3], written[1:3]))
    assert counts[:, 3].tolist() == [3, 2, 1, 1]
    with pytest.raises(ValueError, match="4 texts and 1 references"):
        speech.word_errors(written, wanted[:1])
