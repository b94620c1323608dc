"""Evaluations of made-up models: small, of every kind, and the same every time."""

import torch

from solera.distributions import Categorical, Dirichlet, Gaussian, Mixture, NormalWishart
from solera.evaluation import evaluate

N, OTHERS, K, M = 300, 120, 4, 5


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def class_answers(seed=0):
    """Answers of an ensemble and of two students about both sets, and labels."""
    g = random(seed)
    sizes = {"test": N, 'far, "away"': OTHERS}
    ensemble, student, plain = {}, {}, {}
    for scale, (name, size) in enumerate(sizes.items(), 1):
        logits = 2 * torch.randn(size, 1, K, generator=g) + 0.6 * scale * torch.randn(size, M, K, generator=g)
        ensemble[name] = Mixture(Categorical(logits))
        student[name] = Dirichlet(8 / scale * ensemble[name].mean + 0.3 * torch.rand(size, K, generator=g))
        plain[name] = Categorical(logits.mean(1))
    labels = torch.multinomial(ensemble["test"].mean, 1, generator=g).squeeze(1)
    inputs = {name: torch.rand(size, 1, 6, 5, generator=g) for name, size in sizes.items()}
    single = {name: Categorical(said.members.logits[:, 0]) for name, said in ensemble.items()}
    return {"single": single, "ensemble": ensemble, "Dirichlet": student, "EnD²": plain}, inputs, labels


def real_answers(dimensions=1, seed=0):
    """The same for continuous targets."""
    g = random(seed)
    ensemble, student = {}, {}
    for scale, (name, size) in enumerate({"test": N, "far": OTHERS}.items(), 1):
        centre = 3 * torch.randn(size, 1, dimensions, generator=g)
        spread = scale * torch.rand(size, 1, 1, generator=g)
        means = centre + spread * torch.randn(size, M, dimensions, generator=g)
        ensemble[name] = Mixture(Gaussian(means, 0.3 * torch.randn(size, M, dimensions, generator=g)))
        whole = ensemble[name]
        freedom = torch.full((size,), 8.0)
        student[name] = NormalWishart(whole.mean, whole.averaged.log_variance, 1 / spread[:, 0, 0], freedom)
    said = ensemble["test"]
    y = said.mean + said.averaged.variance.sqrt() * torch.randn(N, dimensions, generator=g)
    inputs = {name: torch.randn(len(p.mean), 3, generator=g) for name, p in ensemble.items()}
    return {"ensemble": ensemble, "Wishart": student}, inputs, y.squeeze(1) if dimensions == 1 else y


def evaluated(answers, resamples=0, **names):
    models, inputs, labels = answers
    others = {name: x for name, x in inputs.items() if name != "test"}
    return evaluate(models, inputs["test"], labels, unfamiliar=others, resamples=resamples, **names)
