//! The limits of the machine follow the use of its volumes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::place::{Place, Server, until};

/// Two volumes of 400 operations a second on a machine of 500, and a store that uses one.
fn settings() -> &'static str {
    "[instance]\niops = 500\n\n\
     [volume.busy]\npath = \"busy\"\ncontract = { iops = 400 }\n\n\
     [volume.idle]\npath = \"idle\"\ncontract = { iops = 400 }\n\n\
     [pool.main]\nvolumes = [\"busy\", \"idle\"]\nplacement = \"single\"\n\n\
     [admin]\nlisten = \"127.0.0.1:0\"\n\n\
     [kv]\npool = \"main\"\nmemory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\ndurability = \"always\"\n"
}

/// The operations a second by which the gates of both volumes go.
fn parts(server: &Server) -> [f64; 2] {
    let page = server.admin("GET /metrics").1;
    ["busy", "idle"].map(|volume| {
        let name = format!("plimsoll_volume_paid_iops{{volume=\"{volume}\"}} ");
        let part = page.lines().find_map(|line| line.strip_prefix(&name));
        part.and_then(|part| part.parse().ok()).unwrap_or_else(|| panic!("{name} in {page}"))
    })
}

/// Ends the clients, whatever becomes of the test.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_busy_volume_gets_what_an_idle_one_leaves_of_the_machine() {
    let place = Place::new();
    for name in ["busy", "idle"] {
        std::fs::create_dir(place.path(name)).expect("room for a directory");
    }
    place.write(settings());
    let server = place.serve();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each write is durable before the client's next one.
        for client in 0..32 {
            let (server, ends) = (&server, &ends);
            scope.spawn(move || {
                let mut redis = server.client();
                while !ends.load(Ordering::Relaxed) {
                    assert_eq!(redis.ask(&format!("set key{client} value")), "+OK");
                }
            });
        }
        let _ends = Ends(&ends);
        until(|| {
            let [busy, idle] = parts(&server);
            assert!(busy + idle <= 500.0, "{busy} and {idle}");
            busy > 350.0 && idle < 150.0
        });
    });
    // Nothing is used any more.
    until(|| parts(&server) == [250.0, 250.0]);
    server.stop();
}
