//! Which volumes the streams of stores are written to now.

use std::collections::VecDeque;

use super::VolumeId;
use crate::intent::Stream;

/// The last object of each stream that was placed lately, and its volumes.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams(VecDeque<Last>);

#[derive(Clone, Debug)]
struct Last {
    stream: Stream,
    object: u64,
    volumes: Vec<VolumeId>,
}

impl Streams {
    /// How many streams other than this one are written to a volume.
    pub(super) fn others(&self, than: Option<Stream>, volume: VolumeId) -> usize {
        let others = self.0.iter().filter(|last| Some(last.stream) != than);
        others.filter(|last| last.volumes.contains(&volume)).count()
    }

    /// A stream goes on with this object, of which a copy is on `volume`. Forgets the streams that went on the longest ago, beyond
    /// `most`: they may have ended.
    pub(super) fn goes_on(&mut self, stream: Stream, object: u64, volume: VolumeId, most: usize) {
        let at = self.0.iter().position(|last| last.stream == stream);
        let before = at.and_then(|at| self.0.remove(at));
        let mut last = before.filter(|last| last.object == object).unwrap_or(Last {
            stream,
            object,
            volumes: Vec::new(),
        });
        last.volumes.push(volume);
        self.0.push_back(last);
        let surplus = self.0.len().saturating_sub(most.max(1));
        self.0.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_where_the_copies_of_its_last_object_are() {
        let (mut streams, [a, b]) = (Streams::default(), [0, 1].map(VolumeId));
        let [one, other] = [7, 8].map(Stream);
        streams.goes_on(one, 1, a, 9);
        streams.goes_on(one, 1, b, 9);
        streams.goes_on(other, 2, a, 9);
        assert_eq!([a, b].map(|volume| streams.others(None, volume)), [2, 1]);
        assert_eq!([a, b].map(|volume| streams.others(Some(one), volume)), [1, 0]);
        streams.goes_on(one, 3, b, 9);
        assert_eq!([a, b].map(|volume| streams.others(None, volume)), [1, 1]);
        streams.goes_on(one, 4, b, 1);
        assert_eq!(
            [a, b].map(|volume| streams.others(None, volume)),
            [0, 1],
            "the other is forgotten"
        );
    }
}
