"""Ensembles of speech recognisers into one: EnD, SEnD², and what each knows about what it heard."""

from dataclasses import dataclass
from functools import cached_property

import torch

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.data import Recordings, Tokenizer, train_words
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate
from solera.methods import EnD, Method, ProxyDirichlet
from solera.nn import Recogniser
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import require_files
from solera.recipes.page import pyplot
from solera.recipes.speech_page import Found, draw, page
from solera.recipes.strings import DIGITS, RATE, WORDS, YES_NO, Spoken, noisy
from solera.tasks import Seq2Seq, Transcription
from solera.teachers import Ensemble, TransferSet, capture
from solera.training import Student, Training, distill, transcribe
from solera.training.translated import TranslatedPairs

TEST, HELD, TRAIN = range(5), range(5, 10), range(10, 50)  # takes of every speaker and digit
FIRST_HELD = 1_000_000  # examples held out are numbered from there on


@dataclass(frozen=True)
class Speech(Recipe):
    """Strings of spoken digits: an ensemble of small recognisers into one that knows which ones it cannot hear.

    EnD and SEnD² (a Dirichlet per step) learn from the ensemble's memory of the references (proxy paper, Table 3).
    Unfamiliar: a speaker held out, reversed audio, Hebrew yes and no, white noise at 20 and 30 dB.
    """

    data: str = "../shared/data"
    members: int = 6
    epochs: int = 12
    student_epochs: int = 8  # after a member's, from whose weights every student starts
    strings: int = 4_000
    width: int = 96
    seconds: float = 45.0  # of sound in a batch
    label_weight: float = 0.5  # the students' share of the labels and of their CTC helper
    beams: int = 5
    test: int = 500
    others: int = 300  # strings of each unfamiliar set
    resamples: int = 200

    def __post_init__(self) -> None:
        for name in ("members", "epochs", "student_epochs", "strings", "seconds", "beams", "test", "others"):
            require_positive(name, getattr(self, name))

    def run(self, work: Workspace) -> str:
        require_files(self.data, [DIGITS, YES_NO])
        pyplot()
        study = Study(self, work)
        models = study.models()
        work.say("transcribing the test set and the unfamiliar ones with each model")
        said = {name: {where: study.said(model, name, where) for where in study.sets} for name, model in models.items()}
        alone = {f"member {n}": {"test": study.said(m, f"member {n}", "test")} for n, m in study.alone.items()}
        work.say("measuring")
        test, unfamiliar = study.sets["test"], {name: some for name, some in study.sets.items() if name != "test"}
        whole = evaluate(said, test, task=Transcription(), unfamiliar=unfamiliar, resamples=self.resamples)
        tokens = evaluate(models, test, task=Seq2Seq(), resamples=min(50, self.resamples))
        members = evaluate(alone, test, task=Transcription())
        for name, evaluation in (("strings", whole), ("tokens", tokens)):
            evaluation.save(work.folder / "evaluation" / name)
        draw(whole, work)
        found = Found(whole, tokens, [row["WER"] or 0.0 for row in members.rows.values()], study.held_out)
        return page(self, found, work)


