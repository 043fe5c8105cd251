"""Where compiled kernels are kept, in Numba's own folders or in ours."""

import errno
import importlib.util
import sys
from pathlib import Path

import numba
import pytest
from numba.core import caching

from paged_chat.engine.compiled_kernels import folder_of_numba, keep_compiled_kernels
from paged_chat.kernels import compiler_cache

NOWHERE = Path("/proc/nowhere")

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that not even root can write to")


@pytest.fixture
def unwritable(monkeypatch):
    """An installation, and a user, of which nothing can be written."""
    monkeypatch.setattr(compiler_cache, "KERNELS", NOWHERE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(NOWHERE))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(NOWHERE))


def test_it_is_the_first_of_numbas_places_that_can_be_written(monkeypatch, tmp_path):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert folder_of_numba() == compiler_cache.KERNELS / "__pycache__"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    assert folder_of_numba() == tmp_path / "named"
    assert not (tmp_path / "named").exists(), "looking leaves no trace"


@needs_proc
def test_the_users_cache_serves_where_the_installation_is_read_only(unwritable, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder_of_numba() == tmp_path / "numba"


@needs_proc
def test_where_numba_has_no_folder_ours_keeps_what_it_compiles(unwritable, monkeypatch, home, tmp_path):
    assert folder_of_numba() is None
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    keep_compiled_kernels.__wrapped__()
    assert Path(numba.config.CACHE_DIR) == home / "cache" / "kernels"
    source = tmp_path / "doubling.py"
    source.write_text("import numba\n@numba.njit(cache=True)\ndef double(value):\n    return 2 * value\n")
    spec = importlib.util.spec_from_file_location("doubling", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.double(21) == 42
    assert [path.suffix for path in sorted((home / "cache" / "kernels").rglob("doubling.*"))] == [".nbc", ".nbi"]


@needs_proc
def test_where_nothing_can_be_written_this_process_keeps_it_alone(unwritable, monkeypatch):
    monkeypatch.setenv("PAGED_CHAT_HOME", str(NOWHERE))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    keep_compiled_kernels.__wrapped__()
    assert Path(numba.config.CACHE_DIR).name.startswith("paged-chat-kernels-")


def test_a_kernel_that_a_full_disk_cannot_keep_is_used_all_the_same(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    compiler_cache.survive_full_disk()
    monkeypatch.setattr(caching.IndexDataCacheFile, "save", full)
    monkeypatch.setattr(caching.IndexDataCacheFile, "load", full)

    @numba.njit(cache=True)
    def add(one, other):
        return one + other

    assert add(2, 3) == 5
