//! Tokens to statements: the common part.

use super::lexer::{Lexer, Token};
use super::pattern::Pattern;
use super::select::Select;
use super::show::Show;
use super::statement::{Keep, Named, Source, Statement};
use super::{Condition, DEPTH_MAX, SIGNS_MAX, STATEMENTS_MAX, TEXT_BYTES_MAX};

/// Text that is not a supported statement.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("error parsing query: {what} at line {line}, char {character}")]
pub struct ParseError {
    /// What was found, and what is accepted.
    pub what: String,
    /// Where: the first line is 1.
    pub line: usize,
    /// Where in that line: the first character is 1.
    pub character: usize,
}

impl ParseError {
    pub(super) fn new(text: &str, at: usize, what: String) -> Self {
        let before = &text[..at.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { what, line, character: before[start..].chars().count() + 1 }
    }
}

/// Parses all statements of `text`, separated by semicolons. `now` is the value of `now()`, in nanoseconds since 1970.
///
/// # Errors
/// The first mistake, and its place.
pub fn parse(text: &str, now: i64) -> Result<Vec<Statement>, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        let what = format!("found {} bytes, expected {TEXT_BYTES_MAX} at most", text.len());
        return Err(ParseError::new("", 0, what));
    }
    let mut parser = Parser::new(text, now)?;
    let mut statements = Vec::new();
    loop {
        while parser.takes_sign(";")? {}
        if parser.token == Token::End {
            break;
        }
        if statements.len() == STATEMENTS_MAX {
            return Err(parser.error(&format!("at most {STATEMENTS_MAX} statements")));
        }
        statements.push(parser.statement()?);
        if parser.token != Token::End && parser.token != Token::Sign(";") {
            return Err(parser.expected("; or the end"));
        }
    }
    if statements.is_empty() {
        return Err(parser.expected("SELECT, SHOW, CREATE, ALTER, DROP or DELETE"));
    }
    Ok(statements)
}

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
    fn new(text: &'a str, now: i64) -> Result<Self, ParseError> {
        let mut lexer = Lexer { text, at: 0 };
        let (token, start) = lexer.token()?;
        Ok(Self { lexer, token, start, depth: 0, signs: 0, now })
    }

    fn statement(&mut self) -> Result<Statement, ParseError> {
        if self.takes("SELECT")? {
            return Ok(Statement::Select(Box::new(Select::parse(self)?)));
        }
        if self.takes("SHOW")? {
            return Ok(Statement::Show(Show::parse(self)?));
        }
        if self.takes("CREATE")? {
            if self.sees("RETENTION") {
                return self.retention_policy();
            }
            self.require("DATABASE")?;
            let name = self.name("the name of a database")?;
            let keep = if self.takes("WITH")? { self.policy()? } else { None };
            return Ok(Statement::CreateDatabase { name, keep });
        }
        if self.takes("ALTER")? {
            return self.retention_policy();
        }
        if self.takes("DROP")? {
            if self.takes("DATABASE")? {
                return Ok(Statement::DropDatabase(self.name("the name of a database")?));
            }
            if self.takes("MEASUREMENT")? {
                return Ok(Statement::DropMeasurement(self.name("the name of a measurement")?));
            }
            if self.takes("SERIES")? {
                let (from, filter) = self.sources_and_filter("DROP SERIES")?;
                return Ok(Statement::DropSeries { from, filter });
            }
            return Err(self.expected("DATABASE, MEASUREMENT or SERIES"));
        }
        if self.takes("DELETE")? {
            let (from, filter) = self.sources_and_filter("DELETE")?;
            return Ok(Statement::Delete { from, filter });
        }
        Err(self.expected("SELECT, SHOW, CREATE, ALTER, DROP or DELETE"))
    }

    /// `RETENTION POLICY name ON database DURATION …`
    fn retention_policy(&mut self) -> Result<Statement, ParseError> {
        self.require("RETENTION")?;
        self.require("POLICY")?;
        self.name("the name of a policy")?;
        self.require("ON")?;
        let database = self.name("the name of a database")?;
        let keep = self.policy()?.ok_or_else(|| self.expected("DURATION"))?;
        Ok(Statement::Keep { database, keep })
    }

    /// The clauses of a policy, of which only the duration has an effect.
    fn policy(&mut self) -> Result<Option<Keep>, ParseError> {
        let mut keep = None;
        while !matches!(self.token, Token::End | Token::Sign(";")) {
            if self.takes("DURATION")? {
                keep = Some(self.keep()?);
            } else if self.takes("SHARD")? {
                self.require("DURATION")?;
                self.keep()?;
            } else if self.takes("REPLICATION")? {
                self.count()?;
            } else if self.takes("NAME")? {
                self.name("the name of a policy")?;
            } else if !self.takes("DEFAULT")? {
                return Err(self.expected("DURATION, REPLICATION, SHARD DURATION, NAME or DEFAULT"));
            }
        }
        Ok(keep)
    }

    fn keep(&mut self) -> Result<Keep, ParseError> {
        if self.takes("INF")? {
            return Ok(None);
        }
        let Token::Duration(nanos) = self.token else {
            return Err(self.expected("a duration, such as 30d, or INF"));
        };
        self.advance()?;
        // As in InfluxDB, a duration of zero means unlimited.
        Ok(Some(nanos).filter(|nanos| *nanos > 0))
    }

    fn sources_and_filter(
        &mut self,
        what: &str,
    ) -> Result<(Vec<Source>, Option<Condition>), ParseError> {
        let from = if self.takes("FROM")? { self.sources()? } else { Vec::new() };
        let filter = self.filter()?;
        if from.is_empty() && filter.is_none() {
            return Err(self.expected(&format!("FROM or WHERE: {what} needs to know what")));
        }
        Ok((from, filter))
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
                    return Err(self.error("found (: queries in queries are not understood"));
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
            return Err(self.error("found too many points in the name of a measurement"));
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
            return Err(self.error(&format!("found more than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        done
    }

    /// Counts one more operator: each nests the expression one level deeper.
    pub(super) fn deeper(&mut self) -> Result<(), ParseError> {
        if self.signs == SIGNS_MAX {
            return Err(
                self.error(&format!("found more than {SIGNS_MAX} signs between expressions"))
            );
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
