use std::borrow::Cow;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The lines that a decoder finds in `text`, received in pieces of `step` bytes.
fn decode(text: &[u8], step: usize, precision: Precision) -> Vec<Result<Point, String>> {
    let mut decoder = Decoder::new(precision, 200);
    let mut found = Vec::new();
    for piece in text.chunks(step).map(Some).chain([None]) {
        match piece {
            Some(piece) => decoder.push(piece),
            None => decoder.finish(),
        }
        while let Some(line) = decoder.next() {
            let point = line.and_then(|line| {
                let head =
                    Head::parse(line.head()).map_err(|(at, problem)| line.bad(at, problem))?;
                let tags = head.tags.iter().map(|(k, v)| (k.to_string(), v.to_string()));
                let fields = line.fields().map(|field| (field.name.to_string(), own(field.value)));
                Ok(Point {
                    measurement: head.measurement.to_string(),
                    tags: tags.collect(),
                    fields: fields.collect(),
                    timestamp: line.timestamp(),
                })
            });
            found.push(point.map_err(|bad| bad.to_string()));
        }
    }
    assert_eq!(decoder.waiting(), 0, "everything was looked at");
    found
}

#[derive(Clone, Debug, PartialEq)]
struct Point {
    measurement: String,
    tags: Vec<(String, String)>,
    fields: Vec<(String, Value<'static>)>,
    timestamp: Option<i64>,
}

fn own(value: Value<'_>) -> Value<'static> {
    match value {
        Value::Float(value) => Value::Float(value),
        Value::Integer(value) => Value::Integer(value),
        Value::Unsigned(value) => Value::Unsigned(value),
        Value::Boolean(value) => Value::Boolean(value),
        Value::String(value) => Value::String(Cow::Owned(value.into_owned())),
    }
}

fn one(text: &str) -> Point {
    let mut found = decode(text.as_bytes(), usize::MAX, Precision::Nanoseconds);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    let mut found = decode(text.as_bytes(), usize::MAX, Precision::Nanoseconds);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).expect_err(text)
}

fn text(text: &str) -> Value<'static> {
    Value::String(Cow::Owned(text.into()))
}

#[test]
fn a_line_has_all_its_parts() {
    let point = one("cpu,host=a,region=eu usage=0.5,count=3i,up=t,size=7u,note=\"so\" -17\n");
    let pairs = |pairs: &[(&str, &str)]| -> Vec<_> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    };
    let fields = [
        ("usage", Value::Float(0.5)),
        ("count", Value::Integer(3)),
        ("up", Value::Boolean(true)),
        ("size", Value::Unsigned(7)),
        ("note", text("so")),
    ];
    assert_eq!(point.measurement, "cpu");
    assert_eq!(point.tags, pairs(&[("host", "a"), ("region", "eu")]));
    assert_eq!(point.fields, fields.map(|(name, value)| (name.to_string(), value)));
    assert_eq!(point.timestamp, Some(-17));
}

#[test]
fn tags_are_ordered_by_key() {
    let point = one("m,b=1,a=2,c=3 v=1");
    assert_eq!(point.tags.iter().map(|(key, _)| key.as_str()).collect::<String>(), "abc");
}

