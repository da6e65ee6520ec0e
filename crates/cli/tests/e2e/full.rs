//! Full volumes: the answers of `/health` at both listeners, from the refusal until there is space again.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::health::health;
use crate::place::{Place, until};
use crate::points;

/// A file system in memory at the place of a volume. Mounting needs root; the test fails without it.
pub(crate) struct Small<'p>(&'p Path);

impl<'p> Small<'p> {
    pub(crate) fn mount(path: &'p Path, mib: u64) -> Self {
        let size = format!("size={mib}m");
        let mut command = Command::new("mount");
        let mounted = command.args(["-t", "tmpfs", "-o", &size, "plimsoll-e2e"]).arg(path).status();
        assert!(mounted.expect("mount is there").success(), "a file system in memory takes root");
        Self(path)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // Lazily: after a failed assertion a server may still use it.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A text that hardly compresses.
fn noise(random: &mut Xoshiro256PlusPlus, len: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    (0..len).map(|_| char::from(LETTERS[random.random_range(0..64)])).collect()
}

#[test]
fn health_says_that_a_key_value_store_is_full_until_it_takes_writes_again() {
    let place = Place::new();
    let volume = place.path("a");
    let _small = Small::mount(&volume, 64);
    place.write(
        "[volume.a]\npath = \"a\"\ncontract = \"unlimited\"\n\n[pool.main]\nvolumes = [\"a\"]\n\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\n\
         [kv]\npool = \"main\"\nmemory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\ncompression = \"none\"\n",
    );
    let server = place.serve();
    let mut client = server.client();
    assert!(health(&server).0);
    let value = "x".repeat(60_000);
    let mut keys = 0;
    let refused = loop {
        match &*client.ask(&format!("set {keys} {value}")) {
            "+OK" => keys += 1,
            other => break other.to_owned(),
        }
    };
    assert!(refused.starts_with("-OOM command not allowed: "), "{refused}");
    assert_eq!(refused.matches("add a volume").count(), 1, "{refused}");
    let (healthy, found) = health(&server);
    assert!(!healthy, "{found}");
    let kv = &found["stores"]["kv"];
    assert_eq!(
        (&kv["takes_writes"], &kv["serves_reads"]),
        (&false.into(), &true.into()),
        "{found}"
    );
    let problem = found["problems"][0].as_str().expect("text");
    assert!(problem.starts_with("kv: writes are refused: the volumes are full"), "{found}");
    let ready = |of: &str| server.admin(&format!("GET /health/ready?store=kv{of}")).0;
    assert_eq!(ready(""), "HTTP/1.1 503 Service Unavailable");
    assert_eq!(ready("&for=writes"), "HTTP/1.1 503 Service Unavailable");
    assert_eq!(ready("&for=reads"), "HTTP/1.1 200 OK");
    assert_eq!(client.ask("get 0"), value);

    for key in 0..keys {
        assert_eq!(client.ask(&format!("del {key}")), ":1");
    }
    until(|| health(&server).0);
    assert_eq!(client.ask(&format!("set again {value}")), "+OK", "health said so");
    assert_eq!(ready(""), "HTTP/1.1 200 OK");
    server.stop();
}

/// Once, the listener of time series reported `pass` while the buffers had room.
#[test]
fn both_listeners_say_that_a_series_store_is_full_until_it_takes_writes_again() {
    let place = Place::new();
    let volume = place.path("d");
    std::fs::create_dir(&volume).expect("room for a directory");
    let _small = Small::mount(&volume, 100);
    let series = crate::check::SERIES.replace("[series]\n", "[series]\nmemory = \"4MiB\"\n");
    place.write(&format!("{series}{}", crate::place::settings("unlimited", "")));
    let server = place.serve();
    let endpoint = server.http.expect("an endpoint of time series");
    let asked = || {
        let answer = points::ask(endpoint, "GET /health", "", "");
        let said: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        (answer.status, said["status"].as_str().unwrap_or_default().to_owned(), answer.body)
    };
    assert_eq!((asked().0, &*asked().1), (200, "pass"));

    let mut random = Xoshiro256PlusPlus::seed_from_u64(15);
    let mut time = 0;
    let mut write = || {
        let mut lines = String::new();
        for _ in 0..256 {
            time += 1;
            let text = noise(&mut random, 2000);
            writeln!(lines, "m text=\"{text}\" {time}").expect("a string takes any text");
        }
        points::ask(endpoint, "POST /write?db=sea", "", &lines)
    };
    // 503: the buffers are full and being written.
    let mut answers = std::iter::repeat_with(&mut write).take(20_000);
    let refused = answers.find(|answer| !matches!(answer.status, 204 | 503));
    let refused = refused.expect("the volume is full some time");
    assert_eq!(refused.status, 507, "{}", refused.body);
    // Room may come back at any moment, so only refusals before and after a look say what it must show.
    let between = || (write().status, health(&server), asked(), write().status);
    let mut looks = std::iter::repeat_with(between).take(20_000);
    let look = looks.find(|look| (look.0, look.3) == (507, 507));
    let (_, (healthy, found), (status, said, body), _) = look.expect("it is full for a while");
    assert!(!healthy, "{found}");
    assert_eq!(found["stores"]["series"]["takes_writes"], false, "{found}");
    assert_eq!(found["stores"]["kv"]["takes_writes"], true, "{found}");
    assert_eq!((status, &*said), (503, "fail"), "{body}");
    assert!(body.contains("writes are refused: "), "{body}");
    assert_eq!(server.admin("GET /health/ready?store=kv").0, "HTTP/1.1 200 OK");

    let dropped = points::ask(endpoint, "POST /query?q=DROP+DATABASE+sea", "", "");
    assert_eq!(dropped.status, 200, "{}", dropped.body);
    until(|| health(&server).0);
    assert_eq!((asked().0, &*asked().1), (200, "pass"));
    assert_eq!(write().status, 204, "health said so");
    server.stop();
}
