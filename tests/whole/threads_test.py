"""OpenMP's threads sleep while they wait, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

CHOSEN_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def policy(**chosen):
    env = {k: v for k, v in os.environ.items() if k not in CHOSEN_BY_USER} | chosen
    code = "import postgrad, os, sys; print(os.environ.get('OMP_WAIT_POLICY'), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("name", CHOSEN_BY_USER)
def test_what_the_user_chose_stands(name):
    assert policy(**{name: "1"})[0] == ("1" if name == "OMP_WAIT_POLICY" else "None")


def test_importing_postgrad_sets_it_before_torch_is_loaded():
    assert policy() == ["PASSIVE", "False"]
