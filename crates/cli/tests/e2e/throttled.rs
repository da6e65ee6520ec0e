//! A device that the kernel throttles: a loop device with a file system, and a control group that limits its processes
//! (blkio of cgroup version 1). It needs root.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, id};

use tempfile::TempDir;

const GROUPS: &str = "/sys/fs/cgroup/blkio";
const PREFIX: &str = "plimsoll-e2e-";
const BYTES: u64 = 256 << 20;

/// The mounted device. All parts are removed when this is dropped.
pub(crate) struct Throttled {
    /// Created in this order; removed in reverse.
    dir: TempDir,
    device: String,
    number: String,
    mounted: bool,
    group: PathBuf,
}

impl Throttled {
    /// A device without limits, or the reason why this machine has none.
    pub(crate) fn new() -> Result<Self, String> {
        let throttle = Path::new(GROUPS).join("blkio.throttle.read_iops_device");
        if !throttle.exists() {
            return Err(format!("{} is not there", throttle.display()));
        }
        remove_orphans();
        let dir = tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", id())).tempdir();
        let dir = dir.map_err(|error| error.to_string())?;
        let image = dir.path().join("image");
        let bytes = BYTES.to_string();
        run(Command::new("fallocate").args(["-l", &bytes]).arg(&image))?;
        let device =
            run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        let group = Path::new(GROUPS).join(dir.path().file_name().expect("it has a name"));
        let mut made = Self {
            dir,
            device: device.trim().into(),
            number: String::new(),
            mounted: false,
            group,
        };
        let name = made.device.trim_start_matches("/dev/").to_owned();
        // As volumes of a provider, it has no cache that loses writes. The kernel counts an empty flush as a write.
        fs::write(format!("/sys/block/{name}/queue/write_cache"), "write through")
            .map_err(|error| error.to_string())?;
        // Otherwise the file system would keep writing by itself, and seem in use.
        let quiet = "lazy_itable_init=0,lazy_journal_init=0";
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-E", quiet, &made.device]))?;
        fs::create_dir(made.path()).map_err(|error| error.to_string())?;
        run(Command::new("mount").arg(&made.device).arg(made.path()))?;
        made.mounted = true;
        fs::create_dir(&made.group).map_err(|error| error.to_string())?;
        let number = fs::read_to_string(format!("/sys/block/{name}/dev"));
        made.number = number.map_err(|error| error.to_string())?.trim().into();
        Ok(made)
    }

    /// The mount point.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Limits `what` (`read_iops`, `write_bps`) to `per_sec`; 0 removes the limit.
    pub(crate) fn limit(&self, what: &str, per_sec: u64) {
        let file = self.group.join(format!("blkio.throttle.{what}_device"));
        let number = &self.number;
        fs::write(file, format!("{number} {per_sec}")).expect("the kernel takes limits");
    }

    /// A program under the limits.
    pub(crate) fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        let enter = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
        command.args(["-c", enter]).arg(&self.group).arg(program);
        command
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run(Command::new("umount").arg(self.path()));
        }
        let _ = run(Command::new("losetup").args(["--detach", &self.device]));
        let _ = fs::remove_dir(&self.group);
    }
}

/// Reports on the terminal, even if the harness captures output, that a test could not run.
pub(crate) fn skipped(test: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED {test}: {why}").expect("there is a terminal");
}

/// Removes the remains of killed tests.
fn remove_orphans() {
    let is_orphan = |name: &str| {
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        process.is_some_and(|process| !Path::new("/proc").join(process).exists())
    };
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if is_orphan(&entry.file_name().to_string_lossy()) {
            let dir = entry.path();
            let _ = run(Command::new("umount").arg(dir.join("mnt")));
            let devices = run(Command::new("losetup").arg("--associated").arg(dir.join("image")));
            if let Some((device, _)) = devices.unwrap_or_default().split_once(':') {
                let _ = run(Command::new("losetup").args(["--detach", device]));
            }
            let _ = fs::remove_dir(Path::new(GROUPS).join(entry.file_name()));
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// The output of a command, or its error.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{command:?}: {}", text(&output.stderr).trim()))
    }
}
