//! A trace in a file.

use std::io::{self, BufRead, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use super::compression::Compression;
use super::format::{Format, Layout};
use super::lines::{self, Line};
use super::number::Origin;
use super::{Mismatch, Request, binary};

/// Characters of a wrong line that an error shows.
const SHOWN_MAX: usize = 80;

/// The requests of a trace, in the order of the file. Ends after the first error.
///
/// # Errors
/// An item is an error if the file cannot be read or decompressed, or a record does not match the format. The error
/// names the file, and the line or record.
pub struct Reader {
    path: PathBuf,
    format: Format,
    layout: Layout,
    from: Box<dyn BufRead + Send>,
    origin: Origin,
    line: Vec<u8>,
    /// Lines or records so far.
    count: u64,
    has_ended: bool,
}

impl Reader {
    /// Opens a trace. Without a format, its name and first bytes show it.
    ///
    /// # Errors
    /// The file cannot be opened, is damaged at its start, or has a name that shows no format.
    pub fn open(path: &Path, format: Option<Format>) -> anyhow::Result<Self> {
        let shown = path.display();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (compression, name) = Compression::of(&name);
        let mut from = compression.open(path).with_context(|| format!("open the trace {shown}"))?;
        let format = match format {
            Some(format) => format,
            None => {
                let start = from.fill_buf().with_context(|| format!("read the trace {shown}"))?;
                Format::detect(name, start).ok_or_else(|| {
                    anyhow!("the name of {shown} shows no format of traces; give it by --format")
                })?
            }
        };
        Ok(Self {
            path: path.into(),
            format,
            layout: format.layout(),
            from,
            origin: Origin::default(),
            line: Vec::new(),
            count: 0,
            has_ended: false,
        })
    }

    /// The format of the trace.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The next request; `None` at the end.
    fn read(&mut self) -> Result<Option<Request>, Failure> {
        match &mut self.layout {
            Layout::Lines(parser) => loop {
                self.count += 1;
                match lines::next(&mut *self.from, &mut self.line)? {
                    Line::End => {
                        self.count -= 1;
                        parser.finish()?;
                        return Ok(None);
                    }
                    Line::NotText => return Err("a line of at most 4096 bytes of text".into()),
                    Line::Text("") => {}
                    Line::Text(line) => {
                        if let Some(request) = parser.parse(line)? {
                            return Ok(Some(request));
                        }
                    }
                }
            },
            Layout::OracleGeneral => {
                self.count += 1;
                let record = binary::record(&mut self.from)?;
                Ok(record.map(|record| binary::oracle_general(record, &mut self.origin)))
            }
            Layout::BlocksU32 => {
                self.count += 1;
                Ok(binary::record(&mut self.from)?.map(binary::block_u32))
            }
        }
    }

    /// Says where the trace is wrong.
    fn explain(&self, failure: Failure) -> anyhow::Error {
        let unit = match self.layout {
            Layout::Lines(_) => "line",
            _ => "record",
        };
        let at = format!("{}, {unit} {}", self.path.display(), self.count);
        match failure {
            Failure::Unreadable(error) if error.kind() == ErrorKind::UnexpectedEof => {
                anyhow!("{at}: the file ends inside it")
            }
            Failure::Unreadable(error) => anyhow!(error).context(at),
            Failure::Mismatch(expected) => {
                let line = String::from_utf8_lossy(&self.line);
                let found: String = line.trim_end().chars().take(SHOWN_MAX).collect();
                let format = self.format.name();
                anyhow!("{at}: expected {expected} (format {format}), found {found:?}")
            }
        }
    }
}

impl Iterator for Reader {
    type Item = anyhow::Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.read().map_err(|failure| self.explain(failure)).transpose();
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Why there is no next request.
enum Failure {
    Unreadable(io::Error),
    Mismatch(Mismatch),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

impl From<Mismatch> for Failure {
    fn from(expected: Mismatch) -> Self {
        Self::Mismatch(expected)
    }
}
