"""A deployed stack and the code it was deployed from do not differ: a diff shows a change, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fanfold.local import cdk_app, toolchain
from fanfold.local.cdk_app import Options
from fanfold.local.local_stack import CHECKOUT, LocalStack
from tests.support.elsewhere import API

pytestmark = pytest.mark.emulator


def test_after_a_deployment_there_is_nothing_to_deploy(stack: LocalStack) -> None:
    state = Path(stack.ledger).parent
    options = Options(port=stack.port, api=API)
    done = subprocess.run(
        [
            str(toolchain.cdk_path()),
            "--no-notices",
            "diff",
            "--fail",
            *cdk_app.app_arguments(options, endpoint=stack.endpoint, state=state),
        ],
        env=cdk_app.cdk_environment(os.environ, stack.endpoint),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "There were no differences" in done.stdout + done.stderr
