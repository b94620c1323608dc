"""Ensembles of translators into one: token-level distillation, SEnD², and what each knows about its own outputs."""

from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import torch

from solera.core.checks import require_positive
from solera.core.seeds import generator
from solera.data import Pairs, Tokenizer, as_tokenizer, train_bpe
from solera.data.pairs import read_lines
from solera.ensembles import train_ensemble, train_snapshots
from solera.evaluation import Evaluation, evaluate
from solera.evaluation.latency import in_turns
from solera.methods import EnD, Method, ProxyDirichlet
from solera.nn import Translator
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import require_files
from solera.recipes.page import pyplot
from solera.recipes.translation_page import PUBLISHED, Found, draw, page
from solera.tasks import Seq2Seq
from solera.tasks import Translation as Translations
from solera.teachers import Ensemble, TransferSet, capture
from solera.teachers.codecs import TopKCodec
from solera.training import Student, Training, distill, fit, translate
from solera.training.translated import TranslatedPairs

TIMED = 50  # sentences, on the clock
SEND2 = ProxyDirichlet(match="mi", mean_weight=5.0)
FOLDER, HELD = "translation", 1_000_000  # examples held out are numbered from there on
FILES = {
    "train": "multi30k.train.{}.gz",
    "held": "multi30k.val.{}.gz",
    "test": "multi30k.test_2016_flickr.{}.gz",
    "mscoco": "multi30k.test_2017_mscoco.{}.gz",
}
OTHERS = ("newstest2021.refA.de.gz", "wmt_sample10k.tok.de.gz", "tatoeba_test.de-en.tsv.gz")


def _first(pairs: Pairs, most: int) -> Pairs:
    return pairs.of(torch.arange(min(most, pairs.examples)))


def permuted(lines: list[str], seed: int) -> list[str]:
    """Every sentence's words in another order."""
    draw, found = generator(seed, "permuted"), []
    for line in lines:
        words = line.split()
        found.append(" ".join(words[int(place)] for place in torch.randperm(len(words), generator=draw)))
    return found


@dataclass(frozen=True)
class Translation(Recipe):
    """Multi30k, German to English: an ensemble of small transformers into one that knows which sentences it cannot do.

    EnD learns tokens from the ensemble's memory of the references (structured paper), SEnD² a Dirichlet per step (proxy
    paper), from that memory or of its own outputs; beside them a student of these outputs alone. Unfamiliar: permuted
    sources, French, news, web text; shifted: other captions (mscoco) and everyday sentences (Tatoeba).
    """

    data: str = "../shared/data"
    members: int = 3
    epochs: int = 6
    student_epochs: int = 3  # after a member's, from whose weights every student starts
    sentences: int = 0  # the first so many pairs; 0: all of them
    vocabulary: int = 4_000
    width: int = 192
    tokens: int = 1_024  # in a batch
    keep: int = 32  # likeliest tokens that the memory keeps
    sweep: tuple[int, ...] = (8, 128)  # other numbers of them, for EnD
    own_beams: int = 1  # with which the ensemble translates the training set
    beams: int = 5
    test: int = 0  # the first so many test sentences; 0: all of them
    others: int = 300  # sentences of each unfamiliar set
    baselines: bool = True  # sequence-level distillation, and EnD with the tail as an event
    snapshots: int = 0  # cycles of an SGDR ensemble beside the others; 0: none
    resamples: int = 200

    def __post_init__(self) -> None:
        for name in ("members", "epochs", "student_epochs", "keep", "own_beams", "beams", "others"):
            require_positive(name, getattr(self, name))

    def run(self, work: Workspace) -> str:
        names = [file.format(side) for file in FILES.values() for side in ("de", "en")]
        require_files(self.data, [f"{FOLDER}/{name}" for name in (*names, *OTHERS, FILES["test"].format("fr"))])
        pyplot()
        study = Study(self, work)
        models = study.models()
        work.say("translating the test set and the unfamiliar ones with each model")
        said = {name: {where: study.said(model, name, where) for where in study.sets} for name, model in models.items()}
        return self._page(study, models, said, work)

    def _page(
        self, study: "Study", models: dict[str, Ensemble | Student], said: dict[str, dict[str, TranslatedPairs]],
        work: Workspace,
    ) -> str:  # fmt: skip
        work.say("measuring")
        unfamiliar = {name: pairs for name, pairs in study.sets.items() if name != "test"}
        whole = evaluate(
            said, study.sets["test"], task=Translations(lowercase=True), unfamiliar=unfamiliar, resamples=self.resamples
        )
        tokens = evaluate(models, study.sets["test"], task=Seq2Seq(), resamples=min(50, self.resamples))
        own = evaluate(models, said["ensemble"]["test"], task=Seq2Seq())
        seconds = work.remember("seconds", partial(study.seconds, models))
        found = Found(whole, tokens, own, study.memory_facts(), self.members_alone(study), seconds)
        draw(whole, work)
        for name, evaluation in (("sentences", whole), ("tokens", tokens)):
            evaluation.save(work.folder / "evaluation" / name)
        return page(self, found, work)

    def members_alone(self, study: "Study") -> list[dict[str, float | None]]:
        """BLEU and chrF of every member on the test set."""
        rows = []
        for number in range(self.members):
            said = study.said(study.ensemble.models[number], f"member {number}", "test")
            alone: Evaluation = evaluate({"m": {"test": said}}, study.sets["test"], task=Translations(lowercase=True))
            rows.append({name: alone.rows["m"][name] for name in ("BLEU", "chrF")})
        return rows


