"""Hostile files from elsewhere: each ends in an answer or in one clear sentence, in bounded time and memory.

A case is told by its kind and number, and is the same everywhere; `pytest tests/fuzz -k 'onnx-3'` plays one batch.
"""

from __future__ import annotations

import json
import random

import pytest
from imports import KINDS
from player import LONGEST_S

BATCH, BATCHES, SOAKED = 20, 3, 45
ANSWERS = {"validate": {0, 2, 3, 5}}  # 5: an error above its threshold
LONGEST_SENTENCE = 2_000


def check(kind, number, player, folder):
    """Play a case; what is wrong with how it ended, and how it can be seen, or nothing."""
    folder.mkdir()
    arguments = KINDS[kind](random.Random(f"{kind} {number}"), folder)
    outcome = player.play(arguments, folder)
    wrong = fault(outcome, arguments)
    shown = " ".join(arguments)[:300]
    return f"{kind} {number}: {wrong}: dse {shown}\n    {outcome.err[-300:].strip()}" if wrong else None


def fault(outcome, arguments):
    if outcome.code not in ANSWERS.get(arguments[0], {0, 2, 3}):
        return f"exit code {outcome.code}"
    if outcome.seconds > LONGEST_S:
        return f"took {outcome.seconds:.1f} s"
    if outcome.code in {2, 3}:
        return unclear(outcome)
    if "Warning" in outcome.err:
        return "a warning"
    return no_document(outcome.out) if "--json" in arguments else None


def unclear(outcome):
    """What is wrong with the sentence of an error, which is the last thing said."""
    sentences = [text for text in outcome.err.splitlines() if text.startswith("dse: ")]
    if len(sentences) != 1 or "Traceback" in outcome.err or "Warning" in outcome.err:
        return f"{len(sentences)} sentences, or more than they"
    if len(sentences[0]) > LONGEST_SENTENCE:
        return f"a sentence of {len(sentences[0])} characters"
    return None if len(sentences[0]) > 15 else "no sentence"


def no_document(text):
    """What is wrong with a document: not JSON, or numbers in it that are none."""
    odd = []
    try:
        json.loads(text, parse_constant=odd.append)
    except ValueError:
        return "no JSON"
    return f"{odd[0]} in a document" if odd else None


def check_batch(kind, batch, player, tmp_path):
    numbers = range(batch * BATCH, (batch + 1) * BATCH)
    found = list(filter(None, (check(kind, n, player, tmp_path / str(n)) for n in numbers)))
    assert not found, f"{len(found)} of {BATCH} cases\n" + "\n".join(found)


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_files_end_in_an_answer_or_a_sentence(kind, batch, player, tmp_path):
    check_batch(kind, batch, player, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(BATCHES, BATCHES + SOAKED))
@pytest.mark.parametrize("kind", KINDS)
def test_many_more_hostile_files(kind, batch, player, tmp_path):
    check_batch(kind, batch, player, tmp_path)
