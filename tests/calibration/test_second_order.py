"""The size of a student's uncertainty, from the training to the served graph."""

import dataclasses
import json

import numpy as np
import pandas
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from solera import Batch, Batches, Distiller, EnD, EnD2, Ensemble, Hydra, ProxyDirichlet, Student, Training, distill
from solera.calibration import calibrate, kept
from solera.core.disk import read_manifest, write_manifest
from solera.distributions import Categorical, Dirichlet, Mixture
from solera.ensembles import train_ensemble
from solera.metrics import nll
from solera.nn import MLP
from solera.serving import Graph, export
from solera.training.card import KIND, VERSION, Notes
from solera.training.size import ask
from tests.helpers import small_batches, small_ensemble


class Drawn:
    """A live teacher whose members are drawn, row by row, from a Dirichlet that the inputs are the logits of."""

    members, live, fingerprints = 400, True, [f"{number}" for number in range(400)]

    def __init__(self, slope, shift):
        self.slope, self.shift = slope, shift

    def __call__(self, batch):
        torch.manual_seed(int(batch.index[0]))
        z = batch.inputs.double()
        precision = (self.slope * z.logsumexp(-1, keepdim=True) + self.shift).exp()
        drawn = torch.distributions.Dirichlet(precision * z.softmax(-1)).sample(torch.Size([self.members]))
        return Mixture(Categorical(drawn.clamp(min=1e-300).log().movedim(0, -2)))

    def check(self, batch):
        pass


