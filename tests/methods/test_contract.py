"""Every method found keeps the contract."""

import importlib
import pkgutil

import pytest

import solera.methods
from solera.methods.base import Method
from solera.testing import check_method

PARTS = ("base", "fused_head")  # what methods share
MODULES = [m.name for m in pkgutil.iter_modules(solera.methods.__path__) if m.name not in PARTS]


def method_in(name: str) -> type[Method]:
    module = importlib.import_module(f"solera.methods.{name}")
    kinds = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Method) and v is not Method]
    (kind,) = [k for k in kinds if k.__module__ == module.__name__]
    return kind


@pytest.mark.parametrize("batch", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_every_method_keeps_the_contract(name, batch):
    check_method(method_in(name)(), batch=batch)


@pytest.mark.parametrize("name", MODULES)
def test_one_member_is_an_ensemble_too(name):
    check_method(method_in(name)(), members=1)


@pytest.mark.parametrize("name", MODULES)
def test_module_class_and_loss_share_one_name(name):
    kind = method_in(name)
    assert kind.__name__.lower() == name.replace("_", "")
    assert f"{name}_loss" in vars(importlib.import_module(f"solera.methods.{name}"))
    assert kind.__name__ in solera.methods.__all__
