use std::collections::BTreeSet;
use std::fmt::Write;

use expect_test::{expect, expect_file};
use plimsoll::kv::Compression;
use policy::units::{GIB, MIB};

use super::*;

const GOOD: &str = r#"
[volume.a]
path = "/mnt/a"
contract = "gp3"

[volume.b]
path = "/mnt/b"
contract = "gp3"

[pool.main]
layout = "spread"
volumes = ["a", "b"]

[kv]
pool = "main"
"#;

fn parse(text: &str) -> Result<Settings, Mistakes> {
    Settings::parse(Path::new("plimsoll.toml"), text)
}

/// Mistakes by kind: the replaced part of the good file (empty: its end), and the replacement.
const MISTAKES: &[(&str, &[(&str, &str)])] = &[
    ("text that is not TOML", &[("path = \"/mnt/a\"", "path = /mnt/a"), ("[kv]", "[kv")]),
    ("unknown keys", &[("contract", "contrct"), ("layout", "colour"), ("[kv]", "[vk]")]),
    (
        "wrong types",
        &[
            ("\"/mnt/a\"", "5"),
            ("volumes = [\"a\", \"b\"]", "volumes = \"a\""),
            ("[\"a\", \"b\"]", "[\"a\", 1]"),
            ("[volume.a]", "[volume.a]\nsimulate = \"yes\""),
            ("", "threads = 0\n"),
            ("", "threads = \"8\"\n"),
            ("[volume.a]", "[volume]\nx = 1\n[volume.a]"),
        ],
    ),
    (
        "wrong sizes, durations and numbers",
        &[
            ("", "memory = \"512 parsecs\"\n"),
            ("", "memory = \"512\"\n"),
            ("", "memory = 512\n"),
            ("", "memory = \"1MiB\"\n"),
            ("", "memtable = \"1KiB\"\n"),
            ("", "memtables = 1\n"),
            ("", "table_size = \"5GiB\"\n"),
            ("", "level_base = \"0B\"\n"),
            ("", "bloom_bits = 33\n"),
            ("", "cache_data = \"no\"\n"),
            ("", "cache = \"64MiB\"\ncache_data = false\n"),
            ("", "prefetch = 1\n"),
            ("", "cache_policy = \"arc\"\n"),
            ("", "cache_policy = \"lru\"\ncache_data = false\n"),
            ("", "compression = \"gzip\"\n"),
            ("", "compression_last = true\n"),
            ("", "jobs = 1\n"),
            ("", "subcompactions = 0\n"),
            ("", "stop_grace = \"5\"\n"),
            ("", "wal_sync_interval = \"5m\"\n"),
            ("[volume.a]", "[volume.a]\nrho = 1.5"),
            ("[volume.a]", "[volume.a]\nrho = 0"),
            ("[volume.a]", "[volume.a]\nscheduler = \"tag\""),
            ("[volume.a]", "[volume.a]\ntimeout = 10"),
            ("[volume.a]", "[volume.a]\ntimeout = \"500ms\""),
        ],
    ),
    (
        "contracts",
        &[
            ("\"gp3\"", "\"gp4\""),
            ("\"gp3\"", "\"gp2\""),
            ("\"gp3\"", "\"gp2\"\nsize = \"50TiB\""),
            ("\"gp3\"", "\"gp3\"\niops = 90000"),
            ("\"gp3\"", "\"io2\""),
            ("\"gp3\"", "{ iop = 3000 }"),
            ("\"gp3\"", "{ iops = 0 }"),
            ("\"gp3\"", "{ iops = \"many\" }"),
            ("\"gp3\"", "\"mine.toml\""),
        ],
    ),
    (
        "limits of the instance",
        &[
            ("", "[instance]\niops = 0\n"),
            ("", "[instance]\nmib_per_s = 1\n"),
            ("", "[instance]\nmib_per_s = \"593\"\n"),
            ("", "[instance]\nmbps = 4750\n"),
            ("[kv]", "[instance.a]\niops = 12000\n\n[kv]"),
        ],
    ),
    (
        "volumes and pools that do not fit",
        &[
            ("[\"a\", \"b\"]", "[\"a\", \"c\"]"),
            ("[\"a\", \"b\"]", "[\"a\", \"a\"]"),
            ("[\"a\", \"b\"]", "[]"),
            ("[volume.b]", "[volume.a]"),
            ("/mnt/b", "/mnt/x/../a"),
            ("[volume.b]", "[volume.\"b c\"]"),
            ("pool = \"main\"", "pool = \"mian\""),
            ("pool = \"main\"", ""),
            ("\"spread\"", "\"mirrored\""),
            ("\"spread\"", "\"coded\""),
            ("\"spread\"", "\"coded\"\ndata = 2\nparity = 2"),
            ("\"spread\"", "\"coded\"\ndata = 17"),
            ("\"spread\"", "\"coded\"\nparity = 5"),
            ("\"spread\"", "\"coded\"\nstrip = \"6KiB\""),
            ("\"spread\"", "\"coded\"\nstrip = \"2MiB\""),
            ("\"spread\"", "\"coded\"\ncopies = 3"),
            ("\"spread\"", "\"coded\"\nplacement = \"stripe\""),
            ("\"spread\"", "\"spread\"\nparity = 2"),
            ("\"spread\"", "\"spread\"\nplacement = \"most-overlap\""),
            ("\"spread\"", "\"spread\"\nplacement = \"hash\"\noverlap = \"heat\""),
            ("\"spread\"", "\"spread\"\nplacement = \"least-overlap\"\noverlap = \"much\""),
            ("\"spread\"", "\"spread\"\nchunk = \"64KiB\""),
            ("\"spread\"", "\"spread\"\nmigrate = \"always\""),
            ("\"spread\"", "\"spread\"\ncopies = 0"),
            ("\"spread\"", "\"spread\"\nrepair_after = \"2d\""),
            ("\"spread\"", "\"spread\"\nscrub_every = \"1s\""),
            ("\"spread\"", "\"spread\"\nmigrate_interval = \"100ms\""),
            ("\"spread\"", "\"spread\"\nmigrate_copies_max = 0"),
            ("[kv]", "[pool.other]\nvolumes = [\"b\"]\n\n[kv]"),
            ("", "meta = [\"z\"]\n"),
            (GOOD, "[kv]\npool = \"main\"\n"),
            ("[kv]\npool = \"main\"\n", ""),
        ],
    ),
    (
        "certificates and time limits",
        &[
            ("", "tls = true\n"),
            ("", "tls = { cert = \"c.pem\" }\n"),
            ("", "tls = { cert = \"c.pem\", key = \"\" }\n"),
            ("", "[kv.tls]\ncert = \"c.pem\"\nkey = \"k.pem\"\nca = \"a.pem\"\n"),
            ("", "auth_timeout = \"0s\"\n"),
            ("", "io_weight = 0\n"),
            ("", "idle_timeout = 30\n"),
        ],
    ),
    (
        "time series",
        &[
            ("", "[http]\n"),
            ("", "[series]\n"),
            ("", "[series]\nvolumes = [\"a\"]\n"),
            (
                "[kv]",
                "[volume.c]\npath = \"/mnt/c\"\n\n[series]\nvolumes = [\"c\"]\ndurability = \"now\"\n\n[kv]",
            ),
            ("", "[http]\nlisten = \"0.0.0.0:8086\"\n"),
            ("", "[http]\ntokens = \"secret\"\n"),
            ("", "[http]\nbody_max = \"1GiB\"\nbodies_memory = \"1MiB\"\n"),
            ("", "[mqtt]\n"),
        ],
    ),
    (
        "block devices",
        &[
            ("", "[block]\n"),
            ("", "[block]\npool = \"mian\"\n"),
            ("[kv]", "[pool.other]\nvolumes = [\"b\"]\n\n[block]\npool = \"other\"\n\n[kv]"),
            ("", "[block]\npool = \"main\"\ndurability = \"everysec\"\n"),
            ("", "[block]\npool = \"main\"\nchecksum_memory = \"1KiB\"\n"),
            ("", "[block]\npool = \"main\"\nlisten = \"0.0.0.0:10809\"\n"),
            (
                "",
                "[block]\npool = \"main\"\nlisten = \"0.0.0.0:10809\"\n\
                 tls = { cert = \"c.pem\", key = \"k.pem\" }\n",
            ),
            ("", "[block]\npool = \"main\"\nlisten = \"unix:\"\n"),
            ("", "[block]\npool = \"main\"\nrequests_max = 0\n"),
            ("", "[block]\npool = \"main\"\nhandshake_timeout = \"0s\"\n"),
        ],
    ),
    (
        "places to listen",
        &[
            ("", "listen = \"0.0.0.0:6380\"\n"),
            ("", "listen = \"6380\"\n"),
            ("", "listen = \"0.0.0.0:6380\"\ntls = { cert = \"c.pem\", key = \"k.pem\" }\n"),
            ("", "[admin]\nlisten = \"0.0.0.0:9180\"\n"),
            ("", "[admin]\nlisten = \"unix:\"\n"),
        ],
    ),
];