def logits_of(rows, level=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 1.5 * torch.randn(rows, 4, generator=generator) + 3 * torch.rand(rows, 1, generator=generator) + level


def held(labels=True):
    """Familiar inputs with labels drawn from their softmax, and auxiliary ones that the student knows less of."""
    x, aux = logits_of(300, 1.5), logits_of(150, -1.0, 1)
    y = torch.distributions.Categorical(logits=x).sample() if labels else None
    return Batches(x, y, auxiliary=aux, batch_size=64)


def test_a_student_gets_the_size_of_its_ensemble_on_familiar_and_auxiliary_inputs(capsys):
    """The network is the identity, so all that can be wrong is the map."""
    student, teacher = Student(nn.Identity(), ProxyDirichlet()), Drawn(0.75, -0.7)
    calibrated = calibrate(student, teacher, held())
    method = calibrated.method
    assert (method.precision_slope, method.precision_shift) == pytest.approx((0.75, -0.7), abs=0.06)
    said = capsys.readouterr().out
    before, after = (kept(m, ask(nn.Identity(), teacher, held())).groups for m in (student.method, method))
    for group in ("familiar", "auxiliary"):
        assert abs(before[group]["knowledge"] - 100) > 30
        for name in ("total", "data", "knowledge"):
            assert after[group][name] == pytest.approx(100, abs=4)
        assert f"{group}: total {after[group]['total']:.0f} %, data {after[group]['data']:.0f} %" in said
    fit = calibrated.notes.fit
    assert fit["knowledge kept, auxiliary"] == pytest.approx(after["auxiliary"]["knowledge"] / 100)
    assert fit["data kept, familiar, before the fit"] == pytest.approx(before["familiar"]["data"] / 100)
    x = logits_of(50, seed=3)
    assert torch.equal(calibrated.predict(x).mean, student.predict(x).mean)


def test_held_out_data_come_as_people_hold_them():
    x = logits_of(96)
    y = torch.distributions.Categorical(logits=x).sample()
    student, teacher = Student(nn.Identity(), ProxyDirichlet(), ["a", "b", "c", "d"]), Drawn(0.75, -0.7)
    wanted = calibrate(student, teacher, Batches(x, batch_size=128), show=False).method
    for given in (x, x.numpy(), pandas.DataFrame(x.numpy()), iter(Batches(x))):
        assert calibrate(student, teacher, given, show=False).method == wanted
    data = TensorDataset(x, y)
    named = Batches(x, np.array(["b", "c", "d", "a"])[(y - 1) % 4], names=["d", "c", "b", "a"])
    wanted = calibrate(student, teacher, Batches(x, y), to="labels", show=False).method
    for given in (data, DataLoader(data, batch_size=128), named):
        assert calibrate(student, teacher, given, to="labels", show=False).method == wanted


def test_the_card_of_a_calibrated_student_says_what_it_keeps_now(tmp_path):
    """Not what it kept of other inputs before."""
    notes = Notes(fit={"epochs": 3, "knowledge kept, held-out": 9.0})
    student = Student(nn.Identity(), ProxyDirichlet(), notes=notes)
    calibrated = calibrate(student, Drawn(0.75, -0.7), held(), show=False)
    assert calibrated.notes.fit["epochs"] == 3
    assert "knowledge kept, held-out" not in calibrated.notes.fit
    Student(MLP(4, 4), calibrated.method, notes=calibrated.notes).save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "| knowledge kept, familiar, before the fit | " in card
    assert "| knowledge kept, familiar | " in card


def test_where_nobody_says_what_is_from_elsewhere_unlabelled_inputs_are_of_one_kind():
    heard = ask(nn.Identity(), Drawn(1.0, 0.0), held(labels=False).marked(None))
    assert heard.auxiliary is None
    assert list(kept(ProxyDirichlet(), heard).groups) == ["held-out"]
    assert heard.fitted(ProxyDirichlet()).precision_slope == pytest.approx(1, abs=0.05)


def test_padding_does_not_count():
    x = logits_of(120).reshape(20, 6, 4)
    weight = (torch.arange(6) < torch.randint(1, 6, (20, 1))).float()
    heard = ask(nn.Identity(), Drawn(1.0, 0.0), [Batch(x, torch.arange(20), weight=weight)])
    assert len(heard.output) == len(heard.total) == int(weight.sum())
    torch.testing.assert_close(heard.output, x[weight > 0])


def test_of_very_many_numbers_some_rows_are_kept_evenly(monkeypatch):
    whole = ask(nn.Identity(), Drawn(1.0, 0.0), held())
    monkeypatch.setattr("solera.training.size.MOST_NUMBERS", 500)
    some = ask(nn.Identity(), Drawn(1.0, 0.0), held())
    assert 200 <= some.output.numel() <= 500
    assert float(some.labelled.float().mean()) == pytest.approx(float(whole.labelled.float().mean()), abs=0.1)
    rows = [int((whole.output == row).all(-1).nonzero()[0]) for row in some.output]
    torch.testing.assert_close(some.knowledge, whole.knowledge[rows])


@pytest.mark.parametrize("method", [ProxyDirichlet(), EnD2()], ids=lambda m: type(m).__name__)
def test_distill_fits_on_its_validation_data_and_calibrate_says_the_same(method):
    ensemble, batches = small_ensemble(members=5), small_batches(examples=300)
    train, validation = batches.split(0.4)
    torch.manual_seed(0)
    student = distill(ensemble, MLP(4, 3, (32,)), train, method, Training(epochs=15, lr=0.01), validation=validation)
    assert student.method != method
    again = Student(student.model, method)
    assert calibrate(again, ensemble, validation, show=False).method == student.method
    heard = ask(student.model, ensemble, validation)
    sizes = kept(student.method, heard).groups["held-out"]
    assert sizes["knowledge"] == pytest.approx(100, abs=10)
    torch.manual_seed(0)
    plain = distill(ensemble, MLP(4, 3, (32,)), train, method, Training(epochs=2))
    assert plain.method == method


def test_a_distiller_fits_by_itself():
    x, ensemble = torch.randn(300, 4), small_ensemble(members=4)
    fitted = Distiller(MLP(4, 3, (16,)), training=Training(epochs=3), validation_fraction=0.3).fit(ensemble, x)
    assert fitted.student_.method.precision_slope != 1.0


def test_methods_without_a_size_stay_as_they_are():
    ensemble, batches = small_ensemble(), small_batches()
    for method in (EnD(), Hydra()):
        student = distill(ensemble, MLP(4, 3, (8,)), batches, method, Training(epochs=1), validation=batches)
        assert student.method == method


def test_what_is_fitted_is_saved_loaded_exported_and_in_the_graph(tmp_path):
    method = ProxyDirichlet(mean_temperature=1.3, mean_offset=0.2, precision_slope=0.6, precision_shift=0.4)
    student, x = Student(MLP(4, 3, (8,)), method).eval(), torch.randn(20, 4)
    again = Student.load(student.save(tmp_path / "student"))
    assert again.method == method
    assert torch.equal(again.predict(x).knowledge, student.predict(x).knowledge)
    graph = Graph(export(again, tmp_path / "student.onnx", x).path)
    assert json.loads(graph.metadata["method"])["settings"] == dataclasses.asdict(method)
    np.testing.assert_allclose(graph(x)["knowledge"], student.predict(x).knowledge, rtol=1e-5, atol=1e-6)
    unfitted = Student(student.model, ProxyDirichlet()).predict(x)
    assert not torch.allclose(unfitted.knowledge, student.predict(x).knowledge, rtol=0.05)


def test_a_student_of_before_loads_and_predicts_without_the_one(tmp_path):
    student, x = Student(MLP(4, 3, (8,)), ProxyDirichlet()).eval(), torch.randn(20, 4)
    student.save(tmp_path)
    config = read_manifest(tmp_path / "config.json", KIND, VERSION)
    config["method"]["settings"] = {"match": "rmi", "as_released": False}
    content = {key: value for key, value in config.items() if key not in ("kind", "version")}
    write_manifest(tmp_path / "config.json", KIND, VERSION, content)
    old = Student.load(tmp_path)
    assert old.method == ProxyDirichlet()
    with torch.no_grad():
        torch.testing.assert_close(old.predict(x).mean, student.model(x).softmax(-1))


def test_as_published_keeps_the_one():
    z = torch.tensor([[2.0, -1.0, 0.5], [40.0, 0.0, -30.0]])
    said, wanted = ProxyDirichlet(as_published=True).predict(z), Dirichlet(z.double().exp() + 1)
    for name in ("mean", "total", "data", "knowledge", "precision", "epkl"):
        torch.testing.assert_close(getattr(said, name).double(), getattr(wanted, name), rtol=2e-6, atol=1e-12)
    torch.testing.assert_close(ProxyDirichlet().predict(z).mean, z.softmax(-1))
    torch.testing.assert_close(ProxyDirichlet().predict(z).precision, z.exp().sum(-1))
    with pytest.raises(ValueError, match=r"as_published predicts with e\^z \+ 1, not with the map .*: drop one"):
        ProxyDirichlet(as_published=True, precision_slope=0.5)


def test_labels_calibrate_the_mean_and_leave_the_precision(capsys):
    torch.manual_seed(0)
    x = logits_of(2000)
    y = torch.distributions.Categorical(probs=(x / 2).exp() + 0.5).sample()
    student = Student(nn.Identity(), ProxyDirichlet(precision_slope=0.8, precision_shift=0.1))
    batches = Batches(x, y, auxiliary=logits_of(1500), batch_size=500)
    calibrated = calibrate(student, Drawn(1.0, 0.0), batches, to="labels")
    method, fit = calibrated.method, calibrated.notes.fit
    assert method.mean_temperature == pytest.approx(2, rel=0.25)
    assert method.mean_offset == pytest.approx(0.5, abs=0.4)
    assert (method.precision_slope, method.precision_shift) == (0.8, 0.1)
    before, after = (nll(m.predict(x).mean, y) for m in (student.method, method))
    assert after < before - 0.02
    assert fit["NLL of the labels fitted to, before the fit"] == pytest.approx(before, rel=1e-4)
    assert fit["NLL of the labels fitted to"] == pytest.approx(after, rel=1e-4)
    torch.testing.assert_close(method.predict(x).precision, student.predict(x).precision)


def test_errors():
    student, teacher = Student(nn.Identity(), ProxyDirichlet()), Drawn(1.0, 0.0)
    with pytest.raises(ValueError, match="to='labels' needs labels, and held_out has none"):
        calibrate(student, teacher, held(labels=False), to="labels")
    with pytest.raises(ValueError, match="Hydra has no mean_temperature and mean_offset to fit: use to='ensemble'"):
        calibrate(Student(nn.Identity(), Hydra()), teacher, held(), to="labels")
    with pytest.raises(ValueError, match=r"as_published predicts with e\^z \+ 1 and nothing else"):
        calibrate(Student(nn.Identity(), ProxyDirichlet(as_published=True)), teacher, held(), to="labels")
    with pytest.raises(ValueError, match="held_out holds no batches"):
        calibrate(student, teacher, [])

    class Lost(nn.Module):
        def forward(self, x):
            return x * torch.nan

    with pytest.raises(ValueError, match="answers nan for a held-out input: its training diverged; lower the learning"):
        calibrate(Student(Lost(), ProxyDirichlet()), teacher, held())


def test_a_real_ensemble_and_its_student(capsys):
    """Total, data and knowledge after are nearer to the ensemble's than before, on inputs that were not fitted on."""
    torch.manual_seed(0)
    ensemble = Ensemble([MLP(4, 3, (16,)) for _ in range(6)])
    x = 2 * torch.randn(900, 4)
    student = distill(ensemble, MLP(4, 3, (64, 64)), Batches(x[:400]), ProxyDirichlet(), Training(epochs=40, lr=0.01))
    calibrated = calibrate(student, ensemble, Batches(x[400:650]), show=False)
    fresh = ask(student.model, ensemble, Batches(x[650:]))
    before, after = (kept(m, fresh).groups["held-out"]["knowledge"] for m in (student.method, calibrated.method))
    assert abs(after - 100) < min(15, abs(before - 100))


def test_inputs_of_the_same_kind_are_familiar_with_a_label_or_without(short_rounds):
    """Members know their own rows by heart: these alone must not decide how much the student knows of new ones."""
    torch.manual_seed(0)
    x, more, y = torch.randn(300, 2), torch.randn(900, 2), torch.randint(3, (300,))
    ensemble = train_ensemble(lambda: MLP(2, 3, (64,)), Batches(x, y), 4, Training(epochs=40, lr=1e-2))

    def student(**given):
        return Distiller(method=ProxyDirichlet(), training=Training(epochs=40)).fit(ensemble, x, y, **given).student_

    same = student(unlabelled=more)
    assert "knowledge kept, held-out" in same.notes.fit
    assert "knowledge kept, familiar" not in same.notes.fit
    assert same.notes.fit["knowledge kept, held-out"] == pytest.approx(1, abs=0.1)
    both = student(unlabelled=more, auxiliary=10 * more[:300]).notes.fit
    assert {"knowledge kept, familiar", "knowledge kept, auxiliary"} <= both.keys()


def test_validation_data_that_no_member_saw_decide_the_size():
    torch.manual_seed(0)
    x, new, y = torch.randn(300, 2), torch.randn(900, 2), torch.randint(3, (1200,))
    ensemble = train_ensemble(lambda: MLP(2, 3, (64,)), Batches(x, y[:300]), 4, Training(epochs=40, lr=1e-2))
    fresh = torch.randn(2000, 2)

    def size(**given):
        student = Distiller(method=ProxyDirichlet(), training=Training(epochs=40)).fit(ensemble, x, **given).student_
        return float(student.predict(fresh).knowledge.mean() / ensemble.predict(fresh).knowledge.mean())

    assert abs(size(validation=(new, y[300:])) - 1) < 0.1 < abs(size() - 1)


def test_batches_remember_which_inputs_are_from_elsewhere():
    batches = Batches(torch.zeros(4, 2), torch.zeros(4).long(), auxiliary=torch.ones(2, 2))
    assert batches.all.elsewhere.tolist() == [False] * 4 + [True] * 2
    more = batches.with_unlabelled(torch.zeros(3, 2))
    assert more.all.elsewhere.tolist() == [False] * 4 + [True] * 2 + [False] * 3
    assert more.with_unlabelled(torch.zeros(1, 2), elsewhere=True).all.elsewhere.tolist()[-1] is True
    _, held = more.split(0.5, 3)
    assert torch.equal(held.all.elsewhere, more.all.elsewhere[held.all.index])
    assert Batches(torch.zeros(4, 2)).all.elsewhere is None
