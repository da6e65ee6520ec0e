//! Tokens to the parts that all statements share.

use super::error::ParseError;
use super::lexer::{Lexer, Token};
use super::names::{Kind, Named, Reference, Source};
use super::pattern::Pattern;

/// The most nested parentheses and calls.
pub const DEPTH_MAX: usize = 64;
/// The most operators between expressions of one text.
pub const SIGNS_MAX: usize = 500;

/// Parses statements with one token of lookahead.
pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The lookahead token.
    pub(super) token: Token,
    /// Its start.
    start: usize,
    depth: usize,
    /// Operators between expressions so far.
    signs: usize,
    pub(super) now: i64,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, now: i64) -> Result<Self, ParseError> {
        let mut lexer = Lexer { text, at: 0 };
        let (token, start) = lexer.token()?;
        Ok(Self { lexer, token, start, depth: 0, signs: 0, now })
    }

    /// The sources after `FROM`.
    pub(super) fn sources(&mut self) -> Result<Vec<Source>, ParseError> {
        let mut sources = vec![self.source()?];
        while self.takes_sign(",")? {
            sources.push(self.source()?);
        }
        Ok(sources)
    }

    /// `measurement`, `policy.measurement`, `database.policy.measurement` or `database..measurement`; the measurement
    /// may be a pattern.
    fn source(&mut self) -> Result<Source, ParseError> {
        let mut parts = Vec::new();
        let named = loop {
            if self.token == Token::Sign("/") {
                break Named::Like(self.pattern()?);
            }
            if self.token == Token::Sign(".") && !parts.is_empty() {
                // An empty part means the default policy.
                parts.push(String::new());
            } else {
                if self.token == Token::Sign("(") {
                    return Err(self.error("found (: subqueries are not supported"));
                }
                parts.push(self.name("the name of a measurement, or a /pattern/")?);
            }
            if !self.takes_sign(".")? {
                break Named::Is(parts.pop().unwrap_or_default());
            }
        };
        let mut parts = parts.into_iter().rev();
        let policy = parts.next().filter(|policy| !policy.is_empty());
        let database = parts.next();
        if parts.next().is_some() {
            return Err(self.error("found too many dots in the name of a measurement"));
        }
        Ok(Source { database, policy, measurement: named })
    }

    /// A name, with or without quotes.
    pub(super) fn name(&mut self, expected: &str) -> Result<String, ParseError> {
        match &self.token {
            Token::Name(name) => {
                let name = name.clone();
                self.advance()?;
                Ok(name)
            }
            Token::Word(word) if !is_reserved(word) => {
                let word = word.clone();
                self.advance()?;
                Ok(word)
            }
            _ => Err(self.expected(expected)),
        }
    }

    /// A name with an optional cast.
    pub(super) fn reference(&mut self) -> Result<Reference, ParseError> {
        let name = self.name("the name of a tag or a field")?;
        Ok(Reference { name, kind: self.cast()? })
    }

    /// `::tag`, `::field`, or a kind of field.
    pub(super) fn cast(&mut self) -> Result<Option<Kind>, ParseError> {
        if !self.takes_sign("::")? {
            return Ok(None);
        }
        let kind = match &self.token {
            Token::Word(word) => Kind::named(word),
            _ => None,
        };
        let kind = kind.ok_or_else(|| {
            self.expected("tag, field, float, integer, unsigned, string or boolean")
        })?;
        self.advance()?;
        Ok(Some(kind))
    }

    /// A pattern; its first slash is the lookahead token.
    pub(super) fn pattern(&mut self) -> Result<Pattern, ParseError> {
        if self.token != Token::Sign("/") {
            return Err(self.expected("a /pattern/"));
        }
        let start = self.start;
        self.lexer.at = start;
        let text = self.lexer.between_slashes()?;
        let pattern =
            Pattern::new(&text).map_err(|why| self.lexer.error(start, format!("found a {why}")))?;
        self.advance()?;
        Ok(pattern)
    }

    /// A nonnegative whole number.
    pub(super) fn count(&mut self) -> Result<u64, ParseError> {
        let Token::Integer(count) = self.token else { return Err(self.expected("a number")) };
        self.advance()?;
        Ok(count)
    }

    /// Advances past the lookahead token.
    pub(super) fn advance(&mut self) -> Result<(), ParseError> {
        (self.token, self.start) = self.lexer.token()?;
        Ok(())
    }

    /// Whether the lookahead is this keyword.
    pub(super) fn sees(&self, keyword: &str) -> bool {
        matches!(&self.token, Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    /// Consumes this keyword, if it is the lookahead.
    pub(super) fn takes(&mut self, keyword: &str) -> Result<bool, ParseError> {
        let sees = self.sees(keyword);
        if sees {
            self.advance()?;
        }
        Ok(sees)
    }

    /// Consumes this sign, if it is the lookahead.
    pub(super) fn takes_sign(&mut self, sign: &str) -> Result<bool, ParseError> {
        let sees = matches!(self.token, Token::Sign(found) if found == sign);
        if sees {
            self.advance()?;
        }
        Ok(sees)
    }

    /// Consumes this required keyword.
    pub(super) fn require(&mut self, keyword: &str) -> Result<(), ParseError> {
        if self.takes(keyword)? { Ok(()) } else { Err(self.expected(keyword)) }
    }

    /// Consumes this required sign.
    pub(super) fn require_sign(&mut self, sign: &str) -> Result<(), ParseError> {
        if self.takes_sign(sign)? { Ok(()) } else { Err(self.expected(sign)) }
    }

    /// Runs `work` one level deeper.
    pub(super) fn nested<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(&format!("found more than {DEPTH_MAX} nested levels")));
        }
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        done
    }

    /// Counts one more operator: each nests the expression one level deeper.
    pub(super) fn deeper(&mut self) -> Result<(), ParseError> {
        if self.signs == SIGNS_MAX {
            return Err(self.error(&format!("found more than {SIGNS_MAX} operators")));
        }
        self.signs += 1;
        Ok(())
    }

    /// The error that the lookahead token is not `expected`.
    pub(super) fn expected(&self, expected: &str) -> ParseError {
        self.error(&format!("found {}, expected {expected}", self.token.shown()))
    }

    /// An error at the start of the lookahead token.
    pub(super) fn error(&self, what: &str) -> ParseError {
        self.lexer.error(self.start, what.to_owned())
    }
}

/// Reserved words: a name that equals one needs quotes.
fn is_reserved(word: &str) -> bool {
    const RESERVED: [&str; 22] = [
        "AND", "AS", "BY", "CREATE", "DELETE", "DROP", "FROM", "GROUP", "IN", "INTO", "LIMIT",
        "NOT", "OFFSET", "ON", "OR", "ORDER", "SELECT", "SHOW", "SLIMIT", "SOFFSET", "WHERE",
        "WITH",
    ];
    RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}
