//! A TOML text as sections and fields with their places, so that every mistake names its place.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::{Mistake, Mistakes};
use super::nearest::nearest;
use super::units;

/// The characters of a text that a mistake quotes at most.
const QUOTED_CHARS_MAX: usize = 60;

/// A file, its text, and the mistakes found so far.
pub(super) struct Document<'t> {
    file: &'t Path,
    text: &'t str,
    mistakes: RefCell<Vec<Mistake>>,
}

/// A table with a name. Readers note mistakes and go on, so that all are reported at once.
pub(super) struct Section<'d> {
    document: &'d Document<'d>,
    /// Its dotted name; empty for the whole file.
    pub(super) name: String,
    span: Range<usize>,
    table: &'d DeTable<'d>,
}

/// A value, its key and its place.
pub(super) struct Field<'d> {
    document: &'d Document<'d>,
    key: String,
    span: Range<usize>,
    value: &'d DeValue<'d>,
}

impl<'t> Document<'t> {
    pub(super) fn new(file: &'t Path, text: &'t str) -> Self {
        Self { file, text, mistakes: RefCell::default() }
    }

    /// The tables of the file.
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'t>>, Mistake> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().unwrap_or_default().start.min(self.text.len());
            let line = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let found = self.text[line..].lines().next().unwrap_or_default();
            // A line that cannot be parsed may contain a password.
            let found = if found.contains("password") { "***".into() } else { quoted(found) };
            let expected = format!("TOML ({})", error.message());
            Mistake::at(self.file, self.line(at), "the text", found, expected)
        })
    }

    /// The whole file as a section.
    pub(super) fn root<'d>(
        &'d self,
        tables: &'d Spanned<DeTable<'d>>,
        keys: &'static [&'static str],
    ) -> Section<'d> {
        let span = tables.span();
        Section::of(self, String::new(), span, tables.get_ref(), keys)
    }

    /// Every noted mistake, from top to bottom.
    pub(super) fn mistakes(&self) -> Result<(), Mistakes> {
        Mistakes::of(self.mistakes.take()).map_or(Ok(()), Err)
    }

    /// The first of these mistakes; notes the others.
    fn first_of(&self, wrong: impl IntoIterator<Item = Mistake>) -> Option<Mistake> {
        let mut wrong = wrong.into_iter();
        let first = wrong.next();
        self.mistakes.borrow_mut().extend(wrong);
        first
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text[..at].matches('\n').count()
    }
}

