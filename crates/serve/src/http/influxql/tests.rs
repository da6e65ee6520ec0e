use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_700_000_000_000_000_000;
const HOUR: i64 = 3_600_000_000_000;

fn one(text: &str) -> Statement {
    let mut all = parse(text, NOW).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(all.len(), 1, "{text}");
    let statement = all.remove(0);
    let again = parse(&statement.to_string(), 0);
    assert_eq!(again.as_deref(), Ok(&[statement.clone()][..]), "{statement}");
    statement
}

fn select(text: &str) -> Select {
    match one(text) {
        Statement::Select(select) => *select,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dashboards_query_is_understood() {
    let select = select(
        "SELECT mean(\"usage\") * 100 AS \"pct\", last(up) FROM \"cpu\" \
         WHERE (\"host\"::tag =~ /^a\\/b$/ AND region != 'eu') AND time >= now() - 1h30m and time < 1700000000s \
         GROUP BY time(1m, 10s), \"host\"::tag fill(none) ORDER BY time DESC LIMIT 10 OFFSET 1 SLIMIT 5 SOFFSET 2 tz('UTC')",
    );
    assert_eq!(select.columns[0].alias.as_deref(), Some("pct"));
    assert_eq!(select.columns[0].what.to_string(), "mean(\"usage\") * 100");
    assert_eq!(select.from[0].to_string(), "\"cpu\"");
    assert_eq!(select.group.len(), 2);
    let minute = HOUR / 60;
    assert_eq!(select.group[0], Dimension::Time(Window { every: minute, offset: minute / 6 }));
    assert_eq!(select.fill, Fill::None);
    assert!(select.descending);
    assert_eq!(
        (select.limit, select.offset, select.slimit, select.soffset),
        (Some(10), Some(1), Some(5), Some(2))
    );
    let (span, rest) = select.filter.expect("a filter").split().expect("a span");
    assert_eq!(span, Span { from: NOW - HOUR * 3 / 2, to: NOW - 1 });
    assert_eq!(
        rest.expect("tags").to_string(),
        "\"host\"::tag =~ /^a\\/b$/ AND \"region\" != 'eu'"
    );
}

#[test]
fn times_are_read_in_every_form() {
    let day = 24 * HOUR;
    for (text, from, to) in [
        ("time > 5", 6, i64::MAX),
        ("time >= 5 AND time <= 9", 5, 9),
        ("5 < time", 6, i64::MAX),
        ("time = 7", 7, 7),
        ("time > 1s", 1_000_000_001, i64::MAX),
        ("time > 1700000000000ms - 1h", NOW - HOUR + 1, i64::MAX),
        ("time >= '1970-01-02'", day, i64::MAX),
        ("time >= '1970-01-02T00:00:00Z' + 1h - 30m", day + HOUR / 2, i64::MAX),
        ("time >= now()", NOW, i64::MAX),
        ("time >= (now() - 1h)", NOW - HOUR, i64::MAX),
        ("time >= -1h", -HOUR, i64::MAX),
        ("time > 9223372036854775807", i64::MAX, i64::MIN),
        ("(time > 1 AND (time < 9)) AND time < 8", 2, 7),
    ] {
        let filter = select(&format!("SELECT v FROM m WHERE {text}")).filter.expect("a filter");
        assert_eq!(filter.split(), Ok((Span { from, to }, None)), "{text}");
    }
    for text in ["time != 5", "time > 5 OR h = 'a'", "h = 'a' OR (h = 'b' AND time < 5)"] {
        let filter = select(&format!("SELECT v FROM m WHERE {text}")).filter.expect("a filter");
        filter.split().expect_err(text);
    }
}

#[test]
fn every_statement_shows_as_what_it_means() {
    for (text, shown) in [
        ("select * from m", "SELECT * FROM \"m\""),
        ("SELECT *::field, /a b/, \"x\"::integer FROM db.rp.m, db..\"n\", /x/", ""),
        ("SELECT -1 * (a + b) / 2 - -x, 1h, 1e3, .5 FROM m", ""),
        (
            "SELECT percentile(x, 95), count(distinct(y)) FROM m GROUP BY *, /re/, time(1h, now())",
            "",
        ),
        ("SELECT v FROM m WHERE a = 1 AND b > 1.5 OR c = true AND (d = 'x' OR 'y' != e)", ""),
        (
            "SELECT (a * b) / c % (d * e) + (f - (g - h)) FROM m",
            "SELECT \"a\" * \"b\" / \"c\" % (\"d\" * \"e\") + (\"f\" - (\"g\" - \"h\")) FROM \"m\"",
        ),
        (
            "SELECT v FROM m WHERE (a = 1 AND b = 1) OR (c = 1 OR d = 1) AND e = 1",
            "SELECT \"v\" FROM \"m\" WHERE \"a\" = 1 AND \"b\" = 1 OR (\"c\" = 1 OR \"d\" = 1) AND \"e\" = 1",
        ),
        ("SELECT v FROM m WHERE \"it's \\\"so\\\"\" = 'it\\'s \\\\ \\n'", ""),
        ("SELECT v -- a comment\n FROM /* another */ m", "SELECT \"v\" FROM \"m\""),
        ("SELECT v FROM m fill(previous)", ""),
        ("SELECT v FROM m fill(-1.5)", ""),
        ("SHOW DATABASES", "SHOW DATABASES"),
        ("show retention policies on \"db\"", "SHOW RETENTION POLICIES ON \"db\""),
        ("SHOW MEASUREMENTS ON db WITH MEASUREMENT =~ /(?i)cp/ WHERE h = 'a' LIMIT 5 OFFSET 2", ""),
        ("SHOW MEASUREMENTS WITH MEASUREMENT = cpu", ""),
        ("SHOW TAG KEYS FROM cpu WHERE h =~ /a/", ""),
        ("SHOW TAG VALUES ON db FROM cpu WITH KEY = host WHERE region = 'eu' LIMIT 3", ""),
        ("SHOW TAG VALUES WITH KEY IN (a, \"b c\")", ""),
        ("SHOW TAG VALUES WITH KEY !~ /a/", ""),
        ("SHOW TAG VALUES WITH KEY <> a", "SHOW TAG VALUES WITH KEY != \"a\""),
        ("SHOW FIELD KEYS FROM m, n", ""),
        ("SHOW SERIES FROM m WHERE a = 'b' LIMIT 1", ""),
        ("create database \"my db\"", "CREATE DATABASE \"my db\""),
        (
            "CREATE DATABASE d WITH DURATION 1d REPLICATION 1 SHARD DURATION 1h NAME \"x\"",
            "CREATE DATABASE \"d\" WITH DURATION 86400000000000ns",
        ),
        ("CREATE DATABASE d WITH DURATION INF", ""),
        ("CREATE DATABASE d WITH REPLICATION 1", "CREATE DATABASE \"d\""),
        (
            "CREATE RETENTION POLICY \"x\" ON d DURATION 1s REPLICATION 1 DEFAULT",
            "ALTER RETENTION POLICY \"autogen\" ON \"d\" DURATION 1000000000ns",
        ),
        (
            "alter retention policy x on d duration 0s",
            "ALTER RETENTION POLICY \"autogen\" ON \"d\" DURATION INF",
        ),
        ("DROP DATABASE d", ""),
        ("DROP MEASUREMENT m", ""),
        ("DROP SERIES FROM m WHERE a = 'b'", ""),
        ("DELETE WHERE time < '2026-01-01'", ""),
    ] {
        let statement = one(text).to_string();
        if !shown.is_empty() {
            assert_eq!(statement, shown);
        }
    }
}

#[test]
fn statements_come_apart_at_semicolons() {
    let all = parse("; SHOW DATABASES;;\nSELECT v FROM m;", NOW).expect("two statements");
    assert_eq!(all.len(), 2);
}

#[test]
fn errors_say_where_and_what() {
    for (text, wanted) in [
        ("", "found EOF, expected SELECT, SHOW, CREATE, ALTER, DROP or DELETE at line 1, char 1"),
        ("SELEC v", "found SELEC, expected SELECT"),
        (
            "SELECT v\n FROM",
            "found EOF, expected the name of a measurement, or a /pattern/ at line 2, char 6",
        ),
        ("SELECT v FROM m WHERE", "found EOF, expected a name"),
        ("SELECT v FROM m WHERE a", "found EOF, expected =, !="),
        ("SELECT v FROM m WHERE a = b", "found two names"),
        ("SELECT v FROM m WHERE 1 = 1", "found two values"),
        ("SELECT v FROM m WHERE time > 'soon'", "expected a time"),
        ("SELECT v FROM m WHERE a > 1h", "found a duration"),
        ("SELECT v FROM m WHERE a + 1 > 1", "found arithmetic"),
        ("SELECT v FROM m WHERE a =~ 'b'", "expected a /pattern/"),
        ("SELECT v FROM m WHERE a =~ /(/", "found a regular expression /(/"),
        ("SELECT v FROM m WHERE a =~ /b", "without its closing slash"),
        ("SELECT v FROM m WHERE a = 'b", "found ' without its closing quote"),
        ("SELECT v FROM m WHERE a = '\\x'", "bad escape at line 1, char 28"),
        ("SELECT v FROM (SELECT v FROM m)", "subqueries"),
        ("SELECT v INTO w FROM m", "found INTO"),
        ("SELECT v FROM m GROUP BY time(0s)", "a window of length 0"),
        ("SELECT v FROM m GROUP BY time(1s), time(2s)", "time() twice"),
        ("SELECT v FROM m ORDER BY v", "expected time"),
        ("SELECT v FROM m tz('Europe/Berlin')", "expected 'UTC'"),
        ("SELECT v FROM m LIMIT -1", "found -, expected a number"),
        ("SELECT v FROM m v", "found v, expected ; or the end"),
        ("SELECT 99999999999999999999 FROM m", "a number out of range"),
        ("SELECT v FROM m GROUP BY time(99999999w)", "a duration out of range"),
        ("SELECT f(v FROM m", "found FROM, expected ,"),
        ("SHOW USERS", "found USERS, expected DATABASES"),
        ("DROP SERIES", "expected FROM or WHERE"),
        ("SELECT v FROM m /* ", "a comment without its end"),
        ("SELECT v FROM m WHERE a = §", "an unexpected"),
        ("SELECT v FROM a.b.c.d", "too many dots"),
    ] {
        let error = parse(text, NOW).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn what_would_be_endless_is_refused() {
    let deep = |n: usize| format!("SELECT {}v{} FROM m", "(".repeat(n), ")".repeat(n));
    parse(&deep(DEPTH_MAX), NOW).expect("as deep as may be");
    for text in [
        deep(DEPTH_MAX + 1),
        deep(100_000),
        format!("SELECT {}v FROM m", "f(".repeat(1000)),
        format!("SELECT {}v FROM m", "- ".repeat(100_000)),
        format!("SELECT v{} FROM m", " + v".repeat(SIGNS_MAX + 1)),
        format!("SELECT v FROM m WHERE {}a = 1", "(".repeat(1000)),
        format!("SELECT v FROM m WHERE a = {}1", "(".repeat(1000)),
        "SHOW DATABASES;".repeat(STATEMENTS_MAX + 1),
        " ".repeat(TEXT_BYTES_MAX + 1),
        "SELECT v FROM m WHERE a =~ /(a{1000}){1000}/".into(),
    ] {
        parse(&text, NOW).expect_err("refused");
    }
    // As dashboards send it: many series of one panel.
    let many = vec!["a = 'x'"; 5000].join(" OR ");
    parse(&format!("SELECT v FROM m WHERE {many}"), NOW).expect("it is flat");
}

/// Found by the fuzzer: a long chain of operators was printed with nested parentheses, too deep to parse again.
#[test]
fn what_was_read_shows_no_deeper_than_it_was() {
    one(&format!("SELECT v{}{} FROM m", " * v".repeat(60), " / v".repeat(80)));
    one(&format!("SELECT v{} FROM m", " - v + v".repeat(SIGNS_MAX / 2)));
    one(&format!("SELECT {}v FROM m", "- ".repeat(DEPTH_MAX)));
    let nested = |open: &str, n: usize| format!("{}1{}", open.repeat(n), ")".repeat(n));
    one(&format!("SELECT {} FROM m", nested("a + b * (2 - ", DEPTH_MAX)));
    one(&format!("SELECT {} FROM m", nested("a - b / -(", DEPTH_MAX / 2)));
    let open = "a = 1 OR b = 2 AND (".repeat(DEPTH_MAX);
    let close = ")".repeat(DEPTH_MAX);
    one(&format!("SELECT v FROM m WHERE {open}c = 1 OR d = 1 AND e = 1{close}"));
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z_ü .\"'\\\\/\n]{1,6}"
}

fn pattern() -> impl Strategy<Value = Pattern> {
    "[a-z/.^$ ]{1,6}".prop_filter_map("a pattern", |text| Pattern::new(&text).ok())
}

fn reference() -> impl Strategy<Value = Reference> {
    use Kind::{Boolean, Field, Float, Integer, String, Tag, Unsigned};
    let kinds = prop::sample::select(vec![Tag, Field, Float, Integer, Unsigned, String, Boolean]);
    (name(), option::of(kinds))
        .prop_map(|(name, kind)| Reference { name, kind })
        .prop_filter("the timestamp has conditions of its own", |reference| !reference.is_time())
}

fn number() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("finite", |number| number.is_finite())
}

fn condition() -> impl Strategy<Value = Condition> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Unequal};
    let comparison =
        prop::sample::select(vec![Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Unequal]);
    let literal = prop_oneof![
        name().prop_map(Literal::Text),
        any::<i64>().prop_map(Literal::Integer),
        number().prop_map(Literal::Number),
        any::<bool>().prop_map(Literal::Boolean),
    ];
    let test = prop_oneof![
        (comparison.clone(), literal).prop_map(|(comparison, v)| Test::Compare(comparison, v)),
        pattern().prop_map(Test::Like),
        pattern().prop_map(Test::Unlike),
    ];
    let leaf = prop_oneof![
        (comparison, any::<i64>()).prop_map(|(comparison, at)| Condition::Time(comparison, at)),
        (reference(), test).prop_map(|(reference, test)| Condition::Test(reference, test)),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 2..4).prop_map(Condition::All),
            vec(inner, 2..4).prop_map(Condition::Any),
        ]
    })
}

