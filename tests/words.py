"""Small real language tools that several tests need: a word-piece tokenizer and token classifiers, made here."""

import pytest
import torch

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "angel", "##a", "me", "##rk", "##el", "visit", "##ed", "paris", ".", "😀"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
SENTENCES = [["Angela", "Merkel", "visited", "Paris", "."], ["Paris", "."], ["zzz", "Merkel", "😀"]]


def tokenizer(**settings):
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing("[CLS] $0 [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names, **settings)


def bert(kind="BertForTokenClassification", names=TAGS, seed=0, **settings):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    config = transformers.BertConfig(
        vocab_size=len(PIECES), max_position_embeddings=16, initializer_range=0.6, **sizes, **labels, **settings
    )
    return getattr(transformers, kind)(config).eval()


def tagger_student(method=None, tags=TAGS, **settings):
    """A small tagger that has learned two sentences by heart, as a student."""
    from solera import ProxyDirichlet, Student
    from solera.data import Tags
    from solera.data.sequences import padded
    from solera.nn import Tagger, WordFeatures

    torch.manual_seed(0)
    names = Tags(tuple(tags))
    network = Tagger(WordFeatures(), names, width=12, layers=2, embedding=6, dropout=0.0, **settings)
    inputs, _ = padded(network.words(SENTENCES[:2]), 0)
    target, _ = padded(names([["B-PER", "I-PER", "O", "B-LOC", "O"], ["B-LOC", "O"]]), -100)
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(40):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs).flatten(0, 1), target.flatten()).backward()
        optimizer.step()
    return Student(network.eval(), method or ProxyDirichlet(precision_slope=0.9), class_names=list(tags))
