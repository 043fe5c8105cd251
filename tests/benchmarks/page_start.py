"""How long from `paged-chat web` to a page that can be used, and to a model that answers.

    python tests/benchmarks/page_start.py [--rounds 3] [COMMAND ...]

    python tests/benchmarks/page_start.py "paged-chat web" "old/.venv/bin/paged-chat web"

The browser is open already, with its cache empty, and asks for the page again and again until it is there, as a person
would who has it bookmarked. Each command starts once before it is timed, so that what is kept on the disk is there.
Usable: the field to write in takes text, and the list of chats has come over the page's line.
"""

import argparse
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from chat_page import LAUNCH, context_of, free_port

LOOK_S = 0.02
PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class PageStart:
    """Moments of one start, in seconds from the command."""

    listening_s: float  # the port takes connections
    frame_s: float  # the page's field is there
    usable_s: float  # and its list of chats
    ready_s: float  # the model is loaded
    processor_s: float  # that the command used until then


def start(command: str, browser: Browser) -> PageStart:
    port = free_port()
    began = time.perf_counter()
    process = subprocess.Popen([*shlex.split(command), "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)
        listening_s = time.perf_counter() - began
        with context_of(browser) as context:
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{port}")
            field = page.get_by_role("textbox", name="Message", exact=True)
            expect(field).to_be_editable()
            frame_s = time.perf_counter() - began
            expect(page.locator(".chat-row, .list-empty").first).to_be_visible()
            usable_s = time.perf_counter() - began
            expect(page.locator(".topbar .model[data-phase=ready]")).to_be_visible(timeout=PATIENCE_S * 1000)
            ready_s = time.perf_counter() - began
        return PageStart(listening_s, frame_s, usable_s, ready_s, processor_s_of(process.pid))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def wait_for_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            sys.exit(f"the command ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(LOOK_S)
    sys.exit("the port was never opened")


def processor_s_of(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commands", nargs="*", metavar="COMMAND", default=["paged-chat web"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    starts: dict[str, list[PageStart]] = {command: [] for command in args.commands}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**LAUNCH)
        for command in starts:
            start(command, browser)
        for number in range(args.rounds):
            for command in list(starts)[:: -1 if number % 2 else 1]:
                starts[command].append(start(command, browser))
        browser.close()
    for command, rounds in starts.items():
        medians = PageStart(*map(statistics.median, zip(*map(astuple, rounds), strict=True)))
        slowest_s = max(each.usable_s for each in rounds)
        print(
            f"{command}\n  port {medians.listening_s:.2f} s, field {medians.frame_s:.2f} s, usable "
            f"{medians.usable_s:.2f} s (slowest {slowest_s:.2f}), model {medians.ready_s:.2f} s; "
            f"processor until then {medians.processor_s:.2f} s"
        )


if __name__ == "__main__":
    main()
