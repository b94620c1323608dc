"""LatentBE beside KD, AE-KD, Proxy-EnD² and BatchEnsemble on CIFAR, with and without perturbed inputs."""

import time

import torch

from solera.evaluation.stream import Predictor
from solera.methods import AEKD, BatchEnsemble, EnD, LatentBE, ProxyDirichlet
from solera.perturbations import ConfODS, TDivSDiv
from solera.recipes.base import Recipe, Workspace
from solera.recipes.corruptions import CORRUPTIONS, SEVERITIES, corrupted
from solera.recipes.data import colour, load_cifar, load_colour, require_cifar, require_files
from solera.recipes.latentbe import MEMBERS, Parts, Scale, Sets, Setting, Study, Subnetworks, Way
from solera.recipes.latentbe_page import Found, Numbers, apart, draw, measure, page
from solera.recipes.page import pyplot
from solera.training import Student

TRAFFIC = "images/gtsrb_test2k_32x32.npz"  # traffic signs: unfamiliar
WAYS = {
    "KD": Way(EnD(temperature=4.0)),
    "AE-KD": Way(AEKD(temperature=4.0)),
    "Proxy-EnD²": Way(ProxyDirichlet(as_published=True)),
    "LatentBE": Way(Subnetworks()),
    "LatentBE + ConfODS": Way(Subnetworks(), ConfODS(temperature=4.0)),
    "LatentBE + TDiv−SDiv": Way(Subnetworks(), TDivSDiv()),
    "BE": Way(BatchEnsemble(temperature=4.0)),
    "BE + ConfODS": Way(BatchEnsemble(temperature=4.0), ConfODS(temperature=4.0)),
    "BE + TDiv−SDiv": Way(BatchEnsemble(temperature=4.0), TDivSDiv()),
}


def compare(recipe: Recipe, setting: Setting, scale: str, data: str, work: Workspace) -> str:
    """Runs all repetitions of a study, and returns its page."""
    for classes in (setting.classes, setting.other):
        require_cifar(data, classes)
    require_files(data, [TRAFFIC])
    pyplot()
    at = setting.scales[scale]
    study = Study(data, setting.classes, at, recipe.seed)
    parts, found = study.parts(), Found()
    sets = sets_of(setting, at, data) | {"validation": parts.held}
    for repeat in range(at.repeats):
        for model, numbers in one_repeat(study, repeat, parts, sets, work).items():
            found.setdefault(model, []).append(numbers)
    draw(setting, found, work)
    sizes = [parts.labelled.examples, parts.seen.examples]
    return page(recipe, setting, at, found, sizes, work)


def one_repeat(study: Study, repeat: int, parts: Parts, sets: Sets, work: Workspace) -> dict[str, Numbers]:
    """Four networks and all their students."""
    start = time.process_time()
    ensemble = study.ensemble(MEMBERS, parts.labelled, repeat, work)
    seconds = time.process_time() - start
    found: dict[str, Numbers] = {}

    def keep(name: str, model: Predictor, trained: float | None) -> None:
        found[name] = work.remember(f"{repeat} {name}", lambda: {**measure(model, sets), "training": trained})

    keep("one member", Student(ensemble.models[0], EnD()), seconds / MEMBERS)
    keep("DE-4", ensemble, seconds)
    for name, way in WAYS.items():
        if name in study.at.without:
            continue
        start = time.process_time()
        student = study.student(ensemble, parts.seen, name, way, repeat, work)
        trained = time.process_time() - start
        if isinstance(way.method, Subnetworks):
            together = f"{name}, subnetworks"
            keep(together, Student(student.model, BatchEnsemble()), None)
            found[together] |= work.remember(f"{repeat} {name}, each", lambda s=student: apart(s, *sets["test"]))
            student = Student(LatentBE().finalize(student.model).eval(), LatentBE())
        keep(name, student, trained)
    return found


def sets_of(setting: Setting, at: Scale, data: str) -> Sets:
    """Test images, the same corrupted in every way, and two kinds of unfamiliar images."""
    images, labels = load_cifar(data, setting.classes, "test")
    sets: Sets = {"test": (colour(images), torch.from_numpy(labels))}
    count = at.corrupted or len(images)
    whole, marked = colour(images[:count]), torch.from_numpy(labels[:count])
    for corruption in CORRUPTIONS:
        for severity in SEVERITIES:
            sets[f"{corruption.__name__} {severity}"] = corrupted(whole, corruption, severity), marked
    unfamiliar = load_cifar(data, setting.other, "test")[0]
    sets[f"CIFAR-{setting.other}"] = colour(unfamiliar[:2000]), None
    sets["GTSRB"] = colour(load_colour(data, TRAFFIC)[0]), None
    return sets
