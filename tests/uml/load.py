"""fio on a mounted file system, which checks what it reads."""

import json
import subprocess
import threading


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


def figures_of(output):
    """The JSON of fio, or its last words as the error."""
    try:
        return json.loads(output[output.index("{") :])["jobs"][0]
    except (ValueError, KeyError, IndexError):
        return {"error": output[-500:], "read": {}, "write": {}}
