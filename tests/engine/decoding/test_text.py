import pytest

from engine.decoding.text import TextStream, Vocabulary
from engine.model.tiny_model import build


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(build(0)[1])


def stream(vocabulary, text, stop):
    flow = TextStream(vocabulary, stop)
    parts = []
    for token in vocabulary.encode(text):
        parts.append(flow.push(token))
        if flow.stopped:
            break
    return parts, flow.flush(), flow.stopped


@pytest.mark.parametrize("text", ["plain", "naïve café", "日本語 and 👩‍🚀", "<b>&amp;</b>\n\ttab"])
def test_text_survives_the_round_trip_in_whole_characters(vocabulary, text):
    parts, rest, _ = stream(vocabulary, text, [])
    assert "".join(parts) + rest == text
    assert all("�" not in part for part in parts)


def test_a_stop_string_cuts_the_text_before_it(vocabulary):
    parts, rest, stopped = stream(vocabulary, "one. two. three", ["two"])
    assert ("".join(parts), rest, stopped) == ("one. ", "", "two")


def test_the_first_of_several_stop_strings_counts(vocabulary):
    parts, _, stopped = stream(vocabulary, "abcdef", ["ef", "cd"])
    assert ("".join(parts), stopped) == ("ab", "cd")


def test_a_stop_string_that_may_not_stop_yet_is_text_like_any_other(vocabulary):
    flow = TextStream(vocabulary, ["b"])
    parts = [flow.push(token, may_stop=at > 2) for at, token in enumerate(vocabulary.encode("abab"), 1)]
    assert (parts, flow.stopped) == (["a", "b", "a", ""], "b")


def test_what_may_become_a_stop_string_is_held_back_until_it_is_decided(vocabulary):
    parts, rest, stopped = stream(vocabulary, "abxaby", ["aby"])
    assert parts == ["", "", "abx", "", "", ""]
    assert (rest, stopped) == ("", "aby")
    parts, rest, stopped = stream(vocabulary, "xxab", ["aby"])
    assert (parts, rest, stopped) == (["x", "x", "", ""], "ab", "")


def test_token_ids_outside_the_vocabulary_are_refused(vocabulary):
    with pytest.raises(ValueError, match="token id 99999 is not in the vocabulary: ids run from 0 to 256"):
        vocabulary.check([1, 99999])
    with pytest.raises(ValueError, match="token id -1"):
        vocabulary.check([-1])


def test_chat_turns_need_a_template(vocabulary):
    turns = [{"role": "user", "content": "hi"}]
    assert vocabulary.tokenizer.decode(vocabulary.encode_chat(turns)) == "user: hi\nassistant: "
    bare = Vocabulary(build(0)[1])
    bare.tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template"):
        bare.encode_chat(turns)


def test_a_template_that_refuses_the_turns_says_so(vocabulary):
    strict = Vocabulary(build(0)[1])
    strict.tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ValueError, match="chat template refuses these messages: roles must alternate"):
        strict.encode_chat([{"role": "user", "content": "hi"}])