fn expression() -> impl Strategy<Value = Expression> {
    use Operator::{Add, Divide, Multiply, Remainder, Subtract};
    let operator = prop::sample::select(vec![Add, Subtract, Multiply, Divide, Remainder]);
    let leaf = prop_oneof![
        reference().prop_map(Expression::Reference),
        Just(Expression::All(None)),
        Just(Expression::All(Some(Kind::Tag))),
        pattern().prop_map(Expression::Like),
        any::<i64>().prop_map(Expression::Integer),
        number().prop_map(Expression::Number),
        (0..i64::MAX).prop_map(Expression::Duration),
    ];
    leaf.prop_recursive(4, 20, 3, move |inner| {
        let both = (inner.clone(), operator.clone(), inner.clone());
        prop_oneof![
            both.prop_map(|(l, o, r)| Expression::Both(Box::new(l), o, Box::new(r))),
            ("[a-z_]{1,5}x", vec(inner, 0..3)).prop_map(|(f, a)| Expression::Call(f, a)),
        ]
    })
}

fn source() -> impl Strategy<Value = Source> {
    let named = prop_oneof![name().prop_map(Named::Is), pattern().prop_map(Named::Like)];
    (option::of(name()), option::of(name()), named)
        .prop_map(|(database, policy, measurement)| Source { database, policy, measurement })
}

