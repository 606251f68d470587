"""What the scripts of this directory have in common: running and building programs, the kernel's scheduler, saying why not."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape


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
    read = lambda text: [kind(part) for part in text.split(",") if part]
    # argparse names the reader in its message.
    read.__name__ = f"list of {kind.__name__}"
    return read


def fio_memory(megabytes):
    """fio's `mem=` for buffers in huge pages, as plimsoll's long ones are; its default where the kernel has too few set aside."""
    text = Path("/proc/meminfo").read_text()
    free, size_kib = (int(re.search(rf"{key}:\s+(\d+)", text)[1]) for key in ("HugePages_Free", "Hugepagesize"))
    if free * size_kib >= megabytes * 1024:
        return "shmhuge"
    wanted = -(-megabytes * 1024 // size_kib)
    note(f"fio's buffers are in ordinary pages, plimsoll's in huge ones: as root, `sysctl vm.nr_hugepages={wanted}` for equal ones")
    return "malloc"


def first_cpus(number):
    """The CPUs that plimsoll pins its first shards to (on one NUMA node): those that take a disk's interrupts go first."""
    interrupted = set()
    for disk in Path("/sys/block").iterdir():
        device = (disk / "device").resolve()
        of_functions = (sorted(int(file.name) for file in (place / "msi_irqs").glob("*")) for place in (device, *device.parents))
        numbers = next((numbers for numbers in of_functions if numbers), [])
        for interrupt in numbers[1:] or numbers:
            file = Path(f"/proc/irq/{interrupt}/effective_affinity_list")
            for part in file.read_text().strip().split(",") if file.exists() else []:
                first, _, last = part.partition("-")
                interrupted.update(range(int(first), int(last or first) + 1) if first else ())
    return sorted(os.sched_getaffinity(0), key=lambda cpu: (cpu not in interrupted, cpu))[:number]


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


def build_plimsoll(features=(), with_library=False):
    """Builds the command, and with it the library that `plimsoll run` loads into programs."""
    root = Path(__file__).resolve().parent.parent
    note("building plimsoll (cargo build --release)")
    packages = ["--package", "plimsoll-cli", *(["--package", "plimsoll-preload"] if with_library else [])]
    command = ["cargo", "build", "--release", *packages, *(["--features", ",".join(features)] if features else [])]
    try:
        programs = built(command, root)
    except Unable as error:
        raise Unable(f"{error}, or name a binary with --plimsoll") from error
    for name, path, _ in programs:
        if name == "plimsoll":
            return path
    raise Unable("cargo built no binary called plimsoll: name one with --plimsoll")


def fill(path, mib):
    """Makes a file of random data, on the disk when this returns."""
    with open(path, "xb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())


def tune_quick(binary, directory):
    """The io-properties that `plimsoll tune --quick` makes of the disk under a directory, as a file there."""
    properties = Path(directory) / "io-properties.yaml"
    note("plimsoll tune --quick")
    subprocess.run([binary, "tune", str(directory), "--quick", "-o", str(properties)], check=False,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not properties.exists():
        raise Unable(f"plimsoll tune wrote no figures: run `{binary} tune {directory} --quick` to see why")
    return properties


def scatter(points, x_name, y_name, line=(), mark=None):
    """SVG of `points` (x, y in ms, label, colour): x from 0 to the right, y upwards in steps of ten. `line` joins some of
    them, `mark` (y, text) is a dashed line."""
    width, height, left, top, right, bottom = 720, 440, 64, 24, 150, 52
    x_max = max([x for x, *_ in points] + [0.01]) * 1.05
    logs = [math.log10(max(y, 1e-6)) for y in [point[1] for point in points] + ([mark[0]] if mark else [])]
    low, high = min(logs) - 0.15, max(logs) + 0.15
    to_x = lambda x: left + (width - left - right) * x / x_max
    to_y = lambda y: height - bottom - (height - top - bottom) * (math.log10(max(y, 1e-6)) - low) / (high - low)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="#fff"/>']
    step = min((digit * 10.0**power for power in range(-2, 6) for digit in (1, 2, 5)), key=lambda step: abs(x_max / step - 6))
    for number in range(int(x_max / step) + 1):
        parts.append(f'<path d="M{to_x(number * step):.1f} {top}V{height - bottom}" stroke="#ddd"/>'
                     f'<text x="{to_x(number * step):.1f}" y="{height - bottom + 18}" text-anchor="middle">{number * step:g}</text>')
    for y in [digit * 10.0**power for power in range(-3, 4) for digit in (1, 2, 5)]:
        if low <= math.log10(y) <= high:
            parts.append(f'<path d="M{left} {to_y(y):.1f}H{width - right}" stroke="#ddd"/>'
                         f'<text x="{left - 8}" y="{to_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    if mark:
        parts.append(f'<path d="M{left} {to_y(mark[0]):.1f}H{width - right}" stroke="#888" stroke-dasharray="4 4"/>'
                     f'<text x="{width - right - 6}" y="{to_y(mark[0]) - 5:.1f}" text-anchor="end" fill="#888">'
                     f'{escape(mark[1])}</text>')
    parts.append(f'<text x="{(left + width - right) / 2}" y="{height - 12}" text-anchor="middle">{escape(x_name)}</text>')
    parts.append(f'<text transform="translate(16 {(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">'
                 f'{escape(y_name)}</text>')
    if line:
        joined = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="#0a6"/>')
    at = [(to_x(x), to_y(y)) for x, y, *_ in points]
    # Left, right, top and bottom of what labels must not cover: the points, then the labels before.
    taken = [(px - 5, px + 5, py - 5, py + 5) for px, py in at]
    is_free = lambda box: all(box[1] <= x0 or x1 <= box[0] or box[3] <= y0 or y1 <= box[2] for x0, x1, y0, y1 in taken)
    for (at_x, at_y), (_, _, label, colour) in zip(at, points):
        # A label stands right or left of its point, and moves up or down by as little as makes it free.
        places = ((shift, side) for shift in sorted(range(-300, 301, 3), key=abs) for side in (8, -8))
        spans = {8: (at_x + 8, at_x + 8 + 6.8 * len(label)), -8: (at_x - 8 - 6.8 * len(label), at_x - 8)}
        shift, side = next((place for place in places if is_free((*spans[place[1]], at_y + place[0] - 7, at_y + place[0] + 7))),
                           (0, 8))
        taken.append((*spans[side], at_y + shift - 7, at_y + shift + 7))
        if abs(shift) > 9:
            parts.append(f'<path d="M{at_x:.1f} {at_y:.1f}L{at_x + side:.1f} {at_y + shift:.1f}" stroke="{colour}" opacity="0.5"/>')
        parts.append(f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="4" fill="{colour}"/>'
                     f'<text x="{at_x + side:.1f}" y="{at_y + shift + 4:.1f}" fill="{colour}" '
                     f'text-anchor="{"start" if side > 0 else "end"}">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>", ""])
