//! The tokens of a gate against the kernel's own count of I/Os, on a device that the kernel throttles.

use std::io::Write;

use crate::place::{Client, Place, Server};
use crate::throttled::{Throttled, skipped};

const RECORDS: usize = 60_000;
/// Replies that one connection waits for together: few enough to fit the buffers of the sockets.
const PIPELINED: usize = 100;
/// Connections of the mixed load, and the operations of each: nine reads to a write.
const CLIENTS: usize = 8;
const OPERATIONS: usize = 2_000;

/// Sends `commands` together, and checks that no reply is an error.
fn ask_all(client: &mut Client, commands: &[String]) {
    let text: String = commands.iter().map(|command| format!("{command}\r\n")).collect();
    client.stream.get_mut().write_all(text.as_bytes()).expect("it reads");
    for command in commands {
        let reply = client.reply().expect("it answers");
        assert!(!reply.starts_with('-') && reply != "$-1", "{command}: {reply}");
    }
}

/// A value of 1000 bytes that does not compress to less than half of them.
fn value(of: usize) -> String {
    let mut state = of as u64 + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..63).map(|_| format!("{:016x}", next())).collect::<String>()[..1000].to_owned()
}

fn load(server: &Server) {
    let mut client = server.client();
    let commands: Vec<_> = (0..RECORDS).map(|n| format!("set k{n} {}", value(n))).collect();
    commands.chunks(PIPELINED).for_each(|chunk| ask_all(&mut client, chunk));
}

fn read_and_write(server: &Server) {
    std::thread::scope(|scope| {
        for first in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = server.client();
                for at in (first..CLIENTS * OPERATIONS).step_by(CLIENTS) {
                    // A prime step: neighbours in time are none in the store.
                    let n = at * 7919 % RECORDS;
                    let command = match at / CLIENTS % 10 {
                        0 => format!("set k{n} {}", value(at)),
                        _ => format!("get k{n}"),
                    };
                    ask_all(&mut client, &[command]);
                }
            });
        }
    });
}

/// The value of a metric of volume `a`.
fn figure(metrics: &str, name: &str) -> Option<f64> {
    let start = format!("plimsoll_volume_{name}{{volume=\"a\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok())
}

/// Loads a store on a device of 1000 reads and as many writes a second; returns the gate's tokens and the kernel's count
/// of I/Os. `None` where no such device can be made.
fn audit(test: &str, durability: &str, load: impl Fn(&Server)) -> Option<(f64, f64)> {
    let device = match Throttled::new() {
        Ok(device) => device,
        Err(why) => {
            skipped(test, &why);
            return None;
        }
    };
    device.limit("read_iops", 1000);
    device.limit("write_iops", 1000);
    let place = Place::new();
    place.write(&format!(
        "[volume.a]\npath = \"{}\"\ncontract = {{ iops = 1000 }}\n\n\
         [pool.main]\nvolumes = [\"a\"]\n\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\n\
         [kv]\npool = \"main\"\nmemory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\ndurability = \"{durability}\"\n",
        device.path().display()
    ));
    let server = place.serve_by(device.inside(env!("CARGO_BIN_EXE_plimsoll")));
    load(&server);
    let (_, metrics) = server.admin("GET /metrics");
    // The device cannot be removed while the server has it.
    server.stop();
    let figure = |name| figure(&metrics, name).unwrap_or_else(|| panic!("{name}: {metrics}"));
    let (ours, counted) = (figure("ops_total"), figure("kernel_ops_total"));
    let (ratio, reported) = (ours / counted, figure("kernel_ratio"));
    assert!((reported - ratio).abs() < 0.01, "{reported} is not {ratio}");
    Some((ours, counted))
}

#[test]
fn tokens_are_what_the_kernel_counts() {
    let test = "tokens_are_what_the_kernel_counts";
    let both = |server: &Server| {
        load(server);
        read_and_write(server);
    };
    let Some((ours, counted)) = audit(test, "everysec", both) else { return };
    assert!(ours > 5_000.0, "the load is too small to tell: {ours} tokens");
    // The kernel also counts what the file system writes at other times. More tokens than I/Os: logs and tables that are
    // synced together share the journal's writes (1.03 where all is writes). The page cache would show as far more.
    let ratio = ours / counted;
    assert!((0.9..=1.05).contains(&ratio), "{ours} tokens, {counted} I/Os: {ratio}");
}

/// Each sync of a log was one write of data and, on ext4, two of its journal, of which the gate counted none. Both are counted where a sync makes
/// the log longer; most write over what was written ahead, and are one write.
#[test]
fn tokens_are_what_small_synced_writes_cost() {
    const WRITES: usize = 5_500;
    let writes = |server: &Server| {
        let mut client = server.client();
        (0..WRITES).for_each(|n| assert_eq!(client.ask(&format!("set k{n} {n}")), "+OK"));
    };
    let test = "tokens_are_what_small_synced_writes_cost";
    let Some((ours, counted)) = audit(test, "always", writes) else { return };
    let each = ours / WRITES as f64;
    assert!((1.0..1.1).contains(&each), "{each} tokens for each write");
    let ratio = ours / counted;
    assert!((0.95..=1.02).contains(&ratio), "{ours} tokens, {counted} I/Os: {ratio}");
}
