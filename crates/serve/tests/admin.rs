//! The admin listener, over plain HTTP on TCP and on a Unix socket.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::health::{StoreHealth, TaskHealth};
use engine::keyspace::Keyspace;
use engine::kv::Memory;
use expect_test::expect;
use serve::admin::scrub::{Pass, Scrub, Scrubs};
use serve::admin::volumes::{self, Changed, Drain, List, New, State};
use serve::admin::{Admin, Control, Error, Health, Late, Snapshot, block, run, tiers};
use serve::figures::{self, Figures};
use serve::http::Hosts;
use serve::resp::{Service, Settings};
use tokio::net::{TcpListener, UnixListener};

#[derive(Default)]
struct Program {
    healthy: AtomicBool,
    /// Volumes that were added, with their states.
    pool: Mutex<Vec<(String, State)>>,
    /// Block devices that were created.
    devices: Mutex<Vec<block::Device>>,
}

fn volume(name: &str, state: State) -> volumes::Volume {
    volumes::Volume {
        pool: "main".into(),
        name: name.into(),
        state,
        contract: Some("gp3, 3000 IOPS".into()),
        size_bytes: Some(1000),
        free_bytes: Some(400),
        objects: 7,
        bytes: 600,
        only_here: 6,
        drain: (state == State::Draining).then_some(Drain {
            moved: 3,
            left: 7,
            ..Drain::default()
        }),
        problem: None,
    }
}

impl Program {
    fn change(&self, name: &str, to: State) -> Result<volumes::Volume, Error> {
        let mut pool = self.pool.lock().expect("no thread panicked");
        let found = pool.iter_mut().find(|(known, _)| known == name);
        let (_, state) = found.ok_or_else(|| {
            let told = format!("volume {name}: there is none");
            // A name for each kind of failure.
            match name {
                "away" => Error::Unavailable(told),
                "bug" => Error::Internal(told),
                _ => Error::NotFound(told),
            }
        })?;
        *state = to;
        Ok(volume(name, to))
    }
}

impl Figures for Program {
    fn uptime(&self) -> Duration {
        Duration::from_millis(1500)
    }

    fn memory(&self) -> figures::Memory {
        figures::Memory { resident: 300, store: 100, store_max: 200 }
    }

    fn volumes(&self) -> Vec<figures::Volume> {
        let class = |name, granted| figures::Class {
            name,
            granted,
            waits: figures::Waits {
                total: Duration::from_millis(250),
                counts: vec![
                    (Duration::ZERO, granted - 3),
                    (Duration::from_millis(128), 2),
                    (Duration::MAX, 1),
                ],
            },
            answers: figures::Waits {
                total: Duration::from_millis(9),
                counts: vec![(Duration::from_millis(1), granted), (Duration::MAX, 0)],
            },
            queued: 1,
            denied: 0,
        };
        let real = figures::Volume {
            pool: "main".into(),
            below: String::new(),
            name: "a".into(),
            contract: "gp3".into(),
            paid_iops: Some(3000),
            paid_bytes_per_sec: Some(125 << 20),
            rho: 0.98,
            beta: 0.02,
            findings: vec![("gives_all", false), ("bursts_queue", true)],
            used: 0.75,
            available: Some(0.75),
            credits: Some(0.5),
            ops: 17,
            bytes: 70_000,
            journal_ops: 2,
            kernel_ops: Some(20),
            provider_ops: None,
            throttled: None,
            classes: vec![class("commit", 5), class("foreground", 12)],
            purposes: vec![figures::PurposeLoad { name: "write_back", ops: 3, bytes: 12_288 }],
            stores: vec![figures::StoreLoad {
                name: "kv".into(),
                ops: 11,
                bytes: 50_000,
                queued: 2,
            }],
            spare: Some(true),
            weight: Some(0.5),
            space: Some(figures::Space { total: 1000, free: 400 }),
        };
        let away = figures::Volume {
            name: "b\"\\".into(),
            provider_ops: Some(0),
            throttled: Some(3),
            ..Default::default()
        };
        vec![real, away]
    }

    fn cache(&self) -> Option<figures::Cache> {
        Some(figures::Cache {
            reads: [("passive", 30), ("prefetched", 20), ("tail", 1), ("volume", 9)],
            hit_bytes: 204_000,
            entries: 9,
            blocks: 2,
            prefetches: 3,
            rewarmed: 5,
            rewarmed_useful: 4,
            useful: 2,
            wasted: 1,
            bytes: 560_000,
            bytes_max: 600_000,
        })
    }

    fn copies(&self) -> Vec<figures::Copies> {
        let second = Duration::from_secs(1);
        vec![figures::Copies {
            pool: "main".into(),
            below: String::new(),
            made: vec![("repair", 1), ("heat", 5)],
            bytes: 50_331_648,
            times: figures::Waits {
                total: 2 * second,
                counts: vec![(second, 6), (Duration::MAX, 0)],
            },
            born: 2,
            streamed: 9,
            dropped: vec![("cold", 3)],
            failed: vec![("gone", 1)],
            planned: 4,
            in_flight: 1,
            skipped: vec![("even", 7)],
            promised: 2,
            short_objects: 14,
            short_bytes: 917_504,
            unreadable_objects: 1,
            decoded: 3,
            recoded: 2,
            write_log_bytes: 8_388_608,
            write_log_blocks: 1500,
            write_log_recycled: 120,
            write_log_moved: 30,
            write_log_waits: 1,
        }]
    }

    fn scrub(&self) -> Vec<figures::Scrub> {
        let age = Some(Duration::from_secs(90));
        let pool = "main".into();
        vec![figures::Scrub { pool, objects: 6, bytes: 24_576, damaged: 1, age }]
    }

    fn block(&self) -> Option<figures::Block> {
        let (name, size_bytes, room_bytes) = ("vm".into(), 4096, 64 << 20);
        let vm = figures::BlockDevice {
            name,
            size_bytes,
            room_bytes,
            reads: 4,
            limit_iops: Some(500),
            limited: 2,
            limited_s: 0.25,
            ..figures::BlockDevice::default()
        };
        Some(figures::Block {
            devices: vec![vm],
            reads: 5,
            read_bytes: 20_480,
            writes: 3,
            written_bytes: 12_288,
            ..figures::Block::default()
        })
    }

    fn log(&self) -> Option<figures::Log> {
        let counts = engine::log::Counts {
            put_bytes: 8000,
            copied_bytes: 2000,
            died_whole: 6,
            merged: 2,
            damaged: 1,
            delayed: 4,
            ..Default::default()
        };
        let volume = engine::log::VolumeFigures {
            label: "a".into(),
            fill: 0.75,
            space_pressure: -0.25,
            release_threshold: 1.0,
            dead_fraction_eaten: 0.5,
            put_delay: Duration::from_millis(500),
            files: 3,
            live_bytes: 3000,
            counts,
            ..Default::default()
        };
        let volumes = vec![volume];
        let store =
            engine::log::Figures { keys: 9, index_bytes: 400, volumes, ..Default::default() };
        Some(store.into())
    }
}

