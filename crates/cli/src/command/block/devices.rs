//! `plimsoll block create | list | limit | resize | release | delete`: the devices of a running server, through its admin listener.

use anyhow::{Context, anyhow, bail};
use comfy_table::{CellAlignment, Table, presets};
use policy::units::Bytes;
use serve::admin::block::{Device, List, New, NewLimit, Resize};

use crate::command::admin::{Endpoint, Where};
use crate::settings;

/// Stands for a contract: the device has no limit; and for a holder: it has none.
const NONE: &str = "none";

/// Creates a block device, which reads as zeros
///
/// Clients can open it at once: its name is that of the export. It takes room on the pool only for what is written.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll block create vm1 100GiB
  plimsoll block create vm1 100GiB --limit gp3
  plimsoll block create vm1 100GiB --limit '{ iops = 500, mib_per_s = 60 }'")]
pub(crate) struct CreateArgs {
    /// The name of the device
    name: String,

    /// Its size with a unit, such as 100GiB: a multiple of 4KiB
    #[arg(value_parser = size)]
    size: u64,

    /// What its clients get at most: a contract as `plimsoll block limit` takes it
    #[arg(long, value_name = "CONTRACT", value_parser = contract)]
    limit: Option<String>,

    /// Allow that devices are sold more in all than the volumes give
    #[arg(long, requires = "limit")]
    oversell: bool,

    #[command(flatten)]
    at: Where,
}

/// Sets what the clients of a block device get at most, from now on
///
/// Together, devices are sold no more than 90 % of what is paid for the volumes, where a write counts once for each copy.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll block limit vm1 gp3
  plimsoll block limit vm1 '{ iops = 500, mib_per_s = 60 }'
  plimsoll block limit vm1 '{ iops = { included = 100, burst = { rate = 3000, credits = 5400000 } }, mib_per_s = 60 }'
  plimsoll block limit vm1 none")]
pub(crate) struct LimitArgs {
    /// The name of the device
    name: String,

    /// A name from contracts/, a table such as { iops = 500, mib_per_s = 60 }, the path of a .toml file, or none
    #[arg(value_parser = contract)]
    contract: String,

    /// Allow that devices are sold more in all than the volumes give
    #[arg(long)]
    oversell: bool,

    #[command(flatten)]
    at: Where,
}

/// Lists the block devices: their sizes, the room they take at most, their limits, and the hosts that hold them
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll block list
  plimsoll block list -c plimsoll.toml --json")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    at: Where,

    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// Changes the size of a block device
///
/// Clients that have it open see the new size when they connect again. A file system on it grows by its own command,
/// such as resize2fs or xfs_growfs.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll block resize vm1 200GiB
  plimsoll block resize vm1 50GiB --shrink    # after resize2fs /dev/nbd0 50G, unmounted")]
pub(crate) struct ResizeArgs {
    /// The name of the device
    name: String,

    /// Its new size with a unit, such as 200GiB: a multiple of 4KiB
    #[arg(value_parser = size)]
    size: u64,

    #[command(flatten)]
    at: Where,

    /// Let it become smaller: the bytes behind the new end are gone for good
    #[arg(long)]
    shrink: bool,
}

/// Takes a block device away from the host that holds it
///
/// Then every client may write to it again, such as QEMU. I/O of the host that held it fails: use it when that host is gone
/// for good, or has unmounted the device. `plimsoll block attach --force` gives the device to another host in one step.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll block release vm1")]
pub(crate) struct ReleaseArgs {
    /// The name of the device
    name: String,

    #[command(flatten)]
    at: Where,
}

/// Deletes a block device with all of its bytes
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll block delete vm1 --yes")]
pub(crate) struct DeleteArgs {
    /// The name of the device
    name: String,

    #[command(flatten)]
    at: Where,

    /// Do it: the bytes cannot be brought back
    #[arg(long)]
    yes: bool,
}

