//! `plimsoll volume`: lists, adds, drains and removes volumes of a pool in service.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use policy::units::Bytes;
use serde_json::{Map, Value as Json, json};
use serve::admin::volumes::{Changed, Drain, List, New, Volume};
use volume::Clock;
use volume::task::block_on;

use super::admin::{Endpoint, Where};
use crate::settings::{Edit, Settings};

/// The polling interval of a drain.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Lists, adds, empties and removes volumes of a pool while it serves
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Add(AddArgs),
    Drain(DrainArgs),
    Remove(RemoveArgs),
}

/// Lists the volumes of each pool: their state, free space, and objects
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll volume list
  plimsoll volume list -c plimsoll.toml --json")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    at: Where,

    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// Takes a blank volume into a pool
///
/// New tables go there from now on. The settings file must name the volume before the next start: --write
/// changes the file; without it, the command prints the lines to add.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll volume add s6 --path /mnt/ebs-6 --contract gp3 -c plimsoll.toml --write
  plimsoll volume add s6 --path /mnt/ebs-6 --contract gp3 --set iops=6000
  plimsoll volume add s6 --path /mnt/ebs-6 --contract gp3 --pool left    # a pool below that of the stores
  plimsoll volume add s6                 # its section is in the settings file already")]
pub(crate) struct AddArgs {
    /// The name of the new volume, in settings and metrics
    name: String,

    #[command(flatten)]
    at: Where,

    /// A directory on the mounted device
    #[arg(long, requires = "contract")]
    path: Option<PathBuf>,

    /// What was bought: a name from contracts/, the path of a .toml file, or its terms, as { iops = 5000, mib_per_s = 200 }
    #[arg(long, requires = "path")]
    contract: Option<String>,

    /// The pool that it joins; needed where stores are on several pools, else that of the stores if none is named
    #[arg(long)]
    pool: Option<String>,

    /// Another key of the volume's section, such as iops=6000 or simulate=true; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "path")]
    set: Vec<String>,

    /// Change the settings file, too; everything else in it stays as it is
    #[arg(long, requires = "file")]
    write: bool,
}

/// Moves all objects of a volume to the other volumes
///
/// The volume takes no new objects from now on. The server goes on when this command is interrupted, and after a
/// restart; run the command again to see the progress.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll volume drain s6
  plimsoll volume drain s6 --stop")]
pub(crate) struct DrainArgs {
    /// The name of the volume
    name: String,

    #[command(flatten)]
    at: Where,

    /// Stop the drain: the volume takes new tables again, and moved objects stay where they are
    #[arg(long)]
    stop: bool,
}

/// Takes a drained or lost volume out of the pool
///
/// A volume that does not answer any more needs no drain: the pool makes new copies of its objects from their other
/// copies, in the background. If it holds the only copy of objects, the command names them, and does nothing without
/// --lost.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll volume remove s6 -c plimsoll.toml --write
  plimsoll volume remove s6 --lost             # the device is gone for good")]
pub(crate) struct RemoveArgs {
    /// The name of the volume
    name: String,

    #[command(flatten)]
    at: Where,

    /// Give up the objects whose only copy is on this volume, which does not answer: they are lost for good
    #[arg(long)]
    lost: bool,

