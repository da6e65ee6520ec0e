//! A store over a cache tier of two directories: the fast one may go at any time.

mod back;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::health::health;
use crate::place::{Place, Server, until};
use crate::pools::{check_all, run, settings, store};

/// A store on `main` over `cached`, which has `nvme` before `ebs`.
fn tiered(place: &Place) -> String {
    let text = settings(place, &["nvme", "ebs"], "");
    let text = text.replace("simulate = true\n", "").replace("[\"nvme\", \"ebs\"]", "[\"cached\"]");
    let tier =
        "[pool.cached]\nlayout = \"tiered\"\nfast = \"nvme\"\nslow = \"ebs\"\nsize = \"64MiB\"\n\n";
    text.replace("[pool.main]", &format!("{tier}[pool.main]"))
}

fn make(place: &Place, volumes: &[&str]) {
    for volume in volumes {
        fs::create_dir(place.path(volume)).expect("room for a directory");
    }
}

/// The figures of the tier.
fn figures(server: &Server) -> Value {
    let (_, body) = server.admin("GET /figures");
    let figures: Value = serde_json::from_str(&body).expect("JSON");
    figures["tiers"][0].clone()
}

fn count(server: &Server, figure: &str) -> u64 {
    figures(server)[figure].as_u64().expect("a number")
}

/// Reads everything; the bytes that each side gave.
fn read_all(server: &Server, version: usize) -> (u64, u64) {
    let now = || (count(server, "hit_bytes"), count(server, "missed_bytes"));
    let before = now();
    check_all(&mut server.client(), version);
    let after = now();
    (after.0 - before.0, after.1 - before.1)
}

/// Reads everything until the fast side gives nearly all of it.
fn warm(server: &Server, version: usize) {
    until(|| {
        let (hit, missed) = read_all(server, version);
        hit > 9 * missed
    });
}

#[test]
fn a_store_outlives_its_cache_and_a_restart_keeps_it() {
    let place = Place::new();
    place.write(&tiered(&place));
    make(&place, &["nvme", "ebs"]);
    let server = place.serve();
    store(&mut server.client(), 1);
    server.stop();
    // Logs are never cached, and became tables.
    let server = place.serve();
    warm(&server, 1);
    assert!(count(&server, "promotions") > 0 && count(&server, "cached_bytes") > 0);
    assert!(health(&server).0);
    server.stop();

    let server = place.serve();
    let (hit, missed) = read_all(&server, 1);
    println!("after a restart: {hit} bytes of hits, {missed} of misses");
    assert!(hit > 4 * missed, "it is warm: {hit} and {missed}");
    let (_, metrics) = server.admin("GET /metrics");
    let attached = "plimsoll_tier_attached{pool=\"main\",tier=\"cached\"} 1\n";
    for line in [attached, "plimsoll_tier_hit_bytes_total{"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let top = run(&place, &["top", "--every", "100ms"]);
    assert!(top.contains("# tier cached attached 1 "), "{top}");
    assert!(top.contains("\ncached/ebs ") && top.contains("\ncached/nvme "), "{top}");
    let list = run(&place, &["volume", "list"]);
    assert!(list.contains("nvme before ebs"), "{list}");

    // The directory goes under load.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) || rounds == 0 {
                check_all(&mut server.client(), 1);
                rounds += 1;
            }
        });
        fs::remove_dir_all(place.path("nvme")).expect("it was there");
        until(|| !health(&server).0);
        check_all(&mut server.client(), 1);
        done.store(true, Ordering::Relaxed);
        reading.join().expect("every value is read");
    });
    let (_, found) = health(&server);
    assert_eq!(found["tiers"]["cached"]["attached"], false, "{found}");
    let of_store = &found["stores"]["kv"];
    assert_eq!(
        (&of_store["takes_writes"], &of_store["serves_reads"]),
        (&true.into(), &true.into()),
        "{found}"
    );
    assert_eq!(server.admin("GET /health/ready").0, "HTTP/1.1 200 OK");
    store(&mut server.client(), 2);
    check_all(&mut server.client(), 2);

    // A new device, and the same again by hand.
    let refused = place.run(&["tier", "attach", "cached", "-c", "plimsoll.toml"]);
    assert!(!refused.status.success(), "{}", refused.out);
    make(&place, &["nvme"]);
    let told = run(&place, &["tier", "attach", "cached"]);
    assert!(told.contains("nvme is in use before ebs"), "{told}");
    warm(&server, 2);
    until(|| health(&server).0);
    let told = run(&place, &["tier", "detach", "cached"]);
    assert!(told.contains("ebs serves everything"), "{told}");
    assert_eq!(read_all(&server, 2).0, 0);
    assert!(!health(&server).0);
    run(&place, &["tier", "attach", "cached"]);
    warm(&server, 2);
    server.stop();

    // A check that changes nothing leaves it warm, a scrub starts it anew.
    let checked = run(&place, &["check"]);
    assert!(checked.contains("nvme: a cache") && checked.contains("volume ebs: here"), "{checked}");
    let server = place.serve();
    let (hit, missed) = read_all(&server, 2);
    assert!(hit > 4 * missed, "it is warm: {hit} and {missed}");
    server.stop();
    run(&place, &["check", "--scrub"]);
    // Nothing but the slow side is needed.
    fs::remove_dir_all(place.path("nvme")).expect("it was there");
    let server = place.serve();
    assert_eq!(figures(&server)["attached"], false);
    check_all(&mut server.client(), 2);
    server.stop();
}

#[test]
fn a_killed_server_reads_what_it_acknowledged() {
    let place = Place::new();
    place.write(&tiered(&place));
    make(&place, &["nvme", "ebs"]);
    let server = place.serve();
    store(&mut server.client(), 1);
    check_all(&mut server.client(), 1);
    server.kill();
    let server = place.serve();
    warm(&server, 1);
    store(&mut server.client(), 2);
    check_all(&mut server.client(), 2);
    server.kill();
    let server = place.serve();
    check_all(&mut server.client(), 2);
    server.stop();
}
