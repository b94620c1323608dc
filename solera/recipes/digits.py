"""The demonstration: handwritten digits, two of which no model was trained on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from solera.core.seeds import generator, stream
from solera.core.versions import versions
from solera.data import Batches
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate, report, verdict
from solera.evaluation.report import card_numbers
from solera.methods import EnD, EnD2, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import blends
from solera.serving import export
from solera.teachers import Ensemble, capture
from solera.training import Student, Training, distill
from solera.training.card import record

KNOWN = 8
KEPT = "Proxy"  # the student that is exported


@dataclass(frozen=True)
class Digits(Recipe):
    """Ten small convnets on few labels of scikit-learn's digits 0–7, distilled three ways; 8 and 9 are the unfamiliar.

    The students also learn what the ensemble says about training images without a label. Writes the students, ready to
    load, report.html, and the Proxy-Dirichlet student as student.onnx.
    """

    members: int = 10
    labels: int = 160  # training images that have one
    epochs: int = 30
    student_epochs: int = 40

    def data(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Training images and labels, images without a label, test images and labels, unfamiliar images."""
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise ImportError("the demonstration reads scikit-learn's digits: pip install 'solera[recipes]'") from None
        images, labels = load_digits(return_X_y=True)
        x = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
        y = torch.tensor(labels)
        known = (y < KNOWN).nonzero().squeeze(1)
        known = known[torch.randperm(len(known), generator=generator(self.seed, "digits"))]
        test, train, rest = known[:400], known[400 : 400 + self.labels], known[400 + self.labels :]
        return x[train], y[train], x[rest], x[test], y[test], x[y >= KNOWN]

    def run(self, work: Workspace) -> str:
        x, y, rest, x_test, y_test, x_new = self.data()
        work.say(f"training {self.members} convnets on {len(x)} labelled images of the digits 0 to {KNOWN - 1}")
        ensemble = train_ensemble(
            lambda: ConvNet((1, 8, 8), KNOWN),
            Batches(x, y, batch_size=32),
            self.members,
            Training(epochs=self.epochs, lr=3e-3, seed=self.seed),
            folder=work.folder / "ensemble",
        )
        # blends of two digits: unlabelled inputs, made from the training images alone, on which members differ
        blended = blends(torch.cat([x, rest]), 2 * (len(x) + len(rest)), self.seed)
        batches = Batches(x, y, batch_size=64).with_unlabelled(rest).with_unlabelled(blended, elsewhere=True)
        work.say(f"remembering what they say about {batches.examples} inputs, {len(rest)} of them unlabelled images")
        transfer_set = capture(ensemble, batches, work.folder / "transfer-set")
        models: dict[str, Ensemble | Student] = {"single": Student(ensemble.models[0], EnD()), "ensemble": ensemble}
        for name, method in STUDENTS.items():
            work.say(f"distilling {name}")
            torch.manual_seed(stream(self.seed, "student"))
            student = distill(
                transfer_set,
                ConvNet((1, 8, 8), KNOWN),
                batches,
                method,
                Training(epochs=self.student_epochs, lr=3e-3, seed=self.seed),
                folder=work.folder / "training" / name,
            )
            student.save(work.folder / "students" / name)
            models[name] = student
        work.say("comparing them on the test set, and on the digits 8 and 9 that none has seen")
        result = evaluate(models, x_test, y_test, unfamiliar={"8, 9": x_new}, resamples=200)
        result.save(work.folder / "evaluation")
        report(result, work.folder / "report.html")
        for name in STUDENTS:  # metrics and thresholds into the model cards, and from there into the graph
            record(work.folder / "students" / name, *card_numbers(result, name))
        graph = export(Student.load(work.folder / "students" / KEPT), work.folder / "student.onnx", x_test)
        judged = verdict(result, KEPT, single="single")
        return PAGE.format(table=result.markdown(), judged=" ".join(judged.sentences), graph=graph, origin=versions())


STUDENTS: dict[str, Method] = {
    "EnD": EnD(temperature=2.5),
    "EnD²": EnD2(),
    "Proxy": ProxyDirichlet(),
}

PAGE = """# Digits

{table}

Verdict on the student Proxy: {judged}

```
{graph}
```

{origin}
"""
