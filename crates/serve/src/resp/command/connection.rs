//! Commands on the connection itself.

use super::client::{CLIENT, check_name, own};
use super::row::{Call, Command, NO_KEYS, Run};
use super::words::{integer, shown, wrong_arity};
use crate::resp::client::Pending;
use crate::resp::reply::{Protocol, Reply};
use crate::resp::settings::{DEFAULT_USER, REDIS_VERSION};

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command::call(
        "auth",
        -2,
        &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        auth,
    )
    .about("connection", "1.0.0", "Authenticate to the server"),
    Command {
        name: "client",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        group: "connection",
        since: "2.4.0",
        summary: "A container for client connection commands",
        run: Run::Subcommands(CLIENT),
    },
    Command::call("echo", 2, &["loading", "stale", "fast"], echo).about(
        "connection",
        "1.0.0",
        "Echo the given string",
    ),
    Command::call(
        "hello",
        -1,
        &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        hello,
    )
    .about(
        "connection",
        "6.0.0",
        "Handshake: choose the protocol, authenticate, name the connection",
    ),
    Command::call("ping", -1, &["fast"], ping).about("connection", "1.0.0", "Ping the server"),
    Command::call(
        "quit",
        -1,
        &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        quit,
    )
    .about("connection", "1.0.0", "Close the connection"),
    Command::call(
        "reset",
        1,
        &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        reset,
    )
    .about("connection", "6.2.0", "Reset the connection to its initial state"),
    Command::call("select", 2, &["loading", "stale", "fast"], select).about(
        "connection",
        "1.0.0",
        "Change the selected database: there is only number 0",
    ),
];

const WRONG_PASS: &str = "invalid username-password pair or user is disabled.";

/// `PING [message]`.
fn ping(call: &mut Call<'_>) -> Reply {
    match call.words {
        [_] => Reply::Status("PONG"),
        [_, message] => Reply::Bulk(message.clone()),
        _ => wrong_arity("ping"),
    }
}

/// `ECHO message`.
fn echo(call: &mut Call<'_>) -> Reply {
    Reply::Bulk(call.words[1].clone())
}

/// `QUIT`.
fn quit(call: &mut Call<'_>) -> Reply {
    call.client.closing = true;
    Reply::OK
}

/// `SELECT index`.
fn select(call: &mut Call<'_>) -> Reply {
    match integer(&call.words[1]) {
        Ok(0) => Reply::OK,
        Ok(_) => Reply::error("DB index is out of range"),
        Err(error) => error,
    }
}

/// `AUTH [user] password`.
fn auth(call: &mut Call<'_>) -> Reply {
    let (user, password) = match call.words {
        [_, password] if call.service.access.is_asked_for() => (DEFAULT_USER, password),
        [_, _] => {
            return Reply::error(
                "AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            );
        }
        [_, user, password] => (&user[..], password),
        _ => return Reply::error("syntax error"),
    };
    let Some(may) = call.service.access.known(user, password) else {
        return Reply::coded("WRONGPASS", WRONG_PASS);
    };
    call.client.authenticate(user, password, may);
    Reply::OK
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`: atomic.
fn hello(call: &mut Call<'_>) -> Reply {
    let client = &mut *call.client;
    let (mut protocol, mut known) = (client.protocol, None);
    let mut name = None;
    let mut words = &call.words[1..];
    if let [version, rest @ ..] = words {
        protocol = match integer(version) {
            Ok(2) => Protocol::Resp2,
            Ok(3) => Protocol::Resp3,
            Ok(_) => return Reply::coded("NOPROTO", "unsupported protocol version"),
            Err(_) => {
                return Reply::error("Protocol version is not an integer or out of range");
            }
        };
        words = rest;
    }
    while let [option, rest @ ..] = words {
        words = match rest {
            [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                let Some(may) = call.service.access.known(user, password) else {
                    return Reply::coded("WRONGPASS", WRONG_PASS);
                };
                known = Some((user, password, may));
                rest
            }
            [new, rest @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                if let Err(error) = check_name("Client names", new) {
                    return error;
                }
                name = Some(own(new));
                rest
            }
            _ => {
                let option = shown(option);
                return Reply::error(format_args!("Syntax error in HELLO option '{option}'"));
            }
        };
    }
    if known.is_none() && !client.authenticated {
        return Reply::coded(
            "NOAUTH",
            "HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP \
             protocol version at the same time",
        );
    }
    if let Some((user, password, may)) = known {
        client.authenticate(user, password, may);
    }
    client.protocol = protocol;
    client.peer.tell(|told| {
        told.protocol = protocol;
        told.name = name.unwrap_or_else(|| std::mem::take(&mut told.name));
    });
    // Clients look for `redis` here before they use the version's features.
    Reply::Map(vec![
        (Reply::word("server"), Reply::word("redis")),
        (Reply::word("version"), Reply::word(REDIS_VERSION)),
        (Reply::word("proto"), Reply::Integer(protocol.number())),
        (Reply::word("id"), Reply::count(client.peer.id)),
        (Reply::word("mode"), Reply::word("standalone")),
        (Reply::word("role"), Reply::word("master")),
        (Reply::word("modules"), Reply::Array(Vec::new())),
    ])
}

/// `RESET`: restores the state of a new connection.
fn reset(call: &mut Call<'_>) -> Reply {
    let client = &mut *call.client;
    client.protocol = Protocol::default();
    client.pending = Pending::default();
    client.deauthenticate(call.service);
    client.peer.tell(|told| {
        told.name.clear();
        told.protocol = Protocol::default();
    });
    Reply::Status("RESET")
}
