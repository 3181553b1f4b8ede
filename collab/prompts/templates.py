"""The Jinja templates of a folder in `prompts/`: read, compiled and filled in the same way for whoever is asked.

    texts = read_texts(folder, ("system", "step"), "a critic's prompts need")
    templates = Templates("critic", texts, ("system", "step"))
    text = templates.render("step", goal=goal)

An undefined name is an error, and every mistake names the template.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import jinja2

from collab.errors import ConfigError
from collab.library import read_text, root
from collab.prompts.sandbox import WRONG, Sandbox, one_line, render


def read_texts(folder: Path, names: Iterable[str], needs: str) -> dict[str, str]:
    """The texts of a folder, by template name.

    Args:
        needs: begins the message when one is missing, e.g. "a prompt needs".

    Raises:
        ConfigError: a template is missing or unreadable.
    """
    names = tuple(names)
    missing = [name for name in names if not os.path.lexists(folder / f"{name}.jinja")]
    if missing:
        raise ConfigError(f"{folder}: {needs} {', '.join(f'{name}.jinja' for name in missing)}")
    within = None if folder.is_relative_to(root()) else folder.parent
    return {name: read_text(folder / f"{name}.jinja", within=within) for name in names}


class Templates:
    """Templates, ready to be filled in.

    Args:
        folder: name of their folder in `prompts/`, for messages.
        texts: template name → text.
        names: which of them are used.

    Raises:
        ConfigError: one of `names` has no text, or its text is no template.
    """

    def __init__(self, folder: str, texts: Mapping[str, str], names: Iterable[str]) -> None:
        names = tuple(names)
        missing = [name for name in names if name not in texts]
        if missing:
            raise ConfigError(f"prompts/{folder}: {', '.join(f'{name}.jinja' for name in missing)} missing")
        environment = Sandbox(
            loader=jinja2.DictLoader({f"{name}.jinja": text for name, text in texts.items()}),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,  # prompts are plain text
        )
        self._folder = folder
        try:
            self._templates = {name: environment.get_template(f"{name}.jinja") for name in names}
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"prompts/{folder}/{error.name}:{error.lineno}: {error.message}") from None
        except (SyntaxError, RecursionError, MemoryError) as error:  # of what Jinja makes of it
            raise ConfigError(f"prompts/{folder}: a template cannot be used: {one_line(error)}") from None

    def __contains__(self, name: str) -> bool:
        return name in self._templates

    def render(self, name: str, **values: object) -> str:
        """Fill one in; ConfigError when it asks for something that it is not told, or for more than `Sandbox` gives."""
        try:
            return render(self._templates[name], **values)
        except jinja2.UndefinedError as error:
            raise ConfigError(f"prompts/{self._folder}/{name}.jinja: {error.message}") from None
        except WRONG as error:
            raise ConfigError(f"prompts/{self._folder}/{name}.jinja: cannot be filled in: {one_line(error)}") from None