pub(super) fn create(args: &CreateArgs) -> anyhow::Result<()> {
    let new = New {
        name: part(&args.name)?.to_owned(),
        size_bytes: args.size,
        limit: args.limit.as_deref().and_then(limited),
        oversell: args.oversell,
    };
    let device: Device = served(&args.at)?.post("/block", Some(&new))?;
    let limit = device.limit.map_or_else(String::new, |limit| format!(", at most {}", limit.terms));
    println!("block device {}: created, {}{limit}", device.name, Bytes(device.size_bytes));
    Ok(())
}

pub(super) fn limit(args: &LimitArgs) -> anyhow::Result<()> {
    let path = format!("/block/{}/limit", part(&args.name)?);
    let to = NewLimit { limit: limited(&args.contract), oversell: args.oversell };
    let device: Device = served(&args.at)?.post(&path, Some(&to))?;
    let limit = device.limit.map_or("no limit".into(), |limit| format!("at most {}", limit.terms));
    println!("block device {}: {limit} from now on", device.name);
    Ok(())
}

pub(super) fn list(args: &ListArgs) -> anyhow::Result<()> {
    let list: List = served(&args.at)?.get("/block")?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&list)?);
    } else {
        print!("{}", table(&list));
    }
    Ok(())
}

pub(super) fn resize(args: &ResizeArgs) -> anyhow::Result<()> {
    let path = format!("/block/{}/size", part(&args.name)?);
    let to = Resize { size_bytes: args.size, shrink: args.shrink };
    let device: Device = served(&args.at)?.post(&path, Some(&to))?;
    println!("block device {}: {} from now on", device.name, Bytes(device.size_bytes));
    Ok(())
}

pub(super) fn release(args: &ReleaseArgs) -> anyhow::Result<()> {
    let name = part(&args.name)?;
    let endpoint = served(&args.at)?;
    let list: List = endpoint.get("/block")?;
    let was = list.devices.into_iter().find(|device| device.name == name);
    let _: Device = endpoint.post(&format!("/block/{name}/release"), None::<&()>)?;
    match was.and_then(|device| device.holder) {
        Some(holder) => println!("block device {name}: released, and was held by {holder}"),
        None => println!("block device {name}: no host holds it"),
    }
    Ok(())
}

pub(super) fn delete(args: &DeleteArgs) -> anyhow::Result<()> {
    let name = part(&args.name)?;
    let endpoint = served(&args.at)?;
    if !args.yes {
        let list: List = endpoint.get("/block")?;
        let found = list.devices.iter().find(|device| device.name == name);
        let size =
            found.map_or_else(String::new, |device| format!(" of {}", Bytes(device.size_bytes)));
        bail!(
            "block device {name}: its bytes{size} cannot be brought back: add --yes to delete it"
        );
    }
    let device: Device = endpoint.delete(&format!("/block/{name}"))?;
    println!("block device {name}: deleted, with its {}", Bytes(device.size_bytes));
    Ok(())
}

/// The admin listener, which has to answer.
fn served(at: &Where) -> anyhow::Result<Endpoint> {
    let endpoint = at.endpoint()?;
    let file = at.file.as_ref().map_or("plimsoll.toml".into(), |file| file.display().to_string());
    endpoint.get::<serde_json::Value>("/block").map_err(|error| {
        // A server that answers says itself what is wrong.
        match error.downcast_ref::<std::io::Error>() {
            Some(_) => error.context(format!(
                "block devices are changed in a running server: start one with `plimsoll serve -c {file}`"
            )),
            None => error,
        }
    })?;
    Ok(endpoint)
}

fn size(text: &str) -> anyhow::Result<u64> {
    let bytes = settings::size(text).filter(|&bytes| bytes > 0);
    bytes.context("give a size with its unit, such as 100GiB")
}