/// The good file with a mistake inserted.
fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is in the good file");
    match from {
        "" => format!("{GOOD}{to}"),
        from => GOOD.replacen(from, to, 1),
    }
}

#[test]
fn each_mistake_says_where_it_is_and_what_is_accepted() {
    let mut told = String::from("# The file:\n");
    let indent = |told: &mut String, mark: char, text: &str| {
        for line in text.trim_end().lines() {
            writeln!(told, "{mark} {line}").expect("a string takes any text");
        }
    };
    indent(&mut told, ' ', GOOD);
    for (kind, cases) in MISTAKES {
        write!(told, "\n# {kind}\n").expect("a string takes any text");
        for (from, to) in *cases {
            let mistake = parse(&with(from, to)).expect_err(to);
            told.push('\n');
            indent(&mut told, '-', from);
            indent(&mut told, '+', to);
            writeln!(told, "{mistake}").expect("a string takes any text");
        }
    }
    expect_file!["../../testdata/mistakes.txt"].assert_eq(&told);
}

#[test]
fn all_mistakes_are_told_at_once_from_top_to_bottom() {
    let text = r#"[volume.a]
path = 5
contract = "gp4"
rho = 2
colour = "red"

[volume.b]
path = "/mnt/b"
contract = "gp3"

[pool.main]
copies = 0
placement = "hush"
volumes = ["a", "z"]

[kv]
pool = "mian"
memory = "1MiB"
jobs = "many"
listen = "6380"

[series]
volumes = ["b"]
full = 2.0

[http]
create = "no"

[mqtt]
broker = "hall"

[instance]
iops = 0

[admin]
listen = "0.0.0.0:1"
"#;
    let mistakes = parse(text).expect_err("mistakes").to_string();
    let found: Vec<_> = mistakes
        .lines()
        .map(|line| line.split(": found").next().expect("a place and a key"))
        .collect();
    // The path and the contract of volume a are wrong: that makes no mistake in the pool.
    let wanted = [
        "2: volume.a.path",
        "3: volume.a.contract",
        "4: volume.a.rho",
        "5: volume.a.colour",
        "12: pool.main.copies",
        "13: pool.main.placement",
        "14: pool.main.volumes",
        "17: kv.pool",
        "18: kv.memory",
        "19: kv.jobs",
        "20: kv.listen",
        "24: series.full",
        "27: http.create",
        "29: mqtt.topics",
        "29: mqtt.database",
        "30: mqtt.broker",
        "33: instance.iops",
        "36: admin.listen",
    ];
    assert_eq!(found, wanted.map(|place| format!("plimsoll.toml:{place}")), "{mistakes}");
}

