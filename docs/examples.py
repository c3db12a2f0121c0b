"""Write docs/examples, each script of `examples/` with what it prints and a picture of what it found.

``python docs/examples.py [NAME ...]``, with the extra ``docs`` installed.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "examples"
PICTURES = ROOT / "docs" / "images" / "examples"
UNDER_OTHER_NAMES = ("popart_benchmark", "popxl_mnist")  # they `import popart` and `import popxl`
INDEX = """# Examples

Scripts that run in seconds on a laptop, each tested. They live in the folder `examples` of the source and share
`example_models.py`, which makes their data and ONNX files. Figures are those of the computer that wrote these pages.

| example | what it shows |
| --- | --- |
"""


def output_of(script: Path) -> str:
    """What a script prints, in an empty folder; `pictures.py` runs it and draws."""
    starter = ["-m", "popart_jax"] if script.stem in UNDER_OTHER_NAMES else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        picture = str(PICTURES / f"{script.stem}.svg")
        command = [sys.executable, *starter, str(ROOT / "docs" / "pictures.py"), script.stem, picture]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script.name} failed:\n{done.stderr}")
    return done.stdout.rstrip()


def title_of(script: Path) -> str:
    """The first line of its docstring."""
    return _docstring(script).splitlines()[0].rstrip(".")


def about(script: Path) -> str:
    """The rest of its docstring: what the page opens with."""
    return _docstring(script).partition("\n\n")[2].replace("``", "`")


def _docstring(script: Path) -> str:
    return ast.get_docstring(ast.parse(script.read_text())) or ""


def main(names: list[str]) -> None:
    """Write the pages of these examples, all by default, and the index."""
    scripts = sorted(p for p in (ROOT / "examples").glob("*.py") if p.stem != "example_models")
    for script in scripts:
        if names and script.stem not in names:
            continue
        starter = "python -m popart_jax" if script.stem in UNDER_OTHER_NAMES else "python"
        (PAGES / f"{script.stem}.md").write_text(
            f"# {title_of(script)}\n\n{about(script)}\n\n```sh\n{starter} examples/{script.name}\n```\n\n"
            f"prints\n\n```text\n{output_of(script)}\n```\n\n"
            f"![{title_of(script).partition(':')[0]}](../images/examples/{script.stem}.svg)\n\n"
            f'## The script\n\n``` {{ .python }}\n--8<-- "examples/{script.name}"\n```\n'
        )
        print(script.stem)
    rows = [f"| [{s.stem}]({s.stem}.md) | {title_of(s)} |\n" for s in scripts]
    shared = '\n## What they share\n\n``` { .python }\n--8<-- "examples/example_models.py"\n```\n'
    (PAGES / "index.md").write_text(INDEX + "".join(rows) + shared)


if __name__ == "__main__":
    main(sys.argv[1:])
