//! The parity server's side: the journal and the parity strips of its groups.

mod merge;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use self::merge::Merge;
use super::index::Index;
use super::journal::{Journal, Options};
use super::message::{Answer, Ask, Subject};
use super::record::{Body, Group, Header, Lsn, Piece, Record, Request, Version};
use super::rules::{Rule, Rules};

/// What happens to a parity server.
#[derive(Clone, Debug)]
pub enum Event {
    /// The master has a new view of a group.
    Install {
        /// The group.
        group: Group,
        /// The view's number. One that is not newer is ignored.
        view: u64,
        /// Whether this server is in it.
        is_member: bool,
    },
    /// A data server says something.
    Message {
        /// About which strip.
        subject: Subject,
        /// What.
        ask: Ask,
    },
    /// Records up to this one are durable.
    Synced(Lsn),
    /// Merge a group, though there is room.
    Merge(Group),
    /// [`Effect::Merge`] of the group is done: strip and header are durable.
    Merged(Group),
    /// Some time went by: ask again what was not answered.
    Resend,
}

/// What a parity server wants to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send this to the data server of the strip.
    Send {
        /// The strip.
        subject: Subject,
        /// What.
        answer: Answer,
        /// How long to wait first.
        after: Duration,
    },
    /// Append the record to the journal.
    Append(Record),
    /// Sync the journal. There is one sync at a time; records that come meanwhile share the next one.
    Sync,
    /// Change a parity strip and its header.
    Merge(Merge),
    /// Records before this one are not needed any more.
    Trim(Lsn),
}

#[derive(Debug)]
struct State {
    view: u64,
    is_member: bool,
    strips: Vec<Index>,
    header: Header,
    /// Grows when base values are forgotten.
    epoch: u64,
    merging: Option<Merge>,
    is_asked: bool,
    /// Strips whose data server waits for a report.
    reports: BTreeSet<usize>,
    /// [`Index::oldest`] of all strips, as of the last step that touched the group.
    oldest: Option<Lsn>,
    /// [`Index::reserved_bytes`] of all strips, as of then.
    reserved: u64,
}

/// The state of a parity server.
#[derive(Debug)]
pub struct Parity {
    journal: Journal,
    rules: Rules,
    groups: BTreeMap<Group, State>,
    next: Lsn,
    /// Records that are not known to be durable.
    unsynced: VecDeque<Record>,
    is_syncing: bool,
    effects: Vec<Effect>,
    /// Groups that the present step may have changed.
    touched: BTreeSet<Group>,
    /// Each group by its oldest record that a restart needs.
    oldest: BTreeSet<(Lsn, Group)>,
    /// Bytes that all groups keep free.
    reserved: u64,
}

impl Parity {
    /// A parity server that starts, in no view: with the number of data strips and the header of each of its groups, and the
    /// records of its journal, which are durable, in their order. A torn record at the end is cut off before.
    #[must_use]
    pub fn open<'a>(
        options: Options,
        groups: &BTreeMap<Group, (usize, Header)>,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Self {
        Self::with_rules(options, groups, records, Rules::default())
    }

