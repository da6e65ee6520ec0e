//! More clients than the limit, and clients with restricted rights.

use std::io::Read;

use serve::resp::{Settings, User};
use serve::{May, Secret};

use crate::endpoint::{Client, Endpoint};

/// Whether the server closed the connection without an answer.
fn is_closed(client: &mut Client) -> bool {
    matches!(client.0.get_mut().read(&mut [0]), Ok(0) | Err(_))
}

/// Once, a thousand silent connections kept all other clients out, with no end.
#[test]
fn silent_connections_give_way_to_those_who_ask() {
    const MOST: usize = 100;
    let endpoint = Endpoint::open(Settings { clients_max: MOST as u64, ..Settings::default() });
    let mut silent: Vec<_> = (0..MOST).map(|_| endpoint.connect()).collect();
    // Half a request does not count as a request.
    silent.iter_mut().for_each(|client| client.send("*1\r\n$4\r\nPI"));
    let mut known: Vec<_> = (0..10).map(|_| endpoint.connect()).collect();
    for client in &mut known {
        assert_eq!(client.ask("ping"), "+PONG");
    }
    assert!(silent[..10].iter_mut().all(is_closed), "those that came first");
    silent[10].send("NG\r\n");
    assert_eq!(silent[10].line(), "+PONG", "the others are served");
    assert_eq!((endpoint.service.stats.shed.get(), endpoint.service.stats.rejected.get()), (10, 0));
}

#[test]
fn who_did_not_say_who_it_is_gives_way_whatever_it_asked() {
    let password = Some(Secret::new("line"));
    let endpoint = Endpoint::open(Settings { password, clients_max: 2, ..Settings::default() });
    let mut known = endpoint.connect();
    assert_eq!(known.ask("auth line"), "+OK");
    let mut stranger = endpoint.connect();
    assert_eq!(stranger.ask("ping"), "-NOAUTH Authentication required.");
    let mut new = endpoint.connect();
    assert_eq!(new.ask("auth line"), "+OK");
    assert!(is_closed(&mut stranger));
    assert_eq!(endpoint.connect().line(), "-ERR max number of clients reached");
    assert_eq!((known.ask("ping"), new.ask("ping")), ("+PONG".into(), "+PONG".into()));
}

#[test]
fn one_address_has_so_many_connections() {
    let endpoint = Endpoint::open(Settings { clients_per_address: Some(2), ..Settings::default() });
    let (mut one, mut two) = (endpoint.connect(), endpoint.connect());
    assert_eq!((one.ask("ping"), two.ask("ping")), ("+PONG".into(), "+PONG".into()));
    assert_eq!(endpoint.connect().line(), "-ERR max number of clients reached");
}

#[test]
fn users_do_what_they_may() {
    let user = |name: &str, may| User {
        name: name.into(),
        password: Secret::new(format!("{name}-secret")),
        may,
    };
    let settings = Settings {
        password: Some(Secret::new("line")),
        users: vec![user("board", May::Read), user("sensor", May::Write)],
        ..Settings::default()
    };
    let endpoint = Endpoint::open(settings);
    let mut owner = endpoint.connect();
    assert_eq!(owner.ask("auth line"), "+OK");
    assert_eq!(owner.ask("set k v"), "+OK");

    let mut board = endpoint.connect();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(board.ask("auth board line"), wrong);
    assert_eq!(board.ask("auth board sensor-secret"), wrong);
    assert_eq!(board.ask("auth board board-secret"), "+OK");
    assert_eq!(board.ask("strlen k"), ":1");
    let refused =
        |command| format!("-NOPERM User board has no permissions to run the '{command}' command");
    for (asked, command) in [("set k w", "set"), ("flushall", "flushall"), ("expire k 9", "expire")]
    {
        assert_eq!(board.ask(asked), refused(command));
    }
    assert_eq!(board.ask("client kill type normal"), refused("client"));
    assert_eq!(board.ask("multi"), "+OK");
    assert_eq!(board.ask("del k"), refused("del"));
    assert!(board.ask("exec").starts_with("-EXECABORT"));

    let mut sensor = endpoint.connect();
    assert_eq!(sensor.ask("hello 2 auth sensor sensor-secret"), "*14");
    while sensor.line() != "modules" {}
    assert_eq!(sensor.line(), "*0");
    assert_eq!(sensor.ask("set k w"), "+OK");
    assert!(sensor.ask("get k").starts_with("-NOPERM User sensor"));
    assert_eq!(sensor.ask("reset"), "+RESET");
    assert_eq!(sensor.ask("set k x"), "-NOAUTH Authentication required.");
    assert_eq!(owner.ask("strlen k"), ":1");
}