impl<'d> Section<'d> {
    fn of(
        document: &'d Document<'d>,
        name: String,
        span: Range<usize>,
        table: &'d DeTable<'d>,
        keys: &'static [&'static str],
    ) -> Self {
        let section = Self { document, name, span, table };
        for unknown in table.keys().filter(|key| !keys.contains(&&**key.get_ref())) {
            let name = &**unknown.get_ref();
            let mut accepted = keys.join(", ");
            if let Some(meant) = nearest(name, keys.iter().copied()) {
                accepted.push_str(&format!(" (did you mean {meant:?}?)"));
            }
            let line = document.line(unknown.span().start);
            let key = section.dotted(name);
            section.note(Mistake::at(document.file, line, key, "an unknown key", accepted));
        }
        section
    }

    /// Notes a mistake.
    pub(super) fn note(&self, mistake: Mistake) {
        self.document.mistakes.borrow_mut().push(mistake);
    }

    /// Both values; if both are wrong, returns the first mistake and notes the second.
    pub(super) fn both<A, B>(
        &self,
        one: Result<A, Mistake>,
        other: Result<B, Mistake>,
    ) -> Result<(A, B), Mistake> {
        match (one, other) {
            (Ok(one), Ok(other)) => Ok((one, other)),
            (Err(mistake), Ok(_)) | (Ok(_), Err(mistake)) => Err(mistake),
            (Err(first), Err(second)) => {
                self.note(second);
                Err(first)
            }
        }
    }

    /// The value; notes a mistake and returns `None`.
    pub(super) fn noted<T>(&self, read: Result<T, Mistake>) -> Option<T> {
        read.map_err(|mistake| self.note(mistake)).ok()
    }

    /// The value of `key`, if present and valid.
    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Field<'d>) -> Result<T, Mistake>,
    ) -> Option<T> {
        self.noted(read(&self.get(key)?))
    }

    /// The value of `key`; the default if it is missing or wrong.
    pub(super) fn read_or<T>(
        &self,
        key: &str,
        usual: T,
        read: impl FnOnce(&Field<'d>) -> Result<T, Mistake>,
    ) -> T {
        self.read(key, read).unwrap_or(usual)
    }

    /// The value of the required `key`; `accepted` says what to write if it is missing.
    pub(super) fn need<T>(
        &self,
        key: &str,
        accepted: &str,
        read: impl FnOnce(&Field<'d>) -> Result<T, Mistake>,
    ) -> Option<T> {
        self.noted(self.require(key, accepted).and_then(|field| read(&field)))
    }

    fn dotted(&self, key: &str) -> String {
        if self.name.is_empty() { key.into() } else { format!("{}.{key}", self.name) }
    }

    /// Reads each `[kind.<name>]`; returns the valid ones.
    pub(super) fn each<T>(
        &self,
        kind: &'static str,
        keys: &'static [&'static str],
        read: impl Fn(&Section<'_>) -> Option<T>,
    ) -> Vec<T> {
        let example = format!("at least one section [{kind}.<name>]");
        let tables = self.need(kind, &example, |all| match all.value {
            DeValue::Table(tables) if !tables.is_empty() => Ok(tables),
            _ => Err(all.mistake(&*example)),
        });
        let section = |name: &Spanned<Cow<'_, str>>, value: &'d Spanned<DeValue<'d>>| {
            let key = format!("{kind}.{}", name.get_ref());
            let named =
                Field { document: self.document, key, span: value.span(), value: value.get_ref() };
            if !is_name(name.get_ref()) {
                self.note(named.mistake("names of 1 to 32 letters, digits, - and _"));
                return None;
            }
            read(&self.noted(named.section(keys))?)
        };
        let tables = tables.into_iter().flat_map(|tables| tables.iter());
        tables.filter_map(|(name, value)| section(name, value)).collect()
    }

    /// The names of all sections `[kind.<name>]`, valid or not.
    pub(super) fn names(&self, kind: &str) -> Vec<&'d str> {
        let tables = self.table.get(kind).and_then(|all| all.get_ref().as_table());
        let names = tables.into_iter().flat_map(|tables| tables.keys());
        names.map(|name| &**name.get_ref()).collect()
    }

    /// The text of a key in a section below, if it is one: `pool.main.layout`.
    pub(super) fn text_at(&self, kind: &str, name: &str, key: &str) -> Option<&'d str> {
        let all = self.table.get(kind)?.get_ref().as_table()?;
        all.get(name)?.get_ref().as_table()?.get(key)?.get_ref().as_str()
    }

    /// The section `[name]`, if present.
    pub(super) fn optional_section(
        &self,
        name: &'static str,
        keys: &'static [&'static str],
    ) -> Option<Section<'d>> {
        self.noted(self.get(name)?.section(keys))
    }

    /// The value of `key`, if present.
    pub(super) fn get(&self, key: &str) -> Option<Field<'d>> {
        let value = self.table.get(key)?;
        Some(Field {
            document: self.document,
            key: self.dotted(key),
            span: value.span(),
            value: value.get_ref(),
        })
    }

    /// The value of `key`; `accepted` says what to write if it is missing.
    pub(super) fn require(&self, key: &str, accepted: &str) -> Result<Field<'d>, Mistake> {
        self.get(key).ok_or_else(|| self.missing(key, accepted))
    }

    /// The mistake that `key` is missing.
    pub(super) fn missing(&self, key: &str, accepted: &str) -> Mistake {
        let line = self.document.line(self.span.start);
        Mistake::at(self.document.file, line, self.dotted(key), "nothing", accepted)
    }

    /// The value of an existing key in a section below: `pool.main.volumes`.
    pub(super) fn at(&self, kind: &str, name: &str, key: &str) -> Field<'d> {
        let table = self.table.get(kind).and_then(|all| all.get_ref().as_table());
        let section = table.and_then(|all| all.get(name)).and_then(|one| one.get_ref().as_table());
        let value = section.and_then(|section| section.get(key));
        let value = value.expect("a value that was read from here");
        Field {
            document: self.document,
            key: format!("{kind}.{name}.{key}"),
            span: value.span(),
            value: value.get_ref(),
        }
    }
}

impl<'d> Field<'d> {
    /// The mistake that this value is wrong; `accepted` says what is valid.
    pub(super) fn mistake(&self, accepted: impl Into<String>) -> Mistake {
        self.mistaken(self.shown(), accepted)
    }

    /// The mistake that `found`, in words, is wrong here.
    pub(super) fn mistaken(
        &self,
        found: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Mistake {
        let line = self.document.line(self.span.start);
        Mistake::at(self.document.file, line, &*self.key, found, accepted)
    }

    /// As [`Field::mistaken`], at a place inside the value.
    pub(super) fn mistaken_at(
        &self,
        at: usize,
        found: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Mistake {
        let line = self.document.line(at.clamp(self.span.start, self.span.end));
        Mistake::at(self.document.file, line, &*self.key, found, accepted)
    }

    /// The value as written in the file; passwords, users and tokens are masked.
    fn shown(&self) -> String {
        let secret = |key| self.key.ends_with(key);
        if ["password", "users", "tokens", ".token"].into_iter().any(secret) {
            return "***".into();
        }
        match self.value {
            DeValue::Table(_) => "a table".into(),
            DeValue::String(text) => quoted(text),
            _ => shortened(&self.document.text[self.span.clone()]),
        }
    }

    /// The table at this place.
    pub(super) fn section(self, keys: &'static [&'static str]) -> Result<Section<'d>, Mistake> {
        match self.value {
            DeValue::Table(table) => {
                Ok(Section::of(self.document, self.key, self.span, table, keys))
            }
            _ => Err(self.mistake(format!("a section [{}]", self.key))),
        }
    }

