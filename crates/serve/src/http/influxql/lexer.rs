//! Text to tokens, one at a time.

use super::error::ParseError;

/// The smallest part of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A bare word: a keyword, or a name without quotes.
    Word(String),
    /// A name in double quotes.
    Name(String),
    /// A text in single quotes.
    Text(String),
    /// Digits.
    Integer(u64),
    /// Digits with a point or an exponent.
    Number(f64),
    /// Nanoseconds, from digits and units: `1h30m`.
    Duration(i64),
    /// One or two punctuation characters: `(`, `<=`, `::`.
    Sign(&'static str),
    /// The end of the text.
    End,
}

impl Token {
    /// The token as shown in errors.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Name(name) => format!("\"{name}\""),
            Self::Text(text) => format!("'{text}'"),
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Duration(nanos) => format!("{nanos}ns"),
            Self::Sign(sign) => (*sign).to_owned(),
            Self::End => "EOF".to_owned(),
        }
    }
}

/// Longer signs come first.
const SIGNS: [&str; 21] = [
    "::", "=~", "!~", "!=", "<>", "<=", ">=", "(", ")", ",", ";", ".", "=", "<", ">", "+", "-",
    "*", "/", "%", ":",
];

/// Units of durations, in nanoseconds. Longer names come first.
const UNITS: [(&str, i64); 11] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("µ", 1_000),
    ("u", 1_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

/// Reads tokens from a position in a text.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Lexer<'a> {
    /// The next token and its start.
    pub(super) fn token(&mut self) -> Result<(Token, usize), ParseError> {
        self.blanks()?;
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok((Token::End, start)) };
        let token = match first {
            '"' => Token::Name(self.quoted('"', start)?),
            '\'' => Token::Text(self.quoted('\'', start)?),
            '0'..='9' => self.number(start)?,
            '.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => self.number(start)?,
            _ if is_word(first) => {
                let len = rest.find(|c| !is_word(c) && !c.is_ascii_digit()).unwrap_or(rest.len());
                self.at += len;
                Token::Word(rest[..len].to_owned())
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => {
                    self.at += sign.len();
                    Token::Sign(sign)
                }
                None => {
                    let found = first.escape_debug();
                    return Err(self.error(start, format!("found an unexpected {found}")));
                }
            },
        };
        Ok((token, start))
    }

    /// The text between two slashes, with the first one at `self.at`.
    pub(super) fn between_slashes(&mut self) -> Result<String, ParseError> {
        let start = self.at;
        let mut text = String::new();
        let mut characters = self.rest()[1..].char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            match character {
                '/' => {
                    self.at += at + 2;
                    return Ok(text);
                }
                '\\' if characters.peek().is_some_and(|(_, next)| *next == '/') => {
                    text.push('/');
                    characters.next();
                }
                // A backslash takes the next character along; one before a slash is dropped.
                '\\' => {
                    text.push('\\');
                    text.extend(characters.next().map(|(_, next)| next));
                }
                other => text.push(other),
            }
        }
        Err(self.error(start, "found a regular expression without its closing slash".into()))
    }

    pub(super) fn error(&self, at: usize, what: String) -> ParseError {
        ParseError::new(self.text, at, what)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips blanks and comments.
    fn blanks(&mut self) -> Result<(), ParseError> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            self.at += blank;
            let rest = self.rest();
            if rest.starts_with("--") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let Some(end) = rest.find("*/") else {
                    return Err(self.error(self.at, "found a comment without its end".into()));
                };
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn quoted(&mut self, quote: char, start: usize) -> Result<String, ParseError> {
        let mut text = String::new();
        let mut characters = self.rest()[1..].char_indices();
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.at += at + 2;
                return Ok(text);
            }
            if character != '\\' {
                text.push(character);
                continue;
            }
            match characters.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, same @ ('\\' | '"' | '\''))) => text.push(same),
                Some((_, other)) => {
                    return Err(self.error(start + 1 + at, format!("found \\{other}, bad escape")));
                }
                None => break,
            }
        }
        Err(self.error(start, format!("found {quote} without its closing quote")))
    }

    fn number(&mut self, start: usize) -> Result<Token, ParseError> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(self.rest());
        let rest = &self.rest()[whole..];
        if let Some((unit, nanos)) = unit(rest) {
            return self.duration(start, whole, unit, nanos);
        }
        let mut len = whole;
        if let Some(fraction) = rest.strip_prefix('.') {
            len += 1 + digits(fraction);
        }
        let rest = &self.rest()[len..];
        if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            match digits(&exponent[sign..]) {
                0 => {}
                some => len += 1 + sign + some,
            }
        }
        let text = &self.rest()[..len];
        let wrong = || self.error(start, format!("found {text}, a number out of range"));
        let token = if len == whole {
            Token::Integer(text.parse().map_err(|_| wrong())?)
        } else {
            let number = text.parse().ok().filter(|number: &f64| number.is_finite());
            Token::Number(number.ok_or_else(wrong)?)
        };
        self.at += len;
        Ok(token)
    }

    /// `1h30m`: the first number and unit are parsed already.
    fn duration(
        &mut self,
        start: usize,
        digits: usize,
        unit_len: usize,
        nanos: i64,
    ) -> Result<Token, ParseError> {
        let mut total = 0_i64;
        let mut part = Some((digits, unit_len, nanos));
        while let Some((digits, unit_len, nanos)) = part {
            let count = self.rest()[..digits].parse::<i64>().ok();
            let sum = count
                .and_then(|count| count.checked_mul(nanos))
                .and_then(|nanos| nanos.checked_add(total));
            total = sum.ok_or_else(|| self.error(start, "found a duration out of range".into()))?;
            self.at += digits + unit_len;
            let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
            part = unit(&self.rest()[digits..])
                .filter(|_| digits > 0)
                .map(|(unit_len, nanos)| (digits, unit_len, nanos));
        }
        Ok(Token::Duration(total))
    }
}

/// The unit at the start of `text`: its length, and its nanoseconds.
fn unit(text: &str) -> Option<(usize, i64)> {
    let found = UNITS.iter().find(|(name, _)| text.starts_with(name));
    found.map(|(name, nanos)| (name.len(), *nanos))
}

fn is_word(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}
