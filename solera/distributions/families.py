"""What one member says: a probability for every class, or a mean and a variance for every target."""

from typing import Literal

from solera.distributions.categorical import Categorical
from solera.distributions.gaussian import Gaussian

Family = Literal["categorical", "gaussian"]
_FAMILIES = {"categorical": Categorical, "gaussian": Gaussian}


def family_named(name: str) -> type[Categorical] | type[Gaussian]:
    """The class of this name: a setting of methods, teachers and trainings that is a plain word in every file."""
    if name not in _FAMILIES:
        raise ValueError(f"family must be 'categorical' (classes) or 'gaussian' (continuous targets), got {name!r}")
    return _FAMILIES[name]
