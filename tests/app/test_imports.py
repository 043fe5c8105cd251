"""Importing the engine: what it leaves behind, and how it is interrupted. In processes of its own: it happens once."""

import json
import signal
import subprocess
import sys

import pytest

from patience import PATIENCE_S


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)


def test_the_collector_looks_at_nothing_that_was_imported_and_at_all_that_comes_later():
    done = python("""
import gc, json, sys, threading, weakref
from paged_chat.app.imports import import_engine
thread = threading.Thread(target=import_engine)  # as where a screen opens it
thread.start()
thread.join()
frozen = gc.get_freeze_count()
class Ring: pass
ring = Ring(); ring.itself = ring
later = weakref.ref(ring)
del ring
import_engine()
gc.collect()
print(json.dumps({"torch": "torch" in sys.modules, "enabled": gc.isenabled(), "frozen": frozen,
                  "again": gc.get_freeze_count(), "collected": later() is None}))
""")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["torch"], told["enabled"], told["collected"]) == (True, True, True)
    assert told["again"] == told["frozen"] > 100_000


# torch.nn comes in the middle; numpy is imported by torch's own library too, which swallows a KeyboardInterrupt.
@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("ask Hi", "importlib.metadata"),
        ("ask Hi", "typer"),
        ("ask Hi", "numba"),
        ("ask Hi", "numpy.linalg"),
        ("ask Hi", "torch"),
        ("ask Hi", "torch.nn"),
        ("doctor", "numpy.linalg"),
    ],
)
def test_ctrl_c_while_it_imports_ends_it_at_once_and_silently(command, module):
    done = python(f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
sys.argv = ["paged-chat", *"{command}".split()]
from paged_chat.app.start import main
main()
""")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_afterwards_ctrl_c_is_a_keyboard_interrupt_again():
    done = python("""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from paged_chat.app.imports import import_engine
import_engine()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("raised")
""")
    assert (done.returncode, done.stdout) == (0, "raised\n"), done.stderr


def test_a_start_with_the_default_model_imports_nothing_that_it_does_not_need(default_model):
    done = python(f"""
import sys
sys.argv = ["paged-chat", "ask", "--model", "{default_model}", "--max-tokens", "1", "Hi"]
from paged_chat.app.cli import main
try:
    main()
finally:
    heavy = {{"transformers", "gguf", "huggingface_hub", "triton", "sympy", "torch._dynamo", "torch._inductor",
              "numba.cuda", "gradio", "textual", "sqlite_utils", "rich"}}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
""")
    assert (done.returncode, done.stdout) == (0, "Hello\n"), done.stderr
    assert done.stderr == "[]\n"
