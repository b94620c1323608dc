"""LatentBE on CIFAR-100: the same study with a hundred classes."""

from dataclasses import dataclass, replace

from solera.recipes.base import Recipe, Workspace
from solera.recipes.latentbe import LAPTOP, PAPER_SCALE, Setting, Size
from solera.recipes.latentbe_compare import compare

CIFAR100 = Setting(
    name="latentbe-cifar100",
    classes=100,
    other=10,
    scales={
        "laptop": replace(
            LAPTOP,
            width=2,
            images=8_000,
            epochs=20,
            chosen="by KD's NLL on the held-out images of the first study, 2.608 after 8 epochs and 2.553 after 16, "
            "where its members have 2.558 to 2.662 and the ensemble 2.447, and by time: they are still learning",
        ),
        "paper": PAPER_SCALE,
    },
    paper={
        "KD": "79.09 / 1.038 / 0.130 / 0.861 / 0.046",
        "AE-KD": "79.00 / 1.033 / 0.129 / 0.859 / 0.045",
        "Proxy-EnD²": "78.75 / 1.076 / 0.138 / 0.886 / 0.046",
        "LatentBE": "79.46 / 0.993 / 0.124 / 0.837 / 0.046",
        "LatentBE + ConfODS": "79.27 / 0.955 / 0.115 / 0.840 / 0.048",
        "LatentBE + TDiv−SDiv": "80.02 / 0.792 / 0.067 / 0.772 / 0.041",
        "BE": "78.92 / 1.035 / 0.130 / 0.863 / 0.043",
        "BE + ConfODS": "78.65 / 1.002 / 0.123 / 0.873 / 0.046",
        "BE + TDiv−SDiv": "79.56 / 0.818 / 0.066 / 0.798 / 0.042",
    },
    paper_corrupted={
        "DE-4": "51.08 / 2.296 / 0.114",
        "KD": "48.79 / 3.410 / 0.341",
        "AE-KD": "48.86 / 3.407 / 0.340",
        "Proxy-EnD²": "48.67 / 3.378 / 0.350",
        "LatentBE": "50.03 / 3.178 / 0.321",
        "LatentBE + ConfODS": "47.17 / 3.273 / 0.326",
        "LatentBE + TDiv−SDiv": "51.36 / 2.507 / 0.208",
    },
    paper_tiny={
        "one member": "63.25 / 1.599 / 0.099",
        "DE-4": "68.75 / 1.276 / 0.027",
        "KD": "67.69 / 1.351 / 0.067",
        "AE-KD": "64.77 / 1.424 / 0.052",
        "Proxy-EnD²": "62.29 / 1.578 / 0.049",
        "LatentBE": "67.76 / 1.343 / 0.073",
        "LatentBE + ConfODS": "67.89 / 1.338 / 0.071",
        "LatentBE + TDiv−SDiv": "68.15 / 1.317 / 0.062",
    },
    paper_time={
        "DE-4": "6.2 h, 0.390 ms",
        "KD": "1.6 h, 0.107 ms",
        "LatentBE": "3.3 h, 0.107 ms",
        "LatentBE + TDiv−SDiv": "5.3 h, 0.107 ms",
        "BE": "3.3 h, 0.288 ms",
        "BE + TDiv−SDiv": "5.3 h, 0.288 ms",
    },
)


@dataclass(frozen=True)
class LatentbeCifar100(Recipe):
    """The weight-averaging paper's Tables 3, 4 and 5 and Figure 6: the study of latentbe-cifar10 with 100 classes.

    scale=laptop, two hours on a core with bfloat16: four WRN-10-2 learn 8,000 labelled images; their
    students see the others too, without labels, but for 2,000 held out; three studies. scale=paper is the paper's own
    (WRN-28-4, 200 epochs, four seeds), for a GPU.
    """

    data: str = "../shared/data"
    scale: Size = "laptop"

    def run(self, work: Workspace) -> str:
        return compare(self, CIFAR100, self.scale, self.data, work)
