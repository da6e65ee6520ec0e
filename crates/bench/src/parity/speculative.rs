//! A shell for the state machines of [`policy::parity_log`]: it carries out their effects on the simulated servers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use policy::parity_log::data::{self, Data};
use policy::parity_log::index::Place;
use policy::parity_log::parity::{self, Merge, Parity};
use policy::parity_log::record::{Group, Header, Piece, Request};
use policy::parity_log::view::Entry;

use super::cluster::{Cluster, For};
use super::layout::{Block, DATA, PARITY, SERVERS, server_of, slot_of};
use super::machines::Kept;
use super::timeline::{Action, Join};

/// The servers that have a group's parity strips.
pub(super) fn parities_of(group: Group) -> BTreeSet<usize> {
    (DATA..DATA + PARITY).map(|slot| server_of(group, slot)).collect()
}

impl Cluster {
    /// Starts the servers of these groups, with empty journals.
    pub(super) fn start(&mut self, groups: &BTreeSet<Group>) {
        let headers = |server: usize| {
            let has_parity = |group: &&Group| slot_of(**group, server) >= DATA;
            groups
                .iter()
                .filter(has_parity)
                .map(|&group| (group, (DATA, Header::default())))
                .collect()
        };
        self.open_parities(headers);
        for &group in groups {
            for strip in 0..DATA {
                self.machines.data.insert((group, strip), Data::new(group, strip));
            }
        }
        self.install(|_, _| Entry::Restarted);
        self.drain();
    }

    fn open_parities(&mut self, headers: impl Fn(usize) -> BTreeMap<Group, (usize, Header)>) {
        let options = self.machines.options;
        let open = |server| Parity::open(options, &headers(server), []);
        self.machines.parities = (0..SERVERS).map(open).collect();
        self.machines.records = vec![BTreeMap::new(); SERVERS];
    }

    /// Makes a view of all groups. With [`Entry::Continued`] data servers do not know what parity servers have.
    pub(super) fn install(&mut self, entry: impl Fn(Group, usize) -> Entry) {
        self.machines.view += 1;
        let view = self.machines.view;
        let groups: BTreeSet<Group> = self.machines.data.keys().map(|(group, _)| *group).collect();
        for &group in &groups {
            for server in parities_of(group) {
                let install = parity::Event::Install { group, view, is_member: true };
                self.step_parity(server, install);
            }
        }
        for &group in &groups {
            for strip in 0..DATA {
                let (parities, entry) = (parities_of(group), entry(group, strip));
                let install = data::Event::Install { view, parities, entry };
                self.step_data(group, strip, install);
            }
        }
    }

    /// Empties all journals when they are merged: what parity servers had is forgotten.
    pub(super) fn empty_journals(&mut self) {
        let parities = std::mem::take(&mut self.machines.parities);
        let groups: BTreeSet<Group> = self.machines.data.keys().map(|(group, _)| *group).collect();
        self.open_parities(|server| {
            let header = |&group: &Group| Some((group, (DATA, parities[server].header(group)?)));
            groups.iter().filter_map(header).collect()
        });
        self.install(|_, _| Entry::Continued);
        self.drain();
    }

    /// Bytes of the fullest journal, and of the emptiest: what was appended since it was opened, and is not trimmed.
    pub(super) fn journal_bytes(&self) -> [u64; 2] {
        let bytes = |server: usize| {
            let first = self.machines.records[server].values().next().map(|kept| kept.at);
            first.map_or(0, |first| self.journals[server].end - first)
        };
        let all: Vec<u64> = (0..SERVERS).map(bytes).collect();
        [all.iter().copied().max().unwrap_or(0), all.iter().copied().min().unwrap_or(0)]
    }

    /// Writes a block.
    pub(super) fn write_speculatively(
        &mut self,
        block: Block,
        bytes: Arc<[u8]>,
        done: Action<Self>,
    ) {
        let request = self.next_request(done);
        let piece = Piece { start: block.start, bytes };
        let oldest = self.machines.waiting.keys().next().map_or(0, |oldest| oldest.number);
        let view = self.machines.view;
        let write = data::Event::Write { view, request, oldest, piece };
        self.step_data(block.group, block.strip, write);
    }

