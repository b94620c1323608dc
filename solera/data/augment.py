"""Every named view. `OneOf(Plain(), Resample(x))` shows every second row as it is; see docs/views.md."""

from solera.data.image_views import Crop, Flip, Shift
from solera.data.row_views import Gibbs, Jitter, Munge, Resample
from solera.data.text_views import Reword
from solera.data.view import Blend, InTurn, Noise, OneOf, Plain, View

__all__ = [
    "Blend",
    "Crop",
    "Flip",
    "Gibbs",
    "InTurn",
    "Jitter",
    "Munge",
    "Noise",
    "OneOf",
    "Plain",
    "Resample",
    "Reword",
    "Shift",
    "View",
]
