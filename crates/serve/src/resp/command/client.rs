//! `CLIENT`: the client's statements about itself, and its view of other connections.

use std::sync::Arc;

use bytes::Bytes;

use super::catalogue::help;
use super::row::{Call, Command};
use super::words::{integer, shown};
use crate::resp::peers::{Ends, Peer};
use crate::resp::reply::Reply;

/// The subcommands of `CLIENT`.
pub(super) static CLIENT: &[Command] = &[
    row("getname", 2, "2.6.9", "Get the current connection name", get_name),
    row("help", 2, "5.0.0", "Print this help", |_| help("CLIENT", CLIENT)),
    row("id", 2, "5.0.0", "Return the number of the current connection", |call| {
        Reply::count(call.client.peer.id)
    }),
    row("info", 2, "6.2.0", "Show the current connection as LIST does", info),
    row(
        "kill",
        -3,
        "2.4.0",
        "End connections: address | ID n | ADDR a | LADDR a | SKIPME yes/no",
        kill,
    ),
    row("list", -2, "2.4.0", "Show the open connections: ID n... | TYPE normal", list),
    row("no-evict", 3, "7.0.0", "Accepted: no client is evicted to free memory", on_or_off),
    row("no-touch", 3, "7.2.0", "Accepted: reads leave no mark on keys", on_or_off),
    row("setinfo", 4, "7.2.0", "Say which client library this is, and its version", set_info),
    row("setname", 3, "2.6.9", "Set the current connection name", set_name),
];

