//! Any text as InfluxQL: it ends in statements or in an error, and statements show as text that means
//! the same.

use serve::http::influxql::parse;

/// Reads `data`.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(statements) = parse(text, 1_700_000_000_000_000_000) else { return };
    for statement in statements {
        let shown = statement.to_string();
        let again = parse(&shown, 0).unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(again, [statement], "{shown}");
    }
}
