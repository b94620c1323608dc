"""LatentBE on CIFAR-10: students of four networks, merged or not, with and without perturbed inputs."""

from dataclasses import dataclass

from solera.recipes.base import Recipe, Workspace
from solera.recipes.latentbe import Scale, Setting, Size
from solera.recipes.latentbe_compare import compare

CIFAR10 = Setting(
    name="latentbe-cifar10",
    classes=10,
    other=100,
    scales={
        "quick": Scale(10, 1, 16, 1_000, 500, 6, 32, 0.05, 0.3, 2, 10),
        "laptop": Scale(10, 1, 16, 4_000, 2_000, 15, 64, 0.05, 0.3, 3, 100, without=("BE + ConfODS",)),
        "paper": Scale(28, 1, 32, 0, 5_000, 200, 128, 0.1, 0.025, 4, 0),
    },
    paper={
        "KD": "93.70 / 0.270 / 0.042 / 0.201 / 0.011",
        "AE-KD": "93.67 / 0.278 / 0.042 / 0.205 / 0.010",
        "Proxy-EnD²": "93.67 / 0.270 / 0.042 / 0.200 / 0.011",
        "LatentBE": "93.98 / 0.263 / 0.041 / 0.194 / 0.011",
        "LatentBE + ConfODS": "93.95 / 0.223 / 0.032 / 0.186 / 0.008",
        "LatentBE + TDiv−SDiv": "93.95 / 0.205 / 0.028 / 0.181 / 0.008",
        "BE": "93.77 / 0.275 / 0.043 / 0.201 / 0.011",
        "BE + ConfODS": "94.06 / 0.223 / 0.031 / 0.188 / 0.006",
        "BE + TDiv−SDiv": "93.74 / 0.213 / 0.028 / 0.189 / 0.006",
    },
    paper_corrupted={
        "DE-4": "73.18 / 1.025 / 0.092",
        "KD": "72.49 / 1.492 / 0.202",
        "AE-KD": "72.06 / 1.540 / 0.207",
        "Proxy-EnD²": "71.05 / 1.600 / 0.217",
        "LatentBE": "72.73 / 1.522 / 0.203",
        "LatentBE + ConfODS": "70.18 / 1.477 / 0.200",
        "LatentBE + TDiv−SDiv": "73.22 / 1.237 / 0.171",
    },
)


@dataclass(frozen=True)
class LatentbeCifar10(Recipe):
    """The weight-averaging paper's Tables 2 and 4 and Figure 5: KD, AE-KD, Proxy-EnD², LatentBE and BatchEnsemble.

    scale=quick takes minutes; laptop, over an hour on one core, shrinks the images to 16×16 and takes 4,000 of them;
    paper is the paper's own (WRN-28-1, 200 epochs, four seeds), for a GPU.
    """

    data: str = "../shared/data"
    scale: Size = "laptop"

    def run(self, work: Workspace) -> str:
        return compare(self, CIFAR10, self.scale, self.data, work)
