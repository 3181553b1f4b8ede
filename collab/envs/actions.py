"""The two action spaces of this project, as data; what can be done with one is in `collab.envs.grammar`.

MOBILE   14 actions in AndroidWorld's JSON form   {"action_type": "click", "index": 7}
WEB      10 actions in AutoWebGLM's call form     click(id=7)
"""

from __future__ import annotations

from collab.envs.grammar import ActionSpace, ActionSpec, FieldSpec

_DIRECTIONS = ("up", "down", "left", "right")

MOBILE = ActionSpace(
    name="mobile",
    syntax="json",
    index_field="index",
    points=True,
    specs=(
        ActionSpec(name="click", target="required", phrase="tap {target}", doc="tap an element"),
        ActionSpec(name="double_tap", target="required", phrase="double-tap {target}", doc="tap an element twice"),
        ActionSpec(
            name="long_press", target="required", phrase="long-press {target}", doc="hold an element for a second"
        ),
        ActionSpec(
            name="scroll",
            target="optional",
            phrase="scroll {direction}",
            fields=(FieldSpec(name="direction", choices=_DIRECTIONS),),
            doc="show what lies in that direction; without an index the whole screen scrolls",
        ),
        ActionSpec(
            name="swipe",
            target="optional",
            phrase="swipe {direction}",
            preposition="on",
            fields=(FieldSpec(name="direction", choices=_DIRECTIONS),),
            doc="move the finger in that direction",
        ),
        ActionSpec(
            name="input_text",
            target="optional",
            phrase="type {text}",
            preposition="into",
            fields=(
                FieldSpec(name="text"),
                FieldSpec(name="clear_text", kind="boolean", default=False, optional=True),
            ),
            doc='tap a field, type the text and press Enter; "clear_text": true empties the field first',
        ),
        ActionSpec(name="navigate_home", phrase="go to the home screen", doc="go to the home screen"),
        ActionSpec(name="navigate_back", phrase="go back", doc="go back one screen"),
        ActionSpec(name="keyboard_enter", phrase="press Enter", doc="press the Enter key"),
        ActionSpec(
            name="open_app",
            phrase="open the app {app_name}",
            fields=(FieldSpec(name="app_name", normalise="casefold"),),
            doc="start an app by its name",
        ),
        ActionSpec(
            name="status",
            phrase="declare the task {goal_status}",
            fields=(FieldSpec(name="goal_status", choices=("complete", "infeasible")),),
            doc="end the episode: the task is done, or cannot be done",
        ),
        ActionSpec(name="wait", phrase="wait", doc="let one second pass"),
        ActionSpec(
            name="answer",
            phrase="answer {text}",
            fields=(FieldSpec(name="text", normalise="strip"),),
            doc="give the answer to a question",
        ),
        ActionSpec(name="unknown", phrase="do nothing", doc="no action fits"),
    ),
)
"""A phone: AndroidWorld's fourteen actions. `scroll` moves the content's view, `swipe` the finger."""

WEB = ActionSpace(
    name="web",
    syntax="call",
    index_field="id",
    points=False,
    specs=(
        ActionSpec(name="click", target="required", phrase="click {target}", doc="click an element"),
        ActionSpec(name="hover", target="required", phrase="hover over {target}", doc="move the mouse over an element"),
        ActionSpec(
            name="select",
            target="required",
            phrase="select {option} in {target}",
            fields=(FieldSpec(name="option", normalise="strip"),),
            doc="choose an option of a list",
        ),
        ActionSpec(
            name="type_string",
            target="required",
            phrase="type {content} into {target}",
            fields=(
                FieldSpec(name="content"),
                FieldSpec(name="press_enter", kind="boolean", default=False, optional=True),
            ),
            doc="replace what a field holds by the text; press_enter=True presses Enter afterwards",
        ),
        ActionSpec(
            name="scroll_page",
            phrase="scroll {direction}",
            fields=(FieldSpec(name="direction", choices=_DIRECTIONS),),
            doc="scroll the page by one screen",
        ),
        ActionSpec(
            name="go",
            phrase="go {direction}",
            fields=(FieldSpec(name="direction", choices=("forward", "backward")),),
            doc="move in the tab's history",
        ),
        ActionSpec(
            name="jump_to",
            phrase="open the address {url}",
            fields=(
                FieldSpec(name="url", normalise="strip"),
                FieldSpec(name="new_tab", kind="boolean", default=False, optional=True),
            ),
            doc="open an address; new_tab=True opens it in a new tab",
        ),
        ActionSpec(
            name="switch_tab",
            phrase="switch to tab {i}",
            fields=(FieldSpec(name="i", kind="integer", example="0"),),
            doc="show another tab, counted from 0",
        ),
        ActionSpec(
            name="user_input",
            phrase="ask the user {message}",
            fields=(FieldSpec(name="message", normalise="strip"),),
            doc="hand over to the user, for a password or a confirmation",
        ),
        ActionSpec(
            name="finish",
            phrase="finish",
            fields=(FieldSpec(name="answer", normalise="strip", optional=True),),
            doc='end the episode; finish(answer="…") gives an answer',
        ),
    ),
)
"""A web page: AutoWebGLM's ten actions."""

SPACES = {space.name: space for space in (MOBILE, WEB)}
"""The built-in spaces by name."""