#[test]
fn escapes_protect_and_go() {
    let point = one(r#"my\ cpu\,x\=y,ta\=g\,k=a\ b\,c\=d\e,z=ü f\ \,\=\x=1,s="q\"b\\n\n" 1"#);
    // An equals sign in a measurement needs no backslash.
    assert_eq!(point.measurement, r"my cpu,x\=y");
    assert_eq!(point.tags[0], ("ta=g,k".into(), r"a b,c=d\e".into()));
    assert_eq!(point.tags[1].1, "ü");
    assert_eq!(point.fields[0].0, r"f ,=\x");
    assert_eq!(point.fields[1].1, text(r#"q"b\n\n"#));
}

#[test]
fn a_string_holds_anything_between_its_quotes() {
    for inside in ["", "a b", "a,b=c", "two\nlines\r\n", "#", "ü'", r"back\slash"] {
        let point = one(&format!("m s=\"{inside}\",v=1"));
        assert_eq!(point.fields[0].1, text(inside));
        assert_eq!(point.fields[1].1, Value::Float(1.0));
    }
}

#[test]
fn quotes_outside_of_strings_are_letters() {
    let point = one("\"m\",t=\"a\"b \"f\"=1");
    assert_eq!(point.measurement, "\"m\"");
    assert_eq!(point.tags[0].1, "\"a\"b");
    assert_eq!(point.fields[0].0, "\"f\"");
}

#[test]
fn numbers_are_read_to_their_last_digit() {
    let value = |text: &str| one(&format!("m v={text}")).fields.remove(0).1;
    assert_eq!(value("9223372036854775807i"), Value::Integer(i64::MAX));
    assert_eq!(value("-9223372036854775808i"), Value::Integer(i64::MIN));
    assert_eq!(value("-0i"), Value::Integer(0));
    assert_eq!(value("18446744073709551615u"), Value::Unsigned(u64::MAX));
    assert_eq!(value("123456789012345678i"), Value::Integer(123_456_789_012_345_678));
    for number in ["1", "-1", "1.", ".5", "-.5", "1e6", "1E-6", "1e+6", "0.1", "4.9e-324"] {
        let number_is = number.parse().expect("Rust knows them all");
        assert_eq!(value(number), Value::Float(number_is), "{number}");
    }
    for (words, truth) in [("t T true True TRUE", true), ("f F false False FALSE", false)] {
        for word in words.split(' ') {
            assert_eq!(value(word), Value::Boolean(truth));
        }
    }
}

#[test]
fn timestamps_are_nanoseconds_of_any_precision() {
    for (name, nanos) in [
        ("ns", 1),
        ("n", 1),
        ("us", 1000),
        ("u", 1000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ] {
        let precision = Precision::named(name).expect(name);
        let found = decode(b"m v=1 3", usize::MAX, precision).remove(0).expect("a point");
        assert_eq!(found.timestamp, Some(3 * nanos), "{name}");
    }
    assert_eq!(Precision::named("d"), None);
    assert_eq!(one("m v=1").timestamp, None);
    assert_eq!(one("m v=1 9223372036854775806").timestamp, Some(i64::MAX - 1));
    let late = decode(b"m v=1 9223372037", usize::MAX, Precision::Seconds).remove(0);
    assert!(late.expect_err("beyond 2262").contains("time outside range"));
}

#[test]
fn blanks_comments_and_ends_of_lines_are_nothing() {
    let found = decode(
        b"\n# a comment, a=b c=1\n  m v=1  5  \r\n\r\n\tm v=2\r\n#\nm v=3 7",
        usize::MAX,
        Precision::Nanoseconds,
    );
    let found: Vec<_> = found.into_iter().map(|p| p.expect("a point").timestamp).collect();
    assert_eq!(found, [Some(5), None, Some(7)]);
}

#[test]
fn errors_say_where_and_what() {
    for (line, byte, what) in [
        ("cpu", 3, "missing fields"),
        ("cpu,host=a", 10, "missing fields"),
        ("cpu ", 4, "missing fields"),
        (",host=a v=1", 0, "missing measurement"),
        ("cpu,=a v=1", 4, "missing tag key"),
        ("cpu, v=1", 4, "missing tag key"),
        ("cpu,host= v=1", 9, "missing tag value"),
        ("cpu,host v=1", 8, "missing tag value"),
        ("cpu,host=a=b v=1", 10, "invalid tag format"),
        ("cpu,a=1,a=2 v=1", 3, "duplicate tags: a"),
        ("cpu,time=1 v=1", 4, "name of the timestamp"),
        ("cpu =1", 4, "missing field key"),
        ("cpu v", 5, "missing field value"),
        ("cpu v=", 6, "missing field value"),
        ("cpu v=,w=1", 6, "missing field value"),
        ("cpu v=1,", 8, "missing field value"),
        ("cpu v=1, 3", 8, "missing field key"),
        ("cpu time=1", 4, "name of the timestamp"),
        ("cpu v=yes", 6, "invalid field format"),
        ("cpu v=tru", 6, "invalid field format"),
        ("cpu v='a'", 6, "invalid field format"),
        ("cpu v=NaN", 6, "invalid field format"),
        ("cpu v=1x", 6, "invalid number"),
        ("cpu v=1e400", 6, "invalid number"),
        ("cpu v=-inf", 6, "invalid number"),
        ("cpu v=1.5i", 6, "invalid number"),
        ("cpu v=-1u", 6, "invalid number"),
        ("cpu v=9223372036854775808i", 6, "invalid number"),
        ("cpu v=\"a", 6, "unbalanced quotes"),
        ("cpu v=\"a\"b", 9, "a comma or a blank after a string"),
        ("cpu v=1 now", 8, "bad timestamp"),
        ("cpu v=1 1.5", 9, "bad timestamp"),
        ("cpu v=1 -", 9, "bad timestamp"),
        ("cpu v=1 2 3", 10, "bad timestamp"),
        ("cpu v=1 99999999999999999999", 8, "time outside range"),
    ] {
        let error = match decode(line.as_bytes(), usize::MAX, Precision::Nanoseconds).remove(0) {
            Err(error) => error,
            Ok(point) => panic!("{line}: {point:?}"),
        };
        assert!(error.contains(what), "{line}: {error}");
        assert!(error.ends_with(&format!("(line 1, byte {byte})")), "{line}: {error}");
    }
    let not_utf8 = decode(b"cpu v=1\ncpu v=\"\xff\"\n", usize::MAX, Precision::Nanoseconds);
    let error = not_utf8[1].clone().expect_err("not UTF-8");
    assert!(error.contains("invalid UTF-8 (line 2, byte 7)"), "{error}");
}

#[test]
fn a_bad_line_costs_only_itself() {
    let found = decode(
        b"m v=1 1\nm,t=\"q v=1 2\nm v= 3\n m,t\" v=x\nm v=\"a\nb\" 4\nm v=\"a\nb\"c\nm v=5 5\n",
        usize::MAX,
        Precision::Nanoseconds,
    );
    let found: Vec<_> = found.into_iter().map(|p| p.map(|p| p.timestamp)).collect();
    let times: Vec<_> = found.iter().map(|p| p.clone().unwrap_or(Some(-1))).collect();
    assert_eq!(times, [1, 2, -1, -1, 4, -1, 5].map(Some));
    for (index, line) in [(2, 3), (3, 4), (5, 7)] {
        let error = found[index].clone().expect_err("a bad one");
        assert!(error.contains(&format!("line {line}")), "{error}");
    }
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let long = "x".repeat(300);
    let stream = format!("m v=1 1\nm v=\"{long}\nm v=2 2\nm,t={long} v=1\nm v=3 3\n# {long}");
    for step in [1, 7, 100, 1000] {
        let found = decode(stream.as_bytes(), step, Precision::Nanoseconds);
        let times: Vec<_> = found.iter().filter_map(|p| p.as_ref().ok()?.timestamp).collect();
        // The contents of an open string show as mistakes only if the line is not bounded first.
        assert!(times.ends_with(&[3]) && times.starts_with(&[1]), "{step}: {found:?}");
        assert!(found.iter().flat_map(|p| p.as_ref().err()).any(|e| e.contains("longer than 200")));
    }
    assert!(error(&format!("m v=\"{long}\" 1")).contains("line longer than 200 bytes"));
}

#[test]
fn pieces_of_a_long_line_do_not_cost_their_square() {
    let mut decoder = Decoder::new(Precision::Nanoseconds, 4 << 20);
    decoder.push(b"m v=\"");
    for _ in 0..1 << 20 {
        decoder.push(b"\n");
        assert!(decoder.next().is_none());
    }
    decoder.push(b"\" 1\n");
    decoder.finish();
    let line = decoder.next().expect("a line").expect("a good one");
    assert_eq!(line.timestamp(), Some(1));
}

/// A writable name: without a backslash at its end or before a byte that it would escape.
fn name() -> impl Strategy<Value = String> {
    "[a-z ,=\"#ü\\\\]{0,5}[a-zü\"]"
        .prop_map(|name| name.trim_start_matches(['#', ' ']).to_owned())
        .prop_filter("backslashes before what they would protect", |name| {
            !name.is_empty()
                && name != "time"
                && ["\\ ", "\\,", "\\="].iter().all(|two| !name.contains(two))
        })
}

fn value() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(Value::Float),
        any::<i64>().prop_map(Value::Integer),
        any::<u64>().prop_map(Value::Unsigned),
        any::<bool>().prop_map(Value::Boolean),
        "[a-z ,=\"\\\\\n\rü]{0,12}".prop_map(|text| Value::String(Cow::Owned(text))),
    ]
}

fn point() -> impl Strategy<Value = Point> {
    let tags = vec((name(), name()), 0..4);
    let fields = vec((name(), value()), 1..4);
    let time = proptest::option::of(-i64::MAX + 1..i64::MAX);
    (name(), tags, fields, time).prop_map(|(measurement, mut tags, fields, timestamp)| {
        tags.sort();
        tags.dedup_by(|one, other| one.0 == other.0);
        Point { measurement, tags, fields, timestamp }
    })
}

fn write(point: &Point) -> String {
    let name = |name: &str| name.replace(',', "\\,").replace(' ', "\\ ").replace('=', "\\=");
    let mut line = point.measurement.replace(',', "\\,").replace(' ', "\\ ");
    for (key, value) in &point.tags {
        line.push_str(&format!(",{}={}", name(key), name(value)));
    }
    for (n, (key, value)) in point.fields.iter().enumerate() {
        let value = match value {
            Value::Float(value) => value.to_string(),
            Value::Integer(value) => format!("{value}i"),
            Value::Unsigned(value) => format!("{value}u"),
            Value::Boolean(value) => value.to_string(),
            Value::String(value) => {
                format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
            }
        };
        line.push_str(&format!("{}{}={value}", if n == 0 { " " } else { "," }, name(key)));
    }
    if let Some(time) = point.timestamp {
        line.push_str(&format!(" {time}"));
    }
    line
}

/// Pieces that make nearly valid lines.
const PIECES: &[&[u8]] = &[
    b"m", b",", b"t", b"=", b" ", b"\"", b"\\", b"\n", b"1", b"i", b"-", b"#", b"\xc3", b"\r",
    b"f=2 ",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_written_is_read(points in vec(point(), 1..6), step in 1_usize..80) {
        let lines: Vec<_> = points.iter().map(write).filter(|line| line.len() <= 200).collect();
        let kept: Vec<_> = points.into_iter().filter(|p| write(p).len() <= 200).map(Ok).collect();
        let text = lines.join("\n");
        prop_assert_eq!(decode(text.as_bytes(), step, Precision::Nanoseconds), kept, "{}", text);
    }

    #[test]
    fn pieces_make_no_difference(
        text in vec(prop::sample::select(PIECES), 0..60),
        step in 1_usize..9,
    ) {
        let text = text.concat();
        let whole = decode(&text, usize::MAX, Precision::Nanoseconds);
        prop_assert_eq!(decode(&text, step, Precision::Nanoseconds), whole);
    }
}