fn selects() -> impl Strategy<Value = Select> {
    let column =
        (expression(), option::of(name())).prop_map(|(what, alias)| Column { what, alias });
    let window = (1..i64::MAX, 0..i64::MAX)
        .prop_map(|(every, offset)| Window { every, offset: offset % every });
    let dimension = prop_oneof![
        name().prop_map(Dimension::Tag),
        Just(Dimension::All),
        pattern().prop_map(Dimension::Like),
    ];
    let group = (option::of(window), vec(dimension, 0..3)).prop_map(|(window, tags)| {
        window.map(Dimension::Time).into_iter().chain(tags).collect::<Vec<_>>()
    });
    let fill = prop_oneof![
        Just(Fill::Null),
        Just(Fill::None),
        Just(Fill::Previous),
        Just(Fill::Linear),
        number().prop_map(Fill::Number),
    ];
    let count = || option::of(any::<u64>());
    let what = (vec(column, 1..3), vec(source(), 1..3), option::of(condition()), group, fill);
    (what, any::<bool>(), count(), count(), count(), count()).prop_map(
        |((columns, from, filter, group, fill), descending, limit, offset, slimit, soffset)| {
            Select {
                columns,
                from,
                filter,
                group,
                fill,
                descending,
                limit,
                offset,
                slimit,
                soffset,
            }
        },
    )
}

