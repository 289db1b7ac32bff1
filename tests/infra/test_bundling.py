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

from fanfold import project
from fanfold.cdk import bundling
from fanfold.cdk.bundling import TooLarge
from fanfold.cdk.shipped import NothingToShip, copy_shipped
from infra.stack import PROJECT

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
    code = bundling._code_of(PROJECT)
    assert bundling._Functions(code, compiler_path=sys.executable).try_bundle(str(tmp_path))
    sources = list(tmp_path.rglob("*.py"))
    assert tmp_path / "functions" / "worker.py" in sources
    for source in sources:
        byte_code = Path(importlib.util.cache_from_source(str(source)))
        assert int.from_bytes(byte_code.read_bytes()[4:8], "little") == 1  # PEP 552: by hash, which nobody checks
    # The zip gives files other dates, and the source another time; what is compiled holds all the same.
    (tmp_path / "fanfold" / "service" / "version.py").write_text("raise AssertionError('the source was read')")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import fanfold.service.version"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(tmp_path)], check=True)


def test_packages_that_do_not_fit_are_refused_with_the_largest_of_them(tmp_path: Path) -> None:
    for number in range(12):
        path = tmp_path / f"package{number}" / "data"
        path.parent.mkdir()
        with path.open("wb") as file:
            file.truncate((number + 1) * 1_000_000)  # a hole, which takes no room
    bundling.check_size(tmp_path, beside=bundling.MAX_BYTES - 78_000_000)
    with pytest.raises(TooLarge, match=r"The functions would have 262 MB, the most is 262 MB") as refused:
        bundling.check_size(tmp_path, beside=bundling.MAX_BYTES - 77_999_999)
    named = [line.split()[-1] for line in str(refused.value).splitlines()[1:]]
    assert named == [f"package{number}" for number in range(11, 1, -1)]


def test_what_ships_is_the_projects_packages_and_the_librarys_parts_wherever_that_lies(tmp_path: Path) -> None:
    for name in ("functions/api.py", "mine/tasks.py", "single.py", "other/secret.py", "tests/test_mine.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "pyproject.toml").write_text('[tool.fanfold]\ntasks = ["mine.tasks", "single"]\n')
    copy_shipped(project.at(tmp_path), tmp_path / "out")
    found = {path.relative_to(tmp_path / "out").parts[0] for path in (tmp_path / "out").rglob("*.py")}
    assert found == {"functions", "mine", "single.py", "fanfold"}
    assert not (tmp_path / "out" / "fanfold" / "cdk").exists()


def test_a_package_that_a_project_names_and_lacks_is_told(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.fanfold]\ntasks = ["mine.tasks"]\n')
    (tmp_path / "functions").mkdir()
    with pytest.raises(NothingToShip, match="no package 'mine'"):
        copy_shipped(project.at(tmp_path), tmp_path / "out")
