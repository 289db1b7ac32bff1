"""Packs what ships to Lambda without Docker: a layer of dependencies, and one asset with all functions' code."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from uv import find_uv_bin

from fanfold.cdk.imports import check_imports
from fanfold.cdk.shipped import copy_shipped
from fanfold.project import Project

PYTHON = "3.13"
RUNTIME = lambda_.Runtime.PYTHON_3_13
PLATFORMS = {"arm64": "aarch64-manylinux_2_28", "x86_64": "x86_64-manylinux_2_28"}
"""uv's name for Lambda's platform (Amazon Linux 2023, glibc 2.34) by architecture."""

MAX_BYTES: Final = 262_144_000
"""Largest unpacked size of a function with its layers (Lambda quotas: 250 MB)."""
LARGEST: Final = 10
"""How many packages an error about the size names."""


class TooLarge(ValueError):
    """What would be deployed is larger than Lambda takes."""


def compiler() -> str | None:
    """The path of a Python that compiles byte code for Lambda's version, or None.

    The interpreter is run once, because the shim of an inactive version is on the path too.
    """
    path = shutil.which(f"python{PYTHON}")
    if path is None:
        return None
    asked = subprocess.run(
        [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    return path if asked.returncode == 0 and asked.stdout.strip() == PYTHON else None


@jsii.implements(ILocalBundling)
class _Dependencies:
    """Installs the locked packages for Lambda's platform; wheels only, so nothing is built and no Docker is needed."""

    def __init__(self, lock: Path, code: Path, *, platform: str, compiler_path: str | None) -> None:
        self._lock = lock
        self._code = code
        self._platform = platform
        self._compiler = compiler_path

    def try_bundle(self, output_dir: str, *_: object, **__: object) -> bool:
        """Fill `output_dir`; true means: no container has to be started."""
        _run(
            [
                *(find_uv_bin(), "pip", "install", "--quiet", "--target", f"{output_dir}/python"),
                *("--python-version", PYTHON, "--python-platform", self._platform),
                *("--only-binary", ":all:", "--require-hashes", "--no-deps", "-r", str(self._lock)),
            ]
        )
        # Console scripts are useless on Lambda, and their first line names this machine's interpreter.
        shutil.rmtree(Path(output_dir, "python", "bin"), ignore_errors=True)
        _compile(self._compiler, output_dir, mounted_at="/opt")
        check_size(Path(output_dir, "python"), beside=_bytes(self._code))
        return True


@jsii.implements(ILocalBundling)
class _Functions:
    """Copies and compiles what ships. Lambda can't write byte code, because /var/task is read-only."""

    def __init__(self, code: Path, *, compiler_path: str) -> None:
        self._code = code
        self._compiler = compiler_path

    def try_bundle(self, output_dir: str, *_: object, **__: object) -> bool:
        """Fill `output_dir`; true means: no container has to be started."""
        shutil.copytree(self._code, output_dir, dirs_exist_ok=True)
        _compile(self._compiler, output_dir, mounted_at="/var/task")
        return True


def dependency_layer(scope: Construct, project: Project, *, architecture: str) -> lambda_.LayerVersion:
    """The layer with the packages that the project's lock pins, for an architecture (`arm64` or `x86_64`).

    Its hash covers the inputs (lock, Python, platform), not the files: an unchanged lock is never installed again.
    Raises `TooLarge` where it does not fit beside the code.
    """
    platform = PLATFORMS[architecture]
    compiler_path = compiler()
    code = _code_of(project)
    decides = [project.lock_file.read_text(), PYTHON, platform, "compiled" if compiler_path else "source"]
    return lambda_.LayerVersion(
        scope,
        "Dependencies",
        description="Locked dependencies of every Fanfold function",
        compatible_runtimes=[RUNTIME],
        code=lambda_.Code.from_asset(
            str(code),  # bundling needs a folder; with a custom hash CDK does not read it
            asset_hash=hashlib.sha256("\0".join(decides).encode()).hexdigest(),
            asset_hash_type=AssetHashType.CUSTOM,
            bundling=_local(
                _Dependencies(project.lock_file, code, platform=platform, compiler_path=compiler_path),
            ),
        ),
    )


def function_code(project: Project, *, compiled: bool) -> lambda_.Code:
    """The code asset of all functions, with byte code if `compiled` and a matching interpreter exists.

    Raises `NotImportable` for code that needs a package which the layer lacks.
    """
    check_imports(project)
    compiler_path = compiler() if compiled else None
    code = _code_of(project)
    return lambda_.Code.from_asset(
        str(code), bundling=_local(_Functions(code, compiler_path=compiler_path)) if compiler_path else None
    )


def check_size(packages: Path, *, beside: int) -> None:
    """Raises `TooLarge`, naming the largest packages, where a folder of them does not fit `beside` so many bytes."""
    sizes = {path.name: _bytes(path) for path in packages.iterdir()}
    total = sum(sizes.values()) + beside
    if total > MAX_BYTES:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:LARGEST]
        told = "".join(f"\n  {sizes[name] / 1e6:7.1f} MB  {name}" for name in largest)
        raise TooLarge(
            f"The functions would have {total / 1e6:.0f} MB, the most is {MAX_BYTES / 1e6:.0f} MB. The largest:{told}"
        )


_codes: dict[Path, Path] = {}


def _code_of(project: Project) -> Path:
    """A folder with what ships of a project, put together once in a process."""
    if project.folder not in _codes:
        folder = Path(tempfile.mkdtemp(prefix="fanfold-code-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        copy_shipped(project, folder)
        _codes[project.folder] = folder
    return _codes[project.folder]


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else (file for file in path.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files)


def _local(bundling: object) -> BundlingOptions:
    # The image is never pulled: local bundling either succeeds or raises.
    return BundlingOptions(image=DockerImage.from_registry("unused"), local=bundling)  # type: ignore[arg-type]  # jsii interface


def _compile(compiler_path: str | None, folder: str, *, mounted_at: str) -> None:
    """Compile every module below a folder, independent of the files' dates: the zip loses them."""
    if compiler_path is None:
        sys.stderr.write(f"No python{PYTHON} found: no byte code in the asset, cold starts take about twice as long.\n")
        return
    options = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", folder, "-p", mounted_at]
    _run([compiler_path, *options, folder])


def _run(command: Sequence[str]) -> None:
    """Run a program; its output goes to standard error, because standard output may carry a template."""
    subprocess.run(command, check=True, stdout=sys.stderr)
