"""The teacher's prompts: whole, strict about names, and right in both action spaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.envs.grammar import MOBILE, WEB
from collab.errors import ConfigError
from collab.library import find_builtin_root
from collab.rewards.structured_replies import hash_prompt
from collab.synthesis.llm_prompts import FILES, TeacherPrompts, format_action_form, format_endings, read_teacher_prompts

TEXTS = read_teacher_prompts(find_builtin_root() / "prompts" / "teacher")


def test_the_action_list_stands_in_the_system_text_and_questions_come_last():
    prompt = TeacherPrompts(TEXTS, MOBILE).build_screen("Screen: Home", ["What is it for?", "What does it show?"])
    assert MOBILE.listing() in prompt.system
    assert prompt.user.index("Screen: Home") < prompt.user.index("1. What is it for?\n2. What does it show?")


def test_forms_and_endings_are_those_of_the_space():
    assert format_endings(MOBILE) == (
        '{"action_type": "status", "goal_status": "complete"}',
        '{"action_type": "answer", "text": "…"}',
    )
    assert format_endings(WEB) == ("finish()", "finish(answer='…')")
    assert format_action_form(WEB) == '"click(…)"'
    for space in (MOBILE, WEB):
        asked = TeacherPrompts(TEXTS, space).build_instructions("Screen: Home", 8).user
        assert all(ending in asked for ending in format_endings(space))
        assert f'"action": {format_action_form(space)}}}' in asked


def test_the_critic_reads_actions_in_words_with_their_reasons():
    asked = TeacherPrompts(TEXTS, MOBILE).build_critic("Task: x", [('tap button "Save"', "It saves.")]).user
    assert '1. tap button "Save" (because: It saves.)' in asked


def test_the_adversary_is_told_what_would_be_right():
    assert "go back" in TeacherPrompts(TEXTS, MOBILE).build_clumsy("Task: x", "go back").user


def test_equal_prompts_have_equal_hashes():
    prompts = TeacherPrompts(TEXTS, MOBILE)
    assert hash_prompt(prompts.act("Task: x")) == hash_prompt(prompts.act("Task: x")) != hash_prompt(prompts.act("y"))


def test_mistakes_in_a_folder_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"need system.jinja, screen.jinja"):
        read_teacher_prompts(tmp_path)
    for name in FILES:
        (tmp_path / f"{name}.jinja").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_teacher_prompts(tmp_path)
    with pytest.raises(ConfigError, match=r"prompts/teacher/act.jinja:1: "):
        TeacherPrompts({**TEXTS, "act": "{{ state"}, MOBILE)
    with pytest.raises(ConfigError, match=r"prompts/teacher/act.jinja: 'mood' is undefined"):
        TeacherPrompts({**TEXTS, "act": "{{ mood }}"}, MOBILE).act("Task: x")
    with pytest.raises(ConfigError, match=r"critic.jinja missing"):
        TeacherPrompts({name: text for name, text in TEXTS.items() if name != "critic"}, MOBILE)
