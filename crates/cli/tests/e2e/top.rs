//! `plimsoll top` on a running server.

use crate::place::{Place, settings};

#[test]
fn one_picture_in_lines_shows_each_volume_against_its_line() {
    let place = Place::new();
    place.write(&settings("gp3", "durability = \"always\"\n"));
    let server = place.serve();
    let mut client = server.client();
    assert_eq!(client.ask("set ship plimsoll"), "+OK");
    let admin = server.admin.clone();
    // Standard output is not a terminal, which implies --once.
    let ended = place.run(&["top", "--admin", &admin, "--every", "100ms", "--sort", "used"]);
    assert!(ended.status.success(), "{}", ended.err);
    let lines: Vec<_> = ended.out.lines().collect();
    assert!(lines[0].starts_with("# uptime_s "), "{}", ended.out);
    assert!(lines[0].contains(" clients 1 "), "{}", ended.out);
    let columns: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(columns[..3], ["volume", "iops", "paid_iops"]);
    assert_eq!(
        columns[9..],
        [
            "commit_wait_ms",
            "foreground_wait_ms",
            "urgent_wait_ms",
            "background_wait_ms",
            "idle_wait_ms",
            "rho",
            "beta",
            "available",
            "finding"
        ]
    );
    let mut names: Vec<_> = lines[2..].iter().map(|line| line.split_once(' ').unwrap().0).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c"]);
    for line in &lines[2..] {
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!((cells.len(), cells[2]), (columns.len(), "3000"), "{line}");
    }
    server.stop();
}

#[test]
fn a_server_is_found_by_its_settings_and_over_a_unix_socket() {
    let place = Place::new();
    let listen = format!("unix:{}", place.path("admin").display());
    place.write(
        &settings("unlimited", "").replace(
            "[admin]\nlisten = \"127.0.0.1:0\"",
            &format!("[admin]\nlisten = \"{listen}\""),
        ),
    );
    let top = ["top", "-c", "plimsoll.toml", "--once", "--every", "100ms"];
    let ended = place.run(&top);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.err.contains("no server answers at the admin listener unix:"), "{}", ended.err);
    let server = place.serve();
    let ended = place.run(&top);
    assert!(ended.status.success(), "{}", ended.err);
    assert_eq!(ended.out.lines().count(), 5, "{}", ended.out);
    server.stop();
}