    /// Change the settings file, too; everything else in it stays as it is
    #[arg(long, requires = "file")]
    write: bool,
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(args) => list(&args),
        Command::Add(args) => add(&args),
        Command::Drain(args) => drain(&args),
        Command::Remove(args) => remove(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let list: List = args.at.endpoint()?.get("/volumes")?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&list)?);
    } else {
        let lists = std::iter::once(&list).chain(&list.more);
        print!("{}", lists.map(table).collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}

fn add(args: &AddArgs) -> anyhow::Result<()> {
    let new = New { name: args.name.clone(), settings: section(args)?, pool: args.pool.clone() };
    let changed: Changed = args.at.endpoint()?.post("/volumes", Some(&new))?;
    tell(&changed);
    if changed.settings.is_empty() {
        return Ok(());
    }
    let pool = |settings: &Settings| match &settings.roots()[..] {
        // The server refuses one without a pool where there are several.
        [root] if args.pool.is_none() => Some(root.name.clone()),
        _ => args.pool.clone(),
    };
    keep(args.write, &args.at, &changed, pool, |edit, pool| {
        if !new.settings.is_empty() && !edit.has_volume(&new.name) {
            edit.add_volume(&new.name, &new.settings).map_err(anyhow::Error::msg)?;
        }
        edit.join_pool(pool, &new.name);
        Ok(())
    })
}

fn drain(args: &DrainArgs) -> anyhow::Result<()> {
    let endpoint = args.at.endpoint()?;
    let name = &args.name;
    if args.stop {
        let volume: Volume =
            endpoint.post(&format!("/volumes/{}/keep", part(name)?), None::<&()>)?;
        println!("volume {name}: {}, with {} objects", volume.state.word(), volume.objects);
        return Ok(());
    }
    let mut volume: Volume =
        endpoint.post(&format!("/volumes/{}/drain", part(name)?), None::<&()>)?;
    let style =
        ProgressStyle::with_template("drain {prefix} {bar:40} {pos} of {len} objects, {eta} left")?;
    let bar = ProgressBar::new(0).with_style(style).with_prefix(name.clone());
    let clock = Clock::real();
    loop {
        if let Some(Drain { moved, left, done, stopped }) = &volume.drain {
            bar.set_length(moved + left);
            bar.set_position(*moved);
            if let Some(why) = stopped {
                bar.abandon();
                bail!("volume {name}: {why}; run the command again to continue");
            }
            if *done {
                bar.finish_and_clear();
                println!("volume {name}: empty; `plimsoll volume remove {name}` takes it out");
                return Ok(());
            }
        } else {
            bar.abandon();
            bail!("volume {name} is {}: its drain was stopped", volume.state.word());
        }
        block_on(clock.sleep(LOOK_EVERY));
        volume = find(&endpoint, name)?;
    }
}

fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let name = &args.name;
    let path = format!("/volumes/{}{}", part(name)?, if args.lost { "/lost" } else { "" });
    let changed: Changed = args.at.endpoint()?.delete(&path)?;
    tell(&changed);
    let pool = |settings: &Settings| Some(settings.pool_with(name)?.name.clone());
    keep(args.write, &args.at, &changed, pool, |edit, pool| {
        edit.remove_volume(pool, name);
        Ok(())
    })
}

fn find(endpoint: &Endpoint, name: &str) -> anyhow::Result<Volume> {
    let list: List = endpoint.get("/volumes")?;
    let found = list.into_volumes().find(|volume| volume.name == name);
    found.with_context(|| format!("volume {name} is not in a pool any more"))
}

fn tell(changed: &Changed) {
    changed.told.iter().for_each(|line| println!("{line}"));
}

