import numpy as np
import pytest
import torch

from solera import Ensemble
from solera.distributions import Categorical
from solera.evaluation import latency
from solera.nn import MLP


class Counting:
    """Remembers what it was asked, in which order."""

    def __init__(self, name, diary):
        self.name, self.diary = name, diary

    def predict(self, inputs):
        self.diary.append((self.name, len(inputs)))
        return Categorical(torch.zeros(len(inputs), 2))


def test_models_take_turns_as_often_as_there_is_time_for(monkeypatch):
    diary = []
    models = {name: Counting(name, diary) for name in "ab"}
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    found = latency.timed(models, torch.zeros(10, 3), 64)
    assert diary == [("a", 64), ("b", 64)] * (1 + latency.LEAST)  # the first answers are not timed
    assert {len(times) for times in found.values()} == {latency.LEAST}
    monkeypatch.setattr(latency, "SECONDS", 1e9)
    found = latency.timed(models, torch.zeros(10, 3), 1)
    assert {len(times) for times in found.values()} == {latency.ROUNDS}


def test_a_slow_model_does_not_take_the_fast_ones_time(monkeypatch):
    diary = []
    models = {name: Counting(name, diary) for name in "ab"}
    clock = {"a": 0.3, "b": 0.001}
    monkeypatch.setattr(latency.time, "perf_counter", lambda: sum(clock[name] for name, _ in diary))
    found = latency.timed(models, torch.zeros(1, 3), 1)
    assert len(found["a"]) == latency.LEAST
    assert len(found["b"]) == latency.ROUNDS


def test_speed_is_percentiles_in_milliseconds():
    seconds = np.random.default_rng(0).random(50).tolist()
    found = latency.speed_of(seconds, 64)
    assert found["p95"] == pytest.approx(1e3 * np.percentile(seconds, 95))
    assert found["throughput"] == pytest.approx(64 * 50 / sum(seconds))


def test_costs_of_networks_memories_and_others():
    network = MLP(3, 2, (4,))
    said = {"test": Categorical(torch.zeros(5, 2))}
    models = {"ensemble": Ensemble([network, network]), "said": said, "own": Counting("own", [])}
    found = latency.costs(models, torch.randn(5, 3))
    assert found["ensemble"].parameters == sum(p.numel() for p in network.parameters())
    assert found["ensemble"].bytes == 8 * found["ensemble"].parameters  # state_dict has both members, float32
    assert found["said"] == latency.Cost()
    assert found["said"].microseconds is None
    assert found["own"].parameters is None
    assert set(found["own"].speed) == {"1", "64"}
    assert found["own"].microseconds == pytest.approx(1e3 * found["own"].speed["64"]["p50"] / 64)
