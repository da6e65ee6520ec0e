"""The command line."""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ordeal import full, kernel, restart
from ordeal.device import Loop, Unavailable, Volume
from ordeal.disk import Mapped, Served
from ordeal.report import Report
from ordeal.server import DidNotStart

EXAMPLES = """examples:
  dev/ordeal/run full                          20 rounds each: kv and series, 1 and 3 volumes, with and without SIGKILL
  dev/ordeal/run full --store kv --volumes 1 --kill no --rounds 5
  dev/ordeal/run full --store shared --rounds 4
  dev/ordeal/run mixed --minutes 60            mixed load, and everything that breaks
  dev/ordeal/run mixed --apart                 the series store on two volumes of its own
  dev/ordeal/run mixed --minutes 5 --seed 7 --only kill,fill_kv
  dev/ordeal/run kernel --minutes 10           the same, where dm-dust fails blocks and device mapper suspends disks
  dev/ordeal/run start --gb 2 --dir /mnt       a series store of 2 GB: starts after SIGKILL and after an orderly stop

One JSON document a run goes to standard output, progress to standard error. The exit status is 0 if nothing was violated, 1 if
something was: the directory with the settings and the log is then kept, and its path printed."""


def program():
    top = Path(__file__).resolve().parents[3]
    target = subprocess.run([top / "dev/target-dir"], capture_output=True, text=True, cwd=top).stdout.strip()
    return os.environ.get("PLIMSOLL") or f"{target}/release/plimsoll"


def arguments():
    parser = argparse.ArgumentParser(
        prog="dev/ordeal/run", description=sys.modules["ordeal"].__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--program", default=program(), help="the binary (default: PLIMSOLL, or what the workspace built)")
    common.add_argument("--seed", type=int, default=None, help="of every random choice (default: a new one, printed)")
    common.add_argument("--dir", type=Path, default=None, help="where images and logs go (default: a temporary directory)")
    one = verbs.add_parser("full", parents=[common], help="fill, refuse, delete 90 %%, refill", epilog=EXAMPLES,
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    one.add_argument("--store", choices=["kv", "series", "both", "shared"], default="both",
                     help="shared: both on one pool with two copies, of three volumes")
    one.add_argument("--volumes", type=int, nargs="+", default=[1, 3], help="how many (default: 1, then 3)")
    one.add_argument("--kill", choices=["yes", "no", "both"], default="both", help="SIGKILL at random moments")
    one.add_argument("--rounds", type=int, default=20)
    one.add_argument("--kv-mib", type=int, default=300, help="of each volume of the key-value store")
    one.add_argument("--series-mib", type=int, default=100, help="of each volume of the series store")
    one.add_argument("--shared-mib", type=int, default=800, help="of each volume of both stores")
    load = argparse.ArgumentParser(add_help=False)
    load.add_argument("--minutes", type=float, default=60)
    load.add_argument("--apart", action="store_true", help="the series store has volumes of its own (default: on the pool)")
    load.add_argument("--only", default="", help="these faults only, with commas between")
    load.add_argument("--timeout", type=int, default=2, help="of each volume: seconds a device may take for one call")
    load.add_argument("--rate", type=int, default=300, help="operations a second of each writer")
    two = verbs.add_parser("mixed", parents=[common, load], help="mixed load while things break", epilog=EXAMPLES,
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    two.add_argument("--mapper", action="store_true", help="faults of devices by device mapper (default: by FUSE)")
    verbs.add_parser("kernel", parents=[common, load], help="mixed load in User-Mode Linux, with device mapper",
                     epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    four = verbs.add_parser("start", parents=[common], help="starts of a large store after SIGKILL and in order",
                            epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    four.add_argument("--gb", type=float, default=2, help="of values, one copy; the pool keeps two")
    four.add_argument("--rounds", type=int, default=2)
    four.add_argument("--keep", action="store_true", help="keep the store afterwards")
    return parser.parse_args()


def with_volumes(options, report, names, run, disk=Loop):
    """Makes volumes, runs, and removes them; keeps the directory after a violation."""
    directory = Path(tempfile.mkdtemp(prefix="plimsoll-ordeal-", dir=options.dir))
    volumes, subject = [], None
    try:
        for name, mib in names:
            volumes.append(Volume(directory, name, mib, disk))
        subject = run(directory, volumes)
        subject.run()
    except DidNotStart as failed:
        report.violation("did_not_start", str(failed))
    except SystemExit:
        report.violation("interrupted", "the run was ended by a signal")
        raise
    finally:
        report.count("starts", subject.server.starts if subject else 0)
        report.count("failed_starts", subject.server.failed_starts if subject else 0)
        if subject and subject.server.process:
            for volume in volumes:
                volume.calm()
            subject.server.kill()
        for volume in volumes:
            volume.close()
        if report.is_good():
            shutil.rmtree(directory)
        else:
            report.say(f"kept {directory}")
        # Also after an interrupted run.
        print(report.json(), flush=True)
    return report.is_good()


def run_full(options):
    good = True
    stores = ["kv", "series"] if options.store == "both" else [options.store]
    kinds = {
        "kv": (full.Kv, options.kv_mib),
        "series": (full.Series, options.series_mib),
        "shared": (full.Shared, options.shared_mib),
    }
    kills = [False, True] if options.kill == "both" else [options.kill == "yes"]
    for store in stores:
        for count in options.volumes if store != "shared" else [count for count in options.volumes if count > 1]:
            for kill in kills:
                options.kill = kill
                report = Report(f"full {store}, volumes {count}, {'SIGKILL' if kill else 'no SIGKILL'}, seed {options.seed}")
                kind, mib = kinds[store]
                names = [(f"v{number}", mib) for number in range(count)]

                def round(directory, volumes, kind=kind, report=report):
                    return kind(full.server(kind, directory, volumes, options.program), volumes, options, report)

                good &= with_volumes(options, report, names, round)
    return good


def run_mixed(options):
    from ordeal.mixed import World

    report = Report(f"mixed, {options.minutes:g} minutes, seed {options.seed}")
    names = [(f"k{n}", 400) for n in range(3)]
    names += [(f"s{n}", 100) for n in range(2)] if options.apart else []
    disk = Mapped if options.mapper else Served
    return with_volumes(
        options, report, names, lambda directory, volumes: World(directory, volumes, options, report), disk
    )


INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


def interrupted(*_):
    """Ends the run. Ignores further signals, which would interrupt the cleanup."""
    for which in INTERRUPTS:
        signal.signal(which, signal.SIG_IGN)
    sys.exit(130)


def main():
    options = arguments()
    for which in INTERRUPTS:
        signal.signal(which, interrupted)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    if os.geteuid() != 0:
        sys.exit("dev/ordeal/run: loop devices and mounts take root")
    try:
        good = {"full": run_full, "mixed": run_mixed, "kernel": kernel.run, "start": restart.run}[options.verb](options)
    except Unavailable as why:
        sys.exit(f"dev/ordeal/run: {why}")
    sys.exit(0 if good else 1)


main()