#[test]
fn a_short_file_gets_every_default() {
    let settings = parse(GOOD).expect("a good file");
    expect![[r#"
        [volume.a]
        path = "/mnt/a"
        contract = "gp3"
        simulate = false
        rho = 0.98
        beta = 0.9
        adapt = true
        scheduler = "tags"
        timeout = "10s"

        [volume.b]
        path = "/mnt/b"
        contract = "gp3"
        simulate = false
        rho = 0.98
        beta = 0.9
        adapt = true
        scheduler = "tags"
        timeout = "10s"

        [pool.main]
        layout = "spread"
        placement = "least-overlap"
        overlap = "count"
        copies = 1
        repair_after = "10m"
        scrub_every = "30days"
        migrate = "level"
        migrate_interval = "10s"
        migrate_copies_max = 4
        volumes = ["a", "b"]

        [kv]
        pool = "main"
        memory = "512MiB"
        durability = "everysec"
        wal_sync_interval = "1s"
        memtable = "32MiB"
        memtables = 4
        table_size = "32MiB"
        level_base = "128MiB"
        bloom_bits = 10
        cache_data = true
        compression = "lz4"
        compression_last = "zstd"
        jobs = 4
        subcompactions = 2
        cache = "256MiB"
        cache_policy = "lrfu"
        prefetch = true
        rewarm = true
        listen = "127.0.0.1:6380"
        threads = 64
        clients_max = 1000
        clients_memory = "256MiB"
        bulk_max = "64MiB"
        request_max = "128MiB"
        stop_grace = "5s"
        idle_timeout = "0s"
        auth_timeout = "30s"
        io_weight = 1
    "#]]
    .assert_eq(&settings.to_string());
}

#[test]
fn the_effective_settings_are_a_file_that_says_the_same() {
    let full = r#"
        [volume.a]
        path = "data/a"
        contract = "gp2"
        size = "500GiB"
        simulate = true
        rho = 0.9

        [volume.b]
        path = "/mnt/b"
        contract = "gp3"
        iops = 6000
        mib_per_s = 250

        [volume.c]
        path = "/mnt/c"
        contract = { iops = 200, mib_per_s = 40 }

        [instance]
        iops = 12000
        mib_per_s = 593

        [pool.main]
        placement = "stripe"
        chunk = "64KiB"
        volumes = ["b", "a", "c"]
        copies = 2
        repair_after = "30s"
        scrub_every = "off"
        migrate = "tango"
        migrate_interval = "30s"
        migrate_copies_max = 2

        [kv]
        pool = "main"
        meta = ["b"]
        memory = "1GiB"
        durability = "always"
        wal_sync_interval = "250ms"
        memtable = "8MiB"
        memtables = 2
        table_size = "8MiB"
        level_base = "64MiB"
        bloom_bits = 0
        cache_data = false
        compression = "none"
        jobs = 8
        subcompactions = 1
        listen = "[::1]:7000"
        threads = 8
        clients_max = 10
        clients_memory = "1MiB"
        bulk_max = "1MiB"
        request_max = "2MiB"
        stop_grace = "1s"
        idle_timeout = "5m"
        auth_timeout = "10s"
        io_weight = 3
        tls = { cert = "/etc/c.pem", key = "k.pem", client_ca = "a.pem" }

        [admin]
        listen = "unix:/run/plimsoll"
    "#;
    let settings = parse(full).expect("a good file");
    let again = parse(&settings.to_string()).expect("what is shown can be read");
    assert_eq!(settings, again);
    assert_eq!(settings.volumes[1].contract.paid_iops(), Some(6000));
    assert_eq!(settings.volumes[2].contract.paid_iops(), Some(200));
    let kv = settings.kv.expect("there is one");
    assert_eq!(kv.endpoint.port, 7000);
    let kv = &kv.options;
    assert_eq!((kv.memory, kv.table_size, kv.cache()), (GIB, Some(8 * MIB), None));
    assert_eq!(kv.compression_last, Compression::None, "one kind is meant for all levels");
}

#[test]
fn relative_paths_start_where_the_file_is() {
    let text = with("/mnt/a", "data/a");
    let settings = Settings::parse(Path::new("/etc/plimsoll/p.toml"), &text).expect("a good file");
    assert_eq!(settings.volumes[0].path, Path::new("/etc/plimsoll/data/a"));
}

#[test]
fn a_password_opens_other_addresses_and_is_never_shown() {
    let text = with("", "listen = \"0.0.0.0:6380\"\npassword = \"hunter2\"\n");
    let settings = parse(&text).expect("a good file");
    let kv = settings.kv.as_ref().expect("there is one");
    assert!(kv.endpoint.password.as_ref().is_some_and(|secret| secret.is(b"hunter2")));
    assert!(!format!("{settings} {settings:?}").contains("hunter2"));
    for wrong in ["password = 12345\n", "password = \"12345\n", "password = 123 45\n"] {
        let mistake = parse(&with("", wrong)).expect_err("a mistake").to_string();
        assert!(!mistake.contains("123"), "{mistake}");
    }
}

#[test]
fn certificates_of_clients_open_other_addresses_too() {
    let tls = "tls = { cert = \"c.pem\", key = \"k.pem\", client_ca = \"a.pem\" }\n";
    let text = with("", &format!("listen = \"0.0.0.0:6380\"\n{tls}"));
    let settings = Settings::parse(Path::new("/etc/p.toml"), &text).expect("a good file");
    let kv = settings.kv.expect("there is one");
    let files = kv.tls.expect("they were given");
    assert_eq!(files.client_ca.as_deref(), Some(Path::new("/etc/a.pem")));
    assert!(kv.endpoint.tls);
}

#[test]
fn a_file_that_is_not_there() {
    let mistake = Settings::load(Path::new("/nonexistent/plimsoll.toml")).expect_err("no file");
    expect!["/nonexistent/plimsoll.toml: the settings file: found No such file or directory (os error 2); accepted: a file this user may read"].assert_eq(&mistake.to_string());
}

#[test]
fn what_the_instance_allows_is_not_what_was_bought() {
    let text = with("[kv]", "[instance]\niops = 5000\n\n[kv]");
    let settings = parse(&text).expect("a good file");
    let parts = crate::wiring::parts(&settings);
    let terms: Vec<_> = parts.iter().map(|(of, most)| (of.terms(), terms(most))).collect();
    let each = ("gp3, 3000 IOPS, 125 MiB/s".into(), "gp3, 2500 IOPS, 125 MiB/s".into());
    assert_eq!(terms, [each.clone(), each]);
}

#[test]
fn an_instance_with_room_changes_nothing() {
    let text = with("[kv]", "[instance]\niops = 6000\nmib_per_s = 250\n\n[kv]");
    let settings = parse(&text).expect("a good file");
    for (volume, most) in crate::wiring::parts(&settings) {
        assert_eq!(volume.contract, most);
    }
}

#[test]
fn series_have_a_store_and_a_endpoint_of_their_own() {
    let more = "[volume.c]\npath = \"/mnt/c\"\ncontract = \"gp3\"\n\n[series]\nvolumes = [\"c\"]\n\n\
                [http]\nlisten = \"0.0.0.0:8086\"\ntokens = [\"hush\"]\nqueries_max = 3\n";
    let settings = parse(&format!("{GOOD}{more}")).expect("a good file");
    let shown = settings.to_string();
    assert!(!shown.contains("hush") && shown.contains("tokens = [\"***\"]"), "{shown}");
    let (series, http) = settings.series.clone().expect("there is one");
    assert_eq!((series.on, http.endpoint.queries_max), (On::Volumes(vec!["c".to_owned()]), 3));
    let again = parse(&shown).expect("what is shown is a file");
    assert_eq!(again.to_string(), shown);
    assert_eq!(settings.differences(&again), ["http.tokens"]);
    let without = parse(&format!("{GOOD}{}", more.split("[http]").next().unwrap_or_default()));
    let (_, http) = without.expect("a good file").series.expect("there is one");
    assert_eq!(http.listen.to_string(), "127.0.0.1:8086");
}

#[test]
fn a_store_of_time_series_may_share_the_pool_or_be_alone() {
    let shared = parse(&format!("{GOOD}[series]\npool = \"main\"\n")).expect("a good file");
    let (series, _) = shared.series.clone().expect("there is one");
    assert_eq!(series.on, On::Pool("main".into()));
    assert_eq!(shared.in_use().count(), shared.roots()[0].volumes.len());
    let again = parse(&shared.to_string()).expect("what is shown is a file");
    assert_eq!(again.to_string(), shared.to_string());

    let volume = "[volume.c]\npath = \"/mnt/c\"\ncontract = \"gp3\"\n\n";
    let alone = format!("{volume}[series]\nvolumes = [\"c\"]\n");
    let alone = parse(&alone).expect("a good file");
    assert_eq!((alone.kv.clone(), alone.roots().len(), alone.in_use().count()), (None, 0, 1));
    let again = parse(&alone.to_string()).expect("what is shown is a file");
    assert_eq!(again.to_string(), alone.to_string());
    let pool = "[pool.main]\nvolumes = [\"c\"]\n\n";
    let on_pool = parse(&format!("{volume}{pool}[series]\npool = \"main\"\n"));
    assert_eq!(roots(&on_pool.expect("a good file")), ["main"]);

    let other = "[pool.other]\nvolumes = [\"c\"]\n\n[series]\npool = \"other\"\n";
    let several = parse(&format!("{GOOD}{volume}{other}")).expect("a good file");
    assert_eq!((roots(&several), several.in_use().count()), (vec!["main", "other"], 3));
    for (text, wrong) in [
        (format!("{GOOD}[series]\npool = \"main\"\nvolumes = [\"a\"]\n"), "one of the two"),
        (format!("{GOOD}[series]\nvolumes = [\"a\"]\n"), "or pool = \"main\""),
        (volume.to_owned(), "[kv], [series] or [block]"),
    ] {
        let mistake = parse(&text).expect_err(wrong).to_string();
        assert!(mistake.contains(wrong), "{mistake}");
    }
}

#[test]
fn block_devices_have_a_store_and_a_listener() {
    let settings = parse(&format!("{GOOD}[block]\npool = \"main\"\n")).expect("a good file");
    let shown = settings.to_string();
    expect![[r#"
        [block]
        pool = "main"
        durability = "flush"
        checksum_memory = "64MiB"
        io_weight = 1
        oversell = false
        listen = "127.0.0.1:10809"
        clients_max = 100
        requests_max = 128
        requests_memory = "64MiB"
        all_requests_memory = "256MiB"
        handshake_timeout = "30s"
        stop_grace = "5s"
    "#]]
    .assert_eq(&shown[shown.find("[block]").expect("its section")..]);
    let more = "[block]\npool = \"main\"\ndurability = \"always\"\nchecksum_memory = \"1GiB\"\n\
                io_weight = 2\noversell = true\nlisten = \"0.0.0.0:7000\"\nclients_max = 7\nclients_per_address = 3\n\
                requests_max = 9\nrequests_memory = \"1MiB\"\nall_requests_memory = \"3MiB\"\n\
                handshake_timeout = \"2s\"\n\
                stop_grace = \"3s\"\n\
                tls = { cert = \"c.pem\", key = \"k.pem\", client_ca = \"a.pem\" }\n";
    let settings = parse(&format!("{GOOD}{more}")).expect("a good file");
    let again = parse(&settings.to_string()).expect("what is shown can be read");
    assert_eq!(settings.block, again.block);
    let block = settings.block.expect("there is one");
    assert!(block.options.durable && block.oversell);
    assert_eq!((block.options.checksum_bytes, block.endpoint.clients_max), (GIB, 7));
    assert_eq!(block.endpoint.clients_per_address, Some(3));
    let text = format!("{GOOD}[block]\npool = \"main\"\nlisten = \"unix:/run/nbd\"\n");
    let block = parse(&text).expect("a good file").block.expect("there is one");
    assert_eq!(block.listen, Listen::Unix("/run/nbd".into()));
}

#[test]
fn contracts_of_devices_are_spelled_as_those_of_volumes() {
    let terms = |text, size| sold(text, size).map(|contract| terms(&contract));
    assert_eq!(terms("gp3", GIB).expect("a name"), "gp3, 3000 IOPS, 125 MiB/s");
    let inline = terms(" { iops = 500, mib_per_s = 60 }\n", 4096).expect("a table");
    assert_eq!(inline, "custom, 500 IOPS, 60 MiB/s");
    let file = "name = \"small\"\niops = 100\nmib_per_s = 10\n";
    assert_eq!(terms(file, 4096).expect("a file"), "small, 100 IOPS, 10 MiB/s");
    // Its rate follows from the size of the device.
    assert_eq!(sold("gp2", 1000 * GIB).expect("a name").paid_iops(), Some(3000));
    let burst = "{ iops = { included = 100, burst = { rate = 3000, credits = 5400000 } } }";
    let burst = sold(burst, 4096).expect("a table");
    assert_eq!((burst.paid_iops(), burst.has_credits()), (Some(100), true));
    for (wrong, word) in [
        ("gp4", "gp3"),
        ("{ iops = 500", "inline table"),
        ("{ ops = 500 }", "unknown field"),
        ("gp3", "1 GiB"),
        ("{ iops = 0 }", "limit of zero"),
    ] {
        let error = sold(wrong, 4096).expect_err(wrong).to_string();
        assert!(error.contains(word), "{wrong}: {error}");
    }
}

#[test]
fn block_devices_may_be_alone_or_on_the_pool_of_the_others() {
    let alone = GOOD.replace("[kv]", "[block]");
    let settings = parse(&alone).expect("a good file");
    assert_eq!(roots(&settings), ["main"]);
    assert_eq!((settings.kv.clone(), settings.in_use().count()), (None, 2));
    let volume = "[volume.c]\npath = \"/mnt/c\"\ncontract = \"gp3\"\n\n";
    // A store of time series has volumes of its own beside the pool.
    let beside = format!("{volume}{alone}\n[series]\nvolumes = [\"c\"]\n");
    let settings = parse(&beside).expect("a good file");
    assert_eq!(roots(&settings), ["main"]);
    assert_eq!(settings.in_use().count(), 3);
    let other = "[pool.other]\nvolumes = [\"c\"]\n\n[series]\npool = \"other\"\n";
    let settings = parse(&format!("{volume}{alone}\n{other}")).expect("a good file");
    assert_eq!(roots(&settings), ["other", "main"]);
}

#[test]
fn clients_may_do_less_and_secrets_are_never_shown() {
    let users = "password = \"hush\"\nclients_per_address = 7\n\
                 users = [{ name = \"board\", password = \"hush1\", may = \"read\" }]\n";
    let more = "[volume.c]\npath = \"/mnt/c\"\ncontract = \"gp3\"\n\n[series]\nvolumes = [\"c\"]\n\n\
                [http]\nhosts = [\"db.example\"]\nconnections_per_address = 9\n\
                tokens = [\"hush2\", { token = \"hush3\", may = \"write\", databases = [\"a\"] }]\n\n\
                [admin]\nhosts = [\"db.example\"]\n";
    let settings = parse(&format!("{}{more}", with("", users))).expect("a good file");
    let kv = settings.kv.as_ref().expect("there is one");
    let board = &kv.endpoint.users[0];
    assert_eq!((&*board.name, board.may), ("board", serve::May::Read));
    assert!(board.password.is(b"hush1"));
    assert_eq!(kv.endpoint.clients_per_address, Some(7));
    let (_, http) = settings.series.clone().expect("there is one");
    let [all, some] = &http.endpoint.tokens[..] else { panic!("two tokens") };
    assert_eq!(*all, serve::http::Token::full("hush2"));
    assert_eq!(
        (some.grant.may, &some.grant.databases),
        (serve::May::Write, &Some(vec!["a".into()]))
    );
    assert_eq!(settings.admin.as_ref().map(|admin| admin.hosts.len()), Some(1));
    let shown = settings.to_string();
    assert!(!format!("{shown}{settings:?}").contains("hush"), "{shown}");
    let again = parse(&shown).expect("what is shown is a file");
    assert_eq!(again.to_string(), shown);
    assert_eq!(settings.differences(&again), ["http.tokens", "kv.password", "kv.users"]);
    for (wrong, told) in [
        (
            "users = [{ name = \"b\", password = \"hush\" }]\n",
            "kv.users: found ***; accepted: users and a password",
        ),
        ("password = \"p\"\nusers = [\"hush\"]\n", "kv.users: found ***"),
        (
            "password = \"p\"\nusers = [{ name = \"default\", password = \"hush\" }]\n",
            "a name that no other",
        ),
        (
            "password = \"p\"\nusers = [{ name = \"b\", password = 5 }]\n",
            "kv.users.password: found ***",
        ),
    ] {
        let mistake = parse(&with("", wrong)).expect_err("a mistake").to_string();
        assert!(mistake.contains(told) && !mistake.contains("hush"), "{mistake}");
    }
}

#[test]
fn a_broker_is_subscribed_to_beside_the_endpoint() {
    let store = format!(
        "{GOOD}[volume.c]\npath = \"/mnt/c\"\ncontract = \"gp3\"\n\n[series]\nvolumes = [\"c\"]\n\n[mqtt]\n"
    );
    let good = "broker = \"hall:8883\"\ntopics = [\"a/+/b\", \"c/#\"]\ndatabase = \"db\"\n\
                payload = \"json\"\ntags = [\"id\"]\nprecision = \"ms\"\nuser = \"u\"\n\
                password = \"hush\"\ntls = { ca = \"ca.pem\" }\n";
    let settings = parse(&format!("{store}{good}")).expect("a good file");
    let shown = settings.to_string();
    assert!(!shown.contains("hush") && shown.contains("password = \"***\""), "{shown}");
    let again = parse(&shown).expect("what is shown is a file");
    assert_eq!(again.to_string(), shown);
    assert_eq!(settings.differences(&again), ["mqtt.password"]);
    for (line, wanted) in [
        ("", "mqtt.broker: found nothing"),
        ("broker = \"hall\"\n", "such as \"localhost:1883\""),
        ("broker = \"hall:1883\"\ntopics = [\"a/#/b\"]\n", "such as [\"sensors/#\"]"),
        ("broker = \"hall:1883\"\ntopics = [\"#\"]\n", "mqtt.database: found nothing"),
        (
            "broker = \"hall:1883\"\ntopics = [\"#\"]\ndatabase = \"d\"\ntags = [\"a\"]\n",
            "nothing, unless payload = \"json\"",
        ),
        (
            "broker = \"hall:1883\"\ntopics = [\"#\"]\ndatabase = \"d\"\npassword = \"hush\"\n",
            "mqtt.user: found nothing",
        ),
    ] {
        let mistake = parse(&format!("{store}{line}")).expect_err("a mistake").to_string();
        assert!(mistake.contains(wanted) && !mistake.contains("hush"), "{line}: {mistake}");
    }
}

/// Once, only the first mistake inside a list was reported.
#[test]
fn all_mistakes_inside_lists_are_told() {
    let text = r#"[volume.a]
path = "/mnt/a"
contract = "gp3"

[pool.main]
volumes = [
    "x",
    "a",
    "a",
    7,
]

[kv]
pool = "main"
password = "hush"
users = [
    { name = "one two", password = 1, may = "fly" },
    { name = "one", password = "p" },
    { name = "one", password = "" },
    "two",
]

[series]
volumes = ["y",
    "a"]

[http]
tokens = [
    "",
    { token = 5, may = "swim", databases = [
        1,
        2] },
    "t",
    "t",
]

[mqtt]
broker = "hall:1883"
database = "sea"
topics = ["a/#/b",
    "+a"]

[admin]
hosts = ["a:1",
    "b c"]
"#;
    let mistakes = parse(text).expect_err("mistakes").to_string();
    let found: Vec<_> = mistakes
        .lines()
        .map(|line| line.split(": found").next().expect("a place and a key"))
        .collect();
    let wanted = [
        "7: pool.main.volumes",
        "9: pool.main.volumes",
        "10: pool.main.volumes",
        "17: kv.users.name",
        "17: kv.users.password",
        "17: kv.users.may",
        "19: kv.users.name",
        "19: kv.users.password",
        "20: kv.users",
        "24: series.volumes",
        "29: http.tokens",
        "30: http.tokens.token",
        "30: http.tokens.may",
        "31: http.tokens.databases",
        "32: http.tokens.databases",
        "34: http.tokens",
        "40: mqtt.topics",
        "41: mqtt.topics",
        "44: admin.hosts",
        "45: admin.hosts",
    ];
    // Mistakes on one line come in any order.
    let found: BTreeSet<_> = found.into_iter().collect();
    let wanted = wanted.map(|place| format!("plimsoll.toml:{place}"));
    assert_eq!(found, wanted.iter().map(String::as_str).collect(), "{mistakes}");
}

#[test]
fn the_writes_of_the_journal_are_measured_or_told() {
    let journal_ops = |to: &str| {
        let settings = parse(&with("contract = \"gp3\"", to)).expect("a good file");
        (settings.volumes[0].journal_ops, settings.to_string().contains("\njournal_ops = 2\n"))
    };
    assert_eq!(journal_ops("contract = \"gp3\""), (None, false));
    assert_eq!(journal_ops("contract = \"gp3\"\njournal_ops = 2"), (Some(2), true));
    let mistake = parse(&with("contract = \"gp3\"", "contract = \"gp3\"\njournal_ops = 9"));
    assert!(mistake.expect_err("too many").to_string().contains("from 0 to 7"));
}

#[test]
fn a_contract_that_counts_reads_and_writes_apart_says_so() {
    let to = "contract = { read_iops = 250, write_iops = 300, mib_per_s = 125 }";
    let settings = parse(&with("contract = \"gp3\"", to)).expect("a good file");
    let terms = terms(&settings.volumes[0].contract);
    assert_eq!(terms, "custom, reads 250 IOPS, writes 300 IOPS, 125 MiB/s");
}

/// The names of the pools that stores are on.
fn roots(settings: &Settings) -> Vec<&str> {
    settings.roots().into_iter().map(|pool| &*pool.name).collect()
}

/// A file with these pools, all on volumes a to d.
fn with_pools(pools: &[(&str, &[&str])]) -> String {
    let volume = |name| format!("[volume.{name}]\npath = \"/mnt/{name}\"\ncontract = \"gp3\"\n\n");
    let pool =
        |(name, members): &(&str, &[&str])| format!("[pool.{name}]\nvolumes = {members:?}\n\n");
    let volumes: String = ["a", "b", "c", "d"].into_iter().map(volume).collect();
    let pools: String = pools.iter().map(pool).collect();
    format!("{volumes}{pools}[kv]\npool = \"main\"\n")
}

#[test]
fn a_pool_may_have_pools_as_members() {
    let text = with_pools(&[("main", &["left", "d"]), ("left", &["c", "far"]), ("far", &["a"])]);
    let settings = parse(&text).expect("it is right");
    let used: Vec<_> = settings.in_use().map(|volume| &*volume.name).collect();
    assert_eq!(used, ["c", "a", "d"]);
    let pools: Vec<_> = settings.pools_in_use().into_iter().map(|pool| &*pool.name).collect();
    assert_eq!(pools, ["main", "left", "far"]);
    assert_eq!(settings.pool_with("a").map(|pool| &*pool.name), Some("far"));
    // Only pools of volumes read back and level what they have.
    let of = |name: &str| settings.pools.iter().find(|pool| pool.name == name).expect("a pool");
    assert!(of("far").scrub_every.is_some() && of("main").scrub_every.is_some());
    let text = with_pools(&[("main", &["left", "right"]), ("left", &["a"]), ("right", &["b"])]);
    let settings = parse(&text).expect("it is right");
    let main = settings.roots()[0];
    assert_eq!((main.scrub_every, main.migration.policy), (None, policy::migrate::Policy::Off));
}

#[test]
fn pools_that_are_no_tree_are_refused_with_the_way() {
    type Pools<'a> = &'a [(&'a str, &'a [&'a str])];
    let cases: [(Pools<'_>, &str); 5] = [
        (&[("main", &["main", "a"])], "found \"main\"; accepted: a, b, c, d"),
        (
            &[("main", &["left"]), ("left", &["a", "far"]), ("far", &["left"])],
            "pools within themselves: left > far > left",
        ),
        (&[("main", &["left", "a"]), ("left", &["a"])], "\"a\", a volume of pool."),
        (
            &[
                ("main", &["left", "right"]),
                ("left", &["far"]),
                ("right", &["far"]),
                ("far", &["a"]),
            ],
            "\"far\", a volume of pool.",
        ),
        (&[("main", &["a", "a"])], "\"a\" twice"),
    ];
    for (pools, told) in cases {
        let mistakes = parse(&with_pools(pools)).expect_err(told).to_string();
        assert!(mistakes.contains(told), "{told}: {mistakes}");
    }
}

/// With a store of keys on `main`, and another store of block devices on `block`.
fn with_two_roots(pools: &[(&str, &[&str])], block: &str) -> String {
    format!("{}\n[block]\npool = {block:?}\n", with_pools(pools))
}

#[test]
fn each_store_may_have_a_pool_of_its_own() {
    let pools: &[(&str, &[&str])] =
        &[("main", &["a", "far"]), ("far", &["b"]), ("other", &["c"]), ("unused", &["d"])];
    let text = with_two_roots(pools, "other");
    let settings = parse(&format!("{text}\n[series]\npool = \"main\"\n")).expect("it is right");
    assert_eq!(roots(&settings), ["main", "other"]);
    let on = settings.stores_on_pools();
    assert_eq!(on, [("kv", "main"), ("series", "main"), ("block", "other")]);
    let used: Vec<_> = settings.in_use().map(|volume| &*volume.name).collect();
    assert_eq!(used, ["a", "b", "c"]);
    let pools: Vec<_> = settings.pools_in_use().into_iter().map(|pool| &*pool.name).collect();
    assert_eq!(pools, ["main", "other", "far"]);
    assert_eq!(settings.pool_with("c").map(|pool| &*pool.name), Some("other"));
    let again = parse(&settings.to_string()).expect("what is shown is a file");
    assert_eq!(again.to_string(), settings.to_string());
    // The machine's limits are for the volumes of all pools.
    let limited = format!("{text}\n[instance]\niops = 3000\n");
    let settings = parse(&limited).expect("it is right");
    let parts = crate::wiring::parts(&settings);
    let parts: Vec<_> = parts.iter().map(|(_, part)| part.paid_iops()).collect();
    assert_eq!(parts, [Some(1000); 3]);
    let mistake = parse(&limited.replace("3000", "2")).expect_err("too little").to_string();
    assert!(mistake.contains("a whole number from 3"), "{mistake}");
}

#[test]
fn pools_of_stores_that_are_not_apart_are_refused_with_the_ways() {
    type Pools<'a> = &'a [(&'a str, &'a [&'a str])];
    let cases: [(Pools<'_>, &str, &str); 5] = [
        (
            &[("main", &["a", "left"]), ("left", &["b"])],
            "left",
            "block.pool: found \"left\", while [kv] is on \"main\": main > left; accepted: \"main\" as well, or a \
             pool apart from it",
        ),
        (
            &[("main", &["a"]), ("outer", &["b", "left"]), ("left", &["main"])],
            "outer",
            "block.pool: found \"outer\", while [kv] is on \"main\": outer > left > main; accepted: \"main\" as \
             well, or a pool apart from it",
        ),
        (
            &[("main", &["left"]), ("left", &["a", "b"]), ("other", &["c", "b"])],
            "other",
            "block.pool: found \"other\", while [kv] is on \"main\": other > b and main > left > b; accepted: \
             \"main\" as well, or a pool that shares nothing with it",
        ),
        (
            &[("main", &["far"]), ("other", &["c", "far"]), ("far", &["a"])],
            "other",
            "block.pool: found \"other\", while [kv] is on \"main\": other > far and main > far; accepted: \
             \"main\" as well, or a pool that shares nothing with it",
        ),
        (
            &[("main", &["a"]), ("other", &["b"])],
            "mian",
            "block.pool: found \"mian\"; accepted: main, other",
        ),
    ];
    for (pools, block, told) in cases {
        let mistakes = parse(&with_two_roots(pools, block)).expect_err(told).to_string();
        assert!(mistakes.contains(told), "{told}: {mistakes}");
    }
    // A store that names none is told of all.
    let text = with_two_roots(&[("main", &["a"]), ("other", &["b"])], "other");
    let text = text.replace("[block]\npool = \"other\"\n", "[block]\n");
    let mistake = parse(&text).expect_err("no pool").to_string();
    assert!(mistake.contains("block.pool: found nothing; accepted: main, other"), "{mistake}");
}

/// A store over a tier over two volumes; `tier` are the lines of the tiered pool.
fn with_tier(tier: &str) -> String {
    let text = with_pools(&[("main", &["cached"])]);
    format!("{text}[pool.cached]\nlayout = \"tiered\"\n{tier}")
}

#[test]
fn a_tiered_pool_has_two_sides_and_is_a_member_of_another() {
    let settings = parse(&with_tier("fast = \"a\"\nslow = \"b\"\n")).expect("it is right");
    let used: Vec<_> = settings.in_use().map(|volume| &*volume.name).collect();
    assert_eq!(used, ["a", "b"]);
    let of = |name: &str| settings.pools.iter().find(|pool| pool.name == name).expect("a pool");
    let tier = of("cached").tier.clone().expect("it is tiered");
    assert_eq!((&*tier.fast, &*tier.slow, tier.size), ("a", "b", None));
    // It alone tends the volume below.
    assert!(of("main").scrub_every.is_some());
    assert_ne!(of("main").migration.policy, policy::migrate::Policy::Off);
    let shown = settings.to_string();
    let wanted = "[pool.cached]\nlayout = \"tiered\"\nfast = \"a\"\nslow = \"b\"\neviction = \"auto\"\npromotion = \"lazy\"\nwrites = \"through\"\n";
    assert!(shown.contains(wanted), "{shown}");
    assert_eq!(parse(&shown).expect("it is a file").pools, settings.pools);

    let more = "fast = \"near\"\nslow = \"far\"\nsize = \"1GiB\"\neviction = \"lru\"\npromotion = \"demand\"\nwrites = \"back-unsafe\"\n\n\
                [pool.near]\nvolumes = [\"a\"]\n\n[pool.far]\nvolumes = [\"b\", \"c\"]\n";
    let settings = parse(&with_tier(more)).expect("sides may be pools");
    assert_eq!(parse(&settings.to_string()).expect("it is a file").pools, settings.pools);
    let main = settings.roots()[0];
    assert_eq!(main.scrub_every, None, "the pool below reads back");
    assert_eq!(main.leaves(&settings.pools), ["a", "b", "c"]);
}

#[test]
fn writes_stay_on_a_fast_side_that_is_as_durable_as_the_slow_one() {
    let back = "fast = \"a\"\nslow = \"b\"\nwrites = \"back\"\n";
    let settings = parse(&with_tier(back)).expect("a volume is as durable as a volume");
    assert!(settings.to_string().contains("writes = \"back\"\n"), "{settings}");
    let far = "\n[pool.far]\ncopies = 2\nvolumes = [\"b\", \"c\"]\n";
    for fast in ["fast = \"a\"\nwrites = \"through\"\n", "fast = \"a\"\nwrites = \"back-unsafe\"\n"]
    {
        parse(&with_tier(&format!("{fast}slow = \"far\"\n{far}"))).expect(fast);
    }
}

#[test]
fn what_makes_no_tier_is_refused_with_the_way_out() {
    let sides = "fast = \"a\"\nslow = \"b\"\n";
    let with = |more: &str| with_tier(&format!("{sides}{more}"));
    for (text, told) in [
        (with_tier("fast = \"a\"\n"), "pool.cached.slow: found nothing"),
        (with_tier("fast = \"a\"\nslow = \"a\"\n"), "another volume or pool than `fast`"),
        (with_tier("fast = \"a\"\nslow = \"z\"\n"), "pool.cached.slow: found \"z\""),
        (with("volumes = [\"c\"]\n"), "no volumes with layout"),
        (with("copies = 2\n"), "no copies with layout"),
        (with("placement = \"hash\"\n"), "no placement with layout"),
        (with("scrub_every = \"1d\"\n"), "no scrub_every with layout"),
        (with("size = \"1MiB\"\n"), "at least \"16MiB\""),
        (with("eviction = \"best\"\n"), "lru, sieve, s3-fifo"),
        (with("promotion = \"eager\"\n"), "demand, lazy"),
        (with("writes = \"around\"\n"), "through, back, back-unsafe"),
        (
            with_tier(
                "fast = \"a\"\nslow = \"far\"\nwrites = \"back\"\n\n\
                 [pool.far]\ncopies = 2\nvolumes = [\"b\", \"c\"]\n",
            ),
            "pool.cached.writes: found \"back\", where a survives the loss of 0 volumes and far of 1; accepted: with \"back\" a \
             fast pool with copies = 2; or \"through\"",
        ),
        (with("\n[pool.x]\nvolumes = [\"b\"]\n"), "\"b\", a volume of pool.cached"),
        (with_tier("fast = \"main\"\nslow = \"b\"\n"), "pools within themselves: "),
        (
            with_tier(
                "fast = \"a\"\nslow = \"below\"\n\n[pool.below]\nlayout = \"tiered\"\n\
                 fast = \"b\"\nslow = \"c\"\n",
            ),
            "\"below\", a tiered pool",
        ),
        (
            with_pools(&[("main", &["a"])]).replace("[pool.main]", "[pool.main]\nfast = \"b\""),
            "no fast, unless layout = \"tiered\"",
        ),
        (
            with(&format!("\n{}", "[block]\npool = \"cached\"\n")),
            "[pool.main] with volumes = [\"cached\"], and pool = \"main\"",
        ),
    ] {
        let mistakes = parse(&text).expect_err(told).to_string();
        assert!(mistakes.contains(told), "{told}: {mistakes}");
    }
    let kv = with(sides).replace("[kv]\npool = \"main\"", "[kv]\npool = \"cached\"");
    let kv = kv.replacen(sides, "", 1);
    let mistakes = parse(&kv).expect_err("a store needs names").to_string();
    assert!(mistakes.contains("a pool above it: [pool.main] with volumes"), "{mistakes}");
}
