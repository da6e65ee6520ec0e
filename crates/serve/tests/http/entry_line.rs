//! Bytes of any kind as line protocol: the result is lines and errors, independent of the pieces, and a line survives a
//! round trip.

use serve::http::line::{Decoder, Head, Precision, Value};

/// Small, so that inputs reach it.
const LINE_BYTES_MAX: usize = 300;

/// Parses the bytes after the first one, which determines the length of pieces.
pub(crate) fn run(data: &[u8]) {
    let Some((&how, stream)) = data.split_first() else { return };
    let step = usize::from(how % 32) + 1;
    let long = longest(stream) > LINE_BYTES_MAX;
    let (pieces, whole) = (decode(stream, step), decode(stream, usize::MAX));
    // The place where a line becomes too long depends on the pieces.
    assert!(long || pieces == whole, "{pieces:?} in pieces of {step}, {whole:?} at once");
    for line in whole.into_iter().flatten() {
        let again = decode(line.as_bytes(), usize::MAX);
        assert!(
            line.len() > LINE_BYTES_MAX || again == [Ok(line.clone())],
            "{line:?} is read as {again:?}"
        );
    }
}

fn longest(stream: &[u8]) -> usize {
    // A string may contain line feeds.
    if stream.contains(&b'"') {
        return stream.len();
    }
    stream.split(|&byte| byte == b'\n').map(<[u8]>::len).max().unwrap_or_default()
}

/// Each line written again, or its mistake.
fn decode(stream: &[u8], step: usize) -> Vec<Result<String, String>> {
    let mut decoder = Decoder::new(Precision::Nanoseconds, LINE_BYTES_MAX);
    let mut found = Vec::new();
    for piece in stream.chunks(step).map(Some).chain([None]) {
        match piece {
            Some(piece) => decoder.push(piece),
            None => decoder.finish(),
        }
        while let Some(line) = decoder.next() {
            let line = line.and_then(|line| {
                let head = Head::parse(line.head()).map_err(|(at, what)| line.bad(at, what))?;
                let mut text = name(&head.measurement, &[',', ' ']);
                for (key, value) in &head.tags {
                    let escaped = [',', ' ', '='];
                    text.push_str(&format!(",{}={}", name(key, &escaped), name(value, &escaped)));
                }
                for (n, field) in line.fields().enumerate() {
                    text.push(if n == 0 { ' ' } else { ',' });
                    text.push_str(&name(&field.name, &[',', ' ', '=']));
                    text.push('=');
                    text.push_str(&value(&field.value));
                }
                text.extend(line.timestamp().map(|time| format!(" {time}")));
                Ok(text)
            });
            found.push(line.map_err(|bad| bad.to_string()));
        }
        assert!(decoder.waiting() <= LINE_BYTES_MAX + step.min(stream.len()), "too much waits");
    }
    found
}

fn name(name: &str, escaped: &[char]) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if escaped.contains(&character) {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

fn value(value: &Value<'_>) -> String {
    match value {
        Value::Float(value) => value.to_string(),
        Value::Integer(value) => format!("{value}i"),
        Value::Unsigned(value) => format!("{value}u"),
        Value::Boolean(value) => value.to_string(),
        Value::String(text) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
    }
}
