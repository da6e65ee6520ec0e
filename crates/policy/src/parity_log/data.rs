//! The data server's side: one data strip of a group.
//!
//! ```text
//!   client    data server               parity servers
//!   WRITE ->  lock the range
//!             Log ------------------->  append D, sync
//!                 <-------------------  Logged: the base is known (hit)
//!                 <-------------------  NeedOriginal (miss)
//!             read the old value
//!             Original -------------->  append O, sync
//!                 <-------------------  Logged
//!             write in place, durably
//!         <-  acknowledge, unlock
//!             Below ----------------->  the version is complete
//! ```

mod recovery;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use self::recovery::Recovery;
use self::write::Write;
use super::intervals::Intervals;
use super::locks::Locks;
use super::message::{Answer, Ask, Subject};
use super::record::{Group, Piece, Request, Version};
use super::rules::{Rule, Rules};
use super::view::{Entry, Kept};

/// What happens to a data server.
#[derive(Clone, Debug)]
pub enum Event {
    /// The master has a new view. Ranges that [`Event::Lock`] locked are free again.
    Install {
        /// Its number. A view that is not newer is ignored.
        view: u64,
        /// The parity servers in it.
        parities: BTreeSet<usize>,
        /// How the strip enters it.
        entry: Entry,
    },
    /// A client writes, or asks again.
    Write {
        /// The view that the client knows.
        view: u64,
        /// The request.
        request: Request,
        /// All lower requests of the client were answered.
        oldest: u64,
        /// The bytes: whole sectors of the disk.
        piece: Piece,
    },
    /// A client reads.
    Read {
        /// The view that the client knows.
        view: u64,
        /// The request.
        request: Request,
        /// The bytes.
        range: Range<u64>,
    },
    /// Keep a range as it is, for a reader of several strips. It locks one strip after the other, in ascending order: two
    /// readers would else wait for each other. Ignored in another view.
    Lock {
        /// The view of the reader.
        view: u64,
        /// Names the lock.
        token: u64,
        /// The bytes.
        range: Range<u64>,
    },
    /// Let the range go.
    Unlock {
        /// Names the lock.
        token: u64,
    },
    /// A parity server says something.
    Message {
        /// Which.
        parity: usize,
        /// About which strip.
        subject: Subject,
        /// What.
        answer: Answer,
    },
    /// [`Effect::ReadStrip`] is done.
    StripRead {
        /// The write that needs the bytes.
        version: Version,
        /// The bytes of each range.
        pieces: Vec<Piece>,
    },
    /// Readers get the bytes of [`Effect::WriteStrip`], and a crash may still take them back: they are in a cache of the
    /// server or the disk. [`Event::StripWritten`] has to follow. The client is answered now, since a restart writes the bytes
    /// again from the journals; until they are durable, writes of the range wait, and merges leave the version out.
    StripCached {
        /// The write.
        version: Version,
    },
    /// [`Effect::WriteStrip`] is done: the bytes are durable.
    StripWritten {
        /// The write.
        version: Version,
    },
    /// [`Effect::Redo`] is done: the bytes are durable.
    Redone,
    /// No answer came for some time: send again what is not answered.
    Resend,
}

/// What a data server wants to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Effect {
    /// Send this to a parity server.
    Send {
        /// Which.
        parity: usize,
        /// About which strip.
        subject: Subject,
        /// What.
        ask: Ask,
    },
    /// Read the old value of ranges of the strip, and check it. Bytes that do not fit their checksum have to be computed
    /// from the group.
    ReadStrip {
        /// The write that needs them.
        version: Version,
        /// Where.
        ranges: Vec<Range<u64>>,
    },
    /// Write the strip in place, durably. [`Event::StripCached`] may be told before.
    WriteStrip {
        /// The write.
        version: Version,
        /// The bytes.
        piece: Piece,
    },
    /// Copy these ranges, in this order, from journals of parity servers to the strip, durably.
    Redo(Vec<Kept>),
    /// Read the strip for a client, now.
    Read {
        /// The client's request.
        request: Request,
        /// The bytes.
        range: Range<u64>,
    },
    /// Answer a client.
    Answer {
        /// The client's request.
        request: Request,
        /// The answer.
        outcome: Outcome,
    },
    /// The range of [`Event::Lock`] is locked. A reader that does not wait for it any more unlocks it.
    Locked {
        /// Names the lock.
        token: u64,
    },
}

