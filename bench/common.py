"""What the scripts of this directory have in common: running programs, building plimsoll, saying why not."""

import json
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


def built(command, directory):
    """Runs cargo in a directory; names and paths of the programs that it built."""
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
    return [(message["target"]["name"], message["executable"]) for message in messages if message.get("executable")]


def build_plimsoll():
    root = Path(__file__).resolve().parent.parent
    note("building plimsoll (cargo build --release)")
    try:
        programs = built(["cargo", "build", "--release", "--package", "plimsoll-cli"], root)
    except Unable as error:
        raise Unable(f"{error}, or name a binary with --plimsoll") from error
    for name, path in programs:
        if name == "plimsoll":
            return path
    raise Unable("cargo built no binary called plimsoll: name one with --plimsoll")
