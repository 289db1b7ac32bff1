"""What ships is what was tested: the lock, the versions in pyproject.toml, and only our own code beside it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from fanfold.cdk import bundling

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.M)


def locked() -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements.lock").read_text()))


def test_what_ships_is_pinned_to_what_was_tested_and_lies_in_the_librarys_ranges() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = [Requirement(each) for each in [*project["optional-dependencies"]["service"], *project["dependencies"]]]
    shipped = dict(PIN.findall((ROOT / "infra" / "layer.in").read_text()))
    tested = dict(PIN.findall((ROOT / "requirements-dev.lock").read_text()))

    assert {each.name for each in ranges if each.name in shipped} >= {"boto3", "pydantic", "jmespath"}
    assert [each for each in ranges if each.name in shipped and shipped[each.name] not in each.specifier] == []
    assert {name: tested[name] for name in shipped} == shipped
    assert {name: locked()[name] for name in shipped} == shipped


def test_the_lowest_versions_are_the_lower_ends_of_the_ranges() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = [Requirement(each) for each in [*project["optional-dependencies"]["service"], *project["dependencies"]]]
    lowest = dict(PIN.findall((ROOT / "requirements-lowest.lock").read_text()))
    ends = {each.name: min(Version(s.version) for s in each.specifier if s.operator == ">=") for each in ranges}
    assert {name: Version(lowest[name]) for name in ends} == ends


def test_what_ships_is_what_these_tests_ran_with() -> None:
    assert {name: version(name) for name in ("boto3", "botocore")} == {n: locked()[n] for n in ("boto3", "botocore")}


@pytest.mark.parametrize("name", ["requirements.lock", "package-lock.json"])
def test_a_lock_names_no_address_and_every_hash(name: str) -> None:
    text = (ROOT / name).read_text()

    assert "://" not in text
    assert "sha256:" in text or "sha512-" in text


def test_an_interpreter_that_does_not_start_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / f"python{bundling.PYTHON}"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert bundling.compiler() is None


def test_an_interpreter_of_another_version_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    impostor = tmp_path / f"python{bundling.PYTHON}"
    impostor.write_text("#!/bin/sh\necho 3.12\n")
    impostor.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    assert bundling.compiler() is None


def test_byte_code_ships_for_every_module_and_is_taken_without_a_look_at_its_source(tmp_path: Path) -> None:
    assert bundling._Functions(compiler_path=sys.executable).try_bundle(str(tmp_path))
    sources = list(tmp_path.rglob("*.py"))
    for source in sources:
        byte_code = Path(importlib.util.cache_from_source(str(source)))
        assert int.from_bytes(byte_code.read_bytes()[4:8], "little") == 1  # PEP 552: by hash, which nobody checks
    # The zip gives files other dates, and the source another time; what is compiled holds all the same.
    (tmp_path / "fanfold" / "service" / "version.py").write_text("raise AssertionError('the source was read')")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import fanfold.service.version"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(tmp_path)], check=True)
