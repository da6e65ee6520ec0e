//! The host names that a listener answers to.
//!
//! A malicious page can map its own name to this machine's address (DNS rebinding). The browser then lets the page read
//! a loopback listener as its own server; only the name in `Host` reveals it. So a listener on loopback answers only to
//! names of loopback.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};

/// The names that a listener answers to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hosts(Option<Known>);

/// Additional names, in lower case.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Known {
    address: IpAddr,
    names: Vec<String>,
}

/// A request for another host.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WrongHost {
    /// It names another host.
    #[error(
        "{0:?} is not a name of this server: use localhost, a loopback address, or a name that the settings \
         list under hosts"
    )]
    Other(String),
    /// HTTP/1.1 requires exactly one `Host`.
    #[error("a request of HTTP/1.1 needs exactly one Host header")]
    Unclear,
}

impl WrongHost {
    /// The status of the answer.
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Other(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::Unclear => StatusCode::BAD_REQUEST,
        }
    }
}

impl Hosts {
    /// Any name: for a listener that no page can reach, such as a Unix socket.
    #[must_use]
    pub const fn any() -> Self {
        Self(None)
    }

    /// For a listener at `address`. On loopback it answers to `localhost`, addresses of loopback, `address` and
    /// `names`; elsewhere to any name, unless there are `names`.
    #[must_use]
    pub fn of(address: IpAddr, names: &[String]) -> Self {
        let checks = address.to_canonical().is_loopback() || !names.is_empty();
        let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self(checks.then_some(Known { address, names }))
    }

    /// Checks that a request is for this listener. A request of HTTP/1.0 may omit the host: no browser sends one.
    ///
    /// # Errors
    /// It is for another host, or its host is unclear.
    pub fn check(&self, version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), WrongHost> {
        let Some(known) = &self.0 else { return Ok(()) };
        let mut named = headers.get_all(header::HOST).iter();
        let (first, second) = (named.next(), named.next());
        match (first, second) {
            (Some(host), None) => {
                let text = String::from_utf8_lossy(host.as_bytes());
                if !known.is(&text) {
                    return Err(WrongHost::Other(text.chars().take(SHOWN_MAX).collect()));
                }
            }
            (None, None) if version < Version::HTTP_11 => {}
            _ => return Err(WrongHost::Unclear),
        }
        // An absolute URI counts as the host (RFC 9112, section 3.2.2).
        match uri.authority().map(Authority::as_str) {
            Some(authority) if !known.is(authority) => {
                Err(WrongHost::Other(authority.chars().take(SHOWN_MAX).collect()))
            }
            _ => Ok(()),
        }
    }
}

impl Default for Hosts {
    /// The names of a listener on loopback.
    fn default() -> Self {
        Self::of(IpAddr::from([127, 0, 0, 1]), &[])
    }
}

/// The bytes of a name that an answer quotes at most.
const SHOWN_MAX: usize = 100;

impl Known {
    /// Whether a host, with or without a port, is this one.
    fn is(&self, host: &str) -> bool {
        let name = without_port(host.trim());
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let address = address.to_canonical();
            return address.is_loopback()
                || address == self.address.to_canonical()
                || self.names.iter().any(|known| known == bare || *known == name);
        }
        name == "localhost" || self.names.contains(&name)
    }
}

fn without_port(host: &str) -> &str {
    let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    match host.rsplit_once(':') {
        // Several colons without brackets: an IPv6 address without a port.
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &Hosts, version: Version, uri: &str, named: &[&str]) -> Result<(), WrongHost> {
        let mut headers = HeaderMap::new();
        for host in named {
            headers.append(header::HOST, host.parse().expect("a header"));
        }
        hosts.check(version, &uri.parse().expect("a target"), &headers)
    }

    #[test]
    fn a_loopback_endpoint_answers_to_names_of_loopback_alone() {
        let hosts = Hosts::of([127, 0, 0, 1].into(), &["Db.Example".into()]);
        for good in [
            "localhost",
            "LocalHost:8086",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:9180",
            "127.1.2.3:1",
            "[::1]",
            "[::1]:8086",
            "[::ffff:127.0.0.1]:80",
            "db.example:8086",
        ] {
            assert_eq!(check(&hosts, Version::HTTP_11, "/query", &[good]), Ok(()), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:8086",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:8086",
            "",
            ":8086",
            "localhost:80:evil.example",
            "evil.example:@localhost",
        ] {
            let told = check(&hosts, Version::HTTP_11, "/query", &[bad]);
            assert_eq!(told, Err(WrongHost::Other(bad.into())), "{bad}");
        }
    }

    #[test]
    fn a_request_for_a_whole_address_is_for_that_host() {
        let hosts = Hosts::default();
        let ask = |uri: &str| check(&hosts, Version::HTTP_11, uri, &["localhost"]);
        assert_eq!(ask("http://localhost:8086/query"), Ok(()));
        let other = Err(WrongHost::Other("evil.example".into()));
        assert_eq!(ask("http://evil.example/query"), other);
    }

    #[test]
    fn only_http_1_0_may_name_no_host_and_nothing_may_name_two() {
        let hosts = Hosts::default();
        assert_eq!(check(&hosts, Version::HTTP_10, "/ping", &[]), Ok(()));
        assert_eq!(check(&hosts, Version::HTTP_11, "/ping", &[]), Err(WrongHost::Unclear));
        let two = ["localhost", "evil.example"];
        assert_eq!(check(&hosts, Version::HTTP_10, "/ping", &two), Err(WrongHost::Unclear));
    }

    #[test]
    fn elsewhere_names_are_checked_only_where_there_are_some() {
        let other = Err(WrongHost::Other("evil.example".into()));
        let ask = |hosts: &Hosts, host| check(hosts, Version::HTTP_11, "/query", &[host]);
        assert_eq!(ask(&Hosts::of([10, 0, 0, 1].into(), &[]), "evil.example"), Ok(()));
        let named = Hosts::of([10, 0, 0, 1].into(), &["db.example".into()]);
        assert_eq!(ask(&named, "10.0.0.1:8086"), Ok(()));
        assert_eq!(ask(&named, "db.example"), Ok(()));
        assert_eq!(ask(&named, "evil.example"), other);
        assert_eq!(ask(&Hosts::any(), "evil.example"), Ok(()));
    }
}
