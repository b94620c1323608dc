"""Features in pieces: against numpy's own interpolation, and the whole way into a saved student and its graph."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from solera import Distiller, Ensemble, ProxyDirichlet, Student
from solera.data.table import MISSING
from solera.nn import MLP, PiecewiseLinear
from solera.nn.default import network_for, pieces_for
from solera.nn.piecewise import edges_of, worth_cutting
from solera.serving import Graph, export


def rows(examples=400):
    """A smooth feature, one of two values, a constant, a sum that one in two has, and one that one in twenty has."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(examples, 5, generator=draw)
    x[:, 1] = (x[:, 1] > 0).float()
    x[:, 2] = 7.0
    for column, share in ((3, 0.5), (4, 0.05)):
        x[:, column] = torch.where(torch.rand(examples, generator=draw) < share, 1000 * x[:, column].exp(), 0.0)
    return x


def test_a_piece_is_what_interpolation_says_of_it():
    x = rows()
    edges = edges_of(x, 6)
    pieces = [len(each) - 1 for each in edges]
    layer = PiecewiseLinear(pieces)
    layer.learn(edges)
    far = torch.cat([x, 1e4 * torch.randn(20, 5)])
    said = layer(far)
    assert said.shape[-1] == layer.outputs == 5 + sum(pieces)
    torch.testing.assert_close(said[:, :5], far, rtol=0, atol=0)
    place = 5
    for column, each in enumerate(edges):
        for low, high in pairwise(each):
            wanted = np.interp(far[:, column], [low, high], [0, 1])
            np.testing.assert_allclose(said[:, place], wanted, atol=1e-5)
            place += 1


def test_edges_are_values_and_rare_ones_have_some_too():
    x = rows()
    smooth, two, constant, half, few = edges_of(x, 8)
    assert len(smooth) == len(two) == len(constant) == 1  # nothing is cut
    for values, edges in ((x[:, 3], half), (x[:, 4], few)):
        assert torch.isin(edges, values).all()
        assert edges[0] == 0
        assert edges[-1] == values.max()
        assert (edges > 0).sum() >= 8
    above = x[:, 3][x[:, 3] > 0]
    shares = [(above < edge).float().mean().item() for edge in half]
    assert np.diff(shares).max() < 0.2  # by values and by distinct values: everywhere


def test_what_is_worth_cutting():
    smooth = torch.arange(1000.0)
    assert not worth_cutting(smooth)
    assert not worth_cutting(smooth.clamp(min=150))  # 15 % are the same
    assert worth_cutting(smooth.clamp(min=250))
    assert not worth_cutting(torch.arange(1000.0) % 4)  # too few values
    assert worth_cutting(torch.cat([torch.zeros(400), torch.arange(600.0) % 5]))


def test_values_a_hair_apart_make_no_piece_that_blows_up():
    x = torch.cat([torch.arange(50.0).double(), torch.arange(50.0).double() + 1e-7, torch.zeros(50)])[:, None]
    (edges,) = edges_of(x, 200)  # every value would be an edge
    assert len(edges) > 20
    assert edges.diff().min() > 0.5


def test_how_many_pieces():
    def some(examples, columns):
        return torch.relu(torch.randn(examples, columns))

    assert pieces_for(some(1000, 10)) == 48
    assert pieces_for(some(160, 10)) == 10
    assert pieces_for(some(60, 10)) == 0
    assert pieces_for(some(1000, 64)) == 32
    assert pieces_for(some(100, 1000)) == 0
    words = torch.randint(0, 2, (1000, 500)).float()
    assert pieces_for(words) == 0
    assert pieces_for(torch.cat([words, some(1000, 10)], 1)) == 48  # what is not cut does not count
    x = rows()
    assert isinstance(network_for(x, 3)[2], PiecewiseLinear)
    assert not any(isinstance(layer, PiecewiseLinear) for layer in network_for(x, 2, x[:, :1]))
    assert not any(isinstance(layer, PiecewiseLinear) for layer in network_for(x[:, :3], 3))


def test_a_student_of_trees_is_saved_and_loaded_with_its_pieces(tmp_path, short_rounds):
    from sklearn.tree import DecisionTreeClassifier

    x = rows()
    y = ((x[:, 3] > 1500) | (x[:, 0] > 1)).long()
    trees = [DecisionTreeClassifier(random_state=n).fit(x[n::3], y[n::3]) for n in range(3)]
    torch.manual_seed(0)
    student = Distiller(method=ProxyDirichlet(match="mi")).fit(Ensemble(trees), x).student_
    assert student.model.settings["pieces"][:3] == [0, 0, 0]
    said = student.predict(x)
    assert (said.mean.argmax(-1) == y).float().mean() > 0.97
    student.save(tmp_path / "student")
    torch.testing.assert_close(Student.load(tmp_path / "student").predict(x).mean, said.mean, rtol=0, atol=0)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="pieces are of 2 features, there are 3: pass one number for each"):
        MLP(3, 2, pieces=[1, 2])
    with pytest.raises(ValueError, match="a feature has -1 pieces: pass how many, 0 for none"):
        PiecewiseLinear([3, -1])


def test_a_table_with_words_and_gaps_has_pieces_too(tmp_path):
    draw = torch.Generator().manual_seed(0)
    x = torch.cat([torch.randint(0, 3, (400, 1), generator=draw).float(), rows()[:, 3:]], 1)
    x[::7, 1] = MISSING
    network = MLP.for_table(x, [3, 0, 0], 2, (8,), pieces=12)
    cut = network.settings["pieces"]
    assert len(cut) == 6  # two numbers, where the first is missing, three words
    assert cut[0] > 0
    assert cut[1] > 0
    assert cut[2:] == [0, 0, 0, 0]
    student = Student(network, ProxyDirichlet()).eval()
    student.save(tmp_path / "student")
    said = Student.load(tmp_path / "student").predict(x)
    torch.testing.assert_close(said.mean, student.predict(x).mean, rtol=0, atol=0)
    export(student, tmp_path / "student.onnx", x)
    np.testing.assert_allclose(Graph(tmp_path / "student.onnx")(x)["mean"], said.mean, rtol=1e-4, atol=1e-6)