class Study:
    """The parts of the recipe, each made when it is first asked for and kept in the folder."""

    def __init__(self, recipe: Speech, work: Workspace) -> None:
        self.recipe, self.work, self.folder = recipe, work, work.folder
        self.spoken = Spoken(recipe.data)
        self.tokenizer: Tokenizer = train_words(WORDS)

    @property
    def held_out(self) -> str:
        """The speaker whom nobody heard in training: the last one."""
        return self.spoken.speakers[-1]

    def recordings(self, count: int, takes: range, name: str, first: int = 0) -> Recordings:
        """Strings of the known speakers, or for "new speaker" of the one held out."""
        numbers = list(range(len(self.spoken.speakers)))
        speakers = numbers[-1:] if name == "new speaker" else numbers[:-1]
        audio, text = self.spoken.strings(count, speakers, takes, stream(self.recipe.seed, "strings", name))
        index = torch.arange(first, first + count)
        return Recordings(audio, text, self.tokenizer, rate=RATE, seconds=self.recipe.seconds, index=index)

    @cached_property
    def train(self) -> Recordings:
        """The training set."""
        return self.recordings(self.recipe.strings, TRAIN, "train")

    @cached_property
    def held(self) -> Recordings:
        """Strings of other takes, on which the students' best epoch and the size of their uncertainty are chosen."""
        return self.recordings(max(20, self.recipe.strings // 10), HELD, "held", FIRST_HELD)

    @cached_property
    def sets(self) -> dict[str, Recordings]:
        """The test set and the unfamiliar ones."""
        recipe = self.recipe
        test = self.recordings(recipe.test, TEST, "test")
        some = test.of(torch.arange(min(recipe.others, recipe.test)))
        waves = [wave.numpy() for wave in some._sources]

        def changed(audio: list, text: list[str] | None) -> Recordings:
            return Recordings(audio, text, self.tokenizer, rate=RATE, seconds=recipe.seconds)

        found = {"test": test, "new speaker": self.recordings(recipe.others, TEST, "new speaker")}
        found["reversed"] = changed([wave[::-1].copy() for wave in waves], None)
        found["yes/no"] = changed(self.spoken.yes_no()[: recipe.others], None)
        for decibels in (20, 30):
            noise = noisy(waves, decibels, stream(recipe.seed, "noise", decibels))
            found[f"noise {decibels} dB"] = changed(noise, some.target_text)
        return found

    def network(self) -> Recogniser:
        """A member's architecture, and a student's."""
        return Recogniser(len(self.tokenizer), RATE, width=self.recipe.width)

    def member_training(self) -> Training:
        """From nothing, by maximum likelihood with the CTC helper."""
        return Training(epochs=self.recipe.epochs, lr=2e-3, warm_up=0.2, clip=1.0, seed=self.recipe.seed)

    def student_training(self) -> Training:
        """On from a member, so at half its rate."""
        return Training(
            epochs=self.recipe.student_epochs, lr=1e-3, warm_up=0.2, clip=1.0, seed=self.recipe.seed,
            label_weight=self.recipe.label_weight,
        )  # fmt: skip

    @cached_property
    def ensemble(self) -> Ensemble:
        """Members of their own seeds."""
        members, folder = self.recipe.members, self.folder / "ensemble"
        self.work.say(f"training {members} recognisers on {self.recipe.strings} strings")
        return train_ensemble(self.network, self.train, members, self.member_training(), task=Seq2Seq(), folder=folder)

    @property
    def alone(self) -> dict[int, torch.nn.Module]:
        """Every member, by number."""
        return dict(enumerate(self.ensemble.models))

    def memory(self) -> TransferSet:
        """What the ensemble says about the references."""
        path = self.folder / "memory"
        capture(self.ensemble, self.train, path)
        return capture(self.ensemble, self.held, path)

    def models(self) -> dict[str, Ensemble | Student]:
        """By name, in the order of the tables."""
        found: dict[str, Ensemble | Student] = {"single": self.single, "ensemble": self.ensemble}
        found["EnD"] = self.student("EnD", EnD())
        found["SEnD²"] = self.student("SEnD²", ProxyDirichlet())
        return found

    @property
    def single(self) -> Student:
        """The first member, alone: a rival, and where students start."""
        return Student(self.ensemble.models[0], EnD(), tokenizer=self.tokenizer)

    def student(self, name: str, method: Method) -> Student:
        """Distilled from the memory."""
        kept = self.folder / "students" / name
        if (kept / "config.json").exists():
            return Student.load(kept)
        self.work.say(f"distilling {name}")
        student = distill(
            self.memory(),
            self.network(),
            self.train,
            method,
            self.student_training(),
            task=Seq2Seq(),
            validation=self.held,
            start=self.single,
            folder=self.folder / "training" / name,
        )
        student.save(kept)
        return student

    def said(self, model: Ensemble | Student | torch.nn.Module, name: str, where: str) -> TranslatedPairs:
        """What a model hears in a set."""
        place = self.folder / "said" / name / where.replace("/", " ")
        return transcribe(model, self.sets[where], self.recipe.beams, folder=place)