/// What a client is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Outcome {
    /// The bytes are durable: on each parity server of the view, and on the strip unless [`Event::StripCached`] came first.
    #[error("written")]
    Written,
    /// This try wrote nothing, since the journal of a parity server is full. Try again later, as a new request. A repetition
    /// of the request that reached the server in a later view may have been carried out.
    #[error("the journal of a parity server is full")]
    Busy,
    /// The server is in another view. Ask the master for the view, and then again.
    #[error("the group is in view {0}")]
    OtherView(u64),
    /// The strip is lost. Read it from other strips; write when it is rebuilt. An earlier try of the request may have
    /// succeeded.
    #[error("the strip is lost until it is rebuilt")]
    Lost,
}

/// Who holds a range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Owner {
    Write(Request),
    Read(Request),
    Token(u64),
}

/// What the data server knows of the ranges whose base a parity server has.
#[derive(Debug, Default)]
struct Known {
    epoch: u64,
    /// Whether `covered` is all of it.
    is_complete: bool,
    covered: Intervals<()>,
}

/// The requests of a client that were answered for good.
#[derive(Debug, Default)]
struct Client {
    oldest: u64,
    answered: BTreeMap<u64, Outcome>,
}

#[derive(Debug)]
enum Phase {
    /// In no view.
    Out,
    Recovering(Recovery),
    Serving,
    Lost,
}

/// The state of one data strip.
#[derive(Debug)]
pub struct Data {
    group: Group,
    strip: usize,
    rules: Rules,
    view: u64,
    parities: BTreeSet<usize>,
    phase: Phase,
    /// The number of the next version.
    next: u64,
    writes: BTreeMap<Version, Write>,
    /// Writes that wait for their range.
    queued: BTreeMap<Request, Piece>,
    reads: BTreeMap<Request, Range<u64>>,
    locks: Locks<Owner>,
    clients: BTreeMap<u64, Client>,
    known: BTreeMap<usize, Known>,
    effects: Vec<Effect>,
}

impl Data {
    /// A data server that just started, in no view.
    #[must_use]
    pub fn new(group: Group, strip: usize) -> Self {
        Self::with_rules(group, strip, Rules::default())
    }

