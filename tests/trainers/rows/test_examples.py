"""Examples become the token ids that a policy reads and should reply."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from collab.data.example import Example, Sampled
from collab.data.tokenize import encode_pairs, encode_replies, get_reply_tokens, hash_examples
from collab.errors import ConfigError
from collab.models.base import Request
from collab.models.local import LocalModel
from collab.types import PolicyRef, Prompt, PromptRef, Sampling, Segment, Utterance


def test_the_prompt_is_what_the_local_engine_reads(samples, base: Path) -> None:
    """Asked with the prompt of a row, the engine counts and reads the same tokens that the row trains."""
    model = LocalModel(path=str(base))
    row = samples.row(1)
    (example,) = encode_replies([row], model.chat, 400).items

    async def asked() -> int:
        reply = await model.generate(Request(prompt=row.prompt, sampling=Sampling(max_tokens=1), seed=0))
        await model.close()
        return reply.prompt_tokens

    prompt = example.ids[: example.scored_from]
    assert asyncio.run(asked()) == len(prompt)
    assert tuple(prompt) == model.prompt_ids(row.prompt).ids


def test_scored_are_the_reply_and_what_ends_it(samples, chat) -> None:
    row = samples.row(2)
    (example,) = encode_replies([row], chat, 400).items
    assert chat.decode(example.ids[example.scored_from :].tolist()) == f"{row.reply}<|im_end|>"
    assert example.scored == len(chat.encode(row.reply)) + 1


def spelt(text: str, chat) -> tuple[int, ...]:
    """A text letter by letter: in other tokens than its own."""
    found = tuple(token for letter in text for token in chat.encode(letter))
    assert found != chat.encode(text)
    return found


def spoken(row: Example, chat, tokenizer: str) -> Example:
    """The same preference with both sides and a message spelt so."""
    sides = (Sampled(tokens=spelt(text, chat), tokenizer=tokenizer) for text in (row.reply, row.rejected or ""))
    heard = Segment(text="Action: 3", tokens=spelt("Action: 3", chat), tokenizer=tokenizer)
    prompt = replace(row.prompt, segments=(heard, *row.prompt.segments))
    return replace(row, prompt=prompt, **dict(zip(("reply_sampled", "rejected_sampled"), sides, strict=True)))


def test_what_was_sampled_is_learned_as_it_was_sampled(samples, chat) -> None:
    row = spoken(samples.row(2, "preference"), chat, chat.fingerprint)
    (pair,), (example,) = encode_pairs([row], chat, 400).items, encode_replies([row], chat, 400).items
    assert pair.chosen.tolist() == [*spelt(row.reply, chat), chat.turn_end]
    assert pair.rejected.tolist() == [*spelt(row.rejected, chat), chat.turn_end]
    heard = "-".join(map(str, spelt("Action: 3", chat)))
    assert heard in "-".join(map(str, pair.prompt.tolist()))
    assert example.ids.tolist() == [*pair.prompt.tolist(), *pair.chosen.tolist()]


def test_tokens_of_another_tokenizer_are_not_learned(samples, chat) -> None:
    row = spoken(samples.row(2, "preference"), chat, "another")
    plain = replace(row, reply_sampled=None, rejected_sampled=None)
    (pair,), (same,) = (encode_pairs([one], chat, 400).items for one in (row, plain))
    for ids in ("prompt", "chosen", "rejected"):
        assert getattr(pair, ids).tolist() == getattr(same, ids).tolist()
    assert chat.decode(pair.prompt.tolist()).count("Action: 3") == 1
    assert pair.chosen.tolist() == [*chat.encode(row.reply), chat.turn_end]


def test_an_end_among_the_sampled_tokens_is_the_end(samples, chat) -> None:
    row = samples.row(2)
    said = Sampled(tokens=(*spelt(row.reply, chat), max(chat.turn_ends)), tokenizer=chat.fingerprint)
    (example,) = encode_replies([replace(row, reply_sampled=said)], chat, 400).items
    assert example.ids[example.scored_from :].tolist() == [*spelt(row.reply, chat), chat.turn_end]


def test_text_that_looks_like_control_stays_text(samples, chat) -> None:
    shared = "a page that says <|im_end|>"
    row = replace(
        samples.row(3), prompt=Prompt(system="", shared=shared, segments=(Segment(text="x"),)), reply="<|im_end|>"
    )
    (example,) = encode_replies([row], chat, 400).items
    end = chat.turn_end
    assert example.ids[example.scored_from :].tolist().count(end) == 1
    assert example.ids[-1] == end


def test_a_recorded_reply_has_all_tokens_that_were_sampled() -> None:
    sampled = {"tokens": (5, 6), "logprobs": (-1.0, -2.0), "behaviour_logprobs": (-3.0, -4.0)}
    cell = Utterance(
        **{"agent": "ada", "round": 0, "heard": (), "text": "", "reason": "", "action": None, "failure": None},
        **{"prompt": PromptRef(prefix="", suffix="", layout="1"), "policy": PolicyRef(base="m"), "seed": 0},
        sampling=Sampling(),
        **sampled,
    )
    ended = replace(cell, finish="stop", end_token=2, end_logprob=-0.5, end_behaviour_logprob=-0.25)
    assert get_reply_tokens(ended) == ((5, 6, 2), (-1.0, -2.0, -0.5), (-3.0, -4.0, -0.25))
    assert get_reply_tokens(replace(cell, finish="length")) == tuple(sampled.values())
    # An empty reply is one, too: the policy chose to say nothing.
    nothing = replace(ended, tokens=(), logprobs=(), behaviour_logprobs=())
    assert get_reply_tokens(nothing) == ((2,), (-0.5,), (-0.25,))
    assert get_reply_tokens(replace(ended, end_logprob=None)) == ((5, 6, 2), None, (-3.0, -4.0, -0.25))
    older, by_stop_string, refused = cell, replace(cell, finish="stop"), replace(cell, finish="refusal")
    unknown = (older, by_stop_string, refused, replace(ended, tokens=None))
    assert [get_reply_tokens(one) for one in unknown] == [None] * 4


def test_rows_longer_than_the_context_are_dropped_and_counted(samples, chat) -> None:
    rows = [samples.row(1), samples.row(2, words=60), samples.row(3, "instruction", words=60)]
    whole = encode_replies(rows, chat, 10_000)
    lengths = [len(item) for item in whole.items]
    cut = encode_replies(rows, chat, lengths[0])
    assert [item.ids.tolist() for item in cut.items] == [whole.items[0].ids.tolist()]
    assert cut.dropped == {"basic": 1, "instruction": 1}
    assert cut.longest == max(lengths)
    assert encode_replies(rows, chat, max(lengths)).dropped == {}


def test_nothing_that_fits_is_one_line(samples, chat) -> None:
    with pytest.raises(ConfigError, match=r"none of 2 rows fits into context 8, the longest has \d+ tokens"):
        encode_replies([samples.row(1), samples.row(2)], chat, 8)


def test_a_pair_has_one_prompt_and_two_ends(samples, chat) -> None:
    row = samples.row(4, "preference")
    (pair,) = encode_pairs([row, samples.row(4)], chat, 400).items
    assert tuple(pair.prompt) == chat.prompt_ids(row.prompt).ids
    assert chat.decode(pair.chosen.tolist()) == f"{row.reply}<|im_end|>"
    assert chat.decode(pair.rejected.tolist()) == f"{row.rejected}<|im_end|>"
    assert len(pair) == len(pair.prompt) + max(len(pair.chosen), len(pair.rejected))


def test_the_digest_follows_what_is_taught(samples) -> None:
    rows = samples.rows(3)
    assert hash_examples(rows) == hash_examples(list(rows))
    assert hash_examples(rows) != hash_examples(rows[::-1])
    assert hash_examples(rows) != hash_examples([replace(rows[0], reply="Other"), *rows[1:]])
