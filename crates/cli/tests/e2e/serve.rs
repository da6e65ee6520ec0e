//! The program end to end: settings, listeners, signals, checks.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::place::{Ended, Place, flip_a_byte, flip_a_byte_of_a_table, settings};

#[test]
fn what_was_stored_is_there_after_a_stop() {
    let place = Place::new();
    let server = place.serve();
    let mut client = server.client();
    assert_eq!(client.ask("set ship plimsoll"), "+OK");
    assert_eq!(client.ask("dbsize"), ":1");
    server.stop();
    let server = place.serve();
    let mut client = server.client();
    assert_eq!(client.ask("get ship"), "plimsoll");
    assert_eq!(client.ask("config get appendfsync"), "*2");
    server.stop();
}

#[test]
fn a_settings_file_with_a_mistake_is_refused_with_its_place() {
    let place = Place::new();
    place.write(&settings("gp4", ""));
    let ended = place.run(&["serve", "-c", "plimsoll.toml"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.err.starts_with("plimsoll: plimsoll.toml:3: volume.a.contract: found \"gp4\""),
        "{}",
        ended.err
    );
    let ended = place.run(&["serve", "-c", "missing.toml"]);
    assert!(
        ended.err.contains("missing.toml: the settings file: found No such file"),
        "{}",
        ended.err
    );
}

#[test]
fn a_password_in_the_settings_is_asked_for_and_never_printed() {
    let place = Place::new();
    place.write(&settings("unlimited", "password = \"hunter2\"\n"));
    let server = place.serve();
    let mut client = server.client();
    assert_eq!(client.ask("get k"), "-NOAUTH Authentication required.");
    assert_eq!(client.ask("auth hunter2"), "+OK");
    assert_eq!(client.ask("get k"), "$-1");
    server.stop();
    let log = std::fs::read_to_string(place.path("log")).expect("the log");
    assert!(!log.contains("hunter2"));
    let ended = place.run(&["check", "-c", "plimsoll.toml"]);
    assert!(!ended.out.contains("hunter2") && !ended.err.contains("hunter2"));
}

#[test]
fn a_second_process_on_the_same_volumes_is_told_who_has_them() {
    let place = Place::new();
    let server = place.serve();
    for (command, status) in [("serve", 1), ("check", 2)] {
        let ended = place.run(&[command, "-c", "plimsoll.toml"]);
        assert_eq!(ended.status.code(), Some(status));
        assert!(ended.err.contains("volume a"), "{}", ended.err);
        assert!(ended.err.contains("process"), "{}", ended.err);
    }
    assert_eq!(server.client().ask("ping"), "+PONG");
    server.stop();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let place = Place::new();
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("a bound address").to_string();
    let text = settings("unlimited", "").replace(
        "memory = \"32MiB\"\nlisten = \"127.0.0.1:0\"",
        &format!("memory = \"32MiB\"\nlisten = \"{address}\""),
    );
    place.write(&text);
    let ended = place.run(&["serve", "-c", "plimsoll.toml"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.err.contains(&format!("listen on {address} (kv.listen)")), "{}", ended.err);
}

#[test]
fn a_real_volume_whose_directory_is_missing_is_not_made_up() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        std::fs::remove_dir(place.path(name)).expect("it is empty");
    }
    let ended = place.run(&["serve", "-c", "plimsoll.toml"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.err.contains("no such directory"), "{}", ended.err);
    assert!(!place.path("a").exists());
}

#[test]
fn health_and_metrics_show_the_volumes_and_the_endpoint() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!(server.client().ask("set k v"), "+OK");
    let (status, health) = server.admin("GET /health");
    assert_eq!(status, "HTTP/1.1 200 OK");
    for part in [
        r#"{"healthy":true,"problems":[],"stores":{"kv":{"takes_writes":true,"serves_reads":true,"#,
        r#""volumes":{"a":{"answers":true,"#,
    ] {
        assert!(health.contains(part), "{part} in {health}");
    }
    let (status, metrics) = server.admin("GET /metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    for line in [
        "plimsoll_resp_commands_total{command=\"set\"} 1\n",
        "plimsoll_volume_ops_total{volume=\"a\"} ",
        "plimsoll_gate_granted_tokens_total{volume=\"c\",class=\"commit\"} ",
        "# EOF\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    server.stop();
}

/// The samples of a family of metrics, one for each volume.
fn figures(metrics: &str, family: &str) -> Vec<String> {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(family));
    lines.filter(|rest| rest.starts_with('{')).map(str::to_owned).collect()
}

