from pathlib import Path

import pytest

from collab.view.export import NotBundled, bundle


def make(folder: Path, **modules: str) -> Path:
    for name, source in modules.items():
        (folder / f"{name}.js").write_text(source)
    return folder


def test_modules_stand_behind_those_they_need(tmp_path):
    folder = make(
        tmp_path,
        main='import { b } from "./b.js";\nimport * as c from "./c.js";\nimport "./d.js";\nexport const a = b + c.c;\n',
        b='import { c as d } from "./c.js";\nexport const b = d;\n',
        c="/** </script> in a comment. */\nexport function c() {}\nclass Own {}\nexport { Own as Named };\n",
        d="export async function d() {}\n",
    )
    script = bundle(folder, "main.js")
    places = [script.index(f'modules["{name}.js"] = ') for name in ("c", "b", "d", "main")]
    assert places == sorted(places)
    assert 'const { c: d } = modules["c.js"];' in script
    assert 'const c = modules["c.js"];' in script
    assert "return { c, Named: Own };" in script
    assert "export" not in script
    assert "import" not in script


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("export default 3;\n", "export default"),
        ("export let changing = 3;\n", "export let"),
        ('const later = () => import("./main.js");\n', r"import\("),
        ("const here = import.meta.url;\n", "import.meta"),
        ('import { a } from "https://cdn.example/a.js";\n', "no static import"),
        ('import { a } from "./main.js";\n', "circle"),
        ('const text = "</script>";\n', "end the script early"),
    ],
)
def test_what_one_script_cannot_repeat_is_refused(tmp_path, source, why):
    with pytest.raises(NotBundled, match=why):
        bundle(make(tmp_path, main=source), "main.js")
