"""LatentBE on CIFAR-10: students of four networks, merged or not, with and without perturbed inputs."""

from dataclasses import dataclass, replace

from solera.recipes.base import Recipe, Workspace
from solera.recipes.latentbe import LAPTOP, PAPER_SCALE, Setting, Size
from solera.recipes.latentbe_compare import compare

CIFAR10 = Setting(
    name="latentbe-cifar10",
    classes=10,
    other=100,
    scales={"laptop": LAPTOP, "paper": replace(PAPER_SCALE, width=1)},
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

    scale=laptop, two hours on a core with bfloat16: four WRN-10-1 learn 5,000 labelled images; their students see the
    others too, without labels, but for 2,000 held out; three studies. scale=paper is the paper's own (WRN-28-1, 200
    epochs, four seeds), for a GPU.
    """

    data: str = "../shared/data"
    scale: Size = "laptop"

    def run(self, work: Workspace) -> str:
        return compare(self, CIFAR10, self.scale, self.data, work)
