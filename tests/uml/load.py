"""fio on a mounted file system, which checks what it reads, and on a device, for figures."""

import json
import subprocess
import threading

from stack import kernel_failures, report


class Load:
    """fio, whose blocks carry their checksums. It goes over its file until its time is over, and syncs now and then."""

    def __init__(self, path, size, depth, seconds):
        job = [
            "fio", "--name=verified", f"--filename={path}", f"--size={size}", f"--iodepth={depth}", "--rw=randrw",
            "--rwmixread=50", "--bs=4k", "--ioengine=libaio", "--direct=1", "--fsync=200", "--verify=crc32c",
            "--verify_fatal=1", "--verify_backlog=256", "--time_based", f"--runtime={seconds}", "--output-format=json",
        ]  # fmt: skip
        self.process = subprocess.Popen(job, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        self.output.append(self.process.stdout.read())

    def is_running(self):
        return self.process.poll() is None

    def wait(self):
        """Its figures, and what it found wrong."""
        self.process.wait()
        self.reader.join()
        figures = figures_of(self.output[0])
        if self.process.returncode or figures["error"]:
            return figures, [f"fio ended with status {self.process.returncode}, error {figures['error']}"]
        return figures, []


def unverified(path, size, depth, seed, *more):
    """Figures of fio with direct I/O on a device. The hot blocks are the same for each seed. If it fails, so does the program."""
    line = ["fio", "--name=load", f"--filename={path}", f"--size={size}", "--ioengine=libaio", "--direct=1"]
    line += [f"--iodepth={depth}", "--output-format=json", "--unified_rw_reporting=both", *more]
    # Without the first word, Zipf's law gives the same numbers for each seed.
    line += ["--randrepeat=0", f"--randseed={seed}"]
    ran = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    figures = figures_of(ran.stdout)
    if ran.returncode or figures["error"]:
        report({}, [f"fio ended with status {ran.returncode}, error {figures['error']}"] + kernel_failures())
    return figures


def figures_of(output):
    """The JSON of fio, or its last words as the error."""
    try:
        return json.loads(output[output.index("{") :])["jobs"][0]
    except (ValueError, KeyError, IndexError):
        return {"error": output[-500:], "read": {}, "write": {}}