#[test]
fn what_the_gates_let_through_is_what_the_provider_counts() {
    let place = Place::new();
    let text = settings("gp3", "durability = \"always\"\n");
    place.write(&text.replace("contract", "simulate = true\ncontract"));
    let server = place.serve();
    let mut client = server.client();
    for n in 0..200 {
        assert_eq!(client.ask(&format!("set {n} {}", "x".repeat(10_000))), "+OK");
    }
    // The two metrics are read one after the other, and a log may be synced in between: retry until they agree.
    let agree =
        std::iter::repeat_with(|| server.admin("GET /metrics").1).take(1000).any(|metrics| {
            let spent = figures(&metrics, "plimsoll_volume_ops_total");
            assert_eq!(spent.len(), 3);
            spent == figures(&metrics, "plimsoll_volume_provider_ops_total")
        });
    assert!(agree);
    let (_, metrics) = server.admin("GET /metrics");
    for volume in figures(&metrics, "plimsoll_volume_throttled_total") {
        assert!(volume.ends_with(" 0"), "never over the line: {volume}");
    }
    server.stop();
}

#[test]
fn a_contract_changes_while_serving_and_other_settings_wait() {
    let place = Place::new();
    // One of them is simulated: its provider changes its contract with the gate.
    let with_simulated =
        |settings: String| settings.replace("path = \"c\"", "path = \"c\"\nsimulate = true");
    place.write(&with_simulated(settings("unlimited", "")));
    let server = place.serve();
    place.write(&with_simulated(settings("gp3", "threads = 32\n")));
    let (status, told) = server.admin("POST /reload");
    assert_eq!(status, "HTTP/1.1 200 OK");
    for volume in ["a", "b", "c"] {
        let line = format!("volume {volume}: contract is now gp3, 3000 IOPS, 125 MiB/s\n");
        assert!(told.contains(&line), "{told}");
    }
    assert!(told.contains("kv.threads: needs a restart\n"), "{told}");
    let (_, metrics) = server.admin("GET /metrics");
    assert!(metrics.contains("plimsoll_volume_paid_iops{volume=\"a\"} 3000\n"), "{metrics}");
    place.write("nonsense");
    let (status, told) = server.admin("POST /reload");
    assert_eq!(status, "HTTP/1.1 422 Unprocessable Entity");
    assert!(told.starts_with("plimsoll.toml:1: "), "{told}");
    assert_eq!(server.client().ask("set k v"), "+OK");
    server.stop();
}

#[test]
fn the_limits_of_the_instance_change_while_serving() {
    let place = Place::new();
    // One of them is simulated: its provider keeps the contract as bought.
    let with = |instance: &str| {
        let simulated = "path = \"c\"\nsimulate = true";
        settings("gp3", "").replace("path = \"c\"", simulated) + instance
    };
    place.write(&with("[instance]\niops = 6000\n"));
    let server = place.serve();
    let paid = || figures(&server.admin("GET /metrics").1, "plimsoll_volume_paid_iops");
    let of_each = |iops| ["a", "b", "c"].map(|volume| format!("{{volume=\"{volume}\"}} {iops}"));
    let ends_with = |iops| {
        let (paid, wanted) = (paid(), of_each(iops));
        assert_eq!(paid.len(), wanted.len());
        for (paid, wanted) in paid.iter().zip(wanted) {
            assert!(paid.ends_with(&wanted), "{paid}: {wanted}");
        }
    };
    ends_with(2000);
    place.write(&with("[instance]\niops = 3000\nmib_per_s = 1000\n"));
    let (_, told) = server.admin("POST /reload");
    assert!(told.starts_with("instance: 3000 IOPS, 1000 MiB/s for all volumes\n"), "{told}");
    assert!(told.contains("volume c: its gate uses gp3, 1000 IOPS, 125 MiB/s\n"), "{told}");
    assert!(!told.contains("restart") && !told.contains("contract is now"), "{told}");
    ends_with(1000);
    place.write(&with(""));
    let (_, told) = server.admin("POST /reload");
    assert!(told.starts_with("instance: no limits for all volumes\n"), "{told}");
    assert!(told.contains("volume a: its gate uses its contract\n"), "{told}");
    ends_with(3000);
    let (_, told) = server.admin("POST /reload");
    assert_eq!(told, "nothing has changed\n");
    assert_eq!(server.client().ask("set k v"), "+OK");
    server.stop();
}

