//! Commands that share a transaction, and the effects of its failure.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// A store with bad blocks that may be full, or fail after a write.
#[derive(Default)]
struct Broken {
    memory: Memory,
    /// Unreadable records.
    bad: parking_lot::Mutex<BTreeSet<Bytes>>,
    /// Whether only writes that free space succeed.
    full: AtomicBool,
    /// Whether writes are applied, and then report a failure.
    unsure: AtomicBool,
    writes: AtomicUsize,
    /// The bytes of values read.
    read: AtomicUsize,
    /// The most bytes of values read by one call.
    read_at_once: AtomicUsize,
}

impl KeyValue for Broken {
    fn get_many(&self, keys: &[Bytes]) -> kv::Result<Vec<Option<Bytes>>> {
        let bad = self.bad.lock();
        if let Some(key) = keys.iter().find(|key| bad.contains(*key)) {
            return Err(kv::Error::Corrupt(format!("{key:?}")));
        }
        let values = self.memory.get_many(keys)?;
        let bytes = values.iter().flatten().map(Bytes::len).sum();
        self.read.fetch_add(bytes, Ordering::Relaxed);
        self.read_at_once.fetch_max(bytes, Ordering::Relaxed);
        Ok(values)
    }

    /// Stops at the limit, as RocksDB does.
    fn get_many_within(
        &self,
        keys: &[Bytes],
        bytes_max: usize,
    ) -> kv::Result<Option<Vec<Option<Bytes>>>> {
        let (mut values, mut bytes) = (Vec::new(), 0);
        for key in keys {
            let value = self.get_many(std::slice::from_ref(key))?.swap_remove(0);
            bytes += value.as_ref().map_or(0, Bytes::len);
            self.read_at_once.fetch_max(bytes, Ordering::Relaxed);
            if bytes > bytes_max {
                return Ok(None);
            }
            values.push(value);
        }
        Ok(Some(values))
    }

    fn apply(&self, changes: &[Change]) -> kv::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(kv::Error::OutOfSpace("volume a".into()));
        }
        self.apply_freeing(changes)
    }

    fn apply_freeing(&self, changes: &[Change]) -> kv::Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.memory.apply(changes)?;
        match self.unsure.load(Ordering::Relaxed) {
            true => Err(kv::Error::Other("the log was not synced".into())),
            false => Ok(()),
        }
    }

    fn scan(&self, scan: &Scan) -> kv::Result<Vec<(Bytes, Bytes)>> {
        self.memory.scan(scan)
    }

    fn count(&self, range: &KeyRange) -> kv::Result<Count> {
        self.memory.count(range)
    }

    fn durability(&self) -> Durability {
        self.memory.durability()
    }
}

fn stage() -> (Arc<Broken>, Service) {
    let store = Arc::new(Broken::default());
    let keyspace = keyspace(Arc::clone(&store) as _);
    (store, Service::new(Settings::default(), keyspace, Arc::new(Still)))
}

/// Once, one bad block failed all 128 commands that shared a transaction with the one that read it.
#[test]
fn a_bad_block_fails_the_command_that_needs_it() {
    let (store, service) = stage();
    talk(&service, "set bad 1\n");
    store.bad.lock().insert(Bytes::from_static(b"kbad"));
    let talk = talk(&service, "incr n\nget bad\nset a 1\nappend bad 1\nincr n\nget a\n");
    let failed = "-ERR corrupt: b\"kbad\"";
    assert_eq!(talk, format!(":1 {failed} +OK {failed} :2 $1 1"));
    assert_eq!(service.stats.commands(), 7, "each is counted once");
}

/// A failed write may have been applied: repeating it would count twice.
#[test]
fn what_may_have_been_written_is_not_written_again() {
    let (store, service) = stage();
    store.unsure.store(true, Ordering::Relaxed);
    let before = store.writes.load(Ordering::Relaxed);
    let failed = "-ERR the log was not synced";
    assert_eq!(talk(&service, "incr n\nincr n\n"), format!("{failed} {failed}"));
    assert_eq!(store.writes.load(Ordering::Relaxed) - before, 1);
    assert_eq!(talk(&service, "get n\n"), "$1 2");
}

