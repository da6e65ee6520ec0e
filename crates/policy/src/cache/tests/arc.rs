//! ARC against lists that are searched.

use super::*;

/// Keys with their bytes, newest first.
type List = VecDeque<(u64, u64)>;

#[derive(Default)]
struct Model {
    room: u64,
    /// The paper's p; the room at the latest eviction.
    target: Option<f64>,
    seen: u64,
    recent: List,
    frequent: List,
    recent_ghosts: List,
    frequent_ghosts: List,
}

fn bytes(list: &List) -> u64 {
    list.iter().map(|(_, bytes)| bytes).sum()
}

fn take(list: &mut List, key: u64) -> Option<(u64, u64)> {
    let at = list.iter().position(|(other, _)| *other == key)?;
    list.remove(at)
}

impl Model {
    fn held(&self) -> u64 {
        bytes(&self.recent) + bytes(&self.frequent)
    }

    fn ghosts(&self) -> u64 {
        bytes(&self.recent_ghosts) + bytes(&self.frequent_ghosts)
    }

    fn ask(&mut self, key: u64, size: u64) -> (bool, Vec<u64>) {
        let found = take(&mut self.recent, key).or_else(|| take(&mut self.frequent, key));
        if let Some(entry) = found {
            self.frequent.push_front(entry);
            return (true, Vec::new());
        }
        let mut gone = Vec::new();
        while self.held() + size > self.room {
            gone.push(self.evict());
        }
        let (recent, frequent) = (bytes(&self.recent_ghosts), bytes(&self.frequent_ghosts));
        let limit = self.seen as f64;
        if let Some((_, size)) = take(&mut self.recent_ghosts, key) {
            let step = (size as f64).max((size * frequent / recent) as f64);
            self.target = self.target.map(|target| (target + step).min(limit));
            self.frequent.push_front((key, size));
        } else if let Some((_, size)) = take(&mut self.frequent_ghosts, key) {
            let step = (size as f64).max((size * recent / frequent) as f64);
            self.target = self.target.map(|target| (target - step).max(0.0));
            self.frequent.push_front((key, size));
        } else {
            self.recent.push_front((key, size));
        }
        self.seen = self.seen.max(self.held());
        self.drop_ghosts();
        (false, gone)
    }

    fn evict(&mut self) -> u64 {
        self.seen = self.held();
        let half = (self.seen / 2) as f64;
        let target = self.target.unwrap_or(half).min(self.seen as f64);
        self.target = Some(target);
        let last = self.recent.back().map_or(0, |(_, bytes)| *bytes) as f64;
        let recent_goes = self.frequent.is_empty() || bytes(&self.recent) as f64 > target.max(last);
        let (from, to) = if recent_goes {
            (&mut self.recent, &mut self.recent_ghosts)
        } else {
            (&mut self.frequent, &mut self.frequent_ghosts)
        };
        let entry = from.pop_back().expect("it is not empty");
        to.push_front(entry);
        self.drop_ghosts();
        entry.0
    }

    fn drop_ghosts(&mut self) {
        while bytes(&self.recent) + bytes(&self.recent_ghosts) > self.seen
            && self.recent_ghosts.pop_back().is_some()
        {}
        while self.held() + self.ghosts() > 2 * self.seen
            && (self.frequent_ghosts.pop_back().is_some()
                || self.recent_ghosts.pop_back().is_some())
        {}
    }
}

proptest! {
    #[test]
    fn arc_does_what_its_paper_says(
        room in 3u64..40,
        sizes in 1u64..=3,
        asked in prop::collection::vec(prop_oneof![0u64..12, 0u64..80], 0..500),
    ) {
        let mut policy = AdaptiveReplacement::default();
        let mut model = Model { room, ..Model::default() };
        // Slots are keys here.
        let mut held: HashMap<u64, u64> = HashMap::new();
        for (position, &key) in asked.iter().enumerate() {
            let size = 1 + key % sizes;
            let mut gone = Vec::new();
            let is_hit = held.contains_key(&key);
            if is_hit {
                policy.hit(key as Slot);
            } else {
                while held.values().sum::<u64>() + size > room {
                    let slot = policy.evict().expect("a full cache has entries");
                    prop_assert!(held.remove(&slot.into()).is_some());
                    gone.push(slot.into());
                }
                policy.insert(key as Slot, key, size as u32);
                held.insert(key, size);
            }
            prop_assert_eq!((is_hit, gone), model.ask(key, size), "at {}", position);
            for key in [key, key / 2, key + 1] {
                let ghosts = [&model.recent_ghosts, &model.frequent_ghosts];
                let is_ghost = ghosts.iter().any(|list| list.iter().any(|ghost| ghost.0 == key));
                prop_assert_eq!(policy.remembers(key), is_ghost, "{} at {}", key, position);
            }
        }
    }
}

#[test]
fn arc_gives_more_room_to_what_comes_back() {
    // a, b and c are used twice and fill the frequent queue. d and e come once each, in turn with f and g: they return
    // as ghosts, which makes room for such entries, until all four stay.
    let answers = who_goes(Kind::Arc, 6, "aabbccdefgdefgdefgdefgdefg");
    assert!(answers.ends_with("...."), "{answers}");
}