    pub(super) fn with_rules<'a>(
        options: Options,
        groups: &BTreeMap<Group, (usize, Header)>,
        records: impl IntoIterator<Item = &'a Record>,
        rules: Rules,
    ) -> Self {
        let records: Vec<&Record> = records.into_iter().collect();
        let mut doomed: BTreeMap<(Group, usize), BTreeSet<Version>> = BTreeMap::new();
        for record in &records {
            if let Body::Discard { version } = record.body {
                doomed.entry((record.group, record.strip)).or_default().insert(version);
            }
        }
        let state = |(strips, header): &(usize, Header)| State {
            view: 0,
            is_member: false,
            strips: (0..*strips).map(|_| Index::new(rules)).collect(),
            header: header.clone(),
            epoch: 0,
            merging: None,
            is_asked: false,
            reports: BTreeSet::new(),
            oldest: None,
            reserved: 0,
        };
        let mut opened = Self {
            journal: Journal::new(options),
            rules,
            groups: groups.iter().map(|(&group, known)| (group, state(known))).collect(),
            next: 1,
            unsynced: VecDeque::new(),
            is_syncing: false,
            effects: Vec::new(),
            touched: groups.keys().copied().collect(),
            oldest: BTreeSet::new(),
            reserved: 0,
        };
        let mut unmerged: BTreeSet<Group> = groups.keys().copied().collect();
        for record in records {
            opened.next = record.lsn + 1;
            opened.journal.add(record.lsn, &record.body);
            let Some(state) = opened.groups.get_mut(&record.group) else { continue };
            if record.lsn > state.header.merged && unmerged.remove(&record.group) {
                state.promote_all(record.group, &doomed);
            }
            if record.lsn > state.header.encoded {
                state.apply(record);
            }
        }
        for group in unmerged {
            opened.groups.get_mut(&group).expect("a known group").promote_all(group, &doomed);
        }
        let journal = &opened.journal;
        for state in opened.groups.values_mut() {
            // The journal may have been emptied.
            opened.next = opened.next.max(state.header.merged + 1).max(state.header.encoded + 1);
            for (strip, index) in state.strips.iter_mut().enumerate() {
                if rules.keep(Rule::DurableBelow) {
                    index.settle(state.header.below.get(strip).copied().unwrap_or_default());
                }
                for found in index.report(0).tentative {
                    let payload = found.range.end - found.range.start;
                    index.reserve(found.place.version, journal.reserve_for(payload));
                }
            }
        }
        opened.note_touched();
        opened
    }

    /// What the journal has of a data strip.
    #[must_use]
    pub fn index(&self, group: Group, strip: usize) -> Option<&Index> {
        self.groups.get(&group)?.strips.get(strip)
    }

    /// The view of a group, 0 if none.
    #[must_use]
    pub fn view(&self, group: Group) -> u64 {
        self.groups.get(&group).map_or(0, |state| state.view)
    }

    /// The header of a group's parity strip.
    #[must_use]
    pub fn header(&self, group: Group) -> Option<Header> {
        Some(self.groups.get(&group)?.header.clone())
    }

    /// Begins anew with a group that this server is not in. All data strips are locked and the master makes the next view
    /// after it, if all locks held: the shell computes the parity strip from them, and writes it with this header in one
    /// atomic step. `below` has [`Data::below`](super::data::Data::below) of each strip under its lock: without it this server
    /// would seem to lack those writes. `None`: the server is in the group, or does not know it.
    pub fn encode(&mut self, group: Group, below: Vec<Version>) -> Option<Header> {
        self.touched.insert(group);
        let state = self.groups.get_mut(&group).filter(|state| !state.is_member)?;
        state.clear(self.rules);
        let last = self.next - 1;
        for (index, &below) in state.strips.iter_mut().zip(&below) {
            index.settle(below);
        }
        state.header = Header { merged: last, encoded: last, below };
        Some(state.header.clone())
    }

    /// Takes an event, and says what to do about it, in this order.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Install { group, view, is_member } => self.install(group, view, is_member),
            Event::Message { subject, ask } => self.message(subject, ask),
            Event::Synced(upto) => self.synced(upto),
            Event::Merge(group) => {
                self.start_merge(group, false);
            }
            Event::Merged(group) => self.merged(group),
            Event::Resend => {
                for state in self.groups.values_mut() {
                    state.is_asked = false;
                }
            }
        }
        self.make_room();
        if !self.is_syncing && !self.unsynced.is_empty() {
            self.is_syncing = true;
            self.effects.push(Effect::Sync);
        }
        std::mem::take(&mut self.effects)
    }

    fn install(&mut self, group: Group, view: u64, is_member: bool) {
        let rules = self.rules;
        self.touched.insert(group);
        let Some(state) = self.groups.get_mut(&group) else { return };
        if view <= state.view {
            return;
        }
        state.view = view;
        state.is_member = is_member;
        state.is_asked = false;
        state.reports.clear();
        if !is_member {
            state.clear(rules);
        }
    }

    fn message(&mut self, subject: Subject, ask: Ask) {
        self.touched.insert(subject.group);
        let Some(state) = self.groups.get_mut(&subject.group) else { return };
        let is_ours = state.is_member && subject.view == state.view;
        if !is_ours && self.rules.keep(Rule::View) || subject.strip >= state.strips.len() {
            return;
        }
        match ask {
            Ask::Log { version, below, request, piece, originals } => {
                self.log(subject, version, below, request, piece, originals);
            }
            Ask::Original { version, pieces } => self.original(subject, version, pieces),
            Ask::Below(below) => {
                let is_new = state.strips[subject.strip].settle(below);
                // Else the answer would be the same.
                state.is_asked &= !is_new;
            }
            Ask::Discard(version) => self.discard(subject, version),
            Ask::Report => {
                state.reports.insert(subject.strip);
                self.report(subject.group);
            }
        }
    }

    fn log(
        &mut self,
        subject: Subject,
        version: Version,
        below: Version,
        request: Request,
        piece: Piece,
        originals: Vec<Piece>,
    ) {
        let is_new = !self.is_appending(
            subject,
            |body| matches!(body, Body::Data { version: it, .. } if *it == version),
        );
        let index = self.index_mut(subject);
        if index.is_discarded(version) {
            return;
        }
        if index.is_over(version) || index.has(version, &piece.range()) {
            self.answer_write(subject, version);
            return;
        }
        if !is_new {
            return;
        }
        let bytes = piece.bytes.len() as u64;
        if !self.journal.has_room(bytes, self.reserved) {
            self.send(subject, Answer::Busy(version));
            return;
        }
        let reserve = self.journal.reserve_for(bytes);
        self.index_mut(subject).reserve(version, reserve);
        self.append(subject, Body::Data { version, below, request, piece });
        if !originals.is_empty() {
            self.append(subject, Body::Original { version, pieces: originals });
        }
    }

    fn original(&mut self, subject: Subject, version: Version, pieces: Vec<Piece>) {
        let is_new = !self.is_appending(
            subject,
            |body| matches!(body, Body::Original { version: it, .. } if *it == version),
        );
        let once = self.rules.keep(Rule::OriginalOnce);
        let index = self.index_mut(subject);
        if index.is_discarded(version) {
            return;
        }
        if index.gaps(version).is_empty() && once {
            self.answer_write(subject, version);
        } else if is_new {
            self.append(subject, Body::Original { version, pieces });
        }
    }

    fn discard(&mut self, subject: Subject, version: Version) {
        let is_version =
            |body: &Body| matches!(body, Body::Data { version: it, .. } if *it == version);
        let is_discard =
            |body: &Body| matches!(body, Body::Discard { version: it } if *it == version);
        if self.is_appending(subject, is_discard) {
            return;
        }
        let is_logged = self.is_appending(subject, is_version);
        let index = self.index_mut(subject);
        if is_logged || index.is_tentative(version) {
            self.append(subject, Body::Discard { version });
        } else {
            index.discard(version);
            self.send(subject, Answer::Discarded(version));
        }
    }

    fn synced(&mut self, upto: Lsn) {
        self.is_syncing = false;
        let mut answers = BTreeSet::new();
        while let Some(record) = self.unsynced.pop_front_if(|record| record.lsn <= upto) {
            self.touched.insert(record.group);
            let Some(state) = self.groups.get_mut(&record.group) else { continue };
            if !state.is_member || record.lsn <= state.header.encoded {
                continue;
            }
            state.apply(&record);
            let (view, group, strip) = (state.view, record.group, record.strip);
            let subject = Subject { view, group, strip };
            match record.body {
                Body::Data { version, .. } | Body::Original { version, .. } => {
                    answers.insert((subject, version));
                }
                Body::Discard { version } => {
                    answers.remove(&(subject, version));
                    self.send(subject, Answer::Discarded(version));
                }
            }
        }
        for (subject, version) in answers {
            self.answer_write(subject, version);
        }
        // A report waits for records of its group only.
        for group in self.touched.clone() {
            self.report(group);
        }
    }

    /// Answers a write whose data record is durable.
    fn answer_write(&mut self, subject: Subject, version: Version) {
        let gaps = self.index_mut(subject).gaps(version);
        let epoch = self.groups[&subject.group].epoch;
        if gaps.is_empty() {
            self.send(subject, Answer::Logged { version, epoch });
        } else {
            self.send(subject, Answer::NeedOriginal { version, gaps });
        }
    }

    /// Answers reports of strips all of whose records are durable: a report must not miss a record that comes to count later.
    fn report(&mut self, group: Group) {
        let Some(&State { view, epoch, ref reports, .. }) = self.groups.get(&group) else { return };
        for strip in reports.clone() {
            let subject = Subject { view, group, strip };
            if !self.is_appending(subject, |_| true) {
                self.groups.get_mut(&group).expect("a known group").reports.remove(&strip);
                let report = self.index_mut(subject).report(epoch);
                self.send(subject, Answer::Report(report));
            }
        }
    }

    /// Whether a record of the strip is on its way into the journal.
    fn is_appending(&self, subject: Subject, is_it: impl Fn(&Body) -> bool) -> bool {
        self.unsynced.iter().any(|record| {
            record.group == subject.group && record.strip == subject.strip && is_it(&record.body)
        })
    }

    fn append(&mut self, subject: Subject, body: Body) {
        let record = Record { lsn: self.next, group: subject.group, strip: subject.strip, body };
        self.next += 1;
        self.journal.add(record.lsn, &record.body);
        self.unsynced.push_back(record.clone());
        self.effects.push(Effect::Append(record));
    }

    fn send(&mut self, subject: Subject, answer: Answer) {
        let after = match answer {
            Answer::Logged { .. } => self.journal.wait(),
            _ => Duration::ZERO,
        };
        self.effects.push(Effect::Send { subject, answer, after });
    }

    fn index_mut(&mut self, subject: Subject) -> &mut Index {
        let state = self.groups.get_mut(&subject.group).expect("checked by the caller");
        &mut state.strips[subject.strip]
    }

    /// Brings the totals of touched groups up to date, so that a step does not look at all groups.
    fn note_touched(&mut self) {
        for group in std::mem::take(&mut self.touched) {
            let Some(state) = self.groups.get_mut(&group) else { continue };
            let oldest = state.strips.iter().filter_map(Index::oldest).min();
            if let Some(before) = std::mem::replace(&mut state.oldest, oldest) {
                self.oldest.remove(&(before, group));
            }
            self.oldest.extend(oldest.map(|oldest| (oldest, group)));
            let reserved = state.strips.iter().map(Index::reserved_bytes).sum();
            self.reserved -= std::mem::replace(&mut state.reserved, reserved);
            self.reserved += reserved;
        }
    }
}

impl State {
    fn apply(&mut self, record: &Record) {
        let index = &mut self.strips[record.strip];
        match &record.body {
            Body::Data { version, below, request, piece } => {
                index.add_data(record.lsn, *version, *below, *request, &piece.range());
            }
            Body::Original { version, pieces } => {
                for piece in pieces {
                    index.add_original(record.lsn, *version, &piece.range());
                }
            }
            Body::Discard { version } => index.discard(*version),
        }
    }

    fn promote_all(&mut self, group: Group, doomed: &BTreeMap<(Group, usize), BTreeSet<Version>>) {
        for (strip, index) in self.strips.iter_mut().enumerate() {
            let none = BTreeSet::new();
            index.promote_all(self.header.merged, doomed.get(&(group, strip)).unwrap_or(&none));
        }
    }

    fn clear(&mut self, rules: Rules) {
        for index in &mut self.strips {
            *index = Index::new(rules);
        }
        self.merging = None;
        self.epoch += 1;
    }
}
