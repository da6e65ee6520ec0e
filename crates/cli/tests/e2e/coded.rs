//! A store on a pool that keeps tables in fragments: four of data and two of parity on six volumes.

use std::fs;

use serde_json::Value;

use crate::health::health;
use crate::place::{Place, Server, until_or_tell};
use crate::pools::{all_have_two, check_all, run, settings, short_objects, store};

const VOLUMES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];

fn make(place: &Place, volumes: &[&str]) {
    for volume in volumes {
        fs::create_dir(place.path(volume)).expect("room for a directory");
    }
}

fn lose(place: &Place, volumes: &[&str]) {
    for volume in volumes {
        fs::remove_dir_all(place.path(volume)).expect("it was there");
    }
}

fn list(server: &Server) -> Value {
    serde_json::from_str(&server.admin("GET /volumes").1).expect("JSON")
}

/// Two are lost after a SIGKILL, and replaced by others in service; then two more.
#[test]
fn any_two_volumes_may_be_lost_and_are_replaced_while_the_store_serves() {
    let place = Place::new();
    let pool = "[pool.main]\nlayout = \"coded\"\nstrip = \"64KiB\"\nrepair_after = \"1s\"\n";
    let text = settings(&place, &VOLUMES, "").replace("[pool.main]\n", pool);
    // The directory of a simulated volume is made if it is missing.
    place.write(&text.replace("simulate = true\n", ""));
    make(&place, &VOLUMES);
    let server = place.serve();
    let mut client = server.client();
    store(&mut client, 1);
    let tables = list(&server);
    assert_eq!((&tables["code"], &tables["copies"]), (&"4+2".into(), &3.into()), "{tables}");

    server.kill();
    lose(&place, &["s2", "s5"]);
    let server = place.serve();
    let mut client = server.client();
    check_all(&mut client, 1);
    assert!(short_objects(&server) > 0, "fragments are missing");
    store(&mut client, 2);
    check_all(&mut client, 2);
    let (healthy, found) = health(&server);
    assert!(!healthy, "{found}");
    let of_store = &found["stores"]["kv"];
    assert_eq!(
        (&of_store["takes_writes"], &of_store["serves_reads"]),
        (&true.into(), &true.into())
    );

    let more = ["--contract", "unlimited", "--write"];
    for (gone, new) in [("s2", "s7"), ("s5", "s8")] {
        make(&place, &[new]);
        run(&place, &[&["volume", "add", new, "--path", new], &more[..]].concat());
        let told = run(&place, &["volume", "remove", gone, "--write"]);
        assert!(told.contains("0 objects were only on it"), "{told}");
    }
    let tell = || format!("{} {}", health(&server).1, list(&server));
    until_or_tell(|| all_have_two(&server) && health(&server).0, tell);
    check_all(&mut client, 2);

    // The others hold everything now, whatever was on these.
    server.kill();
    lose(&place, &["s1", "s3"]);
    let server = place.serve();
    let mut client = server.client();
    check_all(&mut client, 2);
    store(&mut client, 3);
    check_all(&mut client, 3);
    server.stop();
}
