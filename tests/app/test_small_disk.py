"""A disk that is really full: two megabytes of memory, mounted for one process alone."""

import subprocess
import sys

import pytest

import small_disk
from patience import PATIENCE_S

MOUNTED = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=2m none "$0" && exec "$@"']


def test_nothing_is_lost_on_it(tmp_path):
    try:
        subprocess.run([*MOUNTED, tmp_path, "true"], check=True, capture_output=True, timeout=PATIENCE_S)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may mount nothing, not even in a namespace of their own")
    told = subprocess.run(
        [*MOUNTED, tmp_path, sys.executable, small_disk.__file__, tmp_path],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
