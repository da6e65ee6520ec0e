//! The schemes without speculation.

use std::rc::Rc;
use std::sync::Arc;

use policy::parity_log::record::Group;

use super::cluster::{Change, Cluster, For};
use super::layout::{BLOCK, Block, COPIES, DATA, PARITY, SERVERS, STRIP, server_of};
use super::machines::LARGE;
use super::timeline::{Action, Join};

/// What a server reads ahead of a sequence.
const AHEAD: u64 = 8 * STRIP;

impl Cluster {
    /// Writes a block on one disk.
    pub(super) fn write_plain(&mut self, block: Block, bytes: Arc<[u8]>, done: Action<Self>) {
        let range = [self.layout.plain(block), BLOCK];
        let written = move |cluster: &mut Self| {
            cluster.put(block.group, block.strip, block.start, &bytes);
            done(cluster);
        };
        self.write(For::Client, 0, range, Box::new(written));
    }

    /// Writes three copies: the first server writes its own, and sends two.
    pub(super) fn write_copies(&mut self, block: Block, bytes: Arc<[u8]>, done: Action<Self>) {
        self.lock(block, move |cluster| {
            let all = Join::new(
                COPIES,
                Box::new(move |cluster: &mut Self| {
                    cluster.put(block.group, block.strip, block.start, &bytes);
                    cluster.unlock(block);
                    done(cluster);
                }),
            );
            let first = server_of(block.group, block.strip);
            for copy in 0..COPIES {
                let server = (first + copy) % SERVERS;
                let range = [cluster.layout.copy(block, server), BLOCK];
                let part = all.part();
                if copy == 0 {
                    cluster.write(For::Client, server, range, part);
                } else {
                    cluster.send(move |cluster| {
                        let back = |cluster: &mut Self| cluster.send(part);
                        cluster.write(For::Client, server, range, Box::new(back));
                    });
                }
            }
        });
    }

    /// Reads and writes data and parity in place. Parity servers read while the data server does.
    pub(super) fn write_incremental(&mut self, block: Block, bytes: Arc<[u8]>, done: Action<Self>) {
        self.lock(block, move |cluster| {
            let unlocked = move |cluster: &mut Self| {
                cluster.unlock(block);
                done(cluster);
            };
            let all = Join::new(1 + PARITY, Box::new(unlocked));
            let change = Rc::new(cluster.change(block, &bytes));
            let mut arrived = Vec::new();
            for slot in DATA..DATA + PARITY {
                let server = server_of(block.group, slot);
                let range = [cluster.layout.strip(block.group, slot, block.start), BLOCK];
                let (part, change) = (all.part(), Rc::clone(&change));
                let both = Join::new(
                    2,
                    Box::new(move |cluster: &mut Self| {
                        let written = move |cluster: &mut Self| {
                            let parity = (block.group, slot);
                            cluster.add_change(parity, block.strip, block.start, &change);
                            cluster.send(part);
                        };
                        cluster.write(For::Client, server, range, Box::new(written));
                    }),
                );
                let read = both.part();
                cluster.send(move |cluster| cluster.read(For::Client, server, range, true, read));
                arrived.push(both.part());
            }
            let own = all.part();
            cluster.read_data(block, false, move |cluster| {
                for arrived in arrived {
                    cluster.send(arrived);
                }
                cluster.write_data(block, bytes, own);
            });
        });
    }

