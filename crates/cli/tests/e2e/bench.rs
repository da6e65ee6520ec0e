//! Benches from the command line: their reports, and what remains afterwards.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::place::{Ended, Place, settings};
use crate::throttled::{Throttled, skipped};

/// A bench with its temporary directory inside the place.
fn temporary(place: &Place) -> PathBuf {
    let dir = place.path("tmp");
    std::fs::create_dir_all(&dir).expect("room for a directory");
    dir
}

fn bench_kv(place: &Place, args: &[&str]) -> Command {
    let mut command = place.command(&[&["bench", "kv", "--profile", "smoke"], args].concat());
    command.env("TMPDIR", temporary(place));
    command
}

fn run(place: &Place, args: &[&str]) -> Ended {
    Ended::of(&mut bench_kv(place, args))
}

/// Starts a bench, and waits for its announcement: its volumes are open then.
fn start(place: &Place, args: &[&str]) -> Child {
    let mut command = bench_kv(place, args);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("text");
    assert!(line.starts_with("bench kv takes about"), "{line}");
    child
}

fn left(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(temporary(place)).expect("it is there");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// The contents of the place's pool.
fn objects(place: &Place) -> String {
    let ended = place.run(&["check", "-c", "plimsoll.toml"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
    let line = ended.out.lines().find(|line| line.starts_with("pool main: "));
    line.unwrap_or_else(|| panic!("no pool in {}", ended.out)).into()
}

#[test]
fn a_bench_writes_its_reports() {
    let place = Place::new();
    let args = ["bench", "provider", "--profile", "smoke", "--rows", "B01"];
    let ended = place.run(&[&args[..], &["--json", "b.json", "--html", "b.html"]].concat());
    assert!(ended.status.success(), "{}", ended.err);
    let json = std::fs::read_to_string(place.path("b.json")).expect("a report");
    assert!(json.contains("\"id\": \"B01\"") || json.contains("\"id\":\"B01\""), "{json}");
    assert!(std::fs::read_to_string(place.path("b.html")).expect("a page").contains("<svg"));
}

#[test]
fn ycsb_runs_whole_and_leaves_nothing_behind() {
    let place = Place::new();
    let ended = run(&place, &["--json", "kv.json", "--html", "kv.html"]);
    assert!(ended.status.success(), "{}", ended.err);
    assert!(ended.out.starts_with("bench kv takes about"), "{}", ended.out);
    let json = std::fs::read_to_string(place.path("kv.json")).expect("a report");
    for case in ["Load, insert, p99", "A, update, p99.9", "E, scan, max", "F, volume s3"] {
        assert!(json.contains(&format!("\"case\": \"{case}\"")), "{case} in {json}");
    }
    // Every value belonged to its key, and no volume exceeded its paid rate.
    assert_eq!(json.matches("\"holds\": true").count(), 2, "{}", ended.out);
    let page = std::fs::read_to_string(place.path("kv.html")).expect("a page");
    assert!(page.matches("<svg").count() >= 6 && page.contains("its line of 3000 IOPS"));
    assert!(left(&place).is_empty(), "{:?}", left(&place));
}

#[test]
fn policies_are_compared_by_replay_of_traces_and_stand_ins() {
    let place = Place::new();
    let args = ["bench", "tier", "--profile", "smoke", "--json", "t.json", "--html", "t.html"];
    let ended = place.run(&args);
    assert!(ended.status.success(), "{}", ended.err);
    let json = std::fs::read_to_string(place.path("t.json")).expect("a report");
    let case = "\"case\": \"stand-in for hm_0, 10 % = ";
    assert!(json.contains(case) && json.contains("computed by replay"), "{}", ended.out);
    let page = std::fs::read_to_string(place.path("t.html")).expect("a page");
    assert_eq!(page.matches("<svg").count(), 20);

    // Ten requests of one block each: with room for two blocks, only the last is a hit.
    std::fs::write(place.path("ids.txt"), "1\n2\n3\n1\n2\n3\n4\n5\n6\n6\n").expect("room");
    let ended = place.run(&["bench", "tier", "--trace", "ids.txt", "--sizes", "8KiB"]);
    assert!(ended.status.success(), "{}", ended.err);
    let mut lines = ended.out.lines();
    let line = lines.find(|line| line.contains("ids.txt, 8 KiB = 2 of 4 KiB"));
    let figures: Vec<&str> = line.expect("a line of the case").split(['│', '┆']).collect();
    // The name of the case, LRU's hits, those of other policies, the limit.
    assert_eq!(figures[2].trim(), "10", "{}", ended.out);

    std::fs::write(place.path("bad.spc"), "0,1,512,R,0.5\n0,1,512,X,0.5\n").expect("room");
    let ended = place.run(&["bench", "tier", "--trace", "bad.spc"]);
    assert_eq!(ended.status.code(), Some(1));
    let expected = "bad.spc, line 2: expected unit,block,bytes,R or W,seconds (format spc)";
    assert!(ended.err.contains(expected), "{}", ended.err);
}

#[test]
fn schemes_are_compared_on_equal_volumes() {
    let place = Place::new();
    let args = ["bench", "contract", "--profile", "smoke", "--json", "c.json", "--html", "c.html"];
    let ended = place.run(&args);
    assert!(ended.status.success(), "{}", ended.err);
    assert!(ended.out.starts_with("bench contract takes about"), "{}", ended.out);
    let json = std::fs::read_to_string(place.path("c.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let list = |name: &str| report[name].as_array().expect("a list").clone();
    for (id, scheme) in [("B03", "stabilizer"), ("B04", "auto-tuned"), ("B16", "ours")] {
        let has = |row: &serde_json::Value| row["id"] == id && row["scheme"] == scheme;
        assert!(list("rows").iter().any(has), "no {id} of {scheme}");
    }
    // The test ignores speed; it checks that every value belonged to its key, and that ours kept to the paid rate.
    let sound: Vec<_> = list("checks").into_iter().filter(|check| check["id"] == "all").collect();
    assert_eq!(sound.len(), 2, "{}", ended.out);
    assert!(sound.iter().all(|check| check["holds"] == true), "{}", ended.out);
    let page = std::fs::read_to_string(place.path("c.html")).expect("a page");
    assert!(page.matches("<svg").count() >= 10 && page.contains("tokens of each class, ours"));

    let ended = place.run(&["bench", "contract", "--rows", "B99"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.err.contains("there is no row B99; there are B03"), "{}", ended.err);
}

#[test]
fn schemes_are_compared_on_a_real_device() {
    let device = match Throttled::new() {
        Ok(device) => device,
        Err(why) => return skipped("schemes_are_compared_on_a_real_device", &why),
    };
    device.limit("read_iops", 5000);
    device.limit("write_iops", 5000);
    let place = Place::new();
    place.write(&format!(
        "[volume.a]\npath = {:?}\ncontract = {{ iops = 5000 }}\n\n\
         [pool.main]\nvolumes = [\"a\"]\n\n[kv]\npool = \"main\"\n",
        device.path()
    ));
    let bench = |args: &[&str]| {
        let mut inside = device.inside(env!("CARGO_BIN_EXE_plimsoll"));
        let on = ["bench", "contract", "-c", "plimsoll.toml", "--profile", "smoke"];
        Ended::of(inside.args(on).args(args).current_dir(place.dir.path()))
    };
    // On a machine that is busy with other tests, nothing may end in less.
    let ended = bench(&["--rows", "B05", "--time", "2s", "--json", "c.json"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
    let json = std::fs::read_to_string(place.path("c.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let list = |name: &str| report[name].as_array().expect("a list").clone();
    for scheme in ["plain", "auto-tuned", "ours"] {
        for figure in ["mean", "p99", "tokens / operations the kernel counted"] {
            let case = format!("mixgraph, read only, {figure}");
            let has = |row: &serde_json::Value| {
                row["id"] == "B05"
                    && row["case"] == *case
                    && row["scheme"] == scheme
                    && row["value"].as_f64().is_some_and(|value| value > 0.0)
            };
            assert!(list("rows").iter().any(has), "no {case} of {scheme}");
        }
    }
    // The test ignores speed; it checks that every value belonged to its key, and what the report claims of the device.
    let sound: Vec<_> = list("checks").into_iter().filter(|check| check["id"] == "all").collect();
    assert_eq!((sound.len(), &sound[0]["holds"]), (2, &true.into()), "{}", ended.out);
    assert_eq!(sound[1]["what"], "ours: tokens / operations the kernel counted, all runs");
    assert!(!json.contains("overdrafts") && json.contains("real volumes: a (loop"), "{json}");

    let ended = bench(&["--rows", "B07"]);
    assert!(ended.err.contains("row B07 compares contracts"), "{}", ended.err);
    let left = std::fs::read_dir(device.path()).expect("it is there").count();
    assert_eq!(left, 1, "only lost+found");
}

#[test]
fn placements_are_compared_on_equal_pools() {
    let place = Place::new();
    let args = ["bench", "spread", "--profile", "smoke", "--json", "s.json", "--html", "s.html"];
    let ended = place.run(&args);
    assert!(ended.status.success(), "{}", ended.err);
    assert!(ended.out.starts_with("bench spread takes about"), "{}", ended.out);
    let json = std::fs::read_to_string(place.path("s.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let list = |name: &str| report[name].as_array().expect("a list").clone();
    for (case, scheme) in [("100 % reads", "single"), ("50 % reads, volume 6", "stripe-64K")] {
        let has = |row: &serde_json::Value| row["case"] == case && row["scheme"] == scheme;
        assert!(list("rows").iter().any(has), "no {case} of {scheme}");
    }
    // The test ignores speed; it checks that every value belonged to its key, and that no volume exceeded its paid
    // rate.
    let sound: Vec<_> = list("checks").into_iter().filter(|check| check["id"] == "all").collect();
    assert_eq!(sound.len(), 2, "{}", ended.out);
    assert!(sound.iter().all(|check| check["holds"] == true), "{}", ended.out);
    let page = std::fs::read_to_string(place.path("s.html")).expect("a page");
    assert!(page.contains("100 % reads: each volume under ours"));

    let ended = place.run(&["bench", "spread", "--rows", "B99"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.err.contains("there is no row B99; there are B17"), "{}", ended.err);
}

#[test]
fn copies_and_fragments_are_compared_on_equal_volumes() {
    let place = Place::new();
    let args = ["bench", "coded", "--profile", "smoke", "--json", "f.json", "--html", "f.html"];
    let ended = place.run(&args);
    assert!(ended.status.success(), "{}", ended.err);
    assert!(ended.out.starts_with("bench coded takes about"), "{}", ended.out);
    let json = std::fs::read_to_string(place.path("f.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let list = |name: &str| report[name].as_array().expect("a list").clone();
    let value = |case: &str, scheme: &str| {
        let has = |row: &&serde_json::Value| row["case"] == case && row["scheme"] == scheme;
        let rows = list("rows");
        let row = rows.iter().find(has);
        let value = row.and_then(|row| row["value"].as_f64());
        value.unwrap_or_else(|| panic!("no {case} of {scheme} in {}", ended.out))
    };
    // The test ignores speed. Tables are whole copies, or cut: four fragments of data, and two of parity that are as
    // long as the longest of those.
    let held = |scheme: &str| value("bulk load, tables held / their length", scheme);
    assert_eq!([held("copies = 2"), held("copies = 3")], [2.0, 3.0]);
    assert!((1.5..2.0).contains(&held("coded 4+2")), "{}", held("coded 4+2"));
    for (case, scheme) in [("YCSB A", "copies = 2"), ("YCSB C, read p99", "copies = 3")] {
        assert!(value(case, scheme) > 0.0);
    }
    let computed =
        |scheme: &str| value("YCSB C, volumes away, ranges computed for each operation", scheme);
    assert!(computed("coded 4+2, 2 away") > 0.0 && computed("coded 4+2") == 0.0);
    for scheme in ["copies = 2, 1 away", "coded 4+2, 1 away"] {
        assert!(value("YCSB C, a volume replaced, rebuild", scheme) > 0.0);
    }
    let read = |scheme: &str| value("YCSB C, a volume replaced, bytes read / lost", scheme);
    assert!(read("coded 4+2, 1 away") > read("copies = 3, 1 away"));
    // Every value belonged to its key, and no volume exceeded its paid rate.
    let sound: Vec<_> = list("checks").into_iter().filter(|check| check["id"] == "all").collect();
    assert_eq!(sound.len(), 2, "{}", ended.out);
    assert!(sound.iter().all(|check| check["holds"] == true), "{}", ended.out);
    let page = std::fs::read_to_string(place.path("f.html")).expect("a page");
    assert!(page.contains("away: p99 of reads at one rate"));

    let ended = place.run(&["bench", "coded", "--rows", "B99"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.err.contains("there is no row B99; there are load"), "{}", ended.err);
}

#[test]
fn small_writes_to_groups_are_compared_on_simulated_disks() {
    let place = Place::new();
    let args = ["bench", "parity", "--profile", "smoke", "--json", "p.json", "--html", "p.html"];
    let ended = place.run(&args);
    assert!(ended.status.success(), "{}", ended.err);
    let json = std::fs::read_to_string(place.path("p.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let checks = report["checks"].as_array().expect("a list");
    for id in ["B31", "B32", "B33", "B34"] {
        assert!(checks.iter().any(|check| check["id"] == id), "{}", ended.out);
    }
    // Time is virtual, so figures are the same everywhere.
    let missed: Vec<_> = checks.iter().filter(|check| check["holds"] == false).collect();
    assert!(
        missed.iter().all(|check| check["what"].to_string().contains("reads ahead")),
        "{missed:?}"
    );
    let page = std::fs::read_to_string(place.path("p.html")).expect("a page");
    assert!(page.contains("B31: durable random writes of 4 KiB"));
}

#[test]
fn background_work_runs_beside_users_and_is_measured() {
    let place = Place::new();
    let args = ["bench", "background", "--profile", "smoke", "--json", "b.json"];
    let ended = place.run(&args);
    assert!(ended.status.success(), "{}", ended.err);
    let json = std::fs::read_to_string(place.path("b.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let checks = report["checks"].as_array().expect("a list");
    // Answers were right, no volume was asked for more than it sells, and each kind of work did something, with fragments and
    // with copies. The test ignores latency.
    let is_sound = |check: &&serde_json::Value| {
        check["id"] == "all" || check["what"].to_string().contains("operations of")
    };
    let sound: Vec<_> = checks.iter().filter(is_sound).collect();
    assert_eq!(sound.len(), 2 + 2 * 3, "{}", ended.out);
    assert!(sound.iter().all(|check| check["holds"] == true), "{}", ended.out);
}

#[test]
fn rules_of_merging_are_compared_on_equal_disks() {
    let place = Place::new();
    let args = ["bench", "series", "--profile", "smoke", "--json", "l.json", "--html", "l.html"];
    let ended = place.run(&args);
    assert!(ended.status.success(), "{}", ended.err);
    assert!(ended.out.starts_with("bench series takes about"), "{}", ended.out);
    let json = std::fs::read_to_string(place.path("l.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let list = |name: &str| report[name].as_array().expect("a list").clone();
    for (id, scheme) in [("B37", "fisherman"), ("B38", "static"), ("fill", "death-time")] {
        let has = |row: &serde_json::Value| row["id"] == id && row["scheme"] == scheme;
        assert!(list("rows").iter().any(has), "no {id} of {scheme}");
    }
    // Time is virtual: the invariants of every store must hold. The test ignores speed.
    let sound = |check: &serde_json::Value| ["all", "B41"].iter().any(|id| check["id"] == *id);
    let sound: Vec<_> = list("checks").into_iter().filter(sound).collect();
    assert_eq!(sound.len(), 5, "{}", ended.out);
    assert!(sound.iter().all(|check| check["holds"] == true), "{}", ended.out);
    let page = std::fs::read_to_string(place.path("l.html")).expect("a page");
    assert!(page.contains("throughput over time") && page.contains("throughput against V"));

    for (args, says) in [
        (&["--rows", "B99"][..], "there is no row B99; there are B37"),
        (&["--policies", "eager"], "there are static, greedy"),
        (&["--rows", "B40", "--dir", "."], "row B40 is about several disks"),
    ] {
        let ended = place.run(&[&["bench", "series"][..], args].concat());
        assert!(!ended.status.success() && ended.err.contains(says), "{}", ended.err);
    }
}

#[test]
fn mixgraph_keeps_its_store_for_the_next_run_on_volumes_and_without_them() {
    let place = Place::new();
    let alone = place.path("alone");
    std::fs::create_dir(&alone).expect("room for a directory");
    let alone = alone.to_str().expect("a path of the test");
    for target in [&["-c", "plimsoll.toml"], &["--rocksdb", alone]] {
        for is_first in [true, false] {
            let common = ["bench", "mixgraph", "--profile", "smoke", "--keep", "--json", "m.json"];
            let ended = place.run(&[&common[..], target].concat());
            assert!(ended.status.success(), "{}{}", ended.out, ended.err);
            let text = std::fs::read_to_string(place.path("m.json")).expect("it was written");
            let json: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
            let rows = json["rows"].as_array().expect("it has rows");
            let value = |case: &str| {
                let row = rows.iter().find(|row| row["case"] == case);
                row.unwrap_or_else(|| panic!("no {case} in {text}"))["value"].as_f64()
            };
            assert!(value("mixgraph, read") > Some(100.0), "{text}");
            assert_eq!(json["checks"][0]["value"].as_f64(), Some(0.0), "a wrong answer");
            assert_eq!(text.contains("loaded by an earlier run"), !is_first, "{text}");
        }
    }
    let ended = place.run(&["bench", "mixgraph", "--profile", "smoke"]);
    assert!(!ended.status.success() && ended.err.contains("--rocksdb"), "{}", ended.err);
}

#[test]
fn an_interrupted_bench_leaves_nothing_behind_and_a_killed_one_not_for_long() {
    let place = Place::new();
    let args = ["--workloads", "c", "--time", "1h"];
    for signal in ["INT", "TERM"] {
        let mut child = start(&place, &args);
        assert_eq!(left(&place).len(), 1);
        let id = child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().expect("kill is there");
        assert!(sent.success());
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
        assert!(left(&place).is_empty(), "{:?}", left(&place));
    }
    let mut child = start(&place, &args);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(left(&place).len(), 1);
    let ended = run(&place, &["--workloads", "c", "--records", "100", "--operations", "100"]);
    assert!(ended.status.success(), "{}", ended.err);
    assert!(left(&place).is_empty(), "{:?}", left(&place));
}

#[test]
fn on_the_users_volumes_a_bench_keeps_to_its_own_store() {
    let place = Place::new();
    place.write(&settings("unlimited", ""));
    let server = place.serve();
    assert_eq!(server.client().ask("set ship plimsoll"), "+OK");
    server.stop();

    let few = ["-c", "plimsoll.toml", "--records", "500", "--operations", "300", "--workloads"];
    let ended = run(&place, &[&few[..], &["a", "--store", "kv"]].concat());
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.err.contains("store kv in pool main holds data that is not a bench's"),
        "{}",
        ended.err
    );

    let before = objects(&place);
    let ended = run(&place, &[&few[..], &["d,e", "--keep"]].concat());
    assert!(ended.status.success(), "{}", ended.err);
    assert!(ended.out.contains("500 records to load"), "{}", ended.out);
    // A kept store is reused by the next run, and removed by a run without --keep.
    for (missing, keeps) in [(0, &["--keep"][..]), (0, &[]), (500, &[])] {
        let ended = run(&place, &[&few[..], &["a"], keeps].concat());
        assert!(ended.status.success(), "{}", ended.err);
        let plan = format!("{missing} records to load");
        assert!(ended.out.contains(&plan), "{plan} in {}", ended.out);
        assert!(!ended.out.contains("NO"), "{}", ended.out);
        let goes = keeps.is_empty();
        assert_eq!(objects(&place) == before, goes, "{} before, {}", before, objects(&place));
    }
    assert!(left(&place).is_empty(), "{:?}", left(&place));

    let server = place.serve();
    let mut client = server.client();
    assert_eq!(client.ask("get ship"), "plimsoll");
    assert_eq!(client.ask("dbsize"), ":1");
    server.stop();
    let ended = place.run(&["check", "-c", "plimsoll.toml", "--scrub"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
}

#[test]
fn the_volumes_of_a_pool_within_the_pool_are_named_in_the_report() {
    let place = Place::new();
    place.write(
        "[volume.near]\npath = \"near\"\ncontract = \"unlimited\"\n\n\
         [volume.far]\npath = \"far\"\ncontract = \"unlimited\"\n\n\
         [pool.main]\nvolumes = [\"cached\"]\n\n\
         [pool.cached]\nlayout = \"tiered\"\nfast = \"near\"\nslow = \"far\"\nsize = \"64MiB\"\n\n\
         [kv]\npool = \"main\"\nmemory = \"32MiB\"\n",
    );
    for name in ["near", "far"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let words =
        ["-c", "plimsoll.toml", "--records", "500", "--operations", "300", "--workloads", "b"];
    let ended = run(&place, &words);
    assert!(ended.status.success(), "{}", ended.err);
    for name in ["near", "far"] {
        assert!(ended.out.contains(&format!("volume {name}: ")), "{name} in {}", ended.out);
    }
}
