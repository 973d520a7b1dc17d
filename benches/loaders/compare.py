"""Feeds one PyTorch step from Percolator, PyTorch's DataLoader, tf.data, DALI and FFCV, in one run, in turns.

    python3 benches/loaders/compare.py [--jobs jpeg,raw,imagenet] [--rounds 5] [--seconds 4] [--out TABLE.md]

Installs each loader in a virtual environment (7 GB with PyTorch's wheel), makes the data in the format that
each loader reads, measures each loader in a process of its own, and prints a table. A loader that cannot be
installed, or that fails, is named with the reason: it is not left out in silence. FFCV is built from source
and needs `libopencv-dev libturbojpeg0-dev pkg-config` (Debian's names).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from loaders import JOBS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# What all of them need, installed once: PyTorch is fed, and the data are made with Pillow.
COMMON = ["torch==2.9.0", "numpy==2.4.6", "pillow==12.0.0"]
# What each loader needs beside it.
NEEDS = {
    "percolator": [str(ROOT / "crates" / "percolator-python")],
    "dataloader": ["torchvision==0.24.0"],
    "tensors": ["torchvision==0.24.0"],
    "tfdata": ["tensorflow-cpu==2.21.0"],
    "dali": ["nvidia-dali-cuda120==2.4.0"],
    "ffcv": ["ffcv==1.0.2", "numba", "numpy<2", "opencv-python-headless<4.12"],
}
# A loader that takes part in some jobs only.
ONLY = {"tensors": ["imagenet"]}
NAMES = {
    "percolator": "Percolator",
    "dataloader": "PyTorch's DataLoader",
    "tensors": "DataLoader, torchvision on tensors",
    "tfdata": "tf.data",
    "dali": "DALI",
    "ffcv": "FFCV",
}
FIGURES = [
    ("rate", "records/s", "{:,.0f}"),
    ("cpu_us", "CPU µs a record", "{:,.0f}"),
    ("memory_mb", "memory, MB", "{:,.0f}"),
    ("first_batch_ms", "first batch, ms", "{:,.0f}"),
]


def run(command, **options):
    """Runs a command to its end, and returns what it printed; the error has the end of what it said."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        shown = " | ".join(said[-3:])
        raise RuntimeError(f"{command[0]} {command[1]}: exit code {done.returncode}: {shown}")
    return done.stdout


def python_of(folder):
    return folder / "bin" / "python3"


