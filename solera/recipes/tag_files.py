"""What `solera distill --task tagging` does: CoNLL files of members' predictions in, one tagger out."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from solera.core.seeds import stream
from solera.core.versions import versions
from solera.evaluation import evaluate
from solera.nn import Tagger, WordFeatures
from solera.recipes.arrays import method_named
from solera.recipes.base import Recipe, Workspace
from solera.tasks import Tagging
from solera.teachers import Taggers
from solera.teachers.from_files import load_saw
from solera.training import Training, distill
from solera.training.card import require_own_folder
from solera.training.tag_files import batches_of, read_tag_files, write_said


@dataclass(frozen=True)
class TagFiles(Recipe):
    """Distil CoNLL files of members' tags or tag probabilities into one tagger: `solera distill --task tagging`.

    `labels` is a CoNLL file with the true tags of the same tokens; the last sentences are held out for the table.
    `vectors` and `clusters` are files of word features, as `WordFeatures` takes them.
    """

    study: ClassVar[bool] = False

    members: tuple[str, ...] = field(default=())
    labels: str = ""
    method: str = "proxy-dirichlet"
    epochs: int = 10
    label_weight: float = 0.0
    held_out: float = 0.2
    folds: str = ""  # a file: the fold of each sentence; member m was trained on all but those of fold m
    saw: str = ""  # a file: (sentences, members), true where a member was trained on a sentence
    vectors: str = ""
    clusters: str = ""

    def run(self, work: Workspace) -> str:
        if not self.members:
            raise ValueError("members=FILES are needed, CoNLL files: see solera distill --help")
        require_own_folder(work.folder)  # before the training, not after
        sentences, tags = read_tag_files(self.members, self.labels)
        tokens = [sentence.tokens for sentence in sentences]
        teacher = Taggers(self.members, tokens, class_names=tags.names, saw=load_saw(self.folds, self.saw))
        cuts = [round((1 - self.held_out) * 0.9 * len(sentences)), round((1 - self.held_out) * len(sentences))]
        if not 0 < cuts[0] < cuts[1] < len(sentences):
            raise ValueError(
                f"{len(sentences)} sentences cannot be cut into training, validation and a held-out part of "
                f"{self.held_out}: pass more of them, or another --held-out"
            )
        method = method_named(self.method or "proxy-dirichlet", "categorical")
        torch.manual_seed(stream(self.seed, "student"))
        words = WordFeatures(vectors=self.vectors or None, clusters=self.clusters or None)
        everything = batches_of(sentences, words, tags)
        blocks = [torch.arange(a, b) for a, b in zip((0, *cuts), (*cuts, len(sentences)), strict=True)]
        train, held, test = (everything.of(block) for block in blocks)  # blocks: neighbours are alike
        work.say(f"{teacher.members} members, {len(sentences)} sentences, {len(tags)} tags: distilling with {method}")
        training = Training(
            self.epochs, lr=2e-3, weight_decay=0.01, clip=1.0, label_weight=self.label_weight, seed=self.seed
        )
        student = distill(
            teacher,
            Tagger(words, tags),
            train,
            method,
            training,
            task=Tagging(tags),
            validation=held,
            folder=work.folder / "training",
        )
        student.save(work.folder)
        write_said(student, sentences[cuts[1] :], tags, work.folder / "held-out.conll")
        models = {"member 0": Taggers(self.members[:1], tokens, class_names=tags.names), "ensemble": teacher}
        if not self.labels:
            return f"# {type(method).__name__} tagger\n\nNo table without true tags: pass --labels.\n\n{versions()}\n"
        found = evaluate({**models, "student": student}, test, task=Tagging(tags), single="member 0")
        return f"# {type(method).__name__} tagger\n\n{found.markdown()}\n\n{versions()}\n"