/// Updates the settings file, or prints the change that it needs.
fn keep(
    write: bool,
    at: &Where,
    changed: &Changed,
    pool: impl FnOnce(&Settings) -> Option<String>,
    change: impl FnOnce(&mut Edit, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let by_hand =
        || format!("before the next start, write into the settings file:\n\n{}", changed.settings);
    let Some(file) = at.file.as_deref().filter(|_| write) else {
        println!("{}", by_hand().trim_end());
        return Ok(());
    };
    let written = (|| {
        let mut edit = Edit::read(file)?;
        let pool = pool(&edit.settings()?).context("the file has no such pool")?;
        change(&mut edit, &pool)?;
        edit.settings()?;
        Ok(edit.write()?)
    })();
    written.map_err(|error: anyhow::Error| {
        error.context(format!(
            "the pool is changed, but the file {} is not; {}",
            file.display(),
            by_hand()
        ))
    })?;
    println!("{} is changed, too", file.display());
    Ok(())
}

/// The section of the volume; empty if the file has it already.
fn section(args: &AddArgs) -> anyhow::Result<Map<String, Json>> {
    let mut section = Map::new();
    let (Some(path), Some(contract)) = (&args.path, &args.contract) else { return Ok(section) };
    // Paths must be absolute: the server has another working directory.
    let absolute = |path: &std::path::Path| -> anyhow::Result<String> {
        let path = std::path::absolute(path)?;
        let text = path.to_str().with_context(|| format!("{}: not UTF-8", path.display()))?;
        Ok(text.into())
    };
    section.insert("path".into(), absolute(path)?.into());
    let contract = match contract {
        terms if terms.starts_with('{') => {
            let table: toml::Table = toml::from_str(&format!("contract = {terms}"))
                .with_context(|| format!("--contract {terms}"))?;
            serde_json::to_value(&table["contract"])?
        }
        file if file.ends_with(".toml") => absolute(file.as_ref())?.into(),
        name => name.clone().into(),
    };
    section.insert("contract".into(), contract);
    for given in &args.set {
        let Some((key, value)) = given.split_once('=') else {
            bail!("--set {given}: give KEY=VALUE, such as iops=6000");
        };
        // Numbers and booleans keep their type; anything else is text.
        let value = match serde_json::from_str(value) {
            Ok(plain @ (Json::Number(_) | Json::Bool(_))) => plain,
            _ => json!(value.trim_matches('"')),
        };
        if section.insert(key.trim().into(), value).is_some() {
            bail!("--set {given}: {key} is given twice");
        }
    }
    Ok(section)
}

/// A name as a part of a URL's path: names valid in settings need no encoding.
fn part(name: &str) -> anyhow::Result<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(plain) {
        bail!("volume {name}: names have letters, digits, - and _ only");
    }
    Ok(name)
}