#[test]
fn a_full_store_refuses_what_grows_and_does_the_rest_of_a_pipeline() {
    let (store, service) = stage();
    talk(&service, "mset a 1 b 2 c 3\nhset h f 1 g 2\nzadd z 1 m 2 n\n");
    store.full.store(true, Ordering::Relaxed);
    let talk = |commands| talk(&service, commands);
    assert_eq!(talk("set n 1\ndel a\nget b\n"), format!("{NO_ROOM} :1 $1 2"));
    let freeing = "hdel h f\nzrem z m\ngetdel b\nunlink c\nexpire h 0\nget c\n";
    assert_eq!(talk(freeing), ":1 :1 $1 2 :1 :1 $-1");
    assert_eq!(talk("expire z 100\n"), NO_ROOM);
    assert_eq!(talk("flushall\ndbsize\nset n 1\n"), format!("+OK :0 {NO_ROOM}"));
}

/// As in Redis: one command that needs space refuses the whole transaction.
#[test]
fn a_full_store_refuses_a_transaction_that_grows_and_does_one_that_frees() {
    let (store, service) = stage();
    talk(&service, "mset a 1 b 2\n");
    store.full.store(true, Ordering::Relaxed);
    let aborted = NO_ROOM.replace("-OOM", "-EXECABORT Transaction discarded because of: OOM");
    assert_eq!(
        talk(&service, "multi\ndel a\nset n 1\nexec\nget a\n"),
        format!("+OK +QUEUED +QUEUED {aborted} $1 1")
    );
    assert_eq!(
        talk(&service, "multi\ndel a\nflushall\nexec\ndbsize\n"),
        "+OK +QUEUED +QUEUED *2 :1 +OK :0"
    );
}

/// Once, 128 reads of 64 MiB in one pipeline took 8 GiB of memory for one connection.
#[test]
fn long_replies_leave_before_the_next_values_are_read() {
    const VALUE: usize = 4 << 20;
    const GETS: usize = 128;
    let (store, service) = stage();
    let value = Bytes::from(vec![b'x'; VALUE]);
    let mut session = Session::new(1, &service);
    let mut out = BytesMut::new();
    let words = |words: &[&str]| -> Request {
        words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    };
    let mut sets: VecDeque<Request> = (0..GETS)
        .map(|n| {
            let mut set = words(&["set", &n.to_string()]);
            set.push(value.clone());
            set
        })
        .collect();
    session.execute(&service, &mut sets, &mut out, usize::MAX);
    out.clear();
    let mut requests: VecDeque<Request> =
        (0..GETS).map(|n| words(&["get", &n.to_string()])).collect();
    requests.push_back(words(&["ping"]));
    requests.push_back(words(&["get", "0"]));
    let (mut steps, mut answered, mut last) = (0, 0, Vec::new());
    while !requests.is_empty() {
        store.read.store(0, Ordering::Relaxed);
        session.execute(&service, &mut requests, &mut out, 256 << 10);
        let read = store.read.load(Ordering::Relaxed);
        assert!(read < REPLY_BYTES_AT_ONCE + 9 * VALUE, "{read} bytes were read at once");
        assert!(out.len() < REPLY_BYTES_AT_ONCE + 9 * VALUE, "{} bytes wait", out.len());
        answered += out.len();
        last = out.split().to_vec();
        steps += 1;
    }
    assert!(steps > GETS / 8, "{steps}");
    let bulk = VALUE + format!("${VALUE}\r\n\r\n").len();
    assert_eq!(answered, (GETS + 1) * bulk + b"+PONG\r\n".len());
    assert!(last.ends_with(b"x\r\n"), "the last one comes last");
}

