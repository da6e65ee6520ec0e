//! What this machine calls itself as the holder of a device's lease.
//!
//! The holder is a device of a machine, such as `/dev/nbd0`: after a restart the machine gets its lease back without
//! force, and a second device of the same machine is another holder.

use std::fs;
use std::hash::{BuildHasher, RandomState};

use engine::block::{HOLDER_NAME_MAX, Holder};
use ring::digest::{SHA256, digest};

/// Makes the hash this program's own: systemd asks that the id of a machine is not shown to others (machine-id(5)).
const PURPOSE: &str = "plimsoll block attach: holder of a lease, version 1";

/// This machine's holder for the device at `path`.
pub(super) fn of(path: &str) -> Holder {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    holder(&read("/etc/machine-id"), &read("/proc/sys/kernel/hostname"), path)
}

fn holder(machine: &str, host: &str, path: &str) -> Holder {
    let id = match machine.len() {
        // It has none, or gets one at its next start. So it needs force after a restart.
        ..32 => {
            let random = || RandomState::new().hash_one(0).to_be_bytes();
            [random(), random()].concat()
        }
        _ => {
            let hash = digest(&SHA256, format!("{PURPOSE}\0{machine}\0{path}").as_bytes());
            hash.as_ref()[..16].to_vec()
        }
    };
    let host = if host.is_empty() { "a host without a name" } else { host };
    let name: String = format!("{host} ({path})").chars().filter(|c| !c.is_control()).collect();
    let name = name[..name.floor_char_boundary(HOLDER_NAME_MAX)].to_owned();
    Holder { id: id.try_into().expect("it has 16 bytes"), name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_a_device_of_a_machine() {
        let machine = "0123456789abcdef0123456789abcdef";
        let one = holder(machine, "host", "/dev/nbd0");
        assert_eq!(one, holder(machine, "host", "/dev/nbd0"));
        assert_eq!(one.name, "host (/dev/nbd0)");
        assert_eq!(one.id, holder(machine, "renamed", "/dev/nbd0").id);
        assert_ne!(one.id, holder(machine, "host", "/dev/nbd1").id);
        assert_ne!(one.id, holder(&machine.replace('0', "1"), "host", "/dev/nbd0").id);
        for machine in ["", "uninitialized"] {
            let of = || holder(machine, "", "/dev/nbd0").id;
            assert_ne!(of(), of(), "random without an id");
        }
        assert_eq!(holder(machine, &"ä".repeat(40), "/dev/nbd0").name, "ä".repeat(32));
    }
}
