"""Whether an entry point leads to something, found in the source by its syntax; nothing is imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from tableferry.bundle.files import is_file
from tableferry.bundle.problems import Problem, listed, nearest
from tableferry.bundle.projects import Project


def check(project: Project) -> Iterator[Problem]:
    """Check every entry point of a project."""
    for entry_point in project.entry_points:
        module, _, attribute = (part.strip() for part in entry_point.target.split("[")[0].partition(":"))
        if not attribute and entry_point.calls:
            yield Problem(
                project.file,
                entry_point.place,
                f"'{entry_point.target}' names no function",
                "write module:function",
            )
        elif fault := _fault(project, module, attribute.split(".")[0].strip()):
            yield Problem(project.file, entry_point.place, *fault)


def _fault(project: Project, module: str, name: str) -> tuple[str, str] | None:
    """Return what is wrong with an entry point, and the remedy."""
    top = module.split(".")[0]
    if top not in project.modules:
        held = listed(project.modules) or "no module"
        what = f"module '{module}' isn't in the wheel, which holds {held}"
        return (what, nearest(top, project.modules, "correct the module")) if project.modules_known else None
    file = source(project, module)
    if file is None:
        return (
            f"there is no module '{module}' in '{project.modules[top].name}'",
            "correct it, or add the file",
        )
    defined = names(file)
    if isinstance(defined, str):
        return f"module '{module}' can't be read ({defined})", "fix the file"
    if name and name not in defined and not {"*", "__getattr__"} & defined:
        return f"module '{module}' has no '{name}'", nearest(name, defined, "define it, or correct the name")
    return None


def source(project: Project, module: str) -> Path | None:
    """Return the file of a module that the wheel will hold."""
    top, *rest = module.split(".")
    if top not in project.modules:
        return None
    path = project.modules[top]
    for step in rest:
        path = path / step
    for file in (path, path / "__init__.py", path.with_name(path.name + ".py")):
        if file.suffix == ".py" and is_file(file):
            return file
    return None


def names(file: Path) -> set[str] | str:
    """Return the names that a module has once it's imported, or why they can't be known; ``*`` for any."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except SyntaxError as error:
        return f"{error.msg} at line {error.lineno}"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return set(_bound(tree.body))


def _bound(statements: list[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Import() | ast.ImportFrom():
                yield from ((alias.asname or alias.name).split(".")[0] for alias in statement.names)
            case ast.Assign():
                inside = [node for target in statement.targets for node in ast.walk(target)]
                yield from (node.id for node in inside if isinstance(node, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.For() | ast.While():
                yield from _bound([*statement.body, *statement.orelse])
            case ast.Try():
                handled = [inner for handler in statement.handlers for inner in handler.body]
                yield from _bound([*statement.body, *handled, *statement.orelse, *statement.finalbody])
            case ast.With():
                yield from _bound(statement.body)
            case _:
                pass