fn table(list: &List) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let is_tree = list.volumes.iter().any(|volume| volume.pool != list.pool);
    let header = ["volume", "state", "contract", "free", "size", "objects", "held", "only here"];
    table.set_header(header.into_iter().chain(is_tree.then_some("pool")));
    let bytes = |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| Bytes(bytes).to_string());
    for volume in &list.volumes {
        let state = match &volume.drain {
            Some(Drain { moved, left, .. }) => {
                format!("draining {}%", 100 * moved / (moved + left).max(1))
            }
            None => volume.state.word().into(),
        };
        let row = [
            volume.name.clone(),
            state,
            volume.contract.clone().unwrap_or_else(|| "-".into()),
            bytes(volume.free_bytes),
            bytes(volume.size_bytes),
            volume.objects.to_string(),
            Bytes(volume.bytes).to_string(),
            volume.only_here.to_string(),
        ];
        table.add_row(row.into_iter().chain(is_tree.then(|| volume.pool.clone())));
    }
    for at in 3..8 {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = format!("pool {}\n", list.pool);
    text.extend(table.lines().map(|line| format!("{}\n", line.trim())));
    let List { copies, short_objects: short, short_bytes, unreadable_objects, .. } = *list;
    if copies > 1 {
        let kept = match &list.code {
            None => format!("{copies} copies of everything"),
            Some(code) => {
                format!("{code} fragments of what is complete, {copies} copies of everything else")
            }
        };
        text.push_str(&match short {
            0 => format!("{kept}\n"),
            _ => {
                let bytes = Bytes(short_bytes);
                format!("{kept}, except {short} objects ({bytes}) that have fewer for now\n")
            }
        });
    }
    if unreadable_objects > 0 {
        text.push_str(&format!("{unreadable_objects} objects cannot be read\n"));
    }
    for volume in &list.volumes {
        if let Some(problem) = &volume.problem {
            text.push_str(&format!("volume {}: {problem}\n", volume.name));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use expect_test::expect;
    use serve::admin::volumes::State;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn parse(line: &str) -> Result<Command, String> {
        let words = std::iter::once("volume").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.command).map_err(|error| error.to_string())
    }

    fn added(line: &str) -> anyhow::Result<Json> {
        match parse(line) {
            Ok(Command::Add(args)) => Ok(Json::Object(section(&args)?)),
            Ok(_) => panic!("{line} adds nothing"),
            Err(error) => panic!("{line}: {error}"),
        }
    }

    #[test]
    fn what_is_bought_becomes_the_section_of_the_volume() {
        let line = "add f --path /mnt/f --contract gp3 --set iops=6000 --set simulate=true \
                    --set size=50GiB --set rho=0.9";
        let expected = json!({
            "path": "/mnt/f", "contract": "gp3", "iops": 6000, "simulate": true, "size": "50GiB",
            "rho": 0.9,
        });
        assert_eq!(added(line).expect("a section"), expected);
        assert_eq!(added("add f").expect("no section"), json!({}));
        let terms = added("add f --path /mnt/f --contract {iops=5000,mib_per_s=200}");
        assert_eq!(
            terms.expect("a section")["contract"],
            json!({ "iops": 5000, "mib_per_s": 200 })
        );
        let path = added("add f --path x --contract c.toml").expect("a section");
        let here = std::env::current_dir().expect("there is one");
        assert_eq!(path["path"].as_str().map(PathBuf::from), Some(here.join("x")));
        assert_eq!(path["contract"].as_str().map(PathBuf::from), Some(here.join("c.toml")));
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anybody_is_asked() {
        for (line, word) in [
            ("add f --path /mnt/f", "--contract"),
            ("add f --contract gp3", "--path"),
            ("add f --set iops=1", "--path"),
            ("add f --write", "--config"),
            ("remove f --write", "--config"),
            ("drain", "<NAME>"),
            ("list -c x --admin y", "cannot be used with"),
        ] {
            let error = parse(line).err().unwrap_or_else(|| panic!("{line} is taken"));
            assert!(error.contains(word), "{line}: {error}");
        }
        let error = added("add f --path /mnt/f --contract {iops=}").expect_err("it is wrong");
        assert!(error.to_string().contains("--contract {iops=}"), "{error}");
        let base = "add f --path /mnt/f --contract gp3 --set";
        for (set, word) in [("iops", "KEY=VALUE"), ("path=/mnt/g", "twice")] {
            let error = added(&format!("{base} {set}")).expect_err("it is wrong").to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(part("../reload").is_err() && part("").is_err() && part("s-6_a").is_ok());
    }

    #[test]
    fn a_list_shows_state_room_and_what_is_wrong() {
        let volume = |name: &str, state, drain, problem: Option<&str>| Volume {
            name: name.into(),
            pool: "main".into(),
            state,
            contract: (state != State::Away).then(|| "gp3, 3000 IOPS, 125 MiB/s".into()),
            size_bytes: (state != State::Away).then_some(60 << 30),
            free_bytes: (state != State::Away).then_some(45 << 30),
            objects: 120,
            bytes: 15 << 30,
            only_here: 100,
            drain,
            problem: problem.map(str::to_owned),
        };
        let drain = Drain { moved: 25, left: 75, ..Drain::default() };
        let list = List {
            copies: 2,
            code: None,
            more: Vec::new(),
            short_objects: 20,
            short_bytes: 3 << 30,
            unreadable_objects: 100,
            pool: "main".into(),
            volumes: vec![
                volume("s1", State::Active, None, None),
                volume("s2", State::Draining, Some(drain), None),
                volume("s3", State::Away, None, Some("no such directory")),
            ],
        };
        expect![[r#"
            pool main
            volume  state         contract                     free    size  objects    held  only here
            s1      active        gp3, 3000 IOPS, 125 MiB/s  45 GiB  60 GiB      120  15 GiB        100
            s2      draining 25%  gp3, 3000 IOPS, 125 MiB/s  45 GiB  60 GiB      120  15 GiB        100
            s3      away          -                               -       -      120  15 GiB        100
            2 copies of everything, except 20 objects (3 GiB) that have fewer for now
            100 objects cannot be read
            volume s3: no such directory
        "#]].assert_eq(&table(&list));
    }
}