/// Once, one MGET, HGETALL or EXEC could hold gigabytes for one connection.
#[test]
fn a_reply_is_as_long_as_a_request_may_be_and_no_longer() {
    const VALUE: usize = 100 << 10;
    let store = Arc::new(Broken::default());
    let keyspace = keyspace(Arc::clone(&store) as _);
    let settings =
        Settings { request_bytes_max: 1 << 20, bulk_bytes_max: VALUE, ..Settings::default() };
    let service = Service::new(settings, keyspace, Arc::new(Still));
    let max = service.settings.request_bytes_max;
    let mut session = Session::new(1, &service);
    let mut ask = |lines: &[String]| {
        let words = |line: &String| -> Request {
            line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
        };
        let mut requests: VecDeque<Request> = lines.iter().map(words).collect();
        let mut out = BytesMut::new();
        store.read.store(0, Ordering::Relaxed);
        session.execute(&service, &mut requests, &mut out, usize::MAX);
        let read = store.read.load(Ordering::Relaxed);
        (String::from_utf8_lossy(&out).into_owned(), read)
    };
    let value = "x".repeat(VALUE);
    let numbers = || (0..20).map(|n| n.to_string());
    for n in numbers() {
        assert_eq!(
            ask(&[format!("set {n} {value}"), format!("hset h {n} {value}")]).0,
            "+OK\r\n:1\r\n"
        );
    }
    let keys = |count| numbers().take(count).collect::<Vec<_>>().join(" ");
    let too_long = |what: &str| {
        format!(
            "-ERR {what} is longer than {max} bytes (request_max): ask for less at a time; SCAN, HSCAN and \
             ZSCAN walk in steps\r\n"
        )
    };
    let long = |(what, command): (&str, String)| {
        let too_long = too_long(what);
        // Neighbours are executed as usual.
        let (out, _) = ask(&["ping".into(), "strlen 0".into(), command.clone(), "strlen 1".into()]);
        assert!(out.len() < max, "{} bytes for {command}", out.len());
        assert_eq!(out, format!("+PONG\r\n:{VALUE}\r\n{too_long}:{VALUE}\r\n"), "{command}");
    };
    let read = "what is read for the reply";
    [
        (read, format!("mget {}", keys(20))),
        // Few bytes are read, and many replied.
        ("the reply", format!("mget {}", ["0"; 20].join(" "))),
        (read, "hgetall h".into()),
        (read, "hvals h".into()),
        (read, format!("hmget h {}", keys(20))),
        (read, "hscan h 0 count 20".into()),
    ]
    .into_iter()
    .for_each(long);
    let (out, _) = ask(&[format!("mget {}", keys(10)), format!("hmget h {}", keys(10))]);
    assert!(out.len() > 20 * VALUE, "what fits is answered");
    assert!(ask(&["hkeys h".into()]).0.starts_with("*20\r\n"), "values are not answered");

    let transaction = |reads: &[String]| {
        let kept = reads.iter().cloned();
        let begin = ["multi".into(), "set new 1".into()];
        begin.into_iter().chain(kept).chain(["exec".into()]).collect::<Vec<String>>()
    };
    let gets: Vec<_> = numbers().map(|n| format!("get {n}")).collect();
    for reads in [&gets, &vec!["hgetall h".into()], &vec![format!("mget {}", ["0"; 20].join(" "))]]
    {
        let out = ask(&transaction(reads)).0;
        assert!(out.len() < max, "{} bytes", out.len());
        let discarded = "-EXECABORT Transaction discarded because of: ERR ";
        let longer = format!("the reply is longer than {max} bytes (request_max)");
        assert!(out.contains(discarded) && out.contains(&longer), "{}", &out[..out.len().min(500)]);
        assert_eq!(ask(&["exists new".into()]).0, ":0\r\n", "nothing was done");
    }
    assert!(ask(&transaction(&gets[..5])).0.len() > 5 * VALUE);
    // The size of deleted values does not limit a delete.
    assert_eq!(ask(&[format!("del {} h", keys(20))]).0, ":21\r\n");
}

#[test]
fn a_watched_key_that_is_not_there_is_unchanged_by_flushall() {
    let (_, service) = stage();
    let mut one = Session::new(1, &service);
    let mut ask = |bytes: &str| {
        let mut decoder = Decoder::new(service.limits(true));
        let mut input = BytesMut::from(bytes.as_bytes());
        let mut requests = VecDeque::new();
        while let Some(request) = decoder.next(&mut input).expect("a good request") {
            requests.push_back(request);
        }
        let mut out = BytesMut::new();
        one.execute(&service, &mut requests, &mut out, usize::MAX);
        String::from_utf8_lossy(&out).trim_end().replace("\r\n", " ")
    };
    for (watched, flush, done) in [
        ("absent", "flushall", "*1 +OK"),
        ("there", "flushdb", "*-1"),
        ("absent", "ping", "*1 +OK"),
    ] {
        talk(&service, "set there 1\n");
        assert_eq!(ask(&format!("watch {watched}\nmulti\nset k v\n")), "+OK +OK +QUEUED");
        talk(&service, &format!("{flush}\n"));
        assert_eq!(ask("exec\n"), done, "{watched} and {flush}");
    }
}