    /// The value with its place, for a reader that parses TOML itself.
    pub(super) fn spanned(&self) -> Spanned<DeValue<'d>> {
        Spanned::new(self.span.clone(), self.value.clone())
    }

    /// Whether the value is a table.
    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// A nonempty text.
    pub(super) fn text(&self, accepted: &str) -> Result<&'d str, Mistake> {
        self.value.as_str().filter(|text| !text.is_empty()).ok_or_else(|| self.mistake(accepted))
    }

    /// A text that `read` accepts.
    pub(super) fn parsed<T>(
        &self,
        accepted: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Mistake> {
        read(self.text(accepted)?).ok_or_else(|| self.mistake(accepted))
    }

    /// A path; a relative one is relative to the file's directory.
    pub(super) fn path(&self) -> Result<PathBuf, Mistake> {
        let path = self.text("a path")?;
        Ok(self.document.file.parent().unwrap_or(Path::new("")).join(path))
    }

    /// A size of at least one byte.
    pub(super) fn size(&self) -> Result<u64, Mistake> {
        self.parsed(units::SIZE, |text| units::size(text).filter(|&bytes| bytes > 0))
    }

    /// A duration.
    pub(super) fn duration(&self) -> Result<Duration, Mistake> {
        self.parsed(units::DURATION, units::duration)
    }

    /// `true` or `false`.
    pub(super) fn flag(&self) -> Result<bool, Mistake> {
        self.value.as_bool().ok_or_else(|| self.mistake("true or false"))
    }

    /// A whole number in `range`.
    pub(super) fn number(&self, range: RangeInclusive<u64>) -> Result<u64, Mistake> {
        let number = self
            .value
            .as_integer()
            .and_then(|digits| u64::from_str_radix(digits.as_str(), digits.radix()).ok());
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            self.mistake(match *range.end() {
                u64::MAX => format!("a whole number from {}", range.start()),
                end => format!("a whole number from {} to {end}", range.start()),
            })
        })
    }

    /// A number between 0 and 1.
    pub(super) fn fraction(&self) -> Result<f64, Mistake> {
        let text = match self.value {
            DeValue::Float(number) => number.as_str(),
            DeValue::Integer(number) => number.as_str(),
            _ => "",
        };
        let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| self.mistake("a number from 0 to 1"))
    }

    /// One of `words`.
    pub(super) fn word<'w>(&self, words: &[&'w str]) -> Result<&'w str, Mistake> {
        let found = self.value.as_str().and_then(|text| words.iter().find(|word| **word == text));
        found.copied().ok_or_else(|| self.mistake(words.join(", ")))
    }

    /// One of `names`; any text if there are no names, which is reported as its own mistake.
    pub(super) fn known(&self, names: &[&str]) -> Result<&'d str, Mistake> {
        let accepted = names.join(", ");
        let text = self.text(&accepted)?;
        let is_known = names.is_empty() || names.contains(&text);
        if is_known { Ok(text) } else { Err(self.mistake(accepted)) }
    }

    /// A nonempty list.
    pub(super) fn items(&self, accepted: &str) -> Result<Vec<Field<'d>>, Mistake> {
        let items = self.value.as_array().filter(|items| !items.is_empty());
        let items = items.ok_or_else(|| self.mistake(accepted))?;
        let field = |item: &'d Spanned<DeValue<'d>>| Field {
            document: self.document,
            key: self.key.clone(),
            span: item.span(),
            value: item.get_ref(),
        };
        Ok(items.iter().map(field).collect())
    }

    /// A nonempty list of distinct texts that `read` accepts. All mistakes are reported.
    pub(super) fn list<T>(
        &self,
        accepted: &str,
        read: impl Fn(&Field<'d>) -> Result<T, Mistake>,
    ) -> Result<Vec<T>, Mistake> {
        let mut seen = BTreeSet::new();
        self.every(accepted, |field| {
            let text = field.text(accepted)?;
            if !seen.insert(text) {
                return Err(field.mistaken(format!("{} twice", quoted(text)), "each name once"));
            }
            read(&field)
        })
    }

    /// A nonempty list of items that `read` accepts. Returns the first mistake and notes the others.
    pub(super) fn every<T>(
        &self,
        accepted: &str,
        mut read: impl FnMut(Field<'d>) -> Result<T, Mistake>,
    ) -> Result<Vec<T>, Mistake> {
        let (mut good, mut wrong) = (Vec::new(), Vec::new());
        for item in self.items(accepted)? {
            match read(item) {
                Ok(item) => good.push(item),
                Err(mistake) => wrong.push(mistake),
            }
        }
        self.document.first_of(wrong).map_or(Ok(good), Err)
    }
}

/// Names become labels of metrics and names of files.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=32).contains(&name.len()) && name.bytes().all(allowed)
}

fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}