    /// Reads a range of a data strip.
    pub(super) fn read_strip(&mut self, block: Block, len: u64, done: Action<Self>) {
        let request = self.next_request(done);
        let view = self.machines.view;
        let range = block.start..block.start + len;
        self.step_data(block.group, block.strip, data::Event::Read { view, request, range });
    }

    fn next_request(&mut self, done: Action<Self>) -> Request {
        let request = Request { client: 1, number: self.machines.next };
        self.machines.next += 1;
        self.machines.waiting.insert(request, done);
        request
    }

    pub(super) fn step_data(&mut self, group: Group, strip: usize, event: data::Event) {
        let Some(machine) = self.machines.data.get_mut(&(group, strip)) else { return };
        for effect in machine.step(event) {
            self.of_data(group, strip, effect);
        }
    }

    fn of_data(&mut self, group: Group, strip: usize, effect: data::Effect) {
        let server = server_of(group, strip);
        match effect {
            data::Effect::Send { parity, subject, ask } => {
                let event = parity::Event::Message { subject, ask };
                self.send(move |cluster| cluster.step_parity(parity, event));
            }
            data::Effect::ReadStrip { version, ranges } => {
                self.counts.misses += 1;
                let read = ranges.clone();
                let done = move |cluster: &mut Self| {
                    let piece = |range: &Range<u64>| {
                        let len = range.end - range.start;
                        Piece::new(range.start, &cluster.bytes(group, strip, range.start, len))
                    };
                    let pieces = read.iter().map(piece).collect();
                    cluster.step_data(group, strip, data::Event::StripRead { version, pieces });
                };
                let all = Join::new(ranges.len(), Box::new(done));
                for range in ranges {
                    let address = self.layout.strip(group, strip, range.start);
                    let len = range.end - range.start;
                    self.read(For::Client, server, [address, len], true, all.part());
                }
            }
            data::Effect::WriteStrip { version, piece } => {
                let address = self.layout.strip(group, strip, piece.start);
                let len = piece.bytes.len() as u64;
                if self.machines.writes_back {
                    self.put(group, strip, piece.start, &piece.bytes);
                    self.step_data(group, strip, data::Event::StripCached { version });
                }
                let done = move |cluster: &mut Self| {
                    cluster.put(group, strip, piece.start, &piece.bytes);
                    cluster.step_data(group, strip, data::Event::StripWritten { version });
                };
                self.write(For::Client, server, [address, len], Box::new(done));
            }
            data::Effect::Redo(_) => unreachable!("no data server stops in the middle of a write"),
            data::Effect::Read { request, range } => {
                let address = self.layout.strip(group, strip, range.start);
                let done = self.machines.waiting.remove(&request).expect("it asked");
                let len = range.end - range.start;
                self.read(For::Client, server, [address, len], false, done);
            }
            data::Effect::Answer { request, outcome } => {
                assert_eq!(outcome, data::Outcome::Written, "a run has room in its journals");
                let done = self.machines.waiting.remove(&request).expect("it asked once");
                done(self);
            }
            data::Effect::Locked { token } => {
                let then = self.machines.locking.remove(&(token, group, strip));
                then.expect("it asked for the lock")(self);
            }
        }
    }

