//! Block devices end to end: made by the command, served to an NBD client, whole after the death of the process.

mod full;
mod lost;
mod rotten;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;
use serve::nbd::wire::{Command, Errno};

use crate::health::health;
use crate::nbd::Nbd;
use crate::place::{Place, Server};

/// Two volumes with a copy of everything, and `more` under `[block]`.
fn settings(more: &str) -> String {
    format!(
        "[volume.a]\npath = \"a\"\ncontract = \"unlimited\"\n\n\
         [volume.b]\npath = \"b\"\ncontract = \"unlimited\"\n\n\
         [pool.main]\ncopies = 2\nvolumes = [\"a\", \"b\"]\n\n\
         [block]\npool = \"main\"\nlisten = \"127.0.0.1:0\"\n{more}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n"
    )
}

/// Runs `plimsoll block` for this server; returns what it printed, and panics if it failed.
fn block(place: &Place, server: &Server, args: &[&str]) -> String {
    let (ok, out, err) = try_block(place, server, args);
    assert!(ok, "{args:?}: {out}{err}");
    out
}

fn try_block(place: &Place, server: &Server, args: &[&str]) -> (bool, String, String) {
    let args: Vec<_> =
        ["block"].iter().chain(args).copied().chain(["--admin", &server.admin]).collect();
    let ended = place.run(&args);
    (ended.status.success(), ended.out, ended.err)
}

const MIB: u64 = 1 << 20;

/// Random writes, of which each fits the device; the model takes them, too.
fn scribble(nbd: &mut Nbd, model: &mut [u8], random: &mut Xoshiro256PlusPlus) {
    for _ in 0..64 {
        let len = random.random_range(1..100_000_usize);
        let offset = random.random_range(0..model.len() - len);
        let mut data = vec![0; len];
        random.fill_bytes(&mut data);
        nbd.write(offset as u64, &data);
        model[offset..offset + len].copy_from_slice(&data);
    }
}

#[test]
fn acknowledged_writes_of_a_device_survive_the_death_of_the_process() {
    let place = Place::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut model = vec![0; (66 * MIB) as usize];
    // Each round ends with SIGKILL, and the next one reads all that was acknowledged.
    for (round, more) in ["", "durability = \"always\"\n", ""].into_iter().enumerate() {
        place.write(&settings(more));
        let server = place.serve();
        let address = server.nbd.expect("a listener for NBD clients");
        if round == 0 {
            block(&place, &server, &["create", "vm", "66MiB"]);
        }
        let mut nbd = Nbd::open(address, "vm").expect("the export");
        assert_eq!(nbd.size, model.len() as u64);
        for (at, expected) in model.chunks(MIB as usize).enumerate() {
            let found = nbd.read(at as u64 * MIB, expected.len());
            assert!(found == expected, "round {round}: the bytes from {at} MiB on differ");
        }
        scribble(&mut nbd, &mut model, &mut random);
        if round == 1 {
            assert_eq!(nbd.ask(Command::Flush, 0, 0, &[]), None);
        }
        let trimmed = round as u64 * MIB..(round as u64 + 1) * MIB;
        assert_eq!(nbd.ask(Command::WriteZeroes, trimmed.start, MIB as usize, &[]), None);
        model[trimmed.start as usize..trimmed.end as usize].fill(0);
        server.kill();
    }
    place.write(&settings(""));
    let server = place.serve();
    let mut nbd = Nbd::open(server.nbd.expect("a listener"), "vm").expect("the export");
    for (at, expected) in model.chunks(MIB as usize).enumerate() {
        assert!(nbd.read(at as u64 * MIB, expected.len()) == expected, "at {at} MiB");
    }
    drop(nbd);
    server.stop();
}