impl Control for Program {
    fn health(&self) -> Health {
        let mut health = Health::default();
        let task = |failures, error: Option<&str>, problem: Option<&str>| TaskHealth {
            task: "mover".into(),
            since_completed: Duration::from_millis(2500),
            failures,
            error: error.map(Into::into),
            problem: problem.map(Into::into),
        };
        let series = StoreHealth {
            copies_short: 3,
            damaged: 1,
            tasks: vec![task(1, Some("busy"), None)],
            ..StoreHealth::default()
        };
        let kv = StoreHealth {
            writes_refused: Some("no room: delete something".into()),
            tasks: vec![task(0, None, Some("the mover panicked: start again"))],
            ..StoreHealth::default()
        };
        let (problem, kv, series) = match self.healthy.load(Ordering::Relaxed) {
            true => (None, StoreHealth::default(), StoreHealth::default()),
            false => (Some("volume b is away".into()), kv, series),
        };
        health.volumes.extend([("a".into(), None), ("b".into(), problem)]);
        health.stores.extend([("kv".into(), kv), ("series".into(), series)]);
        health
    }

    fn reload(&self) -> Result<Vec<String>, Error> {
        if self.healthy.load(Ordering::Relaxed) {
            Ok(vec!["volume a: contract is now gp3 with 6000 IOPS".into()])
        } else {
            let wrong = "plimsoll.toml:3: volume.a.contract: found nonsense";
            Err(Error::Invalid(wrong.into()))
        }
    }

    fn volumes(&self) -> List {
        let pool = self.pool.lock().expect("no thread panicked");
        let volumes = pool.iter().map(|(name, state)| volume(name, *state)).collect();
        List { pool: "main".into(), volumes, copies: 1, ..List::default() }
    }

    fn add_volume(&self, new: &New) -> Result<Changed, Error> {
        let path = new.settings.get("path");
        let path = path.ok_or_else(|| Error::Invalid("volume f: it needs a path".into()))?;
        self.pool.lock().expect("no thread panicked").push((new.name.clone(), State::Active));
        Ok(Changed { told: vec![format!("{} is {path}", new.name)], settings: "lines".into() })
    }

    fn drain_volume(&self, name: &str) -> Result<volumes::Volume, Error> {
        self.change(name, State::Draining)
    }

    fn keep_volume(&self, name: &str) -> Result<volumes::Volume, Error> {
        self.change(name, State::Active)
    }

    fn attach_tier(&self, name: &str) -> Result<tiers::Tier, Error> {
        Ok(tiers::Tier { name: name.into(), attached: true, ..tiers::Tier::default() })
    }

    fn detach_tier(&self, name: &str) -> Result<tiers::Tier, Error> {
        Err(Error::NotFound(format!("tier {name}: there is none")))
    }

    fn lose_tier(&self, name: &str) -> Result<tiers::Tier, Error> {
        Ok(tiers::Tier { name: name.into(), lost_bytes: 4096, ..tiers::Tier::default() })
    }

    fn flush_tier(&self, name: &str) -> Result<tiers::Tier, Error> {
        Ok(tiers::Tier { name: name.into(), flushed_bytes: 8192, ..tiers::Tier::default() })
    }

    fn scrub(&self, pool: Option<&str>) -> Result<Scrubs, Error> {
        let pool = pool.unwrap_or("main").into();
        Ok(Scrubs { pools: vec![Scrub { pool, age_s: Some(90), ..Scrub::default() }] })
    }

    fn begin_scrub(&self, pool: Option<&str>) -> Result<Scrubs, Error> {
        let pool = pool.unwrap_or("main").into();
        let current = Some(Pass { number: 3, on_demand: true, ..Pass::default() });
        match self.healthy.load(Ordering::Relaxed) {
            true => Ok(Scrubs { pools: vec![Scrub { pool, current, ..Scrub::default() }] }),
            false => Err(Error::NotFound("there is no pool".into())),
        }
    }

    fn devices(&self) -> Result<block::List, Error> {
        let devices = self.devices.lock().expect("no thread panicked").clone();
        Ok(block::List { pool: "main".into(), devices })
    }

    fn create_device(&self, new: &block::New) -> Result<block::Device, Error> {
        let (name, size_bytes) = (new.name.clone(), new.size_bytes);
        let device =
            block::Device { name, size_bytes, room_bytes: 64 << 20, ..block::Device::default() };
        self.devices.lock().expect("no thread panicked").push(device.clone());
        Ok(device)
    }

    fn resize_device(&self, name: &str, to: &block::Resize) -> Result<block::Device, Error> {
        let mut devices = self.devices.lock().expect("no thread panicked");
        let device = devices.iter_mut().find(|device| device.name == name);
        let device = device.ok_or_else(|| Error::NotFound(format!("{name}: there is none")))?;
        if to.size_bytes < device.size_bytes && !to.shrink {
            return Err(Error::Conflict(format!("{name} would become smaller: give --shrink")));
        }
        device.size_bytes = to.size_bytes;
        Ok(device.clone())
    }

    fn limit_device(&self, name: &str, to: &block::NewLimit) -> Result<block::Device, Error> {
        let mut devices = self.devices.lock().expect("no thread panicked");
        let device = devices.iter_mut().find(|device| device.name == name);
        let device = device.ok_or_else(|| Error::NotFound(format!("{name}: there is none")))?;
        if to.limit.as_deref() == Some("gp3") && !to.oversell {
            return Err(Error::Invalid("3000 IOPS would be sold in all".into()));
        }
        device.limit = to.limit.as_ref().map(|terms| block::Limit {
            terms: terms.clone(),
            iops: Some(3000),
            bytes_per_s: None,
        });
        Ok(device.clone())
    }

    fn release_device(&self, name: &str) -> Result<block::Device, Error> {
        let devices = self.devices.lock().expect("no thread panicked");
        let device = devices.iter().find(|device| device.name == name).cloned();
        device.ok_or_else(|| Error::NotFound(format!("{name}: there is none")))
    }

    fn delete_device(&self, name: &str) -> Result<block::Device, Error> {
        let mut devices = self.devices.lock().expect("no thread panicked");
        let at = devices.iter().position(|device| device.name == name);
        let at = at.ok_or_else(|| Error::NotFound(format!("{name}: there is none")))?;
        Ok(devices.remove(at))
    }

    fn remove_volume(&self, name: &str, _lost: bool) -> Result<Changed, Error> {
        let mut pool = self.pool.lock().expect("no thread panicked");
        if pool.iter().any(|(known, state)| known == name && *state == State::Active) {
            let told = format!("volume {name} holds 6 objects: drain it first");
            return Err(Error::Conflict(told));
        }
        pool.retain(|(known, _)| known != name);
        Ok(Changed { told: vec![format!("volume {name} is out")], settings: String::new() })
    }
}

fn admin(healthy: bool) -> Admin {
    let program = Arc::new(Program { healthy: AtomicBool::new(healthy), ..Program::default() });
    let keyspace = Keyspace::open(Arc::new(Memory::default()), Box::new(|| 0), 1);
    let keyspace = Arc::new(keyspace.expect("the store is empty"));
    let service = Service::new(Settings::default(), keyspace, Arc::clone(&program) as _);
    let (control, resp) = (Arc::clone(&program) as _, Arc::new(Arc::new(service).into()));
    let (http, mqtt, nbd) = (Late::default(), Late::default(), Late::default());
    Admin { control, figures: program, resp, http, mqtt, nbd }
}