const fn row(
    name: &'static str,
    arity: i32,
    since: &'static str,
    summary: &'static str,
    run: fn(&mut Call<'_>) -> Reply,
) -> Command {
    const FLAGS: &[&str] = &["noscript", "loading", "stale"];
    Command::call(name, arity, FLAGS, run).about("connection", since, summary)
}

fn get_name(call: &mut Call<'_>) -> Reply {
    let name = call.client.peer.told().name;
    if name.is_empty() { Reply::Null } else { Reply::Bulk(name) }
}

fn set_name(call: &mut Call<'_>) -> Reply {
    let name = &call.words[2];
    if let Err(error) = check_name("Client names", name) {
        return error;
    }
    call.client.peer.tell(|told| told.name = own(name));
    Reply::OK
}

fn set_info(call: &mut Call<'_>) -> Reply {
    let (option, value) = (&call.words[2], &call.words[3]);
    let is_library = option.eq_ignore_ascii_case(b"lib-name");
    if !is_library && !option.eq_ignore_ascii_case(b"lib-ver") {
        return Reply::error(format_args!("Unrecognized option '{}'", shown(option)));
    }
    if let Err(error) = check_name(&shown(option).to_ascii_lowercase(), value) {
        return error;
    }
    call.client.peer.tell(|told| {
        *(if is_library { &mut told.library } else { &mut told.library_version }) = own(value);
    });
    Reply::OK
}

/// Copies a word: it shares memory with its request, which may be long.
pub(super) fn own(word: &Bytes) -> Bytes {
    Bytes::copy_from_slice(word)
}

/// Names must be printable and without spaces, so that lists of clients can be split again.
pub(super) fn check_name(what: &str, name: &Bytes) -> Result<(), Reply> {
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    Err(Reply::error(format_args!("{what} cannot contain spaces, newlines or special characters.")))
}

fn on_or_off(call: &mut Call<'_>) -> Reply {
    let word = &call.words[2];
    if word.eq_ignore_ascii_case(b"on") || word.eq_ignore_ascii_case(b"off") {
        Reply::OK
    } else {
        Reply::error("syntax error")
    }
}

fn info(call: &mut Call<'_>) -> Reply {
    Reply::Text(line(call, &call.client.peer))
}

fn list(call: &mut Call<'_>) -> Reply {
    let mut peers = call.service.peers.all();
    match &call.words[2..] {
        [] => {}
        [by, kind] if by.eq_ignore_ascii_case(b"type") => match is_normal(kind) {
            Ok(true) => {}
            Ok(false) => peers.clear(),
            Err(error) => return error,
        },
        [by, ids @ ..] if by.eq_ignore_ascii_case(b"id") && !ids.is_empty() => {
            let ids: Result<Vec<_>, _> = ids.iter().map(|id| integer(id)).collect();
            match ids {
                Ok(ids) => {
                    peers.retain(|peer| ids.iter().any(|&id| u64::try_from(id) == Ok(peer.id)));
                }
                Err(_) => return Reply::error("Invalid client ID"),
            }
        }
        _ => return Reply::error("syntax error"),
    }
    Reply::Text(peers.iter().map(|peer| line(call, peer)).collect())
}

fn line(call: &Call<'_>, peer: &Peer) -> String {
    let command = peer.last_command().map_or("NULL", |index| call.table[index].name);
    format!("{}\n", peer.line(call.service.figures.uptime(), command))
}

/// The filter of a `CLIENT KILL`: all given conditions must hold.
#[derive(Default)]
struct Victims {
    id: Option<u64>,
    client: Option<Bytes>,
    server: Option<Bytes>,
    /// No connection has the requested type or user.
    none: bool,
    and_me: bool,
}

impl Victims {
    fn contain(&self, peer: &Peer, me: &Peer) -> bool {
        let is_at = |wanted: &Option<Bytes>, end: fn(&Ends) -> std::net::SocketAddr| {
            wanted.as_ref().is_none_or(|wanted| {
                peer.ends.as_ref().is_some_and(|ends| *wanted == end(ends).to_string())
            })
        };
        !self.none
            && (self.and_me || peer.id != me.id)
            && self.id.is_none_or(|id| id == peer.id)
            && is_at(&self.client, |ends| ends.client)
            && is_at(&self.server, |ends| ends.server)
    }
}

/// `CLIENT KILL address`, which replies `OK`, or `CLIENT KILL [condition value]…`, which replies the count.
fn kill(call: &mut Call<'_>) -> Reply {
    let (is_old, victims) = match &call.words[2..] {
        [address] => {
            (true, Victims { client: Some(address.clone()), and_me: true, ..Victims::default() })
        }
        conditions => match parse_victims(conditions) {
            Ok(victims) => (false, victims),
            Err(error) => return error,
        },
    };
    let me = Arc::clone(&call.client.peer);
    let mut killed = 0;
    for peer in call.service.peers.all() {
        if !victims.contain(&peer, &me) {
            continue;
        }
        killed += 1;
        if peer.id == me.id {
            // Closes after the reply.
            call.client.closing = true;
        } else {
            peer.cut.cancel();
        }
    }
    match (is_old, killed) {
        (false, killed) => Reply::count(killed),
        (true, 0) => Reply::error("No such client"),
        (true, _) => Reply::OK,
    }
}

fn parse_victims(mut words: &[Bytes]) -> Result<Victims, Reply> {
    let mut victims = Victims::default();
    while let [condition, rest @ ..] = words {
        let [value, rest @ ..] = rest else { return Err(Reply::error("syntax error")) };
        match &condition.to_ascii_lowercase()[..] {
            b"id" => {
                let id = positive(value);
                let wrong = || Reply::error("client-id should be greater than 0");
                victims.id = Some(id.map_err(|()| wrong())?);
            }
            b"addr" => victims.client = Some(value.clone()),
            b"laddr" => victims.server = Some(value.clone()),
            b"type" => victims.none |= !is_normal(value)?,
            b"user" => {
                if **value != *b"default" {
                    let user = shown(value);
                    return Err(Reply::error(format_args!("No such user '{user}'")));
                }
            }
            b"skipme" => match &value.to_ascii_lowercase()[..] {
                b"yes" => victims.and_me = false,
                b"no" => victims.and_me = true,
                _ => return Err(Reply::error("syntax error")),
            },
            _ => return Err(Reply::error("syntax error")),
        }
        words = rest;
    }
    Ok(victims)
}

fn positive(word: &[u8]) -> Result<u64, ()> {
    integer(word).ok().and_then(|id| u64::try_from(id).ok()).filter(|&id| id > 0).ok_or(())
}

/// Whether a type of clients is `normal`, the only one that exists here.
fn is_normal(kind: &Bytes) -> Result<bool, Reply> {
    match &kind.to_ascii_lowercase()[..] {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        _ => Err(Reply::error(format_args!("Unknown client type '{}'", shown(kind)))),
    }
}