class Study:
    """The parts of the recipe, each made when it is first asked for and kept in the folder."""

    def __init__(self, recipe: Translation, work: Workspace) -> None:
        self.recipe, self.work, self.folder = recipe, work, work.folder

    def _path(self, name: str, side: str) -> Path:
        return Path(self.recipe.data) / FOLDER / FILES[name].format(side)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """A joint byte-pair encoding without case, trained once and kept."""
        file, recipe = self.folder / "tokenizer.json", self.recipe
        if not file.exists():
            lines = [line for side in ("de", "en") for line in read_lines(self._path("train", side))]
            train_bpe(lines, recipe.vocabulary, lowercase=True).save(self.folder)
        return as_tokenizer(file)

    def pairs(self, name: str) -> Pairs:
        """One of Multi30k's sets."""
        german, english = (read_lines(self._path(name, side)) for side in ("de", "en"))
        if name in ("train", "held") and self.recipe.sentences:
            german, english = german[: self.recipe.sentences], english[: self.recipe.sentences]
        index = torch.arange(HELD, HELD + len(german)) if name == "held" else None
        return Pairs(german, english, self.tokenizer, tokens=self.recipe.tokens, index=index)

    @cached_property
    def train(self) -> Pairs:
        """The training set."""
        return self.pairs("train")

    @cached_property
    def held(self) -> Pairs:
        """Pairs held out, by which the students' best epoch and the size of their uncertainty are chosen."""
        return self.pairs("held")

    @cached_property
    def sets(self) -> dict[str, Pairs]:
        """The test set, shifted ones with references, and unfamiliar sources."""
        recipe, folder = self.recipe, Path(self.recipe.data) / FOLDER
        test, most = self.pairs("test"), self.recipe.others
        test = _first(test, recipe.test or test.examples)

        def sources(lines: list[str]) -> Pairs:
            spoken = [line.replace("&apos;", "'").replace("&quot;", '"') for line in lines if line.strip()]
            return Pairs(spoken[:most], None, self.tokenizer, tokens=recipe.tokens)

        tatoeba = [line.split("\t") for line in read_lines(folder / OTHERS[2])]
        tatoeba = tatoeba[:: max(1, len(tatoeba) // most)][:most]  # in alphabetical order, so from all over it
        return {
            "test": test,
            "mscoco": _first(self.pairs("mscoco"), most),
            "Tatoeba": Pairs([a for a, _ in tatoeba], [b for _, b in tatoeba], self.tokenizer, tokens=recipe.tokens),
            "permuted": sources(permuted(test.source, recipe.seed)),
            "French": sources(read_lines(self._path("test", "fr"))),
            "news": sources(read_lines(folder / OTHERS[0])),
            "web": sources(read_lines(folder / OTHERS[1])),
        }

    def network(self) -> Translator:
        """A member's architecture, and a student's."""
        return Translator(len(self.tokenizer), self.recipe.width)

    def member_training(self) -> Training:
        """From nothing, by maximum likelihood, without label smoothing."""
        return Training(epochs=self.recipe.epochs, lr=2e-3, warm_up=0.2, clip=1.0, seed=self.recipe.seed)

    def student_training(self, label_weight: float = 0.0) -> Training:
        """On from a member; a student that sees labels sees them smoothed, as in the paper."""
        return Training(
            epochs=self.recipe.student_epochs, lr=1e-3, warm_up=0.2, clip=1.0, seed=self.recipe.seed,
            label_weight=label_weight, label_smoothing=0.1 if label_weight else 0.0,
        )  # fmt: skip

    @cached_property
    def ensemble(self) -> Ensemble:
        """Members of their own seeds."""
        members, folder = self.recipe.members, self.folder / "ensemble"
        self.work.say(f"training {members} translators on {self.train.examples} pairs")
        return train_ensemble(self.network, self.train, members, self.member_training(), task=Seq2Seq(), folder=folder)

    @cache  # noqa: B019
    def own(self, name: str) -> TranslatedPairs:
        """The ensemble's own outputs for the training set, or for the pairs held out."""
        pairs = self.train if name == "train" else self.held
        self.work.say(f"the ensemble translates {pairs.examples} sentences")
        return translate(self.ensemble, pairs, self.recipe.own_beams, folder=self.folder / "own" / name)

    def asked(self, what: str) -> tuple[Pairs, Pairs]:
        """What the ensemble is asked about, to learn from and held out: the references, or its own outputs."""
        return (self.own("train"), self.own("held")) if what == "own" else (self.train, self.held)

    def memory(self, what: str, keep: int) -> TransferSet:
        """What it says about them."""
        path, codec, (train, held) = self.folder / "memory" / f"{what}-{keep}", TopKCodec(keep=keep), self.asked(what)
        capture(self.ensemble, train, path, codec)
        return capture(self.ensemble, held, path, codec)

    def memory_facts(self) -> dict[str, float]:
        """Bytes of the memory on the disk for each token, by what is kept."""
        tokens = sum(len(target) for pairs in (self.train, self.held) for target in pairs.written or [])
        return {
            str(keep): sum(file.stat().st_size for file in path.glob("*.safetensors")) / tokens
            for keep in (self.recipe.keep, *self.recipe.sweep)
            if (path := self.folder / "memory" / f"references-{keep}").exists()
        }

    def seconds(self, models: dict[str, Ensemble | Student], turns: int = 3) -> dict[str, float]:
        """To translate a test sentence, the best of a few turns that all take one after another."""
        some = _first(self.sets["test"], TIMED)
        asked = {
            n: partial(translate, models[n], some, self.recipe.beams) for n in ("single", "ensemble", "SEnD²", "EnD")
        }
        return {name: min(seconds) / some.examples for name, seconds in in_turns(asked, turns).items()}

    def models(self) -> dict[str, Ensemble | Student]:
        """By name, in the order of the tables."""
        recipe = self.recipe
        found: dict[str, Ensemble | Student] = {"single": self.single, "ensemble": self.ensemble}
        if recipe.snapshots:
            found["snapshots"] = self.snapshot_ensemble()
        found["SEnD²"] = self.student("SEnD²", SEND2, "references", recipe.keep, 0.5)
        found[PUBLISHED] = self.student(PUBLISHED, ProxyDirichlet(), "own", recipe.keep, 0.0)
        found["EnD"] = self.student("EnD", EnD(tail="dropped"), "references", recipe.keep, 0.5)
        if recipe.baselines:
            found["sequence KD"] = self.sequence_student()
            found["EnD, tail"] = self.student("EnD, tail", EnD(tail="event"), "references", recipe.keep, 0.5)
        for keep in recipe.sweep:
            name = f"EnD, {keep} kept"
            found[name] = self.student(name, EnD(tail="dropped"), "references", keep, 0.5)
        return found

    @property
    def single(self) -> Student:
        """The first member, alone: a rival, and where students start."""
        return Student(self.ensemble.models[0], EnD(), tokenizer=self.tokenizer)

    def student(self, name: str, method: Method, what: str, keep: int, label_weight: float) -> Student:
        """Distilled from a memory of the references, or of the ensemble's own outputs."""
        kept = self.folder / "students" / name
        if (kept / "config.json").exists():
            return Student.load(kept)
        self.work.say(f"distilling {name}")
        train, held = self.asked(what)
        student = distill(
            self.memory(what, keep),
            self.network(),
            train,
            method,
            self.student_training(label_weight),
            task=Seq2Seq(),
            validation=held,
            start=self.single,
            folder=self.folder / "training" / name,
        )
        student.save(kept)
        return student

    def sequence_student(self) -> Student:
        """Sequence-level distillation: maximum likelihood of the ensemble's outputs (Kim and Rush, 2016)."""
        self.work.say("distilling sequence KD")
        place, network = self.folder / "training" / "sequence KD", self.network()
        network.load_state_dict(self.ensemble.models[0].state_dict())
        network = fit(
            network, self.own("train"), self.student_training(), task=Seq2Seq(), folder=place, title="sequence KD"
        )
        return Student(network, EnD(), tokenizer=self.tokenizer)

    def snapshot_ensemble(self) -> Ensemble:
        """One training with warm restarts (SGDR), a member per cycle."""
        place, cycles = self.folder / "snapshots", self.recipe.snapshots
        return train_snapshots(self.network, self.train, cycles, self.member_training(), task=Seq2Seq(), folder=place)

    def said(self, model: Ensemble | Student | torch.nn.Module, name: str, where: str) -> TranslatedPairs:
        """What a model writes for a set."""
        return translate(model, self.sets[where], self.recipe.beams, folder=self.folder / "said" / name / where)
