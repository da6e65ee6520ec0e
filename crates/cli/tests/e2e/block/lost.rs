//! Devices on a pool that loses a volume while they are written.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serve::nbd::wire::Command;

use super::{MIB, block};
use crate::health::health;
use crate::nbd::Nbd;
use crate::place::{Place, Server, until};
use crate::pools::{all_have_two, run, until_all_have_two};

/// A part of the device that is written: one in each extent, so that all volumes hold some.
const WINDOW: usize = 256 << 10;
const EXTENTS: usize = 6;
const EXTENT: u64 = 64 * MIB;

/// A client that knows what it wrote.
struct Writer {
    nbd: Nbd,
    random: Xoshiro256PlusPlus,
    model: Vec<Vec<u8>>,
}

impl Writer {
    fn write(&mut self) {
        let len = self.random.random_range(1..30_000);
        let window = self.random.random_range(0..EXTENTS);
        let offset = self.random.random_range(0..WINDOW - len);
        let mut data = vec![0; len];
        self.random.fill_bytes(&mut data);
        self.nbd.write(window as u64 * EXTENT + offset as u64, &data);
        self.model[window][offset..offset + len].copy_from_slice(&data);
    }

    fn flush(&mut self) {
        assert_eq!(self.nbd.ask(Command::Flush, 0, 0, &[]), None);
    }

    /// Writes until it is told to stop, and some more.
    fn write_until(&mut self, stop: &AtomicBool) {
        loop {
            let is_last = stop.load(Ordering::Acquire);
            (0..50).for_each(|_| self.write());
            self.flush();
            if is_last {
                return;
            }
        }
    }

    fn check(&mut self) {
        for (window, expected) in self.model.iter().enumerate() {
            let found = self.nbd.read(window as u64 * EXTENT, WINDOW);
            assert!(found == *expected, "window {window}");
        }
    }
}

/// Ends a writer, also after a failed assertion.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn open(server: &Server) -> Nbd {
    Nbd::open(server.nbd.expect("a listener for NBD clients"), "vm").expect("the export")
}

#[test]
fn with_two_copies_a_volume_lost_under_writes_is_no_error_and_made_up_for() {
    let place = Place::new();
    let volume = |name| format!("[volume.{name}]\npath = \"{name}\"\ncontract = \"unlimited\"\n\n");
    let volumes: String = ["a", "b", "c"].into_iter().map(volume).collect();
    let admin = place.path("admin");
    place.write(&format!(
        "{volumes}[pool.main]\ncopies = 2\nvolumes = [\"a\", \"b\", \"c\"]\n\n\
         [block]\npool = \"main\"\nlisten = \"127.0.0.1:0\"\n\n[admin]\nlisten = \"unix:{}\"\n",
        admin.display()
    ));
    let server = place.serve();
    block(&place, &server, &["create", "vm", "384MiB"]);
    let model = vec![vec![0; WINDOW]; EXTENTS];
    let random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut writer = Writer { nbd: open(&server), random, model };
    writer.write_until(&AtomicBool::new(true));
    until(|| health(&server).0);

    let stop = AtomicBool::new(false);
    // Each write and flush is answered without an error, from the loss to the end of the repair.
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_until(&stop));
        let _stopping = Stopping(&stop);
        fs::rename(place.path("b"), place.path("elsewhere")).expect("a rename");
        fs::remove_dir_all(place.path("elsewhere")).expect("nothing makes files there now");
        let (healthy, found) = health(&server);
        assert!(!healthy, "{found}");
        let problems = found["problems"].as_array().expect("a list");
        assert!(problems[0].as_str().is_some_and(|line| line.starts_with("volume b: ")), "{found}");
        let of_block = &found["stores"]["block"];
        assert!(of_block["copies_short"].as_u64() > Some(0), "{found}");
        assert_eq!(
            (&of_block["takes_writes"], &of_block["serves_reads"]),
            (&true.into(), &true.into())
        );

        fs::create_dir(place.path("d")).expect("room for a directory");
        let add = ["volume", "add", "d", "--path", "d", "--contract", "unlimited", "--write"];
        run(&place, &add);
        let told = run(&place, &["volume", "remove", "b", "--write"]);
        assert!(told.contains("0 objects were only on it"), "{told}");
        until(|| all_have_two(&server) && health(&server).0);
    });
    writer.check();
    until_all_have_two(&server);
    server.stop();
    let checked = run(&place, &["check", "--scrub"]);
    assert!(checked.contains("scrub: "), "{checked}");

    // Everything is on two volumes, so it is there without any one of them.
    fs::rename(place.path("a"), place.path("elsewhere")).expect("a rename");
    let server = place.serve();
    writer.nbd = open(&server);
    writer.check();
    server.stop();
}

/// Extents in fragments of 4+2, and a log so short that blocks go in place all the time.
#[test]
fn in_fragments_two_volumes_lost_under_writes_are_no_error_and_made_up_for() {
    let place = Place::new();
    let names = ["s1", "s2", "s3", "s4", "s5", "s6"];
    let volume = |name| format!("[volume.{name}]\npath = \"{name}\"\ncontract = \"unlimited\"\n\n");
    let volumes: String = names.into_iter().map(volume).collect();
    place.write(&format!(
        "{volumes}[pool.main]\nlayout = \"coded\"\nwrite_log = \"16MiB\"\nrepair_after = \"1s\"\nvolumes = {names:?}\n\n\
         [block]\npool = \"main\"\nlisten = \"127.0.0.1:0\"\n\n[admin]\nlisten = \"unix:{}\"\n",
        place.path("admin").display()
    ));
    let make = |name: &str| fs::create_dir_all(place.path(name)).expect("room for a directory");
    let lose = |name: &str| {
        fs::rename(place.path(name), place.path("elsewhere")).expect("a rename");
        fs::remove_dir_all(place.path("elsewhere")).expect("nothing makes files there now");
    };
    names.into_iter().for_each(make);
    let server = place.serve();
    block(&place, &server, &["create", "vm", "384MiB"]);
    let model = vec![vec![0; WINDOW]; EXTENTS];
    let random = Xoshiro256PlusPlus::seed_from_u64(4);
    let mut writer = Writer { nbd: open(&server), random, model };
    for _ in 0..30 {
        writer.write_until(&AtomicBool::new(true));
    }
    let metrics = server.admin("GET /metrics").1;
    let recycled = metrics.lines().find(|line| line.starts_with("plimsoll_write_log_recycled_"));
    assert!(recycled.is_some_and(|line| !line.ends_with(" 0")), "{recycled:?}");

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_until(&stop));
        let _stopping = Stopping(&stop);
        for (gone, new) in [("s2", "s7"), ("s5", "s8")] {
            lose(gone);
            make(new);
            let add = ["volume", "add", new, "--path", new, "--contract", "unlimited", "--write"];
            run(&place, &add);
            let told = run(&place, &["volume", "remove", gone, "--write"]);
            assert!(told.contains("0 objects were only on it"), "{told}");
        }
        until(|| all_have_two(&server) && health(&server).0);
    });
    writer.check();
    // Two more, and the process with them.
    server.kill();
    ["s1", "s7"].into_iter().for_each(lose);
    let server = place.serve();
    writer.nbd = open(&server);
    writer.check();
    writer.write_until(&AtomicBool::new(true));
    writer.check();
    server.stop();
}
