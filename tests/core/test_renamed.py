"""Old names go on working, and say what to write instead."""

import pytest
import torch

from solera import Ensemble, Student
from solera.methods import EnD
from solera.nn import MLP


def test_the_old_name_of_class_names():
    with pytest.warns(DeprecationWarning, match="labels is now called class_names"):
        ensemble = Ensemble([MLP(2, 3), MLP(2, 3)], labels=["a", "b", "c"])
    assert ensemble.class_names == ["a", "b", "c"]
    student = Student(MLP(2, 3), EnD(), ["a", "b", "c"])
    with pytest.warns(DeprecationWarning, match="labels is now called class_names"):
        assert student.labels == ["a", "b", "c"]
    with pytest.warns(DeprecationWarning, match="class_names"):
        student.labels = ["x", "y", "z"]
    assert student.class_names == ["x", "y", "z"]
    assert "labels" not in student.state_dict()
    with pytest.raises(TypeError, match="unexpected keyword"):
        Ensemble([MLP(2, 3)], names=["a", "b", "c"]).predict(torch.zeros(1, 2))
