//! The host names that the listener answers to, and the rights of a token.

use std::net::IpAddr;

use serve::http::{Grant, Hosts, Settings, Token};
use serve::{May, Secret};

use crate::endpoint::{Answer, Endpoint};

/// Once, a page with DNS rebinding could read everything.
#[test]
fn a_page_under_another_name_is_answered_nothing() {
    let hosts = Hosts::of(IpAddr::from([127, 0, 0, 1]), &["db.example".into()]);
    let endpoint = Endpoint::new(Settings { hosts, ..Settings::default() });
    endpoint.write("db=db", "m f=1 1");
    let ask = |host: &str| endpoint.send("GET /query?db=db&q=SHOW+DATABASES", host, b"");
    let refused = ask("Host: evil.example:8086\r\n");
    assert_eq!(refused.status, 421);
    let json = refused.json();
    let told = json["message"].as_str().expect("a message");
    assert!(told.contains("evil.example") && told.contains("hosts"), "{told}");
    for good in ["", "Host: localhost:8086\r\n", "Host: [::1]\r\n", "Host: DB.example\r\n"] {
        assert_eq!(ask(good).status, 200, "{good}");
    }
    assert_eq!(
        endpoint.send("POST /write?db=db", "Host: evil.example\r\n", b"m f=2 2").status,
        421
    );
    assert_eq!(endpoint.send("GET /ping", "Host: evil.example\r\n", b"").status, 421);
}

/// Once, every token had all rights, including dropping a database.
#[test]
fn a_token_is_good_for_what_it_was_given_for() {
    let token = |secret: &str, may, databases: Option<&[&str]>| {
        let databases = databases.map(|names| names.iter().map(|&name| name.into()).collect());
        Token { secret: Secret::new(secret), grant: Grant { may, databases } }
    };
    let tokens = vec![
        Token::full("all"),
        token("read", May::Read, None),
        token("write", May::Write, None),
        token("a", May::All, Some(&["a"])),
    ];
    let endpoint = Endpoint::new(Settings { tokens, ..Settings::default() });
    let as_ = |token: &str, request: &str, body: &str| {
        endpoint.send(request, &format!("Authorization: Token {token}\r\n"), body.as_bytes())
    };
    let ask = |token: &str, statement: &str| {
        let statement: String = form_urlencoded::byte_serialize(statement.as_bytes()).collect();
        as_(token, &format!("POST /query?q={statement}"), "")
    };
    let error = |answer: &Answer| answer.json()["results"][0]["error"].as_str().map(str::to_owned);
    for database in ["a", "b"] {
        let write = format!("POST /write?db={database}");
        assert_eq!(as_("write", &write, "m f=1 1").status, 204);
        assert_eq!(as_("read", &write, "m f=1 1").status, 403);
    }
    assert_eq!(as_("nobody", "POST /write?db=a", "m f=1 1").status, 401);
    assert_eq!(as_("a", "POST /write?db=a", "m f=2 2").status, 204);
    assert_eq!(as_("a", "POST /api/v2/write?bucket=b", "m f=2 2").status, 403);

    assert_eq!(ask("read", "SELECT f FROM b..m").status, 200);
    assert_eq!(ask("write", "SELECT f FROM b..m").status, 403);
    assert_eq!(as_("write", "GET /api/databases", "").status, 403);
    for change in ["DROP DATABASE b", "CREATE DATABASE c", "DELETE FROM b..m"] {
        assert_eq!(ask("read", change).status, 403, "{change}");
        assert_eq!(ask("write", change).status, 403, "{change}");
    }
    // The request is refused before its first statement runs.
    assert_eq!(ask("read", "SHOW DATABASES; DROP DATABASE b").status, 403);

    let beyond = "forbidden: this token has no right to the database \"b\"";
    for statement in [
        "SELECT f FROM b..m",
        "SHOW MEASUREMENTS ON b",
        "SHOW SERIES ON b",
        "SHOW RETENTION POLICIES ON b",
        "SHOW FIELD KEYS ON b FROM m",
        "SHOW TAG VALUES ON b WITH KEY = t",
        "DELETE FROM b..m",
        "DROP SERIES FROM b..m",
        "DROP DATABASE b",
        "CREATE DATABASE b WITH DURATION 1h",
        "ALTER RETENTION POLICY autogen ON b DURATION 1h",
    ] {
        let answer = ask("a", statement);
        assert_eq!(error(&answer).as_deref(), Some(beyond), "{statement}: {}", answer.body);
    }
    assert_eq!(as_("a", "GET /api/points?db=b&measurement=m", "").status, 403);
    let listed = ask("a", "SHOW DATABASES").json();
    assert_eq!(listed["results"][0]["series"][0]["values"].to_string(), "[[\"a\"]]");
    assert_eq!(error(&ask("a", "DROP SERIES FROM a..m")), None);
    assert_eq!(error(&ask("all", "DROP DATABASE b")), None);
}
