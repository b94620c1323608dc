"""What the recipes' pages share: how a model is drawn."""

import pytest

from solera.recipes.page import COLOURS, look


@pytest.mark.parametrize(
    ("model", "method", "line"),
    [
        ("ensemble", "ensemble", "-"),
        ("EnD² + AUX", "EnD²", "--"),
        ("Proxy+AUX", "Proxy", "--"),
        ("Proxy, with the one", "Proxy", ":"),
        ("single, calibrated", "single", ":"),
        ("Hydra, T = 4", "Hydra", ":"),
    ],
)
def test_a_method_has_its_colour_on_every_page_and_a_variant_its_line(model, method, line):
    drawn = look(model)
    assert (drawn["color"], drawn["linestyle"]) == (COLOURS[method], line)
    assert (drawn["linewidth"] > 2) == (model == "ensemble")
