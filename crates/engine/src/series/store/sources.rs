//! Facts about each source, by id. Ids only grow: pages of deleted sources take no memory.

use std::ops::{Index, IndexMut};

/// No buffer, or no segment.
pub(super) const NONE: u32 = u32::MAX;

/// How many sources share a page, and a record of the catalogue.
pub(super) const PAGE: u32 = 1024;

/// A source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Where its key starts; [`NONE`] if there is no such source.
    pub(super) start: u32,
    pub(super) tags: u16,
    /// The set of its fields.
    pub(super) set: u32,
    /// Its buffer.
    pub(super) buffer: u32,
    /// The latest segment of the log that defines it.
    pub(super) logged_in: u32,
}

const NOBODY: Source = Source { start: NONE, tags: 0, set: 0, buffer: NONE, logged_in: NONE };

#[derive(Debug)]
struct Page {
    sources: Box<[Source]>,
    /// How many of them exist.
    count: u32,
}

/// All sources.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pages: Vec<Option<Page>>,
    len: usize,
    count: usize,
}

impl Sources {
    /// The id of the next source.
    pub(super) fn next(&self) -> u32 {
        self.len as u32
    }

    /// How many exist.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The source of an id, if it exists.
    pub(super) fn get(&self, source: u32) -> Option<&Source> {
        let page = self.pages.get((source / PAGE) as usize)?.as_ref()?;
        Some(&page.sources[(source % PAGE) as usize]).filter(|facts| facts.start != NONE)
    }

    /// See [`Sources::get`].
    pub(super) fn get_mut(&mut self, source: u32) -> Option<&mut Source> {
        let page = self.pages.get_mut((source / PAGE) as usize)?.as_mut()?;
        Some(&mut page.sources[(source % PAGE) as usize]).filter(|facts| facts.start != NONE)
    }

    /// Gives later sources ids from `next` on.
    pub(super) fn pass_over(&mut self, next: u32) {
        self.len = self.len.max(next as usize);
    }

    /// Adds a source.
    pub(super) fn insert(&mut self, source: u32, start: u32, tags: u16) {
        self.pass_over(source + 1);
        let page = (source / PAGE) as usize;
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page]
            .get_or_insert_with(|| Page { sources: vec![NOBODY; PAGE as usize].into(), count: 0 });
        page.sources[(source % PAGE) as usize] = Source { start, tags, ..NOBODY };
        page.count += 1;
        self.count += 1;
    }

    /// Removes a source.
    pub(super) fn remove(&mut self, source: u32) {
        let Some(page) = self.pages.get_mut((source / PAGE) as usize) else { return };
        let Some(of) = page else { return };
        let facts = &mut of.sources[(source % PAGE) as usize];
        if facts.start == NONE {
            return;
        }
        *facts = NOBODY;
        of.count -= 1;
        self.count -= 1;
        if of.count == 0 {
            *page = None;
        }
    }

    /// Every source with its id.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Source)> {
        let pages = self.pages.iter_mut().enumerate();
        let pages = pages.filter_map(|(number, page)| Some((number as u32, page.as_mut()?)));
        pages
            .flat_map(|(number, page)| {
                let sources = page.sources.iter_mut().enumerate();
                sources.map(move |(at, facts)| (number * PAGE + at as u32, facts))
            })
            .filter(|(_, facts)| facts.start != NONE)
    }

    /// Bytes in use.
    pub(super) fn memory(&self) -> usize {
        let pages = self.pages.iter().flatten().count();
        self.pages.capacity() * size_of::<Option<Page>>()
            + pages * PAGE as usize * size_of::<Source>()
    }
}

impl Index<u32> for Sources {
    type Output = Source;

    fn index(&self, source: u32) -> &Source {
        self.get(source).unwrap_or(&NOBODY)
    }
}

impl IndexMut<u32> for Sources {
    fn index_mut(&mut self, source: u32) -> &mut Source {
        self.get_mut(source).expect("the source is there")
    }
}
