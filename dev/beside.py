"""Arms that are measured in User-Mode Linux one after the other, in rounds, and their medians."""

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def need(programs):
    """Ends with an error if a program is missing. `programs` names Debian's package of each."""
    missing = [package for name, package in programs.items() if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]
    if missing:
        sys.exit(f"missing: apt-get install {' '.join(missing)}")


def boot(script, *words, memory="4G", seconds=580):
    """Runs a script of tests/uml; returns what it measured."""
    line = [HERE / "uml", "-m", memory, "-t", seconds, HERE.parent / "tests/uml" / script, *words]
    line = [str(word) for word in line]
    ran = subprocess.run(line, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{' '.join(line[5:])}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return json.loads(ran.stdout[ran.stdout.index("{") :])


def in_rounds(arms, count, of, measure, path):
    """Measures each arm in each round, in another order and with another seed, which is the same for all arms of the round. `of` says of
    what the measurements are. With a path, those that are there are not made again."""
    measured = []
    if path and path.exists():
        document = json.loads(path.read_text())
        if document["of"] != of:
            sys.exit(f"{path} is of {document['of']}, not of {of}")
        measured = document["measured"]
    done = {(one["arm"], one["seed"]) for one in measured}
    for number in range(count):
        turn = 2 * number % len(arms) if len(arms) > 2 else number % 2
        for arm in arms[turn:] + arms[:turn]:
            if (arm, number + 1) in done:
                continue
            measured.append(measure(arm, number + 1))
            print(f"round {number + 1}, {arm}: done", file=sys.stderr, flush=True)
            if path:
                path.write_text(json.dumps({"of": of, "measured": measured}, indent=1))
    return measured


def medians(measured, arms):
    """Of each arm, by name: medians of all numbers of its measurements."""
    found = {}
    for arm in arms:
        runs = [one for one in measured if one["arm"] == arm]
        numbers = [key for key, value in runs[0].items() if isinstance(value, (int, float))]
        found[arm] = {key: round(statistics.median(one[key] for one in runs), 4) for key in numbers}
    return found


def show(title, shown, of):
    """A table with a line for each figure and a column for each arm. `shown` has a name and a format for each figure."""
    width = max(len(name) for name, _ in shown.values()) + 2
    print(f"\n{title:{width}}" + "".join(f"{arm:>16}" for arm in of))
    for key, (name, form) in shown.items():
        print(f"{name:{width}}" + "".join(f"{form.format(figures[key]):>16}" for figures in of.values()))