    pub(super) fn step_parity(&mut self, server: usize, event: parity::Event) {
        for effect in self.machines.parities[server].step(event) {
            match effect {
                parity::Effect::Send { subject, answer, after } => {
                    let event = data::Event::Message { parity: server, subject, answer };
                    self.after(after, move |cluster| {
                        cluster.send(move |cluster| {
                            cluster.step_data(subject.group, subject.strip, event);
                        });
                    });
                }
                parity::Effect::Append(record) => {
                    let bytes = self.machines.options.record_bytes(record.body.payload_bytes());
                    let at = self.journals[server].add(bytes);
                    self.machines.records[server].insert(record.lsn, Kept { record, at });
                }
                parity::Effect::Sync => {
                    let journal = &mut self.journals[server];
                    let bytes = std::mem::take(&mut journal.pending);
                    let from = journal.end - bytes;
                    let last = *self.machines.records[server].keys().next_back().expect("one");
                    let synced = move |cluster: &mut Self| {
                        cluster.step_parity(server, parity::Event::Synced(last));
                    };
                    self.sync_journal(For::Client, server, [from, bytes], Box::new(synced));
                }
                parity::Effect::Merge(merge) => self.merge(server, merge),
                parity::Effect::Trim(before) => {
                    let kept = self.machines.records[server].split_off(&before);
                    self.machines.records[server] = kept;
                }
            }
        }
    }

    /// The bytes of a range that a journal has.
    pub(super) fn value(&self, server: usize, place: Place, range: &Range<u64>) -> Vec<u8> {
        let kept = &self.machines.records[server][&place.lsn];
        kept.record.body.value(range).expect("the record has the range").to_vec()
    }

    /// Reads such a range from the journal.
    pub(super) fn fetch(
        &mut self,
        server: usize,
        place: Place,
        range: &Range<u64>,
        done: Action<Self>,
    ) {
        let at = self.machines.records[server][&place.lsn].at;
        self.read_journal(For::Merge, server, [at, range.end - range.start], done);
    }

    /// Carries out a merge: reads both values of each change, and changes the strip in one atomic step.
    fn merge(&mut self, server: usize, merge: Merge) {
        let group = merge.group;
        let slot = slot_of(group, server);
        let merged = move |cluster: &mut Self| {
            cluster.step_parity(server, parity::Event::Merged(group));
        };
        if merge.deltas.is_empty() {
            // The header is in the journal, beside what a parity strip will be.
            let len = self.machines.options.record_bytes(0);
            let from = self.journals[server].end;
            self.journals[server].end += len;
            self.sync_journal(For::Merge, server, [from, len], Box::new(merged));
            return;
        }
        let change = |delta: &policy::parity_log::index::Delta| {
            let old = self.value(server, delta.old, &delta.range);
            let new = self.value(server, delta.new, &delta.range);
            let change: Vec<u8> = old.iter().zip(new).map(|(old, new)| old ^ new).collect();
            (delta.strip, delta.range.start, change)
        };
        let changes: Vec<_> = merge.deltas.iter().map(change).collect();
        let start = merge.deltas.iter().map(|delta| delta.range.start).min().unwrap_or(0);
        let end = merge.deltas.iter().map(|delta| delta.range.end).max().unwrap_or(0);
        let strip = move |cluster: &mut Self| {
            cluster.change_parity((group, slot), [start, end - start], move |cluster| {
                for (strip, start, change) in changes {
                    cluster.add_change((group, slot), strip, start, &change);
                }
                merged(cluster);
            });
        };
        let all = Join::new(2 * merge.deltas.len(), Box::new(strip));
        for delta in &merge.deltas {
            self.fetch(server, delta.old, &delta.range, all.part());
            self.fetch(server, delta.new, &delta.range, all.part());
        }
    }

    /// Merges all that the journals have, group after group.
    pub(super) fn merge_all(&mut self) {
        let groups: BTreeSet<Group> = self.machines.data.keys().map(|(group, _)| *group).collect();
        for server in 0..SERVERS {
            for &group in groups.iter().filter(|&&group| slot_of(group, server) >= DATA) {
                self.step_parity(server, parity::Event::Merge(group));
            }
        }
        self.drain();
    }

    /// Whether no write or read is under way at a data server.
    pub(super) fn is_quiet(&self) -> bool {
        self.machines.data.values().all(Data::is_quiet)
    }
}

/// Names a lock of all strips of a group.
pub(super) fn token(group: Group) -> u64 {
    u64::from(group) + 1
}