#[test]
fn a_share_changes_while_serving() {
    let place = Place::new();
    place.write(&settings("gp3", ""));
    let server = place.serve();
    place.write(
        &settings("gp3", "").replace("contract", "rho = 0.5\nbeta = 0.1\nadapt = false\ncontract"),
    );
    let (status, told) = server.admin("POST /reload");
    assert_eq!(status, "HTTP/1.1 200 OK");
    for volume in ["a", "b", "c"] {
        let lines =
            format!("volume {volume}: rho 0.5, beta 0.1\nvolume {volume}: does not adapt\n");
        assert!(told.contains(&lines), "{told}");
    }
    assert!(!told.contains("restart"), "{told}");
    let (_, metrics) = server.admin("GET /metrics");
    assert!(metrics.contains("plimsoll_volume_rho{volume=\"a\"} 0.5\n"), "{metrics}");
    assert_eq!(server.client().ask("set k v"), "+OK");
    server.stop();
}

#[test]
fn a_hangup_reloads_too() {
    let place = Place::new();
    let server = place.serve();
    place.write(&settings("gp3", ""));
    server.signal("HUP");
    // The server handles the signal some time later, so poll.
    let changed = std::iter::repeat_with(|| server.admin("GET /metrics").1)
        .take(10_000)
        .any(|metrics| metrics.contains("plimsoll_volume_paid_iops{volume=\"c\"} 3000\n"));
    assert!(changed);
    server.stop();
}

