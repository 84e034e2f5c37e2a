"""Every module can be imported where there is nothing but what Windows has."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, os, pkgutil, signal, sys
import classwise

def every_module():
    return [importlib.import_module(found.name) for found in pkgutil.walk_packages(classwise.__path__, "classwise.")]

every_module()  # and with them other packages, whose affair Windows is for themselves
for name in [name for name in sys.modules if name.startswith("classwise")]:
    del sys.modules[name]
for name in ("fcntl", "grp", "posix", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("chown", "fork", "getpgid", "getuid", "killpg", "mkfifo", "mknod", "setsid", "uname", "geteuid"):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGPIPE", "setitimer"):
    delattr(signal, name)

import classwise
found = {module.__name__: module for module in every_module()}
assert found["classwise.studies.runner.work"].peak_megabytes() >= 0
print(len(found))
"""


@pytest.mark.slow
def test_every_module_can_be_imported_without_what_only_posix_has() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200