/// Typical arithmetic: chains with and without necessary parentheses.
fn arithmetic() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec!["a", "\"b\"", "1", "-2", "1.5", "-x", "1h", "*", "/p/"]);
    let sign = || prop::sample::select(vec![" + ", " - ", " * ", " / ", " % "]);
    leaf.prop_map(str::to_owned).prop_recursive(12, 300, 20, move |inner| {
        let chain =
            (inner.clone(), vec((sign(), inner.clone()), 1..20)).prop_map(|(mut text, rest)| {
                rest.iter().for_each(|(sign, next)| text.extend([*sign, next]));
                text
            });
        prop_oneof![
            4 => chain,
            2 => inner.clone().prop_map(|text| format!("({text})")),
            1 => inner.clone().prop_map(|text| format!("-({text})")),
            1 => inner.prop_map(|text| format!("f({text})")),
        ]
    })
}

/// Conditions in the same way.
fn tests() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec!["a = 'x'", "b > -1", "c =~ /p/", "time > 5"]);
    leaf.prop_map(str::to_owned).prop_recursive(12, 300, 8, |inner| {
        let sign = prop::sample::select(vec![" AND ", " OR "]);
        let chain =
            (inner.clone(), vec((sign, inner.clone()), 1..8)).prop_map(|(mut text, rest)| {
                rest.iter().for_each(|(sign, next)| text.extend([*sign, next]));
                text
            });
        prop_oneof![3 => chain, 1 => inner.prop_map(|text| format!("({text})"))]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_read_is_read_again(sum in arithmetic(), filter in tests()) {
        let text = format!("SELECT {sum} FROM m WHERE {filter}");
        // Some exceed the limits on depth or operators.
        if let Ok(statements) = parse(&text, NOW) {
            let shown = statements[0].to_string();
            prop_assert_eq!(parse(&shown, 0), Ok(statements), "{}", shown);
        }
    }

    #[test]
    fn what_is_shown_is_read(select in selects()) {
        let statement = Statement::Select(Box::new(select));
        let shown = statement.to_string();
        prop_assert_eq!(parse(&shown, NOW), Ok(vec![statement]), "{}", shown);
    }
}