#[test]
fn check_says_what_is_there_and_what_is_wrong() {
    let place = Place::new();
    let args = ["check", "-c", "plimsoll.toml", "--scrub"];
    let ended = place.run(&args);
    assert!(ended.status.success(), "{}", ended.err);
    assert!(ended.out.contains("pool main: not made yet"), "{}", ended.out);

    let server = place.serve();
    let mut client = server.client();
    for n in 0..1000 {
        assert_eq!(client.ask(&format!("set {n} {}", "x".repeat(1000))), "+OK");
    }
    server.stop();
    // The second opening turns the log of the first into a table.
    place.serve().stop();
    let ended = place.run(&args);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
    let table = flip_a_byte_of_a_table(&place);
    let ended = place.run(&args);
    assert_eq!(ended.status.code(), Some(1), "{} was damaged: {}", table, ended.out);
    assert!(ended.out.contains("is damaged"), "{}", ended.out);

    std::fs::remove_dir_all(place.path("c")).expect("it was there");
    let ended = place.run(&["check", "-c", "plimsoll.toml"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.out.contains("volume c is away"), "{}", ended.out);
}

#[test]
fn a_scrub_names_the_damaged_copy_of_a_log_and_a_repair_replaces_it() {
    let place = Place::new();
    let two = "[pool.main]\ncopies = 2\n";
    place.write(&settings("unlimited", "").replace("[pool.main]\n", two));
    let server = place.serve();
    let mut client = server.client();
    for n in 0..100 {
        assert_eq!(client.ask(&format!("set {n} {n}")), "+OK");
    }
    server.kill();
    let scrub =
        |more: &[&str]| place.run(&[&["check", "-c", "plimsoll.toml", "--scrub"], more].concat());
    // This scrub gives the logs their checksums.
    let ended = scrub(&[]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
    let damaged = flip_a_byte(&place, "log");
    let volume =
        ["a", "b", "c"].into_iter().find(|name| damaged.contains(&format!("/{name}/objects/")));
    let volume = volume.expect("one of the volumes");
    let ended = scrub(&[]);
    assert_eq!(ended.status.code(), Some(1), "{damaged}: {}", ended.out);
    let named = |line: &&str| {
        line.contains("is damaged")
            && line.contains(volume)
            && line.contains("another copy is good")
    };
    assert_eq!(ended.out.lines().filter(named).count(), 1, "{damaged}: {}", ended.out);
    let ended = scrub(&["--repair"]);
    assert!(ended.out.contains("1 bad copies dropped, 1 copies made"), "{}", ended.out);
    let ended = scrub(&[]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
    let server = place.serve();
    let mut client = server.client();
    for n in 0..100 {
        assert_eq!(client.ask(&format!("get {n}")), n.to_string());
    }
    server.stop();
}

#[test]
fn a_pool_that_lost_most_of_its_manifests_opens_after_a_repair() {
    let place = Place::new();
    place.write(&settings("unlimited", "meta = [\"c\"]\n"));
    let server = place.serve();
    assert_eq!(server.client().ask("set ship plimsoll"), "+OK");
    server.stop();
    for lost in ["a", "b"] {
        std::fs::remove_dir_all(place.path(lost)).expect("it was there");
    }
    let check = ["check", "-c", "plimsoll.toml"];
    let ended = place.run(&check);
    assert_eq!(ended.status.code(), Some(2), "nothing could be found out");
    assert!(ended.err.contains("1 of 3 volumes that keep the manifest"), "{}", ended.err);
    assert!(ended.err.contains("plimsoll check --repair"), "{}", ended.err);

    let ended = place.run(&[&check[..], &["--repair"]].concat());
    assert!(
        ended.out.contains("pool main: opens again, with the volumes that are here"),
        "{}",
        ended.out
    );
    // The logs were on the remaining volume.
    let server = place.serve();
    assert_eq!(server.client().ask("get ship"), "plimsoll");
    assert_eq!(server.client().ask("set ship samaritan"), "+OK");
    server.stop();
}

#[test]
fn with_a_data_volume_away_the_rest_is_served_and_health_says_so() {
    let place = Place::new();
    place.write(&settings("unlimited", "meta = [\"a\"]\n"));
    let server = place.serve();
    assert_eq!(server.client().ask("set k v"), "+OK");
    server.stop();
    std::fs::rename(place.path("c"), place.path("elsewhere")).expect("a rename");
    let server = place.serve();
    assert_eq!(server.client().ask("set k2 v"), "+OK");
    let (status, health) = server.admin("GET /health");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(health.contains("volume c is away"), "{health}");
    server.stop();
    std::fs::rename(place.path("elsewhere"), place.path("c")).expect("a rename");
    let server = place.serve();
    assert_eq!(server.client().ask("get k"), "v");
    assert_eq!(server.client().ask("get k2"), "v");
    server.stop();
}

#[test]
fn the_demo_compares_both_stores_and_ends_by_itself() {
    let place = Place::new();
    let short = ["--time", "2s", "--flat-out", "300ms", "--keys", "5000"];
    let demo = [&["demo", "--once"], &short[..]].concat();
    let ended = place.run(&demo);
    assert!(ended.status.success(), "{}", ended.err);
    // The figures depend on the machine; the rows and the verdict are always there.
    let row = |name: &str| {
        let row = |line: &&str| line.trim_start().starts_with(name) && line.contains(" ms ");
        ended.out.lines().find(row).unwrap_or_else(|| panic!("{name} in {}", ended.out))
    };
    for name in ["plain RocksDB ", "Plimsoll  "] {
        let columns: Vec<_> = row(name).split_whitespace().collect();
        assert!(columns.contains(&"%"), "{columns:?}");
    }
    let verdict = ended.out.lines().find(|line| line.contains("; the provider held back "));
    let verdict = verdict.unwrap_or_else(|| panic!("a verdict in {}", ended.out));
    assert!(verdict.contains("p99") && verdict.ends_with('.'), "{verdict}");
    // Plain RocksDB's volume is removed; Plimsoll's store stays, with the settings of the sized volume.
    let left = std::fs::read_dir(place.path("plimsoll-data")).expect("it is there");
    let mut left: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
    left.sort();
    assert_eq!(left, ["line", "plimsoll.toml"]);
    let ended = place.run(&["check", "-c", "plimsoll-data/plimsoll.toml"]);
    assert!(ended.status.success(), "{}", ended.err);
    // It runs again on its own store, and leaves others alone.
    let ended = place.run(&demo);
    assert!(ended.status.success(), "{}", ended.err);
    let ended = place.run(&[&demo[..], &["--dir", "."]].concat());
    assert!(!ended.status.success());
    assert!(ended.err.contains("was not written by this demo"), "{}", ended.err);
}

#[test]
fn certificates_that_cannot_be_used_stop_a_start_and_change_nothing_on_a_reload() {
    let place = Place::new();
    let tls = "tls = { cert = \"c.pem\", key = \"k.pem\" }\n";
    place.write(&settings("unlimited", tls));
    for (command, status) in [("serve", 1), ("check", 2)] {
        let ended = place.run(&[command, "-c", "plimsoll.toml"]);
        assert_eq!(ended.status.code(), Some(status));
        assert!(ended.err.contains("kv.tls: c.pem: there is no such file"), "{}", ended.err);
    }
    place.write(&settings("unlimited", ""));
    let server = place.serve();
    place.write(&settings("unlimited", tls));
    let (status, told) = server.admin("POST /reload");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(told.contains("kv.tls: needs a restart\n"), "{told}");
    assert_eq!(server.client().ask("ping"), "+PONG");
    server.stop();
}

/// Makes a certificate for `name`, as `file.crt` with the key `file.key`.
fn certify(place: &Place, file: &str, name: &str) {
    let (subject, key, out) = (format!("/CN={name}"), format!("{file}.key"), format!("{file}.crt"));
    let mut openssl = Command::new("openssl");
    openssl.current_dir(place.dir.path()).args(["req", "-x509", "-nodes", "-days", "2"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-subj", &subject, "-keyout", &key, "-out", &out]);
    let ended = Ended::of(&mut openssl);
    assert!(ended.status.success(), "{}", ended.err);
}

/// Whether a TLS listener shows a certificate for `name`.
fn shows(address: SocketAddr, name: &str) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &address.to_string()]).stdin(Stdio::null());
    let shown = Ended::of(&mut openssl).out;
    let subject = shown.lines().find(|line| line.starts_with("subject=")).unwrap_or_default();
    subject.ends_with(name)
}

/// Once, the certificates of the first listener were replaced before those of the second were found to be missing.
#[test]
fn a_reload_that_fails_changes_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).expect("room for a directory");
    let write = |kv: &str, http: &str| {
        let tls = |file: &str| format!("tls = {{ cert = \"{file}.crt\", key = \"{file}.key\" }}\n");
        let http = format!("[http]\n{}", tls(http));
        let series = crate::check::SERIES.replace("[http]\n", &http);
        place.write(&format!("{series}{}", settings("unlimited", &tls(kv))));
    };
    for (file, name) in [("kv", "old"), ("http", "old"), ("newer", "new")] {
        certify(&place, file, name);
    }
    write("kv", "http");
    let server = place.serve();
    assert!(shows(server.redis(), "old"));
    write("newer", "missing");
    let (status, told) = server.admin("POST /reload");
    assert_eq!(status, "HTTP/1.1 422 Unprocessable Entity");
    assert!(told.contains("http.tls: missing.crt"), "{told}");
    assert!(shows(server.redis(), "old"), "nothing was changed");
    write("newer", "newer");
    let (status, told) = server.admin("POST /reload");
    assert_eq!(status, "HTTP/1.1 200 OK", "{told}");
    let http = server.http.expect("an endpoint of time series");
    assert!(shows(server.redis(), "new") && shows(http, "new"));
    server.stop();
}

