"""Checks that the code that ships needs only packages that ship too.

Functions have Python's library, their own code, the layer's packages and those of Lambda's runtime. This machine has
more packages, so an import that works here may fail there. There are two checks. First, a process that refuses all
other packages imports every task module and every entry point. Second, the text of the code is searched for imports,
because an import inside a function fails only when the function is called.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

from fanfold.cdk import shipped as shipping
from fanfold.project import Project

RUNTIME_NAMES = frozenset({"boto3", "botocore", "s3transfer", "jmespath", "urllib3", "dateutil", "six"})
"""Packages of Lambda's Python runtimes: Boto3 and its dependencies (Lambda guide, "Building with Python")."""

_REMOVED = """
aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap msilib nis nntplib ossaudiodev
pipes smtpd sndhdr spwd sunau telnetlib uu xdrlib
"""
REMOVED_NAMES = frozenset(_REMOVED.split())
"""Modules of Python 3.11 that 3.13 has removed (What's New in Python 3.12 and 3.13)."""

_PROBE = """
import importlib, importlib.abc, json, sys
root, names = sys.argv[1], frozenset(json.loads(sys.argv[2])) | sys.stdlib_module_names
parts, tasks = json.loads(sys.argv[3]), json.loads(sys.argv[4])

class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        # Python's own library has one module more, named after the machine.
        if name.partition(".")[0] not in names and not name.startswith("_sysconfigdata_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name.startswith("fanfold.") and ".".join(name.split(".")[:2]) not in parts:
            raise ModuleNotFoundError(f"{name!r} does not ship", name=name)
        return None

sys.dont_write_bytecode = True
sys.path.insert(0, root)
sys.meta_path.insert(0, Only())
found = {}
try:
    from fanfold.tasks import registry
    registry.use(tasks)
    found = {module.name: module.error for module in registry.broken()}
except BaseException as error:
    found["fanfold.tasks.registry"] = f"{type(error).__name__}: {error}"
for entry in ENTRIES:
    try:
        importlib.import_module(f"functions.{entry}")
    except BaseException as error:
        found[f"functions.{entry}"] = f"{type(error).__name__}: {error}"
sys.__stdout__.write("\\n" + json.dumps(found))
"""
_SECONDS = 120
PARTS = frozenset(f"fanfold.{part}" for part in shipping.PARTS if not part.endswith(".py"))
"""The parts of this library that ship."""


class NotImportable(ValueError):
    """The code can't be imported with the packages that ship."""


def check_imports(project: Project) -> None:
    """Raise `NotImportable`, with every module and the reason, unless all code of a project can be imported.

    The allowed packages are those in the project's lock; they must be installed on this machine. A process checks each
    state of a project once.
    """
    if not project.lock_file.is_file():
        raise NotImportable(f"Not deployed, for {project.folder} has no {project.lock}: `fanfold lock` makes it.")
    text = project.lock_file.read_text(encoding="utf-8")
    _check(project.folder, project.lock, text, project.packages, project.tasks)


@cache
def _check(root: Path, lock: str, text: str, packages: tuple[str, ...], tasks: tuple[str, ...]) -> None:
    project = Project(folder=root, lock=lock, tasks=tasks)
    names = RUNTIME_NAMES | _provided(_pinned(text)) | {*packages, "fanfold"}
    found = _tried(project, names) | dict(_in_text(project, names))
    if found:
        told = "".join(f"\n  {module}: {why}" for module, why in sorted(found.items()))
        raise NotImportable(
            f"Not deployed: these modules could not be imported with the packages of {lock}:{told}\n"
            "  Add a missing package to the project's dependencies, then to the lock (`fanfold lock`). Import an"
            " optional package in a `try` that expects ImportError."
        )


def _pinned(lock: str) -> frozenset[str]:
    """The names of a lock's distributions, normalized."""
    return frozenset(_normal(name) for name in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==", lock, re.M))


def _provided(pinned: Collection[str]) -> frozenset[str]:
    """The import names of these distributions."""
    installed: Mapping[str, list[str]] = importlib.metadata.packages_distributions()
    here = {name for name, by in installed.items() if any(_normal(each) in pinned for each in by)}
    # The import name of a distribution that is not installed here is unknown; most have their own name.
    return frozenset(here | {name.replace("-", "_") for name in pinned})


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _tried(project: Project, names: Collection[str]) -> dict[str, str]:
    entries = sorted(path.stem for path in (project.folder / "functions").glob("*.py") if path.stem != "__init__")
    script = f"ENTRIES = {entries!r}\n{_PROBE}"
    asked = subprocess.run(
        [
            *(sys.executable, "-I", "-c", script, str(project.folder)),
            *(json.dumps(sorted(given)) for given in (names, PARTS, project.tasks)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if asked.returncode != 0 or not asked.stdout:  # a module ended the process that imports it
        return {"functions": f"importing ended the process (status {asked.returncode}): {asked.stderr[-500:].strip()}"}
    found: dict[str, str] = json.loads(asked.stdout.splitlines()[-1])
    return found


def _in_text(project: Project, names: Collection[str]) -> Iterator[tuple[str, str]]:
    known = (sys.stdlib_module_names - REMOVED_NAMES) | set(names) | PARTS
    ships = ((place / path.relative_to(at), path) for at, place in shipping.shipped(project) for path in _modules(at))
    for place, path in sorted(ships):
        module = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # the first check has reported it
        unknown = sorted({name for name in _imported(tree.body) if name not in known})
        if unknown:
            yield module, f"imports {', '.join(unknown)}, which the functions do not have"


def _imported(body: Collection[ast.AST]) -> Iterator[str]:
    """The packages that statements import, at any depth, except where a failure is expected or code never runs."""
    for node in body:
        match node:
            case ast.Import():
                yield from (_package(alias.name) for alias in node.names)
            case ast.ImportFrom() if node.level == 0 and node.module:
                yield _package(node.module)
            case ast.Try() if any(_expects_it(handler) for handler in node.handlers):
                yield from _imported([*node.handlers, *node.orelse, *node.finalbody])
            case ast.If() if "TYPE_CHECKING" in ast.unparse(node.test):
                yield from _imported(node.orelse)
            case _:
                yield from _imported(list(ast.iter_child_nodes(node)))


def _modules(path: Path) -> Iterator[Path]:
    return path.rglob("*.py") if path.is_dir() else iter([path])


def _package(module: str) -> str:
    """The package of a module; for this library its subpackage."""
    first, *more = module.split(".")
    return f"{first}.{more[0]}" if first == "fanfold" and more else first


def _expects_it(handler: ast.ExceptHandler) -> bool:
    said = "" if handler.type is None else ast.unparse(handler.type)
    return handler.type is None or bool(
        re.search(r"\b(ImportError|ModuleNotFoundError|Exception|BaseException)\b", said)
    )