/// A service over a counting store, with requests and replies of at most 1 MiB and values of at most 500 KiB.
fn small_stage() -> (Arc<Broken>, Service) {
    let store = Arc::new(Broken::default());
    let keyspace = keyspace(Arc::clone(&store) as _);
    let settings =
        Settings { request_bytes_max: 1 << 20, bulk_bytes_max: 500 << 10, ..Settings::default() };
    (store, Service::new(settings, keyspace, Arc::new(Still)))
}

fn ask(service: &Service, lines: &[String]) -> String {
    let words = |line: &String| -> Request {
        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    };
    let mut requests: VecDeque<Request> = lines.iter().map(words).collect();
    let mut out = BytesMut::new();
    Session::new(1, service).execute(service, &mut requests, &mut out, usize::MAX);
    String::from_utf8_lossy(&out).trim_end().replace("\r\n", " ")
}

/// Once, two long strings that were only appended to left no space for the reply of the next command.
#[test]
fn values_that_are_changed_take_nothing_from_the_reply() {
    let (_, service) = small_stage();
    let value = "x".repeat(400 << 10);
    let sets = [format!("set a {value}"), format!("set b {value}"), format!("hset h f {value}")];
    assert_eq!(ask(&service, &sets), "+OK +OK :1");
    let lines = ["multi", "append a y", "append b y", "hgetall h", "exec"].map(str::to_owned);
    let done = ask(&service, &lines);
    let (length, longer) = (value.len(), value.len() + 1);
    let told = format!("*3 :{longer} :{longer} *2 $1 f ${length} {value}");
    assert!(done.ends_with(&told), "{}", &done[..done.len().min(500)]);
}

/// Once, EXISTS of many long values was refused: their bytes counted as bytes of the reply.
#[test]
fn a_reply_of_one_number_may_be_about_any_number_of_bytes() {
    const KEYS: usize = 10_000;
    let (store, service) = stage();
    let record = Bytes::from([&[1], &[b'x'; 20 << 10][..]].concat());
    let puts = (0..KEYS).map(|n| Change::Put(format!("k{n}").into(), record.clone()));
    store.memory.apply(&puts.collect::<Vec<_>>()).expect("memory");
    let keys = (0..KEYS).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    store.read_at_once.store(0, Ordering::Relaxed);
    assert_eq!(ask(&service, &[format!("exists {keys}")]), format!(":{KEYS}"));
    assert_eq!(ask(&service, &[format!("touch {keys} absent")]), format!(":{KEYS}"));
    let most = store.read_at_once.load(Ordering::Relaxed);
    assert!(most < 130 << 20, "{most} bytes were in memory at once");
}

#[test]
fn a_transaction_may_ask_for_lengths_and_expiries_of_any_number_of_bytes() {
    const KEYS: usize = 40;
    let (store, service) = small_stage();
    let value = "x".repeat(100 << 10);
    for n in 0..KEYS {
        let set = [format!("set {n} {value} ex 100"), format!("hset h {n} {value}")];
        assert_eq!(ask(&service, &set), "+OK :1");
    }
    store.read_at_once.store(0, Ordering::Relaxed);
    let exec = |commands: &[&str]| {
        let kept = (0..KEYS).flat_map(|n| commands.iter().map(move |c| format!("{c} {n}")));
        let lines: Vec<_> = ["multi".into()].into_iter().chain(kept).collect();
        ask(&service, &[lines, vec!["exec".into()]].concat())
    };
    let replies = |commands: &[&str], replies: &str| {
        let queued = " +QUEUED".repeat(KEYS * commands.len());
        let each = format!(" {replies}").repeat(KEYS);
        format!("+OK{queued} *{}{each}", KEYS * commands.len())
    };
    let asked = ["strlen", "ttl", "type", "hexists h", "hstrlen h"];
    let length = value.len();
    let told = replies(&asked, &format!(":{length} :100 +string :1 :{length}"));
    assert_eq!(exec(&asked), told);
    let most = store.read_at_once.load(Ordering::Relaxed);
    assert!(most < 2 << 20, "{most} bytes were in memory at once");

    // Watched values do not count as bytes of the reply, either.
    let watch = (0..KEYS).map(|n| format!("watch {n}"));
    let change = ["multi", "set new 1", "exec"].map(str::to_owned);
    let lines: Vec<_> = watch.chain(change).collect();
    let done = ask(&service, &lines);
    assert!(done.ends_with("+OK +QUEUED *1 +OK"), "{done}");
}