/// One request on its own connection: the status line and the body. `header` may end with a line feed and a body.
fn ask(mut stream: impl Read + Write, request: &str, header: &str) -> (String, String) {
    let (header, body) = header.rsplit_once("\r\n\n").unwrap_or((header.trim_end(), ""));
    let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
    let request =
        format!("{request} HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers and closes");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or_default().into(), body.into())
}

/// Runs the listener on a TCP port while `talk` sends requests.
fn with_endpoint(admin: Admin, talk: impl FnOnce(&dyn Fn(&str, &str) -> (String, String))) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    let serving = runtime.spawn(run(listener, admin, Hosts::default(), std::future::pending()));
    talk(&|request, header| {
        ask(std::net::TcpStream::connect(address).expect("a listener"), request, header)
    });
    serving.abort();
}

#[test]
fn health_says_what_each_store_does_and_what_is_wrong() {
    with_endpoint(admin(true), |ask| {
        let (status, body) = ask("GET /health", "");
        assert_eq!(status, "HTTP/1.1 200 OK");
        expect![[r#"{"healthy":true,"problems":[],"stores":{"kv":{"takes_writes":true,"serves_reads":true,"copies_short":0,"damaged":0,"upkeep":true,"tasks":{}},"series":{"takes_writes":true,"serves_reads":true,"copies_short":0,"damaged":0,"upkeep":true,"tasks":{}}},"volumes":{"a":{"answers":true,"problem":null},"b":{"answers":true,"problem":null}}}"#]].assert_eq(&body);
    });
    with_endpoint(admin(false), |ask| {
        let (status, body) = ask("GET /health", "");
        assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
        expect![[r#"{"healthy":false,"problems":["volume b is away","kv: writes are refused: no room: delete something","kv: background work: the mover panicked: start again","series: 3 objects have fewer copies or fragments than the pool promises","series: damage found and not repaired: 1; the log and `plimsoll check --scrub` name the places"],"stores":{"kv":{"takes_writes":false,"serves_reads":true,"copies_short":0,"damaged":0,"upkeep":false,"tasks":{"mover":{"since_completed_s":2,"failures":0,"error":null,"problem":"the mover panicked: start again"}}},"series":{"takes_writes":true,"serves_reads":true,"copies_short":3,"damaged":1,"upkeep":true,"tasks":{"mover":{"since_completed_s":2,"failures":1,"error":"busy","problem":null}}}},"volumes":{"a":{"answers":true,"problem":null},"b":{"answers":false,"problem":"volume b is away"}}}"#]].assert_eq(&body);
    });
}

#[test]
fn load_balancers_ask_what_they_need() {
    let (good, bad) = ("HTTP/1.1 200 OK", "HTTP/1.1 503 Service Unavailable");
    with_endpoint(admin(true), |ask| assert_eq!(ask("GET /health/ready", "").0, good));
    with_endpoint(admin(false), |ask| {
        for (request, wanted) in [
            ("/health/live", good),
            ("/health/ready", bad),
            ("/health/ready?store=kv", bad),
            ("/health/ready?store=kv&for=writes", bad),
            ("/health/ready?store=kv&for=reads", good),
            ("/health/ready?for=reads", good),
            // Another copy serves its users.
            ("/health/ready?store=series", good),
            ("/health/ready?store=tape", "HTTP/1.1 404 Not Found"),
            ("/health/ready?for=fun", "HTTP/1.1 400 Bad Request"),
        ] {
            assert_eq!(ask(&format!("GET {request}"), "").0, wanted, "{request}");
        }
    });
}

#[test]
fn reload_says_what_changed_or_what_is_wrong() {
    with_endpoint(admin(true), |ask| {
        let (status, body) = ask("POST /reload", "");
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert_eq!(body, "volume a: contract is now gp3 with 6000 IOPS\n");
        assert_eq!(ask("GET /reload", "").0, "HTTP/1.1 405 Method Not Allowed");
    });
    with_endpoint(admin(false), |ask| {
        let (status, body) = ask("POST /reload", "");
        assert_eq!(status, "HTTP/1.1 422 Unprocessable Entity");
        assert_eq!(body, "plimsoll.toml:3: volume.a.contract: found nonsense\n");
    });
}

#[test]
fn a_scrub_begins_and_shows_its_progress() {
    with_endpoint(admin(true), |ask| {
        let body = r#"{"pools":[{"pool":"main","current":null,"last":null,"age_s":90}]}"#;
        assert_eq!(ask("GET /scrub", ""), (OK.into(), body.into()));
        let (_, body) = ask("GET /scrub?pool=fast", "");
        assert!(body.starts_with(r#"{"pools":[{"pool":"fast","#), "{body}");
        let (status, body) = ask("POST /scrub", "");
        assert_eq!(status, "HTTP/1.1 202 Accepted");
        assert!(
            body.starts_with(r#"{"pools":[{"pool":"main","current":{"number":3,"on_demand":true,"#),
            "{body}"
        );
    });
    with_endpoint(admin(false), |ask| {
        let (status, body) = ask("POST /scrub", "");
        assert_eq!(status, "HTTP/1.1 404 Not Found");
        assert_eq!(body, r#"{"error":"there is no pool","kind":"not found"}"#);
    });
}

#[test]
fn a_web_page_may_not_reload() {
    with_endpoint(admin(true), |ask| {
        let (status, _) = ask("POST /reload", "Origin: http://example.org\r\n");
        assert_eq!(status, "HTTP/1.1 403 Forbidden");
    });
}

/// A request with a body of JSON.
fn with_body(body: &str) -> String {
    format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
}

#[test]
fn volumes_come_go_and_are_listed() {
    with_endpoint(admin(true), |ask| {
        let list = |expected: &str| {
            let short =
                "\"copies\":1,\"short_objects\":0,\"short_bytes\":0,\"unreadable_objects\":0";
            let expected = format!("{{\"pool\":\"main\",\"volumes\":[{expected}],{short}}}");
            assert_eq!(ask("GET /volumes", ""), ("HTTP/1.1 200 OK".into(), expected));
        };
        list("");
        let new = r#"{"name":"f","settings":{"path":"/mnt/f","contract":"gp3"}}"#;
        let (status, body) = ask("POST /volumes", &format!("{}\n{new}", with_body(new)));
        assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
        assert_eq!(body, r#"{"told":["f is \"/mnt/f\""],"settings":"lines"}"#);
        let fields = r#""contract":"gp3, 3000 IOPS","size_bytes":1000,"free_bytes":400,"objects":7,"bytes":600"#;
        let active = format!(
            r#"{{"name":"f","pool":"main","state":"active",{fields},"only_here":6,"drain":null,"problem":null}}"#
        );
        list(&active);

        let (status, body) = ask("DELETE /volumes/f", "");
        assert_eq!(status, "HTTP/1.1 409 Conflict");
        assert_eq!(
            body,
            r#"{"error":"volume f holds 6 objects: drain it first","kind":"conflict"}"#
        );
        let (status, body) = ask("POST /volumes/f/drain", "");
        assert_eq!(status, "HTTP/1.1 202 Accepted");
        assert!(body.contains(r#""drain":{"moved":3,"left":7,"done":false,"stopped":null}"#));
        assert_eq!(ask("POST /volumes/f/keep", ""), (OK.into(), active));
        assert_eq!(ask("DELETE /volumes/f", "").0, "HTTP/1.1 409 Conflict");
        ask("POST /volumes/f/drain", "");
        let (status, body) = ask("DELETE /volumes/f", "");
        assert_eq!((&*status, &*body), (OK, r#"{"told":["volume f is out"],"settings":""}"#));
        list("");
    });
}

const OK: &str = "HTTP/1.1 200 OK";

#[test]
fn block_devices_are_made_resized_and_deleted() {
    with_endpoint(admin(true), |ask| {
        let post = |path: &str, body: &str| ask(path, &format!("{}\n{body}", with_body(body)));
        let device =
            |size: u64| format!(r#"{{"name":"vm","size_bytes":{size},"room_bytes":67108864}}"#);
        let (status, body) = post("POST /block", r#"{"name":"vm","size_bytes":8192}"#);
        assert_eq!((&*status, body), (OK, device(8192)));
        let (status, body) = post("POST /block/vm/size", r#"{"size_bytes":4096}"#);
        assert_eq!(status, "HTTP/1.1 409 Conflict", "{body}");
        let shrink = r#"{"size_bytes":4096,"shrink":true}"#;
        assert_eq!(post("POST /block/vm/size", shrink), (OK.into(), device(4096)));
        let (status, body) = post("POST /block/vm/limit", r#"{"limit":"gp3"}"#);
        assert_eq!(status, "HTTP/1.1 422 Unprocessable Entity", "{body}");
        let (status, body) = post("POST /block/vm/limit", r#"{"limit":"gp3","oversell":true}"#);
        let limit = r#","limit":{"terms":"gp3","iops":3000,"bytes_per_s":null}}"#;
        assert_eq!((&*status, body), (OK, device(4096).replace('}', limit)));
        let none = post("POST /block/vm/limit", r#"{"limit":null}"#);
        assert_eq!(none, (OK.into(), device(4096)));
        let list = format!(r#"{{"pool":"main","devices":[{}]}}"#, device(4096));
        assert_eq!(ask("GET /block", ""), (OK.into(), list));
        assert_eq!(ask("POST /block/vm/release", ""), (OK.into(), device(4096)));
        assert_eq!(ask("DELETE /block/vm", ""), (OK.into(), device(4096)));
        assert_eq!(ask("DELETE /block/vm", "").0, "HTTP/1.1 404 Not Found");
        assert_eq!(
            ask("DELETE /block/vm", "Origin: http://example.org\r\n").0,
            "HTTP/1.1 403 Forbidden"
        );
    });
}

#[test]
fn what_cannot_be_done_to_a_volume_says_why() {
    with_endpoint(admin(true), |ask| {
        for (name, status, kind) in [
            ("g", "404 Not Found", "not found"),
            ("away", "503 Service Unavailable", "unavailable"),
            ("bug", "500 Internal Server Error", "internal"),
        ] {
            let (told, body) = ask(&format!("POST /volumes/{name}/drain"), "");
            assert_eq!(told, format!("HTTP/1.1 {status}"));
            let error = format!(r#"{{"error":"volume {name}: there is none","kind":"{kind}"}}"#);
            assert_eq!(body, error);
        }
        let new = r#"{"name":"f"}"#;
        let (status, body) = ask("POST /volumes", &format!("{}\n{new}", with_body(new)));
        assert_eq!(status, "HTTP/1.1 422 Unprocessable Entity");
        assert_eq!(body, r#"{"error":"volume f: it needs a path","kind":"invalid"}"#);
    });
}

/// DNS rebinding: the browser sends no `Origin` when a page only reads.
#[test]
fn a_page_under_another_name_is_answered_nothing() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    let hosts = Hosts::of(address.ip(), &["db.example".into()]);
    runtime.spawn(run(listener, admin(true), hosts, std::future::pending()));
    let status = |host: &str| {
        let mut stream = std::net::TcpStream::connect(address).expect("a listener");
        let request = format!("GET /volumes HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server answers and closes");
        answer.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(status(&address.to_string()), OK);
    assert_eq!(status("localhost:80"), OK);
    assert_eq!(status("db.example"), OK);
    assert_eq!(status("evil.example"), "HTTP/1.1 421 Misdirected Request");
}

#[test]
fn a_web_page_may_not_touch_volumes() {
    with_endpoint(admin(true), |ask| {
        let new = r#"{"name":"f","settings":{"path":"f"}}"#;
        let origin = "Origin: http://example.org\r\n";
        let (status, _) = ask("POST /volumes", &format!("{origin}{}\n{new}", with_body(new)));
        assert_eq!(status, "HTTP/1.1 403 Forbidden");
        assert_eq!(ask("DELETE /volumes/f", origin).0, "HTTP/1.1 403 Forbidden");
        // A form can send only other types than JSON without an `Origin`.
        let plain = with_body(new).replace("application/json", "text/plain");
        let (status, _) = ask("POST /volumes", &format!("{plain}\n{new}"));
        assert_eq!(status, "HTTP/1.1 415 Unsupported Media Type");
        assert!(!ask("GET /volumes", "").1.contains("\"f\""));
    });
}

#[test]
fn figures_are_read_back_as_they_were() {
    with_endpoint(admin(true), |ask| {
        let (status, body) = ask("GET /figures", "");
        assert_eq!(status, OK);
        let read: Snapshot = serde_json::from_str(&body).expect("a snapshot");
        assert_eq!((read.uptime_s, read.memory_store_max_bytes), (1.5, 200));
        let a = &read.volumes[0];
        assert_eq!((&*a.name, a.paid_iops, a.used, a.ops), ("a", Some(3000), 0.75, 17));
        let commit = &a.classes[0];
        assert_eq!((&*commit.name, commit.requests, commit.waited_s), ("commit", 5, 0.25));
        assert_eq!((read.volumes[1].throttled, read.volumes[1].size_bytes), (Some(3), None));
        assert_eq!(read.cache_reads["volume"], 9);
        let log = read.log.expect("there is a log store");
        assert_eq!((log.keys, log.volumes.len()), (9, 1));
        let of = &log.volumes[0];
        assert_eq!((&*of.name, of.fill, of.hunger), ("a", 0.75, -0.25));
        assert_eq!((of.put_delay_s, of.write_amplification), (0.5, 1.25));
        assert_eq!((of.died_whole, of.merged, of.delayed), (6, 2, 4));
        let block = read.block.expect("there is a store");
        let vm = &block.devices[0];
        assert_eq!((block.reads, &*vm.name), (5, "vm"));
        assert_eq!((vm.limit_iops, vm.limited, vm.limited_s), (Some(500), 2, 0.25));
        assert_eq!(read.resp.expect("there is an endpoint").commands, 0);
        let [pool] = &read.pools[..] else { panic!("one pool: {:?}", read.pools) };
        assert_eq!((&*pool.pool, pool.short_objects), ("main", 14));
        assert_eq!(read.copies.as_ref(), Some(pool));
    });
}

#[test]
fn a_unix_socket_serves_as_well() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin");
    let listener =
        runtime.block_on(async { UnixListener::bind(&path) }).expect("a fresh directory");
    runtime.spawn(run(listener, admin(true), Hosts::any(), std::future::pending()));
    let stream = std::os::unix::net::UnixStream::connect(&path).expect("a listener");
    assert_eq!(ask(stream, "GET /health", "").0, "HTTP/1.1 200 OK");
}

#[test]
fn metrics_are_open_metrics() {
    with_endpoint(admin(true), |ask| {
        let (status, body) = ask("GET /metrics", "");
        assert_eq!(status, "HTTP/1.1 200 OK");
        expect![[r##"
            # HELP plimsoll_uptime_seconds Time since the program started
            # TYPE plimsoll_uptime_seconds gauge
            plimsoll_uptime_seconds 1.5
            # HELP plimsoll_healthy Whether no volume and no store has a problem
            # TYPE plimsoll_healthy gauge
            plimsoll_healthy 1
            # HELP plimsoll_store_takes_writes Whether the store accepts users' writes
            # TYPE plimsoll_store_takes_writes gauge
            plimsoll_store_takes_writes{store="kv"} 1
            plimsoll_store_takes_writes{store="series"} 1
            # HELP plimsoll_store_serves_reads Whether the store serves all reads
            # TYPE plimsoll_store_serves_reads gauge
            plimsoll_store_serves_reads{store="kv"} 1
            plimsoll_store_serves_reads{store="series"} 1
            # HELP plimsoll_store_copies_short Objects with fewer copies or fragments than the pool's setting asks for
            # TYPE plimsoll_store_copies_short gauge
            plimsoll_store_copies_short{store="kv"} 0
            plimsoll_store_copies_short{store="series"} 0
            # HELP plimsoll_store_damaged Damaged places that are not repaired
            # TYPE plimsoll_store_damaged gauge
            plimsoll_store_damaged{store="kv"} 0
            plimsoll_store_damaged{store="series"} 0
            # HELP plimsoll_store_upkeep Whether all background tasks of the store work
            # TYPE plimsoll_store_upkeep gauge
            plimsoll_store_upkeep{store="kv"} 1
            plimsoll_store_upkeep{store="series"} 1
            # HELP plimsoll_volume_answers Whether the volume answers
            # TYPE plimsoll_volume_answers gauge
            plimsoll_volume_answers{volume="a"} 1
            plimsoll_volume_answers{volume="b"} 1
            # HELP plimsoll_memory_resident_bytes Memory of the process
            # TYPE plimsoll_memory_resident_bytes gauge
            plimsoll_memory_resident_bytes 300
            # HELP plimsoll_store_memory_bytes Caches and buffers of the store
            # TYPE plimsoll_store_memory_bytes gauge
            plimsoll_store_memory_bytes 100
            # HELP plimsoll_store_memory_max_bytes Limit of the store's caches and buffers
            # TYPE plimsoll_store_memory_max_bytes gauge
            plimsoll_store_memory_max_bytes 200
            # HELP plimsoll_volume_paid_iops The line: paid operations a second
            # TYPE plimsoll_volume_paid_iops gauge
            plimsoll_volume_paid_iops{volume="a"} 3000
            # HELP plimsoll_volume_paid_bytes_per_second Paid bytes a second
            # TYPE plimsoll_volume_paid_bytes_per_second gauge
            plimsoll_volume_paid_bytes_per_second{volume="a"} 131072000
            # HELP plimsoll_volume_rho Share of the paid rates that may be used
            # TYPE plimsoll_volume_rho gauge
            plimsoll_volume_rho{volume="a"} 0.98
            plimsoll_volume_rho{volume="b\"\\"} 0.0
            # HELP plimsoll_volume_beta Seconds of the paid rates that may be saved up
            # TYPE plimsoll_volume_beta gauge
            plimsoll_volume_beta{volume="a"} 0.02
            plimsoll_volume_beta{volume="b\"\\"} 0.0
            # HELP plimsoll_volume_finding Why rho and beta are what they are: 1 for the reason that holds
            # TYPE plimsoll_volume_finding gauge
            plimsoll_volume_finding{volume="a",finding="gives_all"} 0
            plimsoll_volume_finding{volume="a",finding="bursts_queue"} 1
            # HELP plimsoll_volume_used_ratio Load of the last second; 1 is the line
            # TYPE plimsoll_volume_used_ratio gauge
            plimsoll_volume_used_ratio{volume="a"} 0.75
            plimsoll_volume_used_ratio{volume="b\"\\"} 0.0
            # HELP plimsoll_volume_available Estimated share of the contract that the provider gives, while it is below 1
            # TYPE plimsoll_volume_available gauge
            plimsoll_volume_available{volume="a"} 0.75
            # HELP plimsoll_volume_credits Burst credits left, 0 to 1
            # TYPE plimsoll_volume_credits gauge
            plimsoll_volume_credits{volume="a"} 0.5
            # HELP plimsoll_volume_ops Operations that the gate admitted, in tokens
            # TYPE plimsoll_volume_ops counter
            plimsoll_volume_ops_total{volume="a"} 17
            plimsoll_volume_ops_total{volume="b\"\\"} 0
            # HELP plimsoll_volume_bytes Bytes that the gate admitted
            # TYPE plimsoll_volume_bytes counter
            plimsoll_volume_bytes_total{volume="a"} 70000
            plimsoll_volume_bytes_total{volume="b\"\\"} 0
            # HELP plimsoll_volume_journal_ops Operations charged for the file system's journal at each sync of a changed length
            # TYPE plimsoll_volume_journal_ops gauge
            plimsoll_volume_journal_ops{volume="a"} 2
            plimsoll_volume_journal_ops{volume="b\"\\"} 0
            # HELP plimsoll_volume_kernel_ops Reads and writes of all programs that the kernel counted on the volume's device
            # TYPE plimsoll_volume_kernel_ops counter
            plimsoll_volume_kernel_ops_total{volume="a"} 20
            # HELP plimsoll_volume_kernel_ratio Operations that the gate admitted for each that the kernel counted
            # TYPE plimsoll_volume_kernel_ratio gauge
            plimsoll_volume_kernel_ratio{volume="a"} 0.85
            # HELP plimsoll_volume_provider_ops Operations the simulated provider counted
            # TYPE plimsoll_volume_provider_ops counter
            plimsoll_volume_provider_ops_total{volume="b\"\\"} 0
            # HELP plimsoll_volume_throttled Operations the simulated provider throttled
            # TYPE plimsoll_volume_throttled counter
            plimsoll_volume_throttled_total{volume="b\"\\"} 3
            # HELP plimsoll_volume_spare Whether the volume has operations to spare for prefetching
            # TYPE plimsoll_volume_spare gauge
            plimsoll_volume_spare{volume="a"} 1
            # HELP plimsoll_volume_weight Load by users' reads, logs and flushes, from the heat of the volume's tables; 1 is the line
            # TYPE plimsoll_volume_weight gauge
            plimsoll_volume_weight{volume="a"} 0.5
            # HELP plimsoll_volume_size_bytes Size
            # TYPE plimsoll_volume_size_bytes gauge
            plimsoll_volume_size_bytes{volume="a"} 1000
            # HELP plimsoll_volume_free_bytes Free space
            # TYPE plimsoll_volume_free_bytes gauge
            plimsoll_volume_free_bytes{volume="a"} 400
            # HELP plimsoll_volume_purpose_ops Operations that the gate admitted, by what they were for
            # TYPE plimsoll_volume_purpose_ops counter
            plimsoll_volume_purpose_ops_total{volume="a",purpose="write_back"} 3
            # HELP plimsoll_volume_purpose_bytes Bytes that the gate admitted, by what they were for
            # TYPE plimsoll_volume_purpose_bytes counter
            plimsoll_volume_purpose_bytes_total{volume="a",purpose="write_back"} 12288
            # HELP plimsoll_volume_store_ops Operations that the gate admitted of a store
            # TYPE plimsoll_volume_store_ops counter
            plimsoll_volume_store_ops_total{volume="a",store="kv"} 11
            # HELP plimsoll_volume_store_bytes Bytes that the gate admitted of a store
            # TYPE plimsoll_volume_store_bytes counter
            plimsoll_volume_store_bytes_total{volume="a",store="kv"} 50000
            # HELP plimsoll_volume_store_queued Requests of a store that wait now
            # TYPE plimsoll_volume_store_queued gauge
            plimsoll_volume_store_queued{volume="a",store="kv"} 2
            # HELP plimsoll_gate_granted_tokens Tokens granted
            # TYPE plimsoll_gate_granted_tokens counter
            plimsoll_gate_granted_tokens_total{volume="a",class="commit"} 5
            plimsoll_gate_granted_tokens_total{volume="a",class="foreground"} 12
            # HELP plimsoll_gate_denied Requests refused
            # TYPE plimsoll_gate_denied counter
            plimsoll_gate_denied_total{volume="a",class="commit"} 0
            plimsoll_gate_denied_total{volume="a",class="foreground"} 0
            # HELP plimsoll_gate_queued Requests waiting now
            # TYPE plimsoll_gate_queued gauge
            plimsoll_gate_queued{volume="a",class="commit"} 1
            plimsoll_gate_queued{volume="a",class="foreground"} 1
            # HELP plimsoll_gate_wait_seconds How long requests waited for their tokens
            # TYPE plimsoll_gate_wait_seconds histogram
            plimsoll_gate_wait_seconds_sum{volume="a",class="commit"} 0.25
            plimsoll_gate_wait_seconds_count{volume="a",class="commit"} 5
            plimsoll_gate_wait_seconds_bucket{le="0.0",volume="a",class="commit"} 2
            plimsoll_gate_wait_seconds_bucket{le="0.128",volume="a",class="commit"} 4
            plimsoll_gate_wait_seconds_bucket{le="+Inf",volume="a",class="commit"} 5
            plimsoll_gate_wait_seconds_sum{volume="a",class="foreground"} 0.25
            plimsoll_gate_wait_seconds_count{volume="a",class="foreground"} 12
            plimsoll_gate_wait_seconds_bucket{le="0.0",volume="a",class="foreground"} 9
            plimsoll_gate_wait_seconds_bucket{le="0.128",volume="a",class="foreground"} 11
            plimsoll_gate_wait_seconds_bucket{le="+Inf",volume="a",class="foreground"} 12
            # HELP plimsoll_device_answer_seconds How long the device took to answer, without the wait at the gate
            # TYPE plimsoll_device_answer_seconds histogram
            plimsoll_device_answer_seconds_sum{volume="a",class="commit"} 0.009
            plimsoll_device_answer_seconds_count{volume="a",class="commit"} 5
            plimsoll_device_answer_seconds_bucket{le="0.001",volume="a",class="commit"} 5
            plimsoll_device_answer_seconds_bucket{le="+Inf",volume="a",class="commit"} 5
            plimsoll_device_answer_seconds_sum{volume="a",class="foreground"} 0.009
            plimsoll_device_answer_seconds_count{volume="a",class="foreground"} 12
            plimsoll_device_answer_seconds_bucket{le="0.001",volume="a",class="foreground"} 12
            plimsoll_device_answer_seconds_bucket{le="+Inf",volume="a",class="foreground"} 12
            # HELP plimsoll_cache_reads Reads of blocks, by what answered them
            # TYPE plimsoll_cache_reads counter
            plimsoll_cache_reads_total{path="passive"} 30
            plimsoll_cache_reads_total{path="prefetched"} 20
            plimsoll_cache_reads_total{path="tail"} 1
            plimsoll_cache_reads_total{path="volume"} 9
            # HELP plimsoll_cache_hit_bytes Bytes answered from memory
            # TYPE plimsoll_cache_hit_bytes counter
            plimsoll_cache_hit_bytes_total 204000
            # HELP plimsoll_cache_entries Single blocks kept
            # TYPE plimsoll_cache_entries gauge
            plimsoll_cache_entries 9
            # HELP plimsoll_cache_prefetched_blocks Prefetched blocks kept
            # TYPE plimsoll_cache_prefetched_blocks gauge
            plimsoll_cache_prefetched_blocks 2
            # HELP plimsoll_cache_prefetches Blocks read ahead
            # TYPE plimsoll_cache_prefetches counter
            plimsoll_cache_prefetches_total 3
            # HELP plimsoll_cache_rewarmed Blocks of new tables kept as written
            # TYPE plimsoll_cache_rewarmed counter
            plimsoll_cache_rewarmed_total 5
            # HELP plimsoll_cache_rewarmed_useful Blocks of new tables kept as written that answered a read
            # TYPE plimsoll_cache_rewarmed_useful counter
            plimsoll_cache_rewarmed_useful_total 4
            # HELP plimsoll_cache_useful Blocks that answered a read
            # TYPE plimsoll_cache_useful counter
            plimsoll_cache_useful_total 2
            # HELP plimsoll_cache_wasted Blocks evicted before they answered a read
            # TYPE plimsoll_cache_wasted counter
            plimsoll_cache_wasted_total 1
            # HELP plimsoll_cache_bytes Bytes in the cache
            # TYPE plimsoll_cache_bytes gauge
            plimsoll_cache_bytes 560000
            # HELP plimsoll_cache_max_bytes Limit of the cache
            # TYPE plimsoll_cache_max_bytes gauge
            plimsoll_cache_max_bytes 600000
            # HELP plimsoll_copies_made Copies of tables made, by purpose
            # TYPE plimsoll_copies_made counter
            plimsoll_copies_made_total{pool="main",why="repair"} 1
            plimsoll_copies_made_total{pool="main",why="heat"} 5
            # HELP plimsoll_copies_bytes Bytes of copies made
            # TYPE plimsoll_copies_bytes counter
            plimsoll_copies_bytes_total{pool="main"} 50331648
            # HELP plimsoll_copy_seconds How long a copy took
            # TYPE plimsoll_copy_seconds histogram
            plimsoll_copy_seconds_sum{pool="main"} 2.0
            plimsoll_copy_seconds_count{pool="main"} 6
            plimsoll_copy_seconds_bucket{le="1.0",pool="main"} 6
            plimsoll_copy_seconds_bucket{le="+Inf",pool="main"} 6
            # HELP plimsoll_copies_born New tables that were created with an extra copy
            # TYPE plimsoll_copies_born counter
            plimsoll_copies_born_total{pool="main"} 2
            # HELP plimsoll_pool_streamed_tables Tables streamed because no memory was left to hold them whole
            # TYPE plimsoll_pool_streamed_tables counter
            plimsoll_pool_streamed_tables_total{pool="main"} 9
            # HELP plimsoll_copies_dropped Copies dropped, by reason
            # TYPE plimsoll_copies_dropped counter
            plimsoll_copies_dropped_total{pool="main",why="cold"} 3
            # HELP plimsoll_copies_failed Copies that failed, by reason
            # TYPE plimsoll_copies_failed counter
            plimsoll_copies_failed_total{pool="main",why="gone"} 1
            # HELP plimsoll_copies_planned Copies planned but not begun
            # TYPE plimsoll_copies_planned gauge
            plimsoll_copies_planned{pool="main"} 4
            # HELP plimsoll_copies_in_flight Copies being made
            # TYPE plimsoll_copies_in_flight gauge
            plimsoll_copies_in_flight{pool="main"} 1
            # HELP plimsoll_copies_skipped Copies not planned, by reason
            # TYPE plimsoll_copies_skipped counter
            plimsoll_copies_skipped_total{pool="main",why="even"} 7
            # HELP plimsoll_copies_promised Copies of each object that the pool's setting asks for
            # TYPE plimsoll_copies_promised gauge
            plimsoll_copies_promised{pool="main"} 2
            # HELP plimsoll_copies_short_objects Objects with fewer copies or fragments than the setting asks for
            # TYPE plimsoll_copies_short_objects gauge
            plimsoll_copies_short_objects{pool="main"} 14
            # HELP plimsoll_copies_short_bytes Bytes of the objects with too few copies
            # TYPE plimsoll_copies_short_bytes gauge
            plimsoll_copies_short_bytes{pool="main"} 917504
            # HELP plimsoll_unreadable_objects Objects without a readable copy, or with too few fragments
            # TYPE plimsoll_unreadable_objects gauge
            plimsoll_unreadable_objects{pool="main"} 1
            # HELP plimsoll_decoded_reads Ranges that reads computed from other fragments
            # TYPE plimsoll_decoded_reads counter
            plimsoll_decoded_reads_total{pool="main"} 3
            # HELP plimsoll_recoded_objects Objects cut into fragments that had copies
            # TYPE plimsoll_recoded_objects counter
            plimsoll_recoded_objects_total{pool="main"} 2
            # HELP plimsoll_write_log_bytes Bytes of the log of objects in place, each copy once
            # TYPE plimsoll_write_log_bytes gauge
            plimsoll_write_log_bytes{pool="main"} 8388608
            # HELP plimsoll_write_log_blocks Blocks newer in the log than in their places
            # TYPE plimsoll_write_log_blocks gauge
            plimsoll_write_log_blocks{pool="main"} 1500
            # HELP plimsoll_write_log_recycled_blocks Blocks brought in place from the log
            # TYPE plimsoll_write_log_recycled_blocks counter
            plimsoll_write_log_recycled_blocks_total{pool="main"} 120
            # HELP plimsoll_write_log_moved_blocks Blocks appended to the log again, so that its oldest files could go
            # TYPE plimsoll_write_log_moved_blocks counter
            plimsoll_write_log_moved_blocks_total{pool="main"} 30
            # HELP plimsoll_write_log_waits Times that writes waited because the log was full or nearly so
            # TYPE plimsoll_write_log_waits counter
            plimsoll_write_log_waits_total{pool="main"} 1
            # HELP plimsoll_scrub_objects Objects that a scrub read back
            # TYPE plimsoll_scrub_objects counter
            plimsoll_scrub_objects_total{pool="main"} 6
            # HELP plimsoll_scrub_bytes Bytes that a scrub read back, of all copies
            # TYPE plimsoll_scrub_bytes counter
            plimsoll_scrub_bytes_total{pool="main"} 24576
            # HELP plimsoll_scrub_damaged Damaged copies that a scrub found
            # TYPE plimsoll_scrub_damaged counter
            plimsoll_scrub_damaged_total{pool="main"} 1
            # HELP plimsoll_scrub_age_seconds Time since the last scrub of all objects ended
            # TYPE plimsoll_scrub_age_seconds gauge
            plimsoll_scrub_age_seconds{pool="main"} 90.0
            # HELP plimsoll_log_keys Keys of the log store
            # TYPE plimsoll_log_keys gauge
            plimsoll_log_keys 9
            # HELP plimsoll_log_index_bytes Memory of the log store's index
            # TYPE plimsoll_log_index_bytes gauge
            plimsoll_log_index_bytes 400
            # HELP plimsoll_log_fill Used share of the space that the log store may use
            # TYPE plimsoll_log_fill gauge
            plimsoll_log_fill{volume="a"} 0.75
            # HELP plimsoll_log_hunger Space pressure: how far the fill is above its target on the way to full; none up to 0
            # TYPE plimsoll_log_hunger gauge
            plimsoll_log_hunger{volume="a"} -0.25
            # HELP plimsoll_log_release_threshold Dead share that a file must have to be merged
            # TYPE plimsoll_log_release_threshold gauge
            plimsoll_log_release_threshold{volume="a"} 1.0
            # HELP plimsoll_log_dead_fraction_eaten Dead share of the files merged lately
            # TYPE plimsoll_log_dead_fraction_eaten gauge
            plimsoll_log_dead_fraction_eaten{volume="a"} 0.5
            # HELP plimsoll_log_write_amplification Bytes written for each byte put
            # TYPE plimsoll_log_write_amplification gauge
            plimsoll_log_write_amplification{volume="a"} 1.25
            # HELP plimsoll_log_put_delay_seconds How long a put waits now because the volume is nearly full
            # TYPE plimsoll_log_put_delay_seconds gauge
            plimsoll_log_put_delay_seconds{volume="a"} 0.5
            # HELP plimsoll_log_files Files
            # TYPE plimsoll_log_files gauge
            plimsoll_log_files{volume="a"} 3
            # HELP plimsoll_log_live_bytes Bytes of live records
            # TYPE plimsoll_log_live_bytes gauge
            plimsoll_log_live_bytes{volume="a"} 3000
            # HELP plimsoll_log_put_bytes Bytes of records put
            # TYPE plimsoll_log_put_bytes counter
            plimsoll_log_put_bytes_total{volume="a"} 8000
            # HELP plimsoll_log_copied_bytes Bytes copied by merges
            # TYPE plimsoll_log_copied_bytes counter
            plimsoll_log_copied_bytes_total{volume="a"} 2000
            # HELP plimsoll_log_files_died_whole Files removed unread: all of their records were dead
            # TYPE plimsoll_log_files_died_whole counter
            plimsoll_log_files_died_whole_total{volume="a"} 6
            # HELP plimsoll_log_files_merged Files merged
            # TYPE plimsoll_log_files_merged counter
            plimsoll_log_files_merged_total{volume="a"} 2
            # HELP plimsoll_log_records_damaged Damaged records that merges and reads found
            # TYPE plimsoll_log_records_damaged counter
            plimsoll_log_records_damaged_total{volume="a"} 1
            # HELP plimsoll_log_puts_delayed Puts that waited because the volume was nearly full
            # TYPE plimsoll_log_puts_delayed counter
            plimsoll_log_puts_delayed_total{volume="a"} 4
            # HELP plimsoll_log_puts_refused Puts refused because only the reserve was left
            # TYPE plimsoll_log_puts_refused counter
            plimsoll_log_puts_refused_total{volume="a"} 0
            # HELP plimsoll_resp_clients Connections open
            # TYPE plimsoll_resp_clients gauge
            plimsoll_resp_clients 0
            # HELP plimsoll_resp_buffered_bytes Bytes of unfinished requests
            # TYPE plimsoll_resp_buffered_bytes gauge
            plimsoll_resp_buffered_bytes 0
            # HELP plimsoll_resp_connections Connections accepted
            # TYPE plimsoll_resp_connections counter
            plimsoll_resp_connections_total 0
            # HELP plimsoll_resp_rejected_connections Connections turned away
            # TYPE plimsoll_resp_rejected_connections counter
            plimsoll_resp_rejected_connections_total 0
            # HELP plimsoll_resp_shed_connections Silent or idle connections closed for new ones
            # TYPE plimsoll_resp_shed_connections counter
            plimsoll_resp_shed_connections_total 0
            # HELP plimsoll_resp_received_bytes Bytes read from clients
            # TYPE plimsoll_resp_received_bytes counter
            plimsoll_resp_received_bytes_total 0
            # HELP plimsoll_resp_sent_bytes Bytes written to clients
            # TYPE plimsoll_resp_sent_bytes counter
            plimsoll_resp_sent_bytes_total 0
            # HELP plimsoll_resp_hits Keys that reads found
            # TYPE plimsoll_resp_hits counter
            plimsoll_resp_hits_total 0
            # HELP plimsoll_resp_misses Keys that reads did not find
            # TYPE plimsoll_resp_misses counter
            plimsoll_resp_misses_total 0
            # HELP plimsoll_resp_errors Error replies
            # TYPE plimsoll_resp_errors counter
            plimsoll_resp_errors_total 0
            # HELP plimsoll_block_devices Block devices
            # TYPE plimsoll_block_devices gauge
            plimsoll_block_devices 1
            # HELP plimsoll_block_reads Reads of block devices
            # TYPE plimsoll_block_reads counter
            plimsoll_block_reads_total 5
            # HELP plimsoll_block_read_bytes Bytes read
            # TYPE plimsoll_block_read_bytes counter
            plimsoll_block_read_bytes_total 20480
            # HELP plimsoll_block_writes Writes, and ranges made zeros
            # TYPE plimsoll_block_writes counter
            plimsoll_block_writes_total 3
            # HELP plimsoll_block_written_bytes Bytes written
            # TYPE plimsoll_block_written_bytes counter
            plimsoll_block_written_bytes_total 12288
            # HELP plimsoll_block_discards Discards
            # TYPE plimsoll_block_discards counter
            plimsoll_block_discards_total 0
            # HELP plimsoll_block_flushes Flushes
            # TYPE plimsoll_block_flushes counter
            plimsoll_block_flushes_total 0
            # HELP plimsoll_block_checksum_fetches Pages of checksums read from volumes
            # TYPE plimsoll_block_checksum_fetches counter
            plimsoll_block_checksum_fetches_total 0
            # HELP plimsoll_block_checksum_writes Pages of checksums written
            # TYPE plimsoll_block_checksum_writes counter
            plimsoll_block_checksum_writes_total 0
            # HELP plimsoll_block_checksum_bytes Memory of the checksums
            # TYPE plimsoll_block_checksum_bytes gauge
            plimsoll_block_checksum_bytes 0
            # HELP plimsoll_block_completing_reads Blocks read because a write covers a part
            # TYPE plimsoll_block_completing_reads counter
            plimsoll_block_completing_reads_total 0
            # HELP plimsoll_block_extents_made Extents made
            # TYPE plimsoll_block_extents_made counter
            plimsoll_block_extents_made_total 0
            # HELP plimsoll_block_region_marks Writes of marks of regions
            # TYPE plimsoll_block_region_marks counter
            plimsoll_block_region_marks_total 0
            # HELP plimsoll_block_regions_aligned Regions whose copies were made equal after a crash
            # TYPE plimsoll_block_regions_aligned counter
            plimsoll_block_regions_aligned_total 0
            # HELP plimsoll_block_dirty_regions Regions that a crash would leave in doubt
            # TYPE plimsoll_block_dirty_regions gauge
            plimsoll_block_dirty_regions 0
            # HELP plimsoll_block_unverified_reads Blocks read that have no checksum yet
            # TYPE plimsoll_block_unverified_reads counter
            plimsoll_block_unverified_reads_total 0
            # HELP plimsoll_block_repaired Damaged blocks that another copy had
            # TYPE plimsoll_block_repaired counter
            plimsoll_block_repaired_total 0
            # HELP plimsoll_block_damaged Reads of damaged blocks that no copy had
            # TYPE plimsoll_block_damaged counter
            plimsoll_block_damaged_total 0
            # HELP plimsoll_block_device_size_bytes Size of the device
            # TYPE plimsoll_block_device_size_bytes gauge
            plimsoll_block_device_size_bytes{device="vm"} 4096
            # HELP plimsoll_block_device_room_bytes Room that the device takes at most
            # TYPE plimsoll_block_device_room_bytes gauge
            plimsoll_block_device_room_bytes{device="vm"} 67108864
            # HELP plimsoll_block_device_reads Reads of the device
            # TYPE plimsoll_block_device_reads counter
            plimsoll_block_device_reads_total{device="vm"} 4
            # HELP plimsoll_block_device_read_bytes Bytes read of the device
            # TYPE plimsoll_block_device_read_bytes counter
            plimsoll_block_device_read_bytes_total{device="vm"} 0
            # HELP plimsoll_block_device_writes Writes, ranges made zeros, and discards of the device
            # TYPE plimsoll_block_device_writes counter
            plimsoll_block_device_writes_total{device="vm"} 0
            # HELP plimsoll_block_device_written_bytes Bytes written to the device
            # TYPE plimsoll_block_device_written_bytes counter
            plimsoll_block_device_written_bytes_total{device="vm"} 0
            # HELP plimsoll_block_device_limit_iops Operations a second that its clients get at most
            # TYPE plimsoll_block_device_limit_iops gauge
            plimsoll_block_device_limit_iops{device="vm"} 500
            # HELP plimsoll_block_device_limited Calls that waited for the limit of the device
            # TYPE plimsoll_block_device_limited counter
            plimsoll_block_device_limited_total{device="vm"} 2
            # HELP plimsoll_block_device_limited_seconds How long they waited
            # TYPE plimsoll_block_device_limited_seconds counter
            plimsoll_block_device_limited_seconds_total{device="vm"} 0.25
            # HELP plimsoll_sample_age_seconds Time since these figures were read, in whole seconds
            # TYPE plimsoll_sample_age_seconds gauge
            plimsoll_sample_age_seconds 0
            # EOF
        "##]]
        .assert_eq(&body);
    });
}