    /// Reads and writes data in place, and appends changes of parity.
    pub(super) fn write_parity_log(
        &mut self,
        block: Block,
        bytes: Arc<[u8]>,
        reads_ahead: bool,
        done: Action<Self>,
    ) {
        self.lock(block, move |cluster| {
            let unlocked = move |cluster: &mut Self| {
                cluster.unlock(block);
                done(cluster);
            };
            let all = Join::new(1 + PARITY, Box::new(unlocked));
            let change = cluster.change(block, &bytes);
            cluster.read_data(block, reads_ahead, move |cluster| {
                for slot in DATA..DATA + PARITY {
                    let change: Rc<[u8]> = cluster.product(slot, block.strip, &change).into();
                    let part = all.part();
                    cluster.send(move |cluster| {
                        let server = server_of(block.group, slot);
                        let from = cluster.journals[server].end;
                        let logged = move |cluster: &mut Self| {
                            let log = cluster.changes.entry((block.group, slot)).or_default();
                            log.push(Change { from, start: block.start, bytes: change });
                            cluster.send(part);
                        };
                        cluster.append(server, LARGE.record_bytes(BLOCK), Box::new(logged));
                    });
                }
                cluster.write_data(block, bytes, all.part());
            });
        });
    }

    /// How a block differs from what it will be.
    fn change(&self, block: Block, bytes: &[u8]) -> Vec<u8> {
        let before = self.bytes(block.group, block.strip, block.start, BLOCK);
        before.iter().zip(bytes).map(|(a, b)| a ^ b).collect()
    }

    fn read_data(
        &mut self,
        block: Block,
        reads_ahead: bool,
        then: impl FnOnce(&mut Self) + 'static,
    ) {
        let server = server_of(block.group, block.strip);
        let from = self.layout.strip(block.group, block.strip, block.start);
        if !reads_ahead {
            self.read(For::Client, server, [from, BLOCK], true, Box::new(then));
            return;
        }
        let (start, end) = self.ahead[server];
        if (start..end).contains(&from) {
            then(self);
            return;
        }
        self.ahead[server] = (from, from + AHEAD);
        self.read(For::Client, server, [from, AHEAD], true, Box::new(then));
    }

    fn write_data(&mut self, block: Block, bytes: Arc<[u8]>, done: Action<Self>) {
        let server = server_of(block.group, block.strip);
        let range = [self.layout.strip(block.group, block.strip, block.start), BLOCK];
        let written = move |cluster: &mut Self| {
            cluster.put(block.group, block.strip, block.start, &bytes);
            done(cluster);
        };
        self.write(For::Client, server, range, Box::new(written));
    }

    /// Brings logged changes to the parity strips, in the order of the strips.
    pub(super) fn recycle(&mut self) {
        for ((group, slot), changes) in std::mem::take(&mut self.changes) {
            let first = changes.iter().map(|change| change.start).min().unwrap_or(0);
            let end = changes.iter().map(|change| change.start + BLOCK).max().unwrap_or(0);
            let places: Vec<u64> = changes.iter().map(|change| change.from).collect();
            let strip = move |cluster: &mut Self| {
                cluster.change_parity((group, slot), [first, end - first], move |cluster| {
                    for change in &changes {
                        cluster.add(group, slot, change.start, &change.bytes);
                    }
                });
            };
            let all = Join::new(places.len(), Box::new(strip));
            for from in places {
                let len = LARGE.record_bytes(BLOCK);
                self.read_journal(For::Merge, server_of(group, slot), [from, len], all.part());
            }
        }
    }

    /// Reads a range of a parity strip, appends what it will be, so that a crash leaves no half of it, and writes it.
    pub(super) fn change_parity(
        &mut self,
        (group, slot): (Group, usize),
        [start, len]: [u64; 2],
        written: impl FnOnce(&mut Self) + 'static,
    ) {
        let server = server_of(group, slot);
        let range = [self.layout.strip(group, slot, start), len];
        let appended = move |cluster: &mut Self| {
            cluster.write(For::Merge, server, range, Box::new(written));
        };
        let read = move |cluster: &mut Self| {
            let journal = &mut cluster.journals[server];
            let len = LARGE.record_bytes(len);
            let from = journal.end;
            journal.end += len;
            cluster.sync_journal(For::Merge, server, [from, len], Box::new(appended));
        };
        let is_held = !self.shares_disk(server);
        self.read(For::Merge, server, range, is_held, Box::new(read));
    }
}
