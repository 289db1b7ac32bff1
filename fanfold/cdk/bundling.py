"""What ships to Lambda, packed without Docker: one layer of dependencies, one asset with all functions' code."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, IgnoreMode, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from uv import find_uv_bin

from fanfold.cdk.imports import check_imports
from fanfold.cdk.shipped import EXCLUDES, copy_shipped

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
PYTHON = "3.13"
RUNTIME = lambda_.Runtime.PYTHON_3_13
PLATFORMS = {"arm64": "aarch64-manylinux_2_28", "x86_64": "x86_64-manylinux_2_28"}
"""uv's name for Lambda's platform (Amazon Linux 2023, glibc 2.34) by architecture."""


def compiler() -> str | None:
    """The path of an interpreter whose byte code Lambda's takes, or None.

    It is run once: a version manager's shim is on the path also when its version is not active.
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

    def __init__(self, *, platform: str, compiler_path: str | None) -> None:
        self._platform = platform
        self._compiler = compiler_path

    def try_bundle(self, output_dir: str, *_: object, **__: object) -> bool:
        """Fill `output_dir`; true means: no container has to be started."""
        _run(
            [
                *(find_uv_bin(), "pip", "install", "--quiet", "--target", f"{output_dir}/python"),
                *("--python-version", PYTHON, "--python-platform", self._platform),
                *("--only-binary", ":all:", "--require-hashes", "--no-deps", "-r", str(LOCK)),
            ]
        )
        # Console scripts: nothing runs them there, and their first line names this machine's interpreter.
        shutil.rmtree(Path(output_dir, "python", "bin"), ignore_errors=True)
        _compile(self._compiler, output_dir, mounted_at="/opt")
        return True


@jsii.implements(ILocalBundling)
class _Functions:
    """Copies what ships and compiles it: /var/task is read-only, so Lambda itself never would."""

    def __init__(self, *, compiler_path: str) -> None:
        self._compiler = compiler_path

    def try_bundle(self, output_dir: str, *_: object, **__: object) -> bool:
        """Fill `output_dir`; true means: no container has to be started."""
        copy_shipped(ROOT, Path(output_dir))
        _compile(self._compiler, output_dir, mounted_at="/var/task")
        return True


def dependency_layer(scope: Construct, *, architecture: str) -> lambda_.LayerVersion:
    """The layer with the locked packages for an architecture (`arm64` or `x86_64`).

    Its hash is over what decides its content, not over the content: an unchanged lock is never installed again.
    """
    platform = PLATFORMS[architecture]
    compiler_path = compiler()
    decides = [LOCK.read_text(), PYTHON, platform, "compiled" if compiler_path else "source"]
    return lambda_.LayerVersion(
        scope,
        "Dependencies",
        description="Locked dependencies of every Fanfold function",
        compatible_runtimes=[RUNTIME],
        code=lambda_.Code.from_asset(
            str(ROOT / "infra"),  # bundling needs a folder; the custom hash keeps it from being looked at
            asset_hash=hashlib.sha256("\0".join(decides).encode()).hexdigest(),
            asset_hash_type=AssetHashType.CUSTOM,
            bundling=_local(_Dependencies(platform=platform, compiler_path=compiler_path)),
        ),
    )


def function_code(*, compiled: bool) -> lambda_.Code:
    """The one code asset of all functions; byte code goes with it if `compiled` and an interpreter for it is there.

    Raises `NotImportable` for code that the layer's packages do not suffice for.
    """
    check_imports(ROOT, LOCK)
    compiler_path = compiler() if compiled else None
    return lambda_.Code.from_asset(
        str(ROOT),
        exclude=list(EXCLUDES),
        ignore_mode=IgnoreMode.DOCKER,
        bundling=_local(_Functions(compiler_path=compiler_path)) if compiler_path else None,
    )


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
