"""How long `paged-chat tui` takes until its first frame, and until the model is there.

    python tests/benchmarks/terminal_start.py --rounds 5

The program runs in a terminal of its own (a pseudo-terminal of 120 x 40), with the default model and this person's
home; the first start prepares the model, so it isn't counted.
"""

import argparse
import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from pathlib import Path
from statistics import median

FIRST_FRAME = "essage…".encode()  # of the prompt; its first letter is under the cursor, in another colour
MODEL_READY = b"hit rate"  # the counters of the cache
PATIENCE_S = 120.0


def start(home: str | None) -> tuple[float, float]:
    """Seconds from the start to the first frame, and to the loaded model."""
    program = [str(Path(sys.executable).parent / "paged-chat"), *(["--home", home] if home else []), "tui"]
    began = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
        os.execv(program[0], program)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    shown = b""
    moments: list[float] = []
    for awaited in (FIRST_FRAME, MODEL_READY):
        while awaited not in shown:
            ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
            assert ready, f"{awaited!r} never came"
            shown += os.read(terminal, 65_536)
        moments.append(time.perf_counter() - began)
    os.write(terminal, b"\x11")  # Ctrl+Q
    try:
        while os.read(terminal, 65_536):
            pass
    except OSError:
        pass  # the terminal closes with the program
    os.waitpid(child, 0)
    return moments[0], moments[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="starts that are counted (default: 5)")
    parser.add_argument("--home", help="data folder (default: this person's)")
    arguments = parser.parse_args()
    start(arguments.home)
    frames, models = zip(*(start(arguments.home) for _ in range(arguments.rounds)), strict=True)
    for name, moments in (("first frame", frames), ("model ready", models)):
        print(f"{name}: median {median(moments):.2f} s, {min(moments):.2f} to {max(moments):.2f}")


if __name__ == "__main__":
    main()
