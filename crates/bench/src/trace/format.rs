//! The formats by name, and how a file shows which one it has.

use super::LineParser;
use super::blkparse::Blkparse;
use super::comma::{Blocks, Msr, Spc, VscsiCsv};
use super::fiu::Fiu;

/// The format of a trace; see [the module](super).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    /// MSR-Cambridge.
    Msr,
    /// Storage Performance Council, as the University of Massachusetts has traces.
    Spc,
    /// blkparse's output.
    Blkparse,
    /// Florida International University.
    Fiu,
    /// libCacheSim's CSV of a virtual SCSI disk.
    VscsiCsv,
    /// libCacheSim's binary format.
    OracleGeneral,
    /// Block numbers, one a line.
    Blocks,
    /// Block numbers of 32 bits.
    BlocksU32,
}

/// How records of a format lie in a file.
pub(super) enum Layout {
    /// One a line.
    Lines(Box<dyn LineParser>),
    /// 24 bytes each.
    OracleGeneral,
    /// 4 bytes each.
    BlocksU32,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 8] = [
        Self::Msr,
        Self::Spc,
        Self::Blkparse,
        Self::Fiu,
        Self::VscsiCsv,
        Self::OracleGeneral,
        Self::Blocks,
        Self::BlocksU32,
    ];

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Msr => "msr",
            Self::Spc => "spc",
            Self::Blkparse => "blkparse",
            Self::Fiu => "fiu",
            Self::VscsiCsv => "vscsi-csv",
            Self::OracleGeneral => "oracle-general",
            Self::Blocks => "blocks",
            Self::BlocksU32 => "blocks-u32",
        }
    }

    /// The format of a file by its name without the end for its compression, and by its first bytes where several
    /// formats share a name. `None` if neither tells.
    #[must_use]
    pub(super) fn detect(name: &str, start: &[u8]) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        if name.contains("oraclegeneral") {
            return Some(Self::OracleGeneral);
        }
        let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        if ends(&[".csv"]) {
            let is_vscsi = line.starts_with(b"version,");
            return Some(if is_vscsi { Self::VscsiCsv } else { Self::Msr });
        }
        if ends(&[".spc"]) {
            return Some(Self::Spc);
        }
        if ends(&[".blkparse"]) {
            let device = line.trim_ascii_start().split(u8::is_ascii_whitespace).next();
            let is_blkparse = device.is_some_and(|device| device.contains(&b','));
            return Some(if is_blkparse { Self::Blkparse } else { Self::Fiu });
        }
        if ends(&[".trace", ".txt", ".blocks", ".lis"]) {
            let is_digit = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_whitespace();
            return Some(if start.iter().all(is_digit) { Self::Blocks } else { Self::BlocksU32 });
        }
        None
    }

    pub(super) fn layout(self) -> Layout {
        match self {
            Self::Msr => Layout::Lines(Box::<Msr>::default()),
            Self::Spc => Layout::Lines(Box::<Spc>::default()),
            Self::Blkparse => Layout::Lines(Box::<Blkparse>::default()),
            Self::Fiu => Layout::Lines(Box::<Fiu>::default()),
            Self::VscsiCsv => Layout::Lines(Box::<VscsiCsv>::default()),
            Self::OracleGeneral => Layout::OracleGeneral,
            Self::Blocks => Layout::Lines(Box::new(Blocks)),
            Self::BlocksU32 => Layout::BlocksU32,
        }
    }
}
