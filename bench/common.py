"""What the scripts of this directory have in common: running and building programs, the kernel's scheduler, saying why not."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path


class Unable(Exception):
    """This machine cannot do it; the message says why and what to do."""


def note(text):
    print(text, file=sys.stderr, flush=True)


def run_tool(command):
    """Output of a program; its last line of complaint where it fails."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        raise Unable(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Unable(f"{Path(command[0]).name} failed ({done.returncode}): {said}")
    return done.stdout


def end_by_signals():
    """Ctrl-C and its like end the script as an error does: what it made is removed, what it changed is put back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)


def _end(number, _frame):
    raise SystemExit(128 + number)


def listed(kind):
    """Reader of an argument that is a list with commas."""
    return lambda text: [kind(part) for part in text.split(",") if part]


class Scheduler:
    """The kernel's scheduler of the disk under a directory, and whether it may be set; puts back what it found."""

    def __init__(self, directory):
        device = os.stat(directory).st_dev
        self.file = None
        # A partition has its disk's queue one level up.
        for below in ("queue", "../queue"):
            file = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}") / below / "scheduler"
            if file.exists():
                self.file = file.resolve()
                break
        text = self.file.read_text() if self.file else ""
        self.known = [name.strip("[]") for name in text.split()]
        self.before = (re.findall(r"\[(.*?)\]", text) or [None])[0]
        self.may_set = self.file is not None and os.access(self.file, os.W_OK)

    def set(self, name):
        if name and self.file and name != self.now():
            self.file.write_text(name)

    def now(self):
        if not self.file:
            return None
        return re.findall(r"\[(.*?)\]", self.file.read_text())[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.set(self.before)


def built(command, directory):
    """Runs cargo in a directory. Returns the programs that it built: name, path, directory of the crate."""
    try:
        done = subprocess.run(
            [*command, "--message-format", "json"], cwd=directory, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True,
        )
    except OSError as error:
        raise Unable(f"cargo: {error.strerror}") from error
    if done.returncode != 0:
        raise Unable(f"{' '.join(command)} failed: see above")
    messages = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return [(message["target"]["name"], message["executable"], Path(message["manifest_path"]).parent.name)
            for message in messages if message.get("executable")]


def build_plimsoll():
    root = Path(__file__).resolve().parent.parent
    note("building plimsoll (cargo build --release)")
    try:
        programs = built(["cargo", "build", "--release", "--package", "plimsoll-cli"], root)
    except Unable as error:
        raise Unable(f"{error}, or name a binary with --plimsoll") from error
    for name, path, _ in programs:
        if name == "plimsoll":
            return path
    raise Unable("cargo built no binary called plimsoll: name one with --plimsoll")