def site_packages(folder):
    return run([python_of(folder), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()


def install(folder, needs, beside=None):
    """Makes a virtual environment, unless it has these packages; it also sees those of `beside`."""
    stamp = folder / "installed"
    wanted = "\n".join(needs)
    is_ours = any(str(ROOT) in need for need in needs)
    if not stamp.exists() or stamp.read_text() != wanted or is_ours:
        if not folder.exists():
            run([sys.executable, "-m", "venv", folder])
        if beside is not None:
            (Path(site_packages(folder)) / "beside.pth").write_text(site_packages(beside) + "\n")
        if needs:
            run([python_of(folder), "-m", "pip", "install", "-q", *needs])
        stamp.write_text(wanted)
    return python_of(folder)


def install_all(loaders, folder):
    """Returns the interpreter of each loader that could be installed; prints why another could not."""
    print("installing PyTorch", file=sys.stderr)
    install(folder / "torch", COMMON)
    interpreters, failures = {}, {}
    for loader in loaders:
        print(f"installing {NAMES[loader]}", file=sys.stderr)
        try:
            interpreters[loader] = install(folder / loader, NEEDS[loader], beside=folder / "torch")
        except RuntimeError as error:
            failures[loader] = f"not installed: {error}"
    return interpreters, failures


def make_data(jobs, interpreters, folder):
    """Makes each job's data: the LMDB by Percolator, the other formats from the same images or records."""
    percolator = ROOT / "target" / "release" / "percolator"
    run(["cargo", "build", "--release", "--locked", "-p", "percolator-cli"], cwd=ROOT)
    failures = {}
    for job in jobs:
        for loader in ["percolator", *(loader for loader in interpreters if loader != "percolator")]:
            print(f"data of {job} for {NAMES[loader]}", file=sys.stderr)
            command = [interpreters[loader], HERE / "data.py", loader, job, folder, percolator]
            try:
                run(command)
            except RuntimeError as error:
                failures[loader] = f"no data: {error}"
    return failures


def measure(interpreter, loader, job, options):
    command = [interpreter, HERE / "measure.py", loader, job, options.cache / "data"]
    command += ["--batch", options.batch, "--workers", options.workers, "--seconds", options.seconds]
    return json.loads(run(command).splitlines()[-1])


def table(job, results, failures):
    lines = [f"| {job} | " + " | ".join(name for _, name, _ in FIGURES) + " | Percolator's rate to it |"]
    lines.append("|---" * (len(FIGURES) + 2) + "|")
    ours = [round["rate"] for round in results.get("percolator", [])]
    for loader, rounds in results.items():
        cells = []
        for figure, _, form in FIGURES:
            values = [round[figure] for round in rounds]
            cells.append(" ".join([
                form.format(statistics.median(values)),
                f"[{form.format(min(values))}..{form.format(max(values))}]",
            ]))
        # Of the same round: what the machine does in another one is no difference between two loaders.
        ratios = [our / round["rate"] for our, round in zip(ours, rounds, strict=True)] if ours else []
        ratio = f"{statistics.median(ratios):.2f}" if ratios else ""
        lines.append(f"| {NAMES[loader]} | " + " | ".join(cells) + f" | {ratio} |")
    lines += [f"| {NAMES[loader]} | {reason.replace('|', '/')} |" for loader, reason in failures.items()]
    return "\n".join(lines)


def options():
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "percolator-loaders"
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--jobs", default=",".join(JOBS), help="which jobs")
    parser.add_argument("--loaders", default=",".join(NEEDS), help="which loaders take part")
    parser.add_argument("--rounds", type=int, default=5, help="in each, every loader is measured once")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each measurement lasts")
    parser.add_argument("--batch", type=int, default=64, help="records in a batch")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="threads, or worker processes")
    parser.add_argument("--cache", type=Path, default=cache, help="where environments and data are kept")
    parser.add_argument("--installed", action="store_true", help="install nothing: take what is in the cache")
    parser.add_argument("--out", type=Path, help="the table is written there as well")
    return parser.parse_args()


def main():
    chosen = options()
    loaders, jobs = chosen.loaders.split(","), chosen.jobs.split(",")
    if unknown := {*loaders, *jobs} - {*NEEDS, *JOBS}:
        known = f"loaders are {', '.join(NEEDS)}; jobs are {', '.join(JOBS)}"
        sys.exit(f"there is no {', '.join(sorted(unknown))}: {known}")
    environments, failures = chosen.cache / "environments", {}
    if chosen.installed:
        interpreters = {loader: python_of(environments / loader) for loader in loaders}
    else:
        interpreters, failures = install_all(loaders, environments)
        if "percolator" not in interpreters:
            why = failures.get("percolator", "name it among --loaders, too")
            sys.exit(f"Percolator makes the data: {why}")
        failures |= make_data(jobs, interpreters, chosen.cache / "data")
    tables, is_whole = [], True
    for job in jobs:
        results, failed = {}, dict(failures)
        for number in range(chosen.rounds):
            taking = [loader for loader in interpreters if job in ONLY.get(loader, JOBS)]
            for loader in [loader for loader in taking if loader not in failed]:
                print(f"{job}: round {number + 1} of {chosen.rounds}: {NAMES[loader]}", file=sys.stderr)
                try:
                    result = measure(interpreters[loader], loader, job, chosen)
                except RuntimeError as error:
                    failed[loader] = f"failed: {error}"
                    results.pop(loader, None)
                else:
                    results.setdefault(loader, []).append(result)
            # After every round: a run that is ended early has what it measured.
            text = "\n\n".join([*tables, table(job, results, failed)]) + "\n"
            if chosen.out:
                chosen.out.write_text(text)
        tables.append(table(job, results, failed))
        is_whole = is_whole and not failed
    print("\n\n".join(tables))
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