/// Once, a token removed from the settings kept working until a restart.
#[test]
fn a_reload_takes_up_passwords_users_and_tokens() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).expect("room for a directory");
    let write = |kv: &str, tokens: &str| {
        let series =
            crate::check::SERIES.replace("[http]\n", &format!("[http]\ntokens = [{tokens}]\n"));
        place.write(&format!("{series}{}", settings("unlimited", kv)));
    };
    let user = "users = [{ name = \"app\", password = \"hush\", may = \"read\" }]\n";
    write(&format!("password = \"old\"\n{user}"), "\"one\", \"two\"");
    let server = place.serve();
    let endpoint = server.http.expect("an endpoint of time series");
    let points = |token: &str| {
        let header = format!("Authorization: Token {token}\r\n");
        crate::points::ask(endpoint, "POST /write?db=sea", &header, "tide height=1 1").status
    };
    let (mut owner, mut app) = (server.client(), server.client());
    assert_eq!(owner.ask("auth old"), "+OK");
    assert_eq!(app.ask("auth app hush"), "+OK");
    assert_eq!([points("one"), points("two"), points("three")], [204, 204, 401]);

    write("password = \"new\"\n", "\"two\", \"three\"");
    let (status, told) = server.admin("POST /reload");
    assert_eq!(status, "HTTP/1.1 200 OK", "{told}");
    assert!(told.contains("kv.password, kv.users: checked for each request"), "{told}");
    assert!(told.contains("http.tokens: checked for each request"), "{told}");
    assert!(!told.contains("restart"), "{told}");
    assert_eq!([points("one"), points("two"), points("three")], [401, 204, 204]);
    for client in [&mut owner, &mut app] {
        assert_eq!(client.ask("get k"), "-NOAUTH Authentication required.");
        assert_eq!(client.ask("auth new"), "+OK");
        assert_eq!(client.ask("get k"), "$-1");
    }

    // A listener with a password or token keeps asking for it until a restart: its address may be public by then.
    place.write(&format!("{}{}", crate::check::SERIES, settings("unlimited", "")));
    let (_, told) = server.admin("POST /reload");
    for key in ["kv.password", "http.tokens"] {
        assert!(told.contains(&format!("{key}: needs a restart\n")), "{told}");
    }
    assert_eq!(points("one"), 401);
    assert_eq!(server.client().ask("get k"), "-NOAUTH Authentication required.");
    server.stop();
}
