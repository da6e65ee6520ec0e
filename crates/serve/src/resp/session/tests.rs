mod access;
mod pipelines;

use std::sync::Arc;
use std::time::Duration;

use engine::keyspace::Keyspace;
use engine::kv::{self, Change, Count, Durability, KeyRange, KeyValue, Memory, Scan};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Secret;
use crate::figures::{self, Figures};
use crate::resp::{Decoder, Settings};

struct Still;

impl Figures for Still {
    fn uptime(&self) -> Duration {
        Duration::from_secs(90_000)
    }

    fn memory(&self) -> figures::Memory {
        figures::Memory { resident: 3, store: 1, store_max: 2 }
    }

    fn volumes(&self) -> Vec<figures::Volume> {
        vec![figures::Volume {
            name: "a".into(),
            contract: "gp3".into(),
            paid_iops: Some(3000),
            ops: 17,
            ..figures::Volume::default()
        }]
    }
}

fn service(store: impl KeyValue + 'static, password: Option<&str>) -> Service {
    let settings = Settings { password: password.map(Secret::new), ..Settings::default() };
    Service::new(settings, keyspace(Arc::new(store)), Arc::new(Still))
}

/// The keys in `store`, with a clock that stands still.
fn keyspace(store: Arc<dyn KeyValue>) -> Arc<Keyspace> {
    Arc::new(Keyspace::open(store, Box::new(|| 1_000_000), 1).expect("the store is empty"))
}

/// The replies of a new connection to `bytes`, without line ends.
fn talk(service: &Service, bytes: &str) -> String {
    let mut session = Session::new(7, service);
    let mut decoder = Decoder::new(service.limits(true));
    let mut input = BytesMut::from(bytes.as_bytes());
    let mut requests = VecDeque::new();
    let mut out = BytesMut::new();
    while let Some(request) = decoder.next(&mut input).expect("tests write good requests") {
        requests.push_back(request);
    }
    session.execute(service, &mut requests, &mut out, usize::MAX);
    String::from_utf8_lossy(&out).trim_end().replace("\r\n", " ")
}

#[test]
fn commands_answer_as_redis_does() {
    let cases = [
        ("ping\nping hi\necho 'a b'\n", "+PONG $2 hi $3 a b"),
        ("set k v\nget k\nget n\n", "+OK $1 v $-1"),
        ("set k v\nexists k k n\ndel k k n\nunlink k\ndbsize\n", "+OK :2 :1 :0 :0"),
        (
            "select 0\nselect 1\nselect x\n",
            "+OK -ERR DB index is out of range -ERR value is not an integer or out of range",
        ),
        ("client id\nclient getname\nclient setname me\nclient getname\n", ":7 $-1 +OK $2 me"),
        (
            "client setname 'a b'\n",
            "-ERR Client names cannot contain spaces, newlines or special characters.",
        ),
        (
            "client setinfo lib-name x\nclient setinfo lib-ver 1\nclient setinfo nope 1\n",
            "+OK +OK -ERR Unrecognized option 'nope'",
        ),
        (
            "config get sav*\nconfig get nope\nconfig get APPENDFSYNC databases\n",
            "*2 $4 save $0  *0 *4 $11 appendfsync $2 no $9 databases $1 1",
        ),
        ("command list filterby pattern s?t\ncommand info nope\n", "*1 $3 set *1 $-1"),
        (
            "command info get\n",
            "*1 *10 $3 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@string +@fast *0 *0 *0",
        ),
        (
            "command docs echo nope\n",
            "*2 $4 echo *6 $7 summary $21 Echo the given string $5 since $5 1.0.0 $5 group $10 connection",
        ),
        (
            "command getkeys del a b\ncommand getkeys mset a 1 b 2\ncommand getkeys ping a\n",
            "*2 $1 a $1 b *2 $1 a $1 b -ERR The command has no key arguments",
        ),
        (
            "config help\n",
            "*9 $63 CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are: $3 GET $44     Get the \
             values of parameters: pattern... $4 HELP $19     Print this help $9 RESETSTAT $42     Reset \
             the statistics that INFO reports $3 SET $45     Refused: change the settings file instead",
        ),
        ("time\n", "*2 $4 1000 $1 0"),
        (
            "client no-evict on\nclient no-touch off\nclient no-touch maybe\n",
            "+OK +OK -ERR syntax error",
        ),
        (
            "client list id 7\nclient kill id 8\nclient kill id 0\nclient kill type pubsub\n",
            "$0  :0 -ERR client-id should be greater than 0 :0",
        ),
        (
            "client info\n",
            "$100 id=7 addr= laddr= name= age=0 idle=0 flags=N db=0 cmd=client user=default resp=2 \
             lib-name= lib-ver=",
        ),
        (
            "hello 3 setname me\nmulti\nset k v\nreset\nexec\nclient getname\nget k\n",
            "%7 $6 server $5 redis $7 version $6 7.0.15 $5 proto :3 $2 id :7 $4 mode $10 standalone $4 role \
             $6 master $7 modules *0 +OK +QUEUED +RESET -ERR EXEC without MULTI $-1 $-1",
        ),
        ("quit\nping\n", "+OK"),
        (
            "hello 3\nget n\nping\n",
            "%7 $6 server $5 redis $7 version $6 7.0.15 $5 proto :3 $2 id :7 $4 mode $10 standalone $4 role \
          $6 master $7 modules *0 _ +PONG",
        ),
    ];
    for (requests, replies) in cases {
        assert_eq!(talk(&service(Memory::default(), None), requests), replies, "{requests}");
    }
}