#[test]
fn devices_are_created_listed_resized_and_deleted_while_the_program_serves() {
    let place = Place::new();
    place.write(&settings(""));
    let ended = place.run(&["block", "list", "--admin", "unix:none"]);
    assert!(!ended.status.success() && ended.err.contains("plimsoll serve -c"), "{}", ended.err);

    let server = place.serve();
    let address = server.nbd.expect("a listener for NBD clients");
    assert!(block(&place, &server, &["list"]).contains("plimsoll block create"));
    let told = block(&place, &server, &["create", "vm", "8MiB"]);
    assert!(told.contains("vm") && told.contains("8 MiB"), "{told}");
    let refused = |args: &[&str], word: &str| {
        let (ok, out, err) = try_block(&place, &server, args);
        assert!(!ok && err.contains(word), "{args:?}: {out}{err}");
    };
    refused(&["create", "vm", "8MiB"], "vm");
    refused(&["resize", "vm", "4MiB"], "--shrink");
    refused(&["resize", "other", "4MiB"], "there are: vm");
    refused(&["delete", "vm"], "--yes");
    refused(&["release", "other"], "there are: vm");
    assert!(block(&place, &server, &["release", "vm"]).contains("no host holds it"));
    let list: Value =
        serde_json::from_str(&block(&place, &server, &["list", "--json"])).expect("JSON");
    assert_eq!((&list["pool"], &list["devices"][0]["name"]), (&"main".into(), &"vm".into()));
    assert_eq!(list["devices"][0]["size_bytes"], 8 * MIB);

    let mut nbd = Nbd::open(address, "vm").expect("the export");
    nbd.write(5, b"plimsoll");
    assert_eq!(nbd.ask(Command::Read, 8 * MIB, 4096, &[]), Some(Errno::Invalid));
    drop(nbd);
    assert!(Nbd::open(address, "other").is_err());
    block(&place, &server, &["resize", "vm", "16MiB"]);
    let mut nbd = Nbd::open(address, "vm").expect("the export");
    assert_eq!((nbd.size, nbd.read(0, 16)), (16 * MIB, b"\0\0\0\0\0plimsoll\0\0\0".to_vec()));
    drop(nbd);
    block(&place, &server, &["resize", "vm", "4MiB", "--shrink"]);

    let (_, found) = health(&server);
    assert_eq!(found["stores"]["block"]["takes_writes"], true, "{found}");
    let metrics = server.admin("GET /metrics").1;
    for line in [
        "plimsoll_block_devices 1\n",
        "plimsoll_block_written_bytes_total 8\n",
        "plimsoll_block_device_size_bytes{device=\"vm\"} 4194304\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let (_, figures) = server.admin("GET /figures");
    let figures: Value = serde_json::from_str(&figures).expect("JSON");
    assert_eq!(figures["block"]["devices"][0]["name"], "vm", "{figures}");
    let top = place.run(&["top", "--admin", &server.admin, "--every", "100ms"]);
    assert!(top.out.contains("# block_devices 1 "), "{}", top.out);

    assert!(block(&place, &server, &["delete", "vm", "--yes"]).contains("deleted"));
    assert!(Nbd::open(address, "vm").is_err());
    server.stop();
    let ended = place.run(&["check", "-c", "plimsoll.toml"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
}

#[test]
fn a_device_is_sold_a_limit_and_its_clients_wait_for_it() {
    let place = Place::new();
    let sold = settings("").replace("\"unlimited\"", "{ iops = 1000, mib_per_s = 100 }");
    place.write(&sold);
    let server = place.serve();
    let refused = |args: &[&str], word: &str| {
        let (ok, out, err) = try_block(&place, &server, args);
        assert!(!ok && err.contains(word), "{args:?}: {out}{err}");
    };
    let limit = "{ iops = 300, mib_per_s = 30 }";
    let told = block(&place, &server, &["create", "vm", "8MiB", "--limit", limit]);
    assert!(told.contains("at most custom, 300 IOPS, 30 MiB/s"), "{told}");
    // 2000 are paid for, of which 1800 are for sale, and a write takes two.
    let rest = "{ iops = 601, mib_per_s = 30 }";
    refused(&["create", "more", "8MiB", "--limit", rest], "901 IOPS would be sold");
    refused(&["create", "more", "8MiB", "--limit", "gp4"], "accepted are");
    assert!(!block(&place, &server, &["list"]).contains("more"));
    block(&place, &server, &["create", "more", "8MiB"]);
    refused(&["limit", "more", rest], "901 IOPS would be sold");
    let told = block(&place, &server, &["limit", "more", rest, "--oversell"]);
    assert!(told.contains("601 IOPS"), "{told}");
    let told = block(&place, &server, &["limit", "more", "none"]);
    assert!(told.contains("no limit"), "{told}");
    block(&place, &server, &["limit", "vm", "{ iops = 5, mib_per_s = 30 }"]);

    let mut nbd = Nbd::open(server.nbd.expect("a listener for NBD clients"), "vm").expect("it");
    (0..10).for_each(|at| nbd.write(at * 4096, &[1; 4096]));
    let (_, figures) = server.admin("GET /figures");
    let figures: Value = serde_json::from_str(&figures).expect("JSON");
    let vm = &figures["block"]["devices"][1];
    assert_eq!((&vm["name"], &vm["limit_iops"]), (&"vm".into(), &5.into()), "{figures}");
    assert_eq!((&vm["writes"], &vm["written_bytes"]), (&10.into(), &40_960.into()), "{figures}");
    assert!(vm["limited"].as_u64() >= Some(1) && vm["limited_s"].as_f64() > Some(0.0), "{vm}");
    let metrics = server.admin("GET /metrics").1;
    for line in [
        "plimsoll_block_device_writes_total{device=\"vm\"} 10\n",
        "plimsoll_block_device_limit_iops{device=\"vm\"} 5\n",
        "plimsoll_block_device_limited_seconds_total{device=\"vm\"} ",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let top = place.run(&["top", "--admin", &server.admin, "--every", "100ms"]);
    assert!(top.out.contains("# block_device vm ops_per_s 0 limit_iops 5 "), "{}", top.out);
    drop(nbd);
    server.stop();

    // It lasts, and the settings may allow overselling.
    place.write(&sold.replace("[block]\n", "[block]\noversell = true\n"));
    let server = place.serve();
    assert!(block(&place, &server, &["list"]).contains("custom, 5 IOPS, 30 MiB/s"));
    block(&place, &server, &["limit", "more", "{ iops = 9000, mib_per_s = 30 }"]);
    server.stop();
}

#[test]
fn settings_without_block_devices_say_so() {
    let place = Place::new();
    let server = place.serve();
    let (ok, _, err) = try_block(&place, &server, &["list"]);
    assert!(!ok && err.contains("section [block]"), "{err}");
    server.stop();
}