/// A contract as the server takes it, which does not read files of its clients; or `none`.
fn contract(text: &str) -> anyhow::Result<String> {
    if text.ends_with(".toml") {
        let read = std::fs::read_to_string(text);
        return read.map_err(|error| anyhow!("the contract {text}: {error}"));
    }
    Ok(text.to_owned())
}

fn limited(contract: &str) -> Option<String> {
    (contract != NONE).then(|| contract.to_owned())
}

/// A name as a part of a URL's path: names of devices need no encoding.
fn part(name: &str) -> anyhow::Result<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
        bail!(
            "block device {name:?}: names have letters, digits, -, _ and . only, and do not begin with a dot"
        );
    }
    Ok(name)
}

fn table(list: &List) -> String {
    let mut text = format!("pool {}\n", list.pool);
    if list.devices.is_empty() {
        text.push_str("no block devices; `plimsoll block create NAME SIZE` makes one\n");
        return text;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["device", "size", "room", "limit", "held by"]);
    for device in &list.devices {
        table.add_row([
            device.name.clone(),
            Bytes(device.size_bytes).to_string(),
            Bytes(device.room_bytes).to_string(),
            device.limit.as_ref().map_or_else(|| NONE.into(), |limit| limit.terms.clone()),
            device.holder.clone().unwrap_or_else(|| NONE.into()),
        ]);
    }
    for at in 1..3 {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    text.extend(table.lines().map(|line| format!("{}\n", line.trim())));
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use expect_test::expect;
    use serve::admin::block::Limit;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: crate::command::block::Command,
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anybody_is_asked() {
        for (line, word) in [
            ("create vm", "<SIZE>"),
            ("create vm 100", "with its unit"),
            ("create vm 0B", "with its unit"),
            ("resize vm", "<SIZE>"),
            ("delete", "<NAME>"),
            ("limit vm", "<CONTRACT>"),
            ("limit vm away.toml", "the contract away.toml"),
            ("create vm 1GiB --oversell", "--limit"),
            ("list -c x --admin y", "cannot be used with"),
        ] {
            let words = std::iter::once("block").chain(line.split_whitespace());
            let error = Line::try_parse_from(words).err();
            let error = error.unwrap_or_else(|| panic!("{line} is taken")).to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        for wrong in ["", "..", "a/b", "a b", ".a"] {
            assert!(part(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(part("vm-1_a.img").expect("a name"), "vm-1_a.img");
    }

    #[test]
    fn a_list_shows_sizes_and_room() {
        let device = |name: &str, room_bytes| Device {
            name: name.into(),
            size_bytes: 100 << 30,
            room_bytes,
            limit: None,
            holder: None,
        };
        let mut devices = vec![device("vm1", 192 << 20), device("vm2", 0)];
        let terms = "gp3, 3000 IOPS, 125 MiB/s".into();
        devices[0].limit = Some(Limit { terms, iops: Some(3000), bytes_per_s: Some(125 << 20) });
        devices[1].holder = Some("host (/dev/nbd0)".into());
        let mut list = List { pool: "main".into(), devices };
        expect![[r#"
            pool main
            device     size     room  limit                      held by
            vm1     100 GiB  192 MiB  gp3, 3000 IOPS, 125 MiB/s  none
            vm2     100 GiB      0 B  none                       host (/dev/nbd0)
        "#]]
        .assert_eq(&table(&list));
        list.devices.clear();
        expect![[r#"
            pool main
            no block devices; `plimsoll block create NAME SIZE` makes one
        "#]]
        .assert_eq(&table(&list));
    }

    #[test]
    fn where_no_server_answers_the_error_says_how_to_start_one() {
        let place = tempfile::tempdir().expect("room for a directory");
        let admin = Some(format!("unix:{}", place.path().join("admin").display()));
        let at = Where { file: None, admin };
        let error = served(&at).expect_err("nothing listens there");
        let told = crate::command::chain(&error);
        assert!(told.contains("plimsoll serve -c plimsoll.toml"), "{told}");
    }
}