    pub(super) fn with_rules(group: Group, strip: usize, rules: Rules) -> Self {
        Self {
            group,
            strip,
            rules,
            view: 0,
            parities: BTreeSet::new(),
            phase: Phase::Out,
            next: 1,
            writes: BTreeMap::new(),
            queued: BTreeMap::new(),
            reads: BTreeMap::new(),
            locks: Locks::new(!rules.keep(Rule::Lock)),
            clients: BTreeMap::new(),
            known: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// The view, 0 if none.
    #[must_use]
    pub fn view(&self) -> u64 {
        self.view
    }

    /// Whether the strip takes reads and writes.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Whether the strip is lost, and its writes are decided: it can be computed from others.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost)
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.writes.is_empty() && self.queued.is_empty() && self.reads.is_empty()
    }

    /// Takes an event, and says what to do about it, in this order.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Install { view, parities, entry } => self.install(view, parities, entry),
            Event::Write { view, request, oldest, piece } => {
                self.write(view, request, oldest, piece);
            }
            Event::Read { view, request, range } => self.read(view, request, range),
            Event::Lock { view, token, range } => {
                if view == self.view && !self.locks.knows(|&owner| owner == Owner::Token(token)) {
                    self.locks.ask(range, Owner::Token(token));
                }
            }
            Event::Unlock { token } => self.locks.release(|&owner| owner == Owner::Token(token)),
            Event::Message { parity, subject, answer } => {
                let is_ours = self.parities.contains(&parity) && subject.view == self.view;
                if is_ours || !self.rules.keep(Rule::View) {
                    self.message(parity, answer);
                }
            }
            Event::StripRead { version, pieces } => self.strip_read(version, pieces),
            Event::StripCached { version } => self.strip_cached(version),
            Event::StripWritten { version } => self.strip_written(version),
            Event::Redone => {
                if let Phase::Recovering(recovery) = &mut self.phase {
                    recovery.redone();
                    self.advance_recovery();
                }
            }
            Event::Resend => self.resend(),
        }
        self.grant();
        std::mem::take(&mut self.effects)
    }

    fn install(&mut self, view: u64, parities: BTreeSet<usize>, entry: Entry) {
        if view <= self.view {
            return;
        }
        self.view = view;
        self.parities = parities;
        self.known.clear();
        self.locks.release(|owner| matches!(owner, Owner::Token(_)));
        let is_lost = match (&self.phase, entry) {
            (Phase::Serving, Entry::Continued) => {
                for write in self.writes.values_mut() {
                    write.change_view(&self.parities);
                }
                self.resend();
                let versions: Vec<Version> = self.writes.keys().copied().collect();
                for version in versions {
                    self.advance(version);
                }
                return;
            }
            (Phase::Lost, Entry::Continued) | (_, Entry::Lost) => true,
            (Phase::Recovering(recovery), Entry::Continued) => recovery.is_lost,
            (Phase::Out, Entry::Continued) | (_, Entry::Restarted) => false,
        };
        if !matches!(self.phase, Phase::Recovering(_)) {
            self.writes.clear();
            self.queued.clear();
            self.reads.clear();
            self.locks.release(|_| true);
        }
        self.next = 1;
        self.phase = Phase::Recovering(Recovery::new(is_lost));
        self.resend();
        self.advance_recovery();
    }

    fn write(&mut self, view: u64, request: Request, oldest: u64, piece: Piece) {
        if let Some(refusal) = self.refusal(view) {
            self.answer(request, refusal);
            return;
        }
        let client = self.clients.entry(request.client).or_default();
        client.oldest = client.oldest.max(oldest);
        client.answered = client.answered.split_off(&client.oldest);
        if self.rules.keep(Rule::Dedupe) {
            if request.number < client.oldest {
                return;
            }
            if let Some(&outcome) = client.answered.get(&request.number) {
                self.answer(request, outcome);
                return;
            }
        }
        if !self.locks.knows(|&owner| owner == Owner::Write(request)) {
            self.locks.ask(piece.range(), Owner::Write(request));
            self.queued.insert(request, piece);
        }
    }

    fn read(&mut self, view: u64, request: Request, range: Range<u64>) {
        if let Some(refusal) = self.refusal(view) {
            self.answer(request, refusal);
        } else if self.is_serving() && !(self.parities.is_empty() && self.locks.is_held(&range)) {
            self.effects.push(Effect::Read { request, range });
        } else {
            // Recovering. Or no journal could write a torn range again: a crash might take back what was read.
            self.reads.insert(request, range.clone());
            self.locks.ask(range, Owner::Read(request));
        }
    }

    fn refusal(&self, view: u64) -> Option<Outcome> {
        if view != self.view && self.rules.keep(Rule::View) {
            return Some(Outcome::OtherView(self.view));
        }
        match &self.phase {
            Phase::Out => Some(Outcome::OtherView(self.view)),
            Phase::Lost => Some(Outcome::Lost),
            Phase::Recovering(recovery) if recovery.is_lost => Some(Outcome::Lost),
            Phase::Recovering(_) | Phase::Serving => None,
        }
    }

    /// Starts the requests whose ranges are free now.
    fn grant(&mut self) {
        while self.is_serving()
            && let Some(owner) = self.locks.grant()
        {
            match owner {
                Owner::Write(request) => {
                    let piece = self.queued.remove(&request).expect("queued with its lock");
                    self.start(request, piece);
                }
                Owner::Read(request) => {
                    self.locks.release(|&owner| owner == Owner::Read(request));
                    let range = self.reads.remove(&request).expect("noted with its lock");
                    self.effects.push(Effect::Read { request, range });
                }
                Owner::Token(token) => self.effects.push(Effect::Locked { token }),
            }
        }
    }

    fn message(&mut self, parity: usize, answer: Answer) {
        match answer {
            Answer::Logged { version, epoch } => self.logged(parity, version, epoch),
            Answer::NeedOriginal { version, gaps } => self.need_original(parity, version, gaps),
            Answer::Busy(version) => self.busy(version),
            Answer::Discarded(version) => {
                self.discarded(parity, version);
                if let Phase::Recovering(recovery) = &mut self.phase {
                    recovery.discarded(parity, version);
                    self.advance_recovery();
                }
            }
            Answer::AskBelow => {
                if self.is_serving() || self.is_lost() {
                    self.send(parity, Ask::Below(self.below()));
                }
            }
            Answer::Report(report) => {
                if let Phase::Recovering(recovery) = &mut self.phase {
                    recovery.reports.entry(parity).or_insert(report);
                    self.advance_recovery();
                }
            }
        }
    }

    /// Sends again what is not answered.
    fn resend(&mut self) {
        if let Phase::Recovering(recovery) = &self.phase {
            for (parity, ask) in recovery.unanswered(&self.parities) {
                self.send(parity, ask);
            }
        }
        let unanswered: Vec<_> = self
            .writes
            .iter()
            .flat_map(|(&version, write)| write.unanswered(version, self.below()))
            .collect();
        for (parity, ask) in unanswered {
            self.send(parity, ask);
        }
    }

    fn advance_recovery(&mut self) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        let is_redo = !recovery.is_lost && self.rules.keep(Rule::Redo);
        let (asks, redo) = recovery.advance(&self.parities, self.rules);
        if !redo.is_empty() && is_redo {
            self.effects.push(Effect::Redo(redo));
        } else {
            recovery.redone();
        }
        let is_over = recovery.is_over();
        for (parity, ask) in asks {
            self.send(parity, ask);
        }
        if !is_over {
            return;
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Serving);
        let Phase::Recovering(recovery) = phase else { return };
        if recovery.is_lost {
            self.phase = Phase::Lost;
        }
        for (parity, report) in &recovery.reports {
            let mut known = Known { epoch: report.epoch, is_complete: true, ..Known::default() };
            for range in &report.covered {
                known.covered.insert(range.clone(), ());
            }
            self.known.insert(*parity, known);
        }
        for request in recovery.kept().collect::<Vec<_>>() {
            self.note(request, Outcome::Written);
        }
        self.tell_below();
    }

    /// All lower versions are complete: in place, or discarded.
    #[must_use]
    pub fn below(&self) -> Version {
        let next = Version { view: self.view, number: self.next };
        self.writes.keys().next().copied().unwrap_or(next)
    }

    fn tell_below(&mut self) {
        for parity in self.parities.clone() {
            self.send(parity, Ask::Below(self.below()));
        }
    }

    /// Remembers the answer for a repetition of the request.
    fn note(&mut self, request: Request, outcome: Outcome) {
        self.clients.entry(request.client).or_default().answered.insert(request.number, outcome);
    }

    fn answer(&mut self, request: Request, outcome: Outcome) {
        self.effects.push(Effect::Answer { request, outcome });
    }

    fn send(&mut self, parity: usize, ask: Ask) {
        let subject = Subject { view: self.view, group: self.group, strip: self.strip };
        self.effects.push(Effect::Send { parity, subject, ask });
    }
}
