//! The resources that a measured server uses, as the system counts them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Ticks of a second in `/proc`: USER_HZ, 100 on every Linux (`man 7 time`).
const TICKS: u64 = 100;

/// Processor time of all children that ended and were waited for.
#[must_use]
pub fn children_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold any character, so parse after its closing parenthesis; the first field there is the third of
    // all.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS)
}

/// Memory that a process uses, and its peak, in bytes.
///
/// # Errors
/// There is no such process.
pub fn memory(process: u32) -> io::Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let of = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    };
    Ok((of("VmRSS:"), of("VmHWM:")))
}

/// Sends SIGTERM to a process.
///
/// # Errors
/// The process does not exist, or the caller lacks permission.
pub fn terminate(process: u32) -> io::Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other(format!("{process} is no process")))?;
    Ok(kill_process(pid, Signal::TERM)?)
}

/// Bytes that the files below a directory take on their device. Files removed meanwhile count as none.
#[must_use]
pub fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let each = entries.filter_map(|entry| {
        let facts = entry.path().symlink_metadata().ok()?;
        Some(if facts.is_dir() { bytes_below(&entry.path()) } else { facts.blocks() * 512 })
    });
    each.sum()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_that_worked_was_counted_when_it_ended() {
        let before = children_time();
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child = Command::new("sh")
            .args(["-c", &format!("{work}; echo; exec sleep 60")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut line = [0];
        let mut output = child.stdout.take().expect("it is piped");
        io::Read::read_exact(&mut output, &mut line).expect("it says that it worked");
        let (now, most) = memory(child.id()).expect("it runs");
        assert!(0 < now && now <= most, "{now} of {most}");
        terminate(child.id()).expect("it is ours");
        assert!(!child.wait().expect("it ends").success());
        assert!(children_time() > before);
    }

    #[test]
    fn files_count_by_what_they_take() {
        let dir = tempfile::tempdir().expect("room for a directory");
        fs::create_dir(dir.path().join("below")).expect("room");
        fs::write(dir.path().join("below/file"), [1; 10_000]).expect("room");
        let sparse = fs::File::create(dir.path().join("sparse")).expect("room");
        sparse.set_len(1 << 30).expect("room");
        assert!((10_000..100_000).contains(&bytes_below(dir.path())));
    }
}
