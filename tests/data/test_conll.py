"""CoNLL files and the tags in them: what is read is what was written, what is wrong is named by its line."""

import gzip

import pytest
import torch

from solera.data import UNLABELLED, Sentence, Tags, load_conll, save_conll

GOOD = "Angela\tB-PER\nMerkel\tI-PER\nsmiled\tO\n\nParis\tB-LOC\n"


def written(tmp_path, text, name="some.conll"):
    path = tmp_path / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["some.conll", "some.conll.gz"])
def test_tokens_and_tags_plain_or_packed(tmp_path, name):
    path = written(tmp_path, GOOD, name)
    assert load_conll(path) == [
        Sentence(["Angela", "Merkel", "smiled"], ["B-PER", "I-PER", "O"]),
        Sentence(["Paris"], ["B-LOC"]),
    ]


def test_other_ways_to_write_the_same_file(tmp_path):
    four = "-DOCSTART- -X- O O\n\n" + "\n".join(
        f"{line.split()[0]} NN I-NP {line.split()[1]}" if line else "" for line in GOOD.split("\n")
    )
    same = load_conll(written(tmp_path, GOOD))
    for text in (four, GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD, GOOD + "\n\n\n", GOOD.replace("\t", " ")):
        assert load_conll(written(tmp_path, text)) == same


def test_a_token_may_hold_any_character_but_the_separators(tmp_path):
    tokens = ["#", "\u00a0x", "a\u2028b", "👩‍👩‍👧", "e\u0301", "\u0301", "a b"]
    path = save_conll(tmp_path / "odd.conll.gz", [Sentence(tokens, ["O"] * len(tokens))])
    assert load_conll(path) == [Sentence(tokens, ["O"] * len(tokens))]


def test_a_file_of_tokens_alone_has_no_tags(tmp_path):
    path = save_conll(tmp_path / "bare.conll", [Sentence(["a", "b"]), Sentence(["c"])])
    assert load_conll(path) == [Sentence(["a", "b"]), Sentence(["c"])]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a\tO\nb\tI-PER\n", 2, "cannot stand after O"),
        ("a\tI-PER\n", 1, "start of a sentence"),
        ("a\tB-PER\nb\tI-LOC\n", 2, "cannot stand after B-PER"),
        ("a\tS-PER\nb\tO\n\nc\tB-PER\n", 4, "ends within an entity"),
        ("a\tO\nb\tPER\n", 2, "neither O nor B"),
        ("a\tO\nb\tO\textra\n", 2, "3 columns"),
        ("a\tO\nb\n", 2, "1 columns"),
        ("a\tO\n\tO\n", 2, "token"),
        ("a\tO\n\n\nb\tO\n", 3, "empty sentence"),
        (b"a\tO\n\xff\tO\n", 2, "UTF-8"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, text, line, words):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=words) as error:
        load_conll(path)
    assert f"{path}, line {line}" in str(error.value)


def test_repair_begins_an_entity_where_it_has_no_begin(tmp_path):
    path = written(tmp_path, "a\tI-PER\nb\tI-PER\nc\tI-LOC\nd\tO\ne\tI-PER\n")
    assert load_conll(path, repair=True)[0].tags == ["B-PER", "I-PER", "B-LOC", "O", "B-PER"]


def test_types_are_renamed_or_dropped(tmp_path):
    path = written(tmp_path, "a\tB-person\nb\tI-person\nc\tB-product\nd\tB-x\n")
    found = load_conll(path, types={"person": "PER", "product": None})
    assert found[0].tags == ["B-PER", "I-PER", "O", "B-x"]


def test_what_cannot_be_written_is_refused(tmp_path):
    for sentence, words in (
        (Sentence(["a\tb"], ["O"]), "tab"),
        (Sentence(["a"], ["O", "O"]), "1 tokens and 2 tags"),
        (Sentence([], []), "at least one"),
    ):
        with pytest.raises(ValueError, match=words):
            save_conll(tmp_path / "no.conll", [sentence])


def test_tags_are_read_from_the_data_with_all_their_scheme_has():
    tags = Tags.of([Sentence(["a", "b"], ["B-PER", "O"]), Sentence(["c"], ["B-LOC"])])
    assert tags.names == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert (tags.scheme, tags.types, len(tags)) == ("BIO", ("LOC", "PER"), 5)
    bioes = Tags.of([Sentence(["a"], ["S-PER"])])
    assert bioes.names == ("O", "B-PER", "I-PER", "E-PER", "S-PER")
    assert bioes.scheme == "BIOES"
    assert Tags.of([Sentence(["a"], ["U-PER"])]).scheme == "BILOU"


def test_numbers_of_tags_and_unknown_ones_named():
    tags = Tags(("O", "B-PER", "I-PER"))
    numbers = tags([Sentence(["a", "b"], ["B-PER", "I-PER"]), ["O", None]])
    assert [row.tolist() for row in numbers] == [[1, 2], [0, UNLABELLED]]
    with pytest.raises(ValueError, match=r"sentence 1 has the tag 'B-LOC'.*rename or drop"):
        tags([["O"], ["B-LOC"]])
    with pytest.raises(ValueError, match="sentence 0 has no tags"):
        tags([Sentence(["a"])])
    assert not tags.forbidden.transitions[1, 2]
    assert tags.forbidden.transitions[0, 2]
    assert tags.forbidden.start.tolist() == [False, False, True]
    assert torch.equal(Tags.read({"names": list(tags.names)}).forbidden.end, tags.forbidden.end)


def test_an_entity_spelled_by_its_scheme():
    assert Tags(("O", "B-X", "I-X")).spelled("X", 3) == ["B-X", "I-X", "I-X"]
    assert Tags(("O", "B-X", "I-X")).spelled("X", 1) == ["B-X"]
    assert Tags.of([Sentence(["a"], ["S-X"])]).spelled("X", 2) == ["B-X", "E-X"]
    assert Tags.of([Sentence(["a"], ["U-X"])]).spelled("X", 1) == ["U-X"]
