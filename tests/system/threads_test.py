"""OpenMP's threads sleep while they wait, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

from postgrad.system.threads import CHOSEN_BY_USER, sleep_when_waiting


@pytest.mark.parametrize("name", CHOSEN_BY_USER)
def test_what_the_user_chose_stands(name):
    environment = {name: "1"}
    sleep_when_waiting(environment)
    assert environment == {name: "1"}


def test_importing_postgrad_sets_it_before_torch_is_loaded():
    env = {k: v for k, v in os.environ.items() if k not in CHOSEN_BY_USER}
    code = "import postgrad, os, sys; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["PASSIVE", "False"]
