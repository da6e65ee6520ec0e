//! Arbitrary text as InfluxQL: it parses or gives an error, and statements print as equivalent text.

use serve::http::influxql::parse;

/// Parses `data`.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(statements) = parse(text, 1_700_000_000_000_000_000) else { return };
    for statement in statements {
        let shown = statement.to_string();
        let again = parse(&shown, 0).unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(again, [statement], "{shown}");
    }
}
