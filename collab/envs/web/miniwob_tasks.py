"""The names of the MiniWoB++ pages, and the words to select them by.

`PHONE` are the pages that AndroidWorld shows on a phone too (its 92nd, `drag-item`, is in no released package);
`DESKTOP` are the others of the PyPI package `miniwob`.
"""

from __future__ import annotations

PHONE = tuple(
    """
    bisect-angle book-flight choose-date choose-date-easy choose-date-medium choose-list circle-center click-button
    click-button-sequence click-checkboxes click-checkboxes-large click-checkboxes-soft click-checkboxes-transfer
    click-collapsible click-collapsible-2 click-color click-dialog click-dialog-2 click-link click-menu-2
    click-option click-pie click-scroll-list click-shades click-shape click-tab click-tab-2 click-tab-2-easy
    click-tab-2-hard click-tab-2-medium click-test click-test-2 click-test-transfer click-widget copy-paste
    copy-paste-2 count-shape count-sides drag-box email-inbox email-inbox-delete email-inbox-forward
    email-inbox-forward-nl email-inbox-forward-nl-turk email-inbox-important email-inbox-nl-turk
    email-inbox-noscroll email-inbox-reply email-inbox-star-reply enter-date enter-password enter-text enter-text-2
    enter-text-dynamic enter-time find-midpoint find-word focus-text focus-text-2 grid-coordinate guess-number
    highlight-text highlight-text-2 identify-shape login-user login-user-popup multi-layouts multi-orderings
    navigate-tree read-table read-table-2 resize-textarea right-angle scroll-text scroll-text-2 search-engine
    simon-says simple-algebra simple-arithmetic social-media social-media-all social-media-some terminal
    text-transform tic-tac-toe unicode-test use-autocomplete use-colorwheel use-colorwheel-2 use-slider
    visual-addition
    """.split()
)
"""The 91 names of the phone view."""

DESKTOP = tuple(
    """
    ascending-numbers book-flight-nodelay button-delay buy-ticket chase-circle choose-date-nodelay
    click-collapsible-2-nodelay click-collapsible-nodelay click-menu click-pie-nodelay daily-calendar drag-circle
    drag-cube drag-items drag-items-grid drag-shapes drag-shapes-2 drag-single-shape drag-sort-numbers draw-circle
    draw-line find-greatest form-sequence form-sequence-2 form-sequence-3 generate-number hot-cold hover-shape
    moving-items number-checkboxes odd-or-even order-food phone-book sign-agreement stock-market text-editor
    use-autocomplete-nodelay use-slider-2 use-spinner
    """.split()
)
"""The pages of the package that the phone view leaves out."""

ALL = tuple(sorted(PHONE + DESKTOP))
"""All 130 pages."""

RELOADED = frozenset(
    """
    click-menu drag-items drag-items-grid drag-sort-numbers form-sequence hot-cold navigate-tree simon-says
    text-editor use-colorwheel use-colorwheel-2 use-slider use-slider-2
    """.split()
)
"""Pages that add to what the last episode left (handlers, a widget's state) and so must be loaded again for each.

Pages with timers that never end (terminal, stock-market …) are found out by the page clock and loaded again, too.
"""

_WORDS = {
    "drag": "drag-box drag-circle drag-cube drag-items drag-items-grid drag-shapes drag-shapes-2 drag-single-shape "
    "drag-sort-numbers draw-circle draw-line highlight-text highlight-text-2 resize-textarea use-slider use-slider-2 "
    "form-sequence",
    "draw": "bisect-angle circle-center draw-circle draw-line find-midpoint right-angle number-checkboxes",
    "look": "ascending-numbers bisect-angle circle-center click-color click-pie click-pie-nodelay click-shades "
    "click-shape count-shape count-sides drag-cube drag-shapes drag-shapes-2 find-midpoint grid-coordinate hot-cold "
    "hover-shape identify-shape number-checkboxes right-angle simon-says use-colorwheel use-colorwheel-2 "
    "visual-addition",
    "motion": "chase-circle drag-cube hover-shape moving-items simon-says stock-market",
    "read": "find-word find-greatest read-table read-table-2 scroll-text simple-algebra simple-arithmetic",
    "search": "book-flight book-flight-nodelay multi-layouts multi-orderings navigate-tree phone-book search-engine",
    "form": "book-flight book-flight-nodelay buy-ticket form-sequence form-sequence-2 form-sequence-3 login-user "
    "login-user-popup multi-layouts multi-orderings order-food sign-agreement",
    "enter-text": "copy-paste copy-paste-2 enter-password enter-text enter-text-2 enter-text-dynamic find-word "
    "login-user login-user-popup read-table read-table-2 simple-algebra simple-arithmetic text-transform",
    "scroll": "click-scroll-list scroll-text scroll-text-2 sign-agreement social-media social-media-all "
    "social-media-some email-inbox email-inbox-nl-turk email-inbox-forward-nl-turk order-food daily-calendar",
}
_FAMILIES = ("click", "email", "enter", "choose", "use", "social-media", "copy-paste", "focus-text", "login")

_TAGS = {
    name: (
        *(family for family in _FAMILIES if name.startswith(family)),
        *(word for word, names in _WORDS.items() if name in names.split()),
    )
    for name in ALL
}


def tags_of(name: str) -> tuple[str, ...]:
    """Words to select a page by: its family (click, email …) and what it asks for.

    look: colours, shapes or places matter; motion: it goes on by itself; read, search, form, drag, draw, scroll.
    """
    return _TAGS[name]
