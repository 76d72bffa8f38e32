"""Count modules, lines and parameters of the code base, now and before: `python -m tests.house [REVISION ...]`.

The figures are written to `build/house.json`, by revision (`now`: the files as they are), and printed as a table.
A line of code is a line with a token that is neither a comment nor part of a docstring.
"""

from __future__ import annotations

import ast
import io
import json
import statistics
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "build" / "house.json"
NOW = "now"
FOLDERS = ("lib", "jobs", "dags", "plugins", "tests")
MANY_PARAMETERS = 8
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def sources(revision: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each module at a revision."""
    listed = ["git", "ls-files"] if revision == NOW else ["git", "ls-tree", "-r", "--name-only", revision]
    names = subprocess.run(
        [*listed, "--", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in names:
        if not name.endswith(".py"):
            continue
        if revision != NOW:
            show = ["git", "show", f"{revision}:{name}"]
            yield name, subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        elif Path(ROOT, name).is_file():
            yield name, Path(ROOT, name).read_text(encoding="utf-8")


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines of docstrings, also of those below attributes.

    >>> sorted(docstring_lines(ast.parse('x = 1\\n\"\"\"One.\"\"\"\\ny = 2')))
    [2]
    """
    return {
        line
        for one in ast.walk(tree)
        if isinstance(one, ast.Expr)
        and isinstance(one.value, ast.Constant)
        and isinstance(one.value.value, str)
        for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)
    }


def count_lines(text: str) -> tuple[int, int]:
    """Return the lines of code and of documentation (docstrings and comments).

    >>> count_lines('# a comment\\nx = 1\\n\"\"\"One.\"\"\"\\n\\n')
    (1, 2)
    """
    documented = docstring_lines(ast.parse(text))
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    code -= documented
    return len(code), len(documented | comments - code)


def count_long_signatures(tree: ast.Module) -> int:
    """Return the number of functions with eight parameters and more, without `self` and `cls`."""
    found = 0
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs]
            found += sum(each.arg not in ("self", "cls") for each in given) >= MANY_PARAMETERS
    return found


def package_of(name: str) -> str:
    """Return the package of a module.

    >>> package_of("lib/spillway/store/files.py"), package_of("lib/spillway/batch.py"), package_of("jobs/shed.py")
    ('lib/spillway/store', 'lib/spillway', 'jobs')
    """
    folders = name.split("/")[:-1]
    return "/".join(folders[: 3 if folders[0] == "lib" else 1])


def figures(revision: str) -> dict[str, dict[str, float]]:
    """Return the figures of each package, and of `lib` and `tests` as a whole."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    lengths: dict[str, list[int]] = defaultdict(list)
    for name, text in sources(revision):
        code, documentation = count_lines(text)
        lines, signatures = text.count("\n"), count_long_signatures(ast.parse(text))
        for package in {package_of(name), name.split("/")[0]}:
            mine = found[package]
            mine["modules"] += 1
            mine["lines"] += lines
            mine["code"] += code
            mine["documentation"] += documentation
            mine["long_signatures"] += signatures
            lengths[package].append(lines)
    for package, mine in found.items():
        mine["median_lines"] = statistics.median(lengths[package])
        mine["p90_lines"] = sorted(lengths[package])[int(0.9 * (len(lengths[package]) - 1))]
    return {package: dict(mine) for package, mine in sorted(found.items())}


def main() -> None:
    """Count, write and print."""
    known = {revision: figures(revision) for revision in [*sys.argv[1:], NOW]}
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    names = ("modules", "lines", "code", "documentation", "median_lines", "p90_lines", "long_signatures")
    for revision, packages in known.items():
        print(f"{revision:34}" + "".join(f"{name:>16}" for name in names))
        for package, mine in packages.items():
            print(f"{package:34}" + "".join(f"{mine[name]:16,.0f}" for name in names))
    print(f"written to {FIGURES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
