"""The Jinja templates of a folder in `prompts/`: read, compiled and filled in the same way for whoever is asked.

    texts = read_texts(folder, ("system", "step"), "a critic's prompts need", "critic")
    templates = Templates("critic", texts, ("system", "step"))
    text = templates.render("step", goal=goal)

A folder may hold only the templates that differ; the others are those of the built-in folder. An undefined name is an
error, and every mistake names the template.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import jinja2
import jinja2.meta

from collab.errors import ConfigError, UnknownName
from collab.library import read_text, root
from collab.prompts.sandbox import WRONG, Sandbox, one_line, render

SUFFIX = ".jinja"


def read_texts(folder: Path, names: Iterable[str], needs: str, default: str) -> dict[str, str]:
    """The texts of a folder, by template name; those that it does not hold are those of the default.

    Args:
        names: of the templates that are used.
        needs: begins what is said of a folder that does not fit, e.g. "a prompt needs".
        default: name of the built-in folder that holds all of them; a folder of that name beside `folder` comes first.

    Raises:
        ConfigError: it holds none of them, or one of another name; one is missing everywhere or unreadable.
    """
    names = tuple(names)
    own = sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
    missing = ", ".join(f"{name}{SUFFIX}" for name in names if name not in own)
    odd = next((name for name in own if name not in names), None)
    if odd is not None:
        known = [f"{name}{SUFFIX}" for name in names]
        raise ConfigError(f"{folder}: {UnknownName.of('template', odd + SUFFIX, known)}; {needs} {missing}")
    if not own:
        raise ConfigError(f"{folder}: {needs} {missing}; those that it does not hold are read from prompts/{default}")
    homes = (folder, folder.parent / default, root() / "prompts" / default)
    return {name: _read(name, homes) for name in names}


def _read(name: str, homes: Sequence[Path]) -> str:
    path = next((found for home in homes if os.path.lexists(found := home / f"{name}{SUFFIX}")), None)
    if path is None:
        raise ConfigError(f"{homes[0]}: {name}{SUFFIX} is missing, and the built-in prompts have none")
    return read_text(path, within=None if path.is_relative_to(root()) else path.parent.parent)


@functools.lru_cache(maxsize=32)
def _environment(texts: frozenset[tuple[str, str]]) -> Sandbox:
    """Where these texts are compiled, each once in a process."""
    return Sandbox(
        loader=jinja2.DictLoader({f"{name}.jinja": text for name, text in texts}),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # prompts are plain text
    )


@functools.lru_cache(maxsize=128)
def _asked(environment: Sandbox, name: str, text: str) -> frozenset[str]:
    """The names that a template asks for and does not set."""
    return frozenset(jinja2.meta.find_undeclared_variables(environment.parse(text, name=f"{name}.jinja")))


class Templates:
    """Templates, ready to be filled in.

    Args:
        folder: name of their folder in `prompts/`, for messages.
        texts: template name → text.
        names: which of them are used.
        told: template name → the names that it may ask for; None checks none before it is filled in.

    Raises:
        ConfigError: one of `names` has no text, or its text is no template or asks for something that it is not told.
    """

    def __init__(
        self,
        folder: str,
        texts: Mapping[str, str],
        names: Iterable[str],
        told: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        names = tuple(names)
        missing = [name for name in names if name not in texts]
        if missing:
            raise ConfigError(f"prompts/{folder}: {', '.join(f'{name}.jinja' for name in missing)} missing")
        environment = _environment(frozenset(texts.items()))
        self._folder = folder
        try:
            known = {} if told is None else told
            for name in (name for name in names if name in known):
                for odd in sorted(_asked(environment, name, texts[name]) - set(known[name])):
                    raise ConfigError(self._says(name, f"'{odd}' is undefined", known[name]))
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
            raise ConfigError(self._says(name, str(error.message), values)) from None
        except WRONG as error:
            raise ConfigError(f"prompts/{self._folder}/{name}.jinja: cannot be filled in: {one_line(error)}") from None

    def _says(self, name: str, what: str, told: Iterable[str]) -> str:
        """One line for a name that a template is not told."""
        where = f"prompts/{self._folder}/{name}{SUFFIX}"
        return (
            f"{where}: {what}; it may ask for {', '.join(sorted(told))}; correct it and try: collab agents check NAME"
        )
