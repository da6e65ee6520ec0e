//! Files that may be compressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use zstd::stream::read::Decoder;

/// The compression of a file, by the end of its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Compression {
    None,
    Gzip,
    Xz,
    Zstd,
}

/// The most memory that the window of an xz block may take: 64 MiB, that of `xz -9`, and the decoder's own.
const XZ_KIB_MAX: u32 = 80 << 10;

/// The largest window of a zstd frame, as a power of two: 128 MiB, up to which zstd decompresses unasked.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

impl Compression {
    const ENDS: [(&str, Self); 5] = [
        (".gz", Self::Gzip),
        (".xz", Self::Xz),
        (".zst", Self::Zstd),
        (".zstd", Self::Zstd),
        ("", Self::None),
    ];

    /// The compression, and the name of the file without it.
    pub(super) fn of(name: &str) -> (Self, &str) {
        let mut ends = Self::ENDS.iter();
        let found = ends.find_map(|(end, kind)| Some((*kind, name.strip_suffix(end)?)));
        found.unwrap_or((Self::None, name))
    }

    /// Opens a file and decompresses it as it is read.
    pub(super) fn open(self, path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
        let file = BufReader::new(File::open(path)?);
        Ok(match self {
            Self::None => Box::new(file),
            Self::Gzip => Box::new(BufReader::new(MultiGzDecoder::new(file))),
            Self::Xz => Box::new(BufReader::new(XzReader::new_mem_limit(file, true, XZ_KIB_MAX))),
            Self::Zstd => {
                let mut decoder = Decoder::with_buffer(file)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(BufReader::new(decoder))
            }
        })
    }
}