/// A service with requests and replies of at most `max` bytes.
fn stage_of(max: usize) -> Service {
    let settings = Settings {
        request_bytes_max: max,
        bulk_bytes_max: max.min(1 << 20),
        ..Settings::default()
    };
    Service::new(settings, keyspace(Arc::new(Memory::default())), Arc::new(Still))
}

/// Once, every element counted 32 bytes: KEYS of three million short keys was "longer than 134283264 bytes".
#[test]
fn a_reply_of_short_elements_may_be_as_long_as_any() {
    const KEYS: usize = 50_000;
    let service = stage_of(1 << 20);
    let numbers: Vec<_> = (10_000..10_000 + KEYS).collect();
    for some in numbers.chunks(1000) {
        let pairs =
            |sep: &str| some.iter().map(|n| format!("{n}{sep}1")).collect::<Vec<_>>().join(" ");
        let scored = some.iter().map(|n| format!("1 {n}")).collect::<Vec<_>>().join(" ");
        let sets = [
            format!("mset {}", pairs(" ")),
            format!("hset h {}", pairs(" ")),
            format!("zadd z {scored}"),
        ];
        assert_eq!(ask(&service, &sets), "+OK :1000 :1000");
    }
    for (command, replies) in
        [("keys 1????", 10_000), ("keys ?????", KEYS), ("hkeys h", KEYS), ("zrange z 0 -1", KEYS)]
    {
        let told = ask(&service, &[command.into()]);
        assert!(
            told.starts_with(&format!("*{replies} ")),
            "{command}: {}",
            &told[..200.min(told.len())]
        );
    }
}

/// The limit is exact for the encoded bytes, and the error names the setting.
#[test]
fn a_reply_is_as_long_as_request_max_when_it_is_encoded() {
    let service = stage_of(4096);
    let value = "x".repeat(2037);
    let sets = [format!("set a {value}"), format!("set b {value}")];
    assert_eq!(ask(&service, &sets), "+OK +OK");
    let fits = ask(&service, &["mget a b".into()]);
    assert_eq!(fits, format!("*2 $2037 {value} $2037 {value}"), "4096 bytes with their line ends");
    let too_long = "ERR the reply is longer than 4096 bytes (request_max): ask for less at a time; SCAN, HSCAN \
                    and ZSCAN walk in steps";
    let told = ask(&service, &["append b y".into(), "mget a b".into(), "keys ?".into()]);
    assert_eq!(told, format!(":2038 -{too_long} *2 $1 a $1 b"));
    // A transaction is one reply.
    let lines = ["multi", "get a", "get b", "exec"].map(str::to_owned);
    let told = ask(&service, &lines);
    let discarded = format!("-EXECABORT Transaction discarded because of: {too_long}");
    assert_eq!(told, format!("+OK +QUEUED +QUEUED {discarded}"));
}

#[test]
fn one_value_is_answered_however_long_it_is() {
    let service = stage_of(4096);
    let value = "x".repeat(4000);
    let lines = [format!("set a {value}"), format!("append a {}", "y".repeat(96)), "get a".into()];
    let told = ask(&service, &lines);
    assert_eq!(told, format!("+OK :4096 $4096 {value}{}", "y".repeat(96)));
}

/// Even short elements take memory: the error names that limit, not a wrong length.
#[test]
fn a_reply_has_no_more_elements_than_its_limit_allows() {
    let service = stage_of(4096);
    let fields = |n: usize| (0..n).map(|n| format!("{n} 1")).collect::<Vec<_>>().join(" ");
    assert_eq!(ask(&service, &[format!("hset h {}", fields(256))]), ":256");
    assert!(ask(&service, &["hkeys h".into()]).starts_with("*256 "));
    let too_many = "-ERR the reply has more than 256 elements, one for each 16 bytes of request_max: ask for less \
                    at a time; SCAN, HSCAN and ZSCAN walk in steps";
    assert_eq!(ask(&service, &["hgetall h".into()]), too_many);
    assert_eq!(ask(&service, &["hset h new 1".into(), "hkeys h".into()]), format!(":1 {too_many}"));
    let sets: Vec<_> = (0..256).map(|n| format!("set {n} 1")).collect();
    ask(&service, &sets);
    assert_eq!(ask(&service, &["keys *".into()]), too_many, "with the hash");
    assert!(ask(&service, &["keys [0-9]*".into()]).starts_with("*256 "));
}
