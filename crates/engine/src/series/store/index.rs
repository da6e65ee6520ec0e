//! Parts of the catalogue: strings and lists of sources.

use xxhash_rust::xxh3::xxh3_64;

use crate::series::lookup::Lookup;

/// Strings by number, each stored once.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    text: String,
    /// The end of each string.
    ends: Vec<u32>,
    lookup: Lookup,
}

impl Symbols {
    /// The string of a number.
    pub(super) fn text(&self, symbol: u32) -> &str {
        let at = symbol as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[start as usize..self.ends[at] as usize]
    }

    /// The number of a string, if it has one.
    pub(super) fn find(&self, text: &str) -> Option<u32> {
        self.lookup.get(xxh3_64(text.as_bytes()), |symbol| self.text(symbol) == text)
    }

    /// The number of a string, which is new if need be; `None` once strings take 4 GiB.
    pub(super) fn intern(&mut self, text: &str) -> Option<u32> {
        let hash = xxh3_64(text.as_bytes());
        if let Some(symbol) = self.lookup.get(hash, |symbol| self.text(symbol) == text) {
            return Some(symbol);
        }
        let end = u32::try_from(self.text.len() + text.len()).ok()?;
        let symbol = self.ends.len() as u32;
        self.text.push_str(text);
        self.ends.push(end);
        self.lookup.insert(symbol, hash);
        Some(symbol)
    }

    /// Bytes in use.
    pub(super) fn memory(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * 4 + self.lookup.memory()
    }
}

/// Sources in ascending order: one in place, several as differences of seven bits a byte.
#[derive(Debug)]
pub(super) enum Posting {
    /// For a tag value that only one source has.
    One(u32),
    Many(Box<Many>),
}

/// The position of a walk over sources.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    at: usize,
    source: u32,
}

#[derive(Debug)]
pub(super) struct Many {
    last: u32,
    bytes: Vec<u8>,
}

impl Posting {
    /// Adds a source; gives the growth in bytes. Ids ascend, except when a failed log has a source repeated: that
    /// happens only while the store is opened, when no query walks over the list.
    pub(super) fn push(&mut self, source: u32) -> usize {
        let before = self.memory();
        self.add(source);
        self.memory().saturating_sub(before)
    }

    fn add(&mut self, source: u32) {
        let last = match self {
            Self::One(last) => *last,
            Self::Many(many) => many.last,
        };
        if source <= last {
            let mut all = vec![source];
            self.collect(&mut all);
            all.sort_unstable();
            all.dedup();
            let mut many = Many { last: 0, bytes: Vec::new() };
            all.into_iter().for_each(|source| many.push(source));
            *self = Self::Many(Box::new(many));
            return;
        }
        match self {
            Self::One(first) => {
                let mut many = Many { last: 0, bytes: Vec::with_capacity(8) };
                many.push(*first);
                many.push(source);
                *self = Self::Many(Box::new(many));
            }
            Self::Many(many) => many.push(source),
        }
    }

    /// Keeps some of its sources. `None` if none is left.
    pub(super) fn retain(&self, stays: impl Fn(u32) -> bool) -> Option<Self> {
        let mut sources = Vec::new();
        self.collect(&mut sources);
        sources.retain(|&source| stays(source));
        let mut sources = sources.into_iter();
        let mut kept = Self::One(sources.next()?);
        sources.for_each(|source| kept.add(source));
        if let Self::Many(many) = &mut kept {
            many.bytes.shrink_to_fit();
        }
        Some(kept)
    }

    /// Adds its sources to a list.
    pub(super) fn collect(&self, into: &mut Vec<u32>) {
        match self {
            Self::One(source) => into.push(*source),
            Self::Many(many) => {
                let (mut bytes, mut source) = (&many.bytes[..], 0);
                while let Some(step) = crate::series::batch::take_varint(&mut bytes) {
                    source += step as u32;
                    into.push(source);
                }
            }
        }
    }

    /// Adds up to `max` sources to a list, and advances `place` behind them; says whether there are more.
    pub(super) fn collect_from(&self, place: &mut Place, max: usize, into: &mut Vec<u32>) -> bool {
        match self {
            // The walk ends here, so it never resumes in a list that has grown meanwhile.
            Self::One(source) => {
                into.push(*source);
                false
            }
            Self::Many(many) => {
                let mut bytes = many.bytes.get(place.at..).unwrap_or_default();
                for _ in 0..max {
                    let Some(step) = crate::series::batch::take_varint(&mut bytes) else { break };
                    place.source += step as u32;
                    into.push(place.source);
                }
                place.at = many.bytes.len() - bytes.len();
                !bytes.is_empty()
            }
        }
    }

    /// Bytes in use besides itself.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Many(many) => size_of::<Many>() + many.bytes.capacity(),
        }
    }
}

impl Many {
    fn push(&mut self, source: u32) {
        assert!(self.bytes.is_empty() || source > self.last, "sources of a list ascend");
        crate::series::batch::put_varint(&mut self.bytes, u64::from(source - self.last));
        self.last = source;
    }
}

/// The sources in either of two ascending lists.
pub(super) fn union(a: Vec<u32>, mut b: Vec<u32>) -> Vec<u32> {
    let mut both = a;
    both.append(&mut b);
    both.sort_unstable();
    both.dedup();
    both
}

/// The sources in both of two ascending lists.
pub(super) fn intersection(a: &[u32], b: &[u32]) -> Vec<u32> {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    short.iter().copied().filter(|one| long.binary_search(one).is_ok()).collect()
}

/// The sources in only the first of two ascending lists.
pub(super) fn difference(a: &[u32], b: &[u32]) -> Vec<u32> {
    a.iter().copied().filter(|one| b.binary_search(one).is_err()).collect()
}
