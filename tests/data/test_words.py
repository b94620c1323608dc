"""A text as words: nothing lost, nothing shifted, no character cut."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from solera.data.words import words_of


@given(st.text(max_size=60))
def test_every_character_but_blanks_is_in_one_word_at_its_place(text):
    words = words_of(text)
    assert "".join(word.text for word in words) == "".join(text.split())
    for word, following in itertools.pairwise(words):
        assert word.end <= following.start
    assert all(text[word.start : word.end] == word.text for word in words)


def test_words_signs_numbers_and_initials():
    text = "Angela Merkel's U.S. visit (full-fledged) cost $1,000.50! #wow @me 3rd"
    expected = "Angela|Merkel|'s|U.S.|visit|(|full-fledged|)|cost|$|1,000.50|!|#wow|@me|3rd"
    assert "|".join(word.text for word in words_of(text)) == expected


def test_combining_characters_and_emoji_stay_whole():
    text = "e\u0301cole nai\u0308ve 👩\u200d💻 ☀\ufe0f."
    assert [word.text for word in words_of(text)] == ["e\u0301cole", "nai\u0308ve", "👩\u200d💻", "☀\ufe0f", "."]