#[test]
fn every_command_counts() {
    let counted = talk(&service(Memory::default(), None), "command count\n");
    assert_eq!(counted, format!(":{}", command::table().len()));
}

/// The clock of these tests stands at 1,000,000 milliseconds.
#[test]
fn every_kind_of_value_answers_as_in_redis() {
    let cases = [
        (
            "set k v ex 5\nttl k\npttl k\nexpiretime k\npersist k\nttl k\n",
            "+OK :5 :5000 :1005 :1 :-1",
        ),
        (
            "set k v px 5 nx\nset k w nx\nset k w xx get keepttl\npttl k\nget k\n",
            "+OK $-1 $1 v :5 $1 w",
        ),
        ("set k v pxat 999999\nget k\nexists k\n", "+OK $-1 :0"),
        (
            "expire k 5\nset k v\nexpire k 5 xx\nexpire k 5 nx\nexpire k 4 gt\nexpire k 4 lt\nttl k\n",
            ":0 +OK :0 :1 :0 :1 :4",
        ),
        ("set k v\nexpire k -1\nget k\n", "+OK :1 $-1"),
        (
            "incr n\nincrby n 41\ndecr n\ndecrby n -2\nget n\nincrbyfloat n 0.5\nincr n\n",
            ":1 :42 :41 :43 $2 43 $4 43.5 -ERR value is not an integer or out of range",
        ),
        (
            "set n 9223372036854775807\nincr n\ndecrby n -9223372036854775808\n",
            "+OK -ERR increment or decrement would overflow -ERR decrement would overflow",
        ),
        (
            "append k ab\nappend k c\nstrlen k\ngetrange k -2 -1\ngetrange k 5 9\nsetrange k 5 x\nget k\n",
            ":2 :3 :3 $2 bc $0  :6 $6 abc\0\0x",
        ),
        (
            "mset a 1 b 2\nmget a n b\nmsetnx b 3 c 4\nmsetnx c 4 d 5\ngetdel d\ngetset c 6\ngetex c persist\n",
            "+OK *3 $1 1 $-1 $1 2 :0 :1 $1 5 $1 4 $1 6",
        ),
        (
            "hset h a 1 b 2\nhset h a 3 c 4 c 5\nhgetall h\nhmget h a n\nhlen h\nhdel h a n a\nhexists h a\nhincrby h c 2\nhkeys h\nhvals h\ntype h\n",
            ":2 :1 *6 $1 a $1 3 $1 b $1 2 $1 c $1 5 *2 $1 3 $-1 :3 :1 :0 :7 *2 $1 b $1 c *2 $1 2 $1 7 +hash",
        ),
        (
            "hset h a 1\nhdel h a\nexists h\nhset h a 1\nget h\nset h 1\nhget h a\n",
            ":1 :1 :0 :1 -WRONGTYPE Operation against a key holding the wrong kind of value +OK -WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "zadd z 2 b 1 a 3 c\nzadd z xx ch 5 a 9 n\nzrange z 0 -1 withscores\nzrange z (2 +inf byscore limit 1 1\nzrevrange z 0 0\nzscore z a\nzincrby z -4.5 a\nzrangebyscore z -inf 1\nzrevrangebyscore z 3 2\nzcount z 2 (3\nzcard z\nzrem z a n\ntype z\n",
            ":3 :1 *6 $1 b $1 2 $1 c $1 3 $1 a $1 5 *1 $1 a *1 $1 a $1 5 $3 0.5 *1 $1 a *2 $1 c $1 b :1 :3 :1 +zset",
        ),
        (
            "zadd z nx gt 1 a\nzadd z 1\nzadd z x a\nzadd z incr 1 a 2 b\nzadd z nx incr 1 a\nzadd z nx incr 1 a\n",
            "-ERR GT, LT, and/or NX options at the same time are not compatible -ERR wrong number of arguments for 'zadd' command -ERR value is not a valid float -ERR INCR option supports a single increment-element pair $1 1 $-1",
        ),
        (
            "set a 1\nhset b f 1\nzadd c 1 m\nscan 0 count 2\nscan 1 count 2\nscan 0 type hash\nscan 0 match [ac]\nkeys *\nscan 7\n",
            "+OK :1 :1 *2 $1 1 *2 $1 a $1 b *2 $1 0 *1 $1 c *2 $1 0 *1 $1 b *2 $1 0 *2 $1 a $1 c *3 $1 a $1 b $1 c \
          -ERR invalid cursor: the server has restarted since, or too many other scans have begun; begin again at 0",
        ),
        (
            "hset h a 1\nhscan h 0 novalues match a\nhscan h 0 noscores\nzadd z 1 m\nzscan z 0 count 5 noscores\n\
             zscan z 0 novalues\nscan 0 novalues\n",
            ":1 *2 $1 0 *1 $1 a -ERR syntax error :1 *2 $1 0 *1 $1 m -ERR syntax error -ERR syntax error",
        ),
        (
            "hset h a 1 b 2\nhscan h 0 count 1\nhscan h 1 count 5\nzadd z 1 m\nzscan z 0\n",
            ":2 *2 $1 1 *2 $1 a $1 1 *2 $1 0 *2 $1 b $1 2 :1 *2 $1 0 *2 $1 m $1 1",
        ),
    ];
    for (requests, replies) in cases {
        assert_eq!(talk(&service(Memory::default(), None), requests), replies, "{requests}");
    }
}

/// Transactions are isolated until they commit, and are discarded if a watched key has changed.
#[test]
fn kept_commands_are_done_together_or_not_at_all() {
    let cases = [
        (
            "multi\nset a 1\nget a\nping\nexec\nget a\n",
            "+OK +QUEUED +QUEUED +QUEUED *3 +OK $1 1 +PONG $1 1",
        ),
        ("multi\nset a 1\ndiscard\nget a\nexec\n", "+OK +QUEUED +OK $-1 -ERR EXEC without MULTI"),
        (
            "multi\nset a\nset b 1\nexec\nget b\n",
            "+OK -ERR wrong number of arguments for 'set' command +QUEUED \
             -EXECABORT Transaction discarded because of previous errors. $-1",
        ),
        ("watch a\nset a 1\nmulti\nset a 2\nexec\nget a\n", "+OK +OK +OK +QUEUED *-1 $1 1"),
        ("watch a\nset b 1\nmulti\nset a 2\nexec\nget a\n", "+OK +OK +OK +QUEUED *1 +OK $1 2"),
        ("watch a\nset a 1\nunwatch\nmulti\nset a 2\nexec\n", "+OK +OK +OK +OK +QUEUED *1 +OK"),
        (
            "watch a\nset a 1\nmulti\ndiscard\nmulti\nset a 2\nexec\n",
            "+OK +OK +OK +OK +OK +QUEUED *1 +OK",
        ),
        (
            "multi\nmulti\nwatch a\nexec\ndiscard\n",
            "+OK -ERR MULTI calls can not be nested -ERR WATCH inside MULTI is not allowed *0 \
             -ERR DISCARD without MULTI",
        ),
        (
            "set a 1\nmulti\nflushdb\nget a\nset b 2\nexec\ndbsize\n",
            "+OK +OK +QUEUED +QUEUED +QUEUED *3 +OK $-1 +OK :1",
        ),
    ];
    for (requests, replies) in cases {
        assert_eq!(talk(&service(Memory::default(), None), requests), replies, "{requests}");
    }
}

/// An interactive redis-cli splits the names of subcommands at the bar, and crashes without one.
#[test]
fn subcommands_are_catalogued_under_their_full_names() {
    let service = service(Memory::default(), None);
    let docs = talk(&service, "command docs config\n");
    assert!(docs.contains("$11 subcommands *8 $10 config|get *6 $7 summary"), "{docs}");
    let info = talk(&service, "command info config\n");
    assert!(info.contains("$10 config|get :-3"), "{info}");
}

#[test]
fn mistakes_get_redis_own_words() {
    let cases = [
        ("nope a 'b c'\n", "-ERR unknown command 'nope', with args beginning with: 'a' 'b c'"),
        ("get\n", "-ERR wrong number of arguments for 'get' command"),
        ("PING a b\n", "-ERR wrong number of arguments for 'ping' command"),
        ("set a b ex 5 nope\n", "-ERR syntax error"),
        ("set a b ex 0\n", "-ERR invalid expire time in 'set' command"),
        ("config\n", "-ERR wrong number of arguments for 'config' command"),
        ("config get\n", "-ERR wrong number of arguments for 'config|get' command"),
        (
            "config set port 1\n",
            "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config: change the settings file and restart",
        ),
        (
            "config set nope 1\n",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nope'",
        ),
        ("config set port 1 x\n", "-ERR syntax error"),
        ("client kill user nobody\n", "-ERR No such user 'nobody'"),
        ("client list foo\n", "-ERR syntax error"),
        ("config nope\n", "-ERR unknown subcommand 'nope'. Try CONFIG HELP."),
        ("command nope\n", "-ERR unknown subcommand 'nope'. Try COMMAND HELP."),
        ("command count a\n", "-ERR wrong number of arguments for 'command|count' command"),
        ("hello 4\n", "-NOPROTO unsupported protocol version"),
        ("hello x\n", "-ERR Protocol version is not an integer or out of range"),
        ("hello 3 nope\n", "-ERR Syntax error in HELLO option 'nope'"),
        ("auth x y z\n", "-ERR syntax error"),
        ("auth nobody x\n", "-WRONGPASS invalid username-password pair or user is disabled."),
    ];
    for (request, reply) in cases {
        assert_eq!(talk(&service(Memory::default(), None), request), reply, "{request}");
    }
    let long = talk(&service(Memory::default(), None), &format!("nope {} b\n", "x".repeat(500)));
    assert!(long.len() < 200, "an error quotes only the start of what was sent: {long}");
}

#[test]
fn a_stranger_is_served_nothing_but_the_way_in() {
    let cases = [
        ("get k\ncommand\n", "-NOAUTH Authentication required. -NOAUTH Authentication required."),
        (
            "auth wrong\nget k\n",
            "-WRONGPASS invalid username-password pair or user is disabled. -NOAUTH Authentication required.",
        ),
        ("auth line\nget k\n", "+OK $-1"),
        ("auth default line\nget k\n", "+OK $-1"),
        ("auth other line\n", "-WRONGPASS invalid username-password pair or user is disabled."),
        (
            "hello 3 auth default wrong\nget k\n",
            "-WRONGPASS invalid username-password pair or user is disabled. -NOAUTH Authentication required.",
        ),
        ("quit\n", "+OK"),
    ];
    for (requests, replies) in cases {
        assert_eq!(
            talk(&service(Memory::default(), Some("line")), requests),
            replies,
            "{requests}"
        );
    }
    let hello =
        talk(&service(Memory::default(), Some("line")), "hello 2 auth default line\nget k\n");
    assert!(hello.starts_with("*14") && hello.ends_with("*0 $-1"), "{hello}");
    let refused = talk(&service(Memory::default(), Some("line")), "hello 3\n");
    assert!(refused.starts_with("-NOAUTH HELLO must be called"), "{refused}");
}

#[test]
fn info_counts_anew_when_it_is_told_to() {
    let service = service(Memory::default(), None);
    talk(&service, "set a 1\nget a\nget b\nnope\n");
    let stats = talk(&service, "config resetstat\nget a\ninfo stats\ninfo commandstats\n");
    for line in [
        "total_commands_processed:2 ",
        "keyspace_hits:1 ",
        "keyspace_misses:0 ",
        "total_error_replies:0 ",
        "cmdstat_get:calls=1 ",
    ] {
        assert!(stats.contains(line), "{line} in {stats}");
    }
    assert!(!stats.contains("cmdstat_set"), "{stats}");
    assert_eq!(service.stats.hits.get(), 2, "other readers go on counting");
}

#[test]
fn info_shows_the_sections_asked_for() {
    let service = service(Memory::default(), None);
    talk(&service, "set a 1\nget a\nget b\nnope\n");
    let stats = talk(&service, "info stats\n");
    for line in [
        "keyspace_hits:1 ",
        "keyspace_misses:1 ",
        "total_error_replies:1",
        "total_commands_processed:4 ",
    ] {
        assert!(stats.contains(line), "{line} in {stats}");
    }
    assert!(!stats.contains("# Server"));
    let usual = talk(&service, "info\n");
    for line in [
        "uptime_in_days:1 ",
        "db0:keys=1,expires=0",
        "durability:none ",
        "volume_a:contract=gp3,paid_iops=3000,paid_bytes_per_sec=unlimited,ops=17,bytes=0 ",
    ] {
        assert!(usual.contains(line), "{line} in {usual}");
    }
    assert!(!usual.contains("cmdstat"));
    assert!(talk(&service, "info everything\n").contains("cmdstat_get:calls=2"));
    assert_eq!(talk(&service, "info nope\n"), "$0");
}

#[test]
fn replies_stop_at_their_limit_and_go_on_from_there() {
    let service = service(Memory::default(), None);
    let mut session = Session::new(1, &service);
    let ping = || vec![Bytes::from_static(b"ping")];
    let mut requests: VecDeque<_> = std::iter::repeat_with(ping).take(5).collect();
    let mut out = BytesMut::new();
    session.execute(&service, &mut requests, &mut out, 10);
    assert_eq!((&out[..], requests.len()), (&b"+PONG\r\n+PONG\r\n"[..], 3));
    session.execute(&service, &mut requests, &mut out, usize::MAX);
    assert_eq!((out.len(), requests.len()), (5 * 7, 0));
}

/// A store that counts its calls and fails on request.
#[derive(Default)]
struct Counting {
    memory: Memory,
    fails: parking_lot::Mutex<Option<kv::Error>>,
    applied: parking_lot::Mutex<Vec<usize>>,
}

impl KeyValue for Counting {
    fn get_many(&self, keys: &[Bytes]) -> kv::Result<Vec<Option<Bytes>>> {
        self.fails.lock().clone().map_or_else(|| self.memory.get_many(keys), Err)
    }

    fn apply(&self, changes: &[Change]) -> kv::Result<()> {
        self.applied.lock().push(changes.len());
        self.fails.lock().clone().map_or_else(|| self.memory.apply(changes), Err)
    }

    fn scan(&self, scan: &Scan) -> kv::Result<Vec<(Bytes, Bytes)>> {
        self.memory.scan(scan)
    }

    fn count(&self, range: &KeyRange) -> kv::Result<Count> {
        self.fails.lock().clone().map_or_else(|| self.memory.count(range), Err)
    }

    fn durability(&self) -> Durability {
        Durability::EverySec
    }
}

#[test]
fn neighbours_are_one_batch_of_the_store() {
    let store = Arc::new(Counting::default());
    let keyspace = keyspace(Arc::clone(&store) as _);
    let service = Service::new(Settings::default(), keyspace, Arc::new(Still));
    store.applied.lock().clear();
    talk(&service, "set a 1\nset b 2\nget a\nset c 3\nping\nset d 4\n");
    assert_eq!(*store.applied.lock(), [3, 1]);
    store.applied.lock().clear();
    let many: String = (0..=COMMANDS_AT_ONCE).map(|n| format!("set {n} 1\n")).collect();
    talk(&service, &many);
    assert_eq!(*store.applied.lock(), [COMMANDS_AT_ONCE, 1]);
}

/// The error when volume a is full.
const NO_ROOM: &str = "-OOM command not allowed: volume a";

#[test]
fn a_failed_batch_fails_each_of_its_commands() {
    let cases = [
        (kv::Error::Busy("queue full".into()), "-TRYAGAIN busy: queue full"),
        (kv::Error::Unavailable("volume a".into()), "-TRYAGAIN unavailable: volume a"),
        (kv::Error::OutOfSpace("volume a".into()), NO_ROOM),
        (kv::Error::Other("a\nb".into()), "-ERR a b"),
    ];
    for (error, shown) in cases {
        let store = Arc::new(Counting::default());
        let keyspace = keyspace(Arc::clone(&store) as _);
        let service = Service::new(Settings::default(), keyspace, Arc::new(Still));
        *store.fails.lock() = Some(error);
        let talk = talk(&service, "set a 1\nset b 2\nget a\ndel a\nexists a\ndbsize\nping\n");
        assert_eq!(talk, format!("{} +PONG", [shown; 6].join(" ")));
    }
}

proptest! {
    /// Pipelined or one at a time, in any mix: replies and store are the same.
    #[test]
    fn a_pipeline_answers_as_its_commands_one_by_one(
        commands in vec((0..5_u8, 0..4_u8, any::<u8>()), 0..60),
    ) {
        let text = |&(kind, key, value): &(u8, u8, u8)| match kind {
            0 | 1 => format!("set {key} {value}\n"),
            2 => format!("get {key}\n"),
            3 => format!("del {key} {}\n", value % 4),
            _ => format!("exists {key} {}\n", value % 4),
        };
        let together = service(Memory::default(), None);
        let apart = service(Memory::default(), None);
        let all: String = commands.iter().map(text).collect();
        let replies: Vec<_> = commands.iter().map(|c| talk(&apart, &text(c))).collect();
        prop_assert_eq!(talk(&together, &all), replies.join(" "));
        prop_assert_eq!(talk(&together, "dbsize\n"), talk(&apart, "dbsize\n"));
    }

    #[test]
    fn any_words_get_one_reply_each(requests in vec(vec(vec(any::<u8>(), 0..12), 1..5), 1..20)) {
        let service = service(Memory::default(), None);
        let mut session = Session::new(1, &service);
        let mut requests: VecDeque<Request> = requests
            .into_iter()
            .map(|words| words.into_iter().map(Bytes::from).collect())
            .collect();
        let asked = requests.len();
        let mut out = BytesMut::new();
        session.execute(&service, &mut requests, &mut out, usize::MAX);
        let lines = out.iter().filter(|&&byte| byte == b'\n').count();
        prop_assert_eq!(lines, asked, "each is one error line: {:?}", out);
    }
}
