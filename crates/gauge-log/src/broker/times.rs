//! Looking for a time: the first record of a partition that is not older, or the first of the newest ones.
//!
//! Marks lead to the first chunk that may have it, the chunk's directory to the first batch; what is in the batch is looked at without the broker's lock. A chunk that is not in
//! memory is read from disk first, and whoever has looked at much goes on later, so that nobody waits for it.

use std::sync::Arc;

use super::Broker;
use crate::batch;
use crate::storage::chunk::{BatchPlace, Chunk};

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The first record with this timestamp (ms, not negative) or a larger one.
    From(i64),
    /// The first record with the largest timestamp.
    Newest,
}

/// A search, and how far it has come.
#[derive(Debug)]
pub struct Search {
    partition: u32,
    wanted: Wanted,
    /// The timestamp that the record has at least, once it is known.
    threshold_ms: Option<i64>,
    place: Option<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// The mark that is looked at.
    mark: u64,
    /// Of its chunks the one that is to be looked at.
    chunk: u64,
    /// From this offset on.
    from: i64,
    /// The largest timestamp that the mark has before that.
    seen_ms: i64,
}

/// A batch that may have what is looked for.
#[derive(Debug)]
pub struct Candidate {
    chunk: Arc<Chunk>,
    place: BatchPlace,
    log_start: i64,
    threshold_ms: i64,
}

/// How far one step of a search led.
#[derive(Debug)]
pub enum Step {
    /// To a batch.
    Batch(Candidate),
    /// To a chunk that must be read from disk first.
    Load(u64),
    /// There is no such record.
    Nothing,
    /// The partition was deleted.
    Gone,
    /// There is more to look at.
    Later,
}

impl Search {
    /// A search that begins.
    pub fn new(partition: u32, wanted: Wanted) -> Self {
        Self {
            partition,
            wanted,
            threshold_ms: None,
            place: None,
        }
    }

    /// Looks at a batch, without any lock: (timestamp in ms, offset) of the record; None when it is not there after all. Takes `work` for the records.
    pub fn look(&mut self, candidate: &Candidate, work: &mut usize) -> Option<(i64, i64)> {
        let (at, bytes) = (candidate.place.at as usize, candidate.place.bytes as usize);
        // SAFETY: only batches below the high watermark are candidates; they do not change any more, and the chunk is held.
        let bytes = unsafe { candidate.chunk.bytes(at, at + bytes) };
        let found = batch::find_time(
            bytes,
            candidate.threshold_ms,
            candidate.log_start,
            self.wanted == Wanted::Newest,
        );
        *work = work.saturating_sub(candidate.place.offset_count as usize);
        match found {
            Ok(record) => Some(record),
            Err(newest_ms) => {
                if let Some(place) = &mut self.place {
                    place.seen_ms = place.seen_ms.max(newest_ms);
                }
                None
            }
        }
    }
}

impl Broker {
    /// Leads a search on. Takes `work` for each batch and chunk that is looked at; when there is none left, it is `Step::Later`.
    pub fn search(&mut self, search: &mut Search, work: &mut usize) -> Step {
        loop {
            if *work == 0 {
                return Step::Later;
            }
            *work -= 1;
            let Some(partition) = self.topics.partition(search.partition) else {
                return Step::Gone;
            };
            let marks = &partition.chunk_marks;
            if partition.log_start >= partition.high_watermark {
                return Step::Nothing;
            }
            let threshold_ms = *search.threshold_ms.get_or_insert_with(|| match search.wanted {
                Wanted::From(timestamp_ms) => timestamp_ms,
                Wanted::Newest => marks.newest_before(marks.len()),
            });
            // A record without a timestamp has -1.
            if threshold_ms < 0 {
                return Step::Nothing;
            }
            let known = search.place.take();
            let known = known.and_then(|place| Some((place, marks.index_of(place.mark)?)));
            let found = known.or_else(|| {
                let mark = marks.first_reaching(threshold_ms)?;
                let place = Place {
                    mark: mark.chunk,
                    chunk: mark.chunk,
                    from: partition.log_start,
                    seen_ms: i64::MIN,
                };
                Some((place, marks.index_of(mark.chunk)?))
            });
            let Some((mut place, index)) = found else {
                if search.wanted == Wanted::Newest {
                    // What was the newest is deleted.
                    search.threshold_ms = None;
                    continue;
                }
                return Step::Nothing;
            };
            let newest_before = marks.newest_before(index);
            let next_mark = marks.get(index + 1).map_or(u64::MAX, |mark| mark.chunk);
            let (log_start, is_thinned) = (partition.log_start, partition.thinned);
            match self.look_into(search.partition, threshold_ms, &mut place, work) {
                Within::Batch(chunk, batch) => {
                    search.place = Some(Place {
                        from: batch.next_offset(),
                        ..place
                    });
                    return Step::Batch(Candidate {
                        chunk,
                        place: batch,
                        log_start,
                        threshold_ms,
                    });
                }
                Within::NotInMemory => {
                    search.place = Some(place);
                    return Step::Load(place.chunk);
                }
                // Everything behind it is not committed either.
                Within::Uncommitted if search.wanted != Wanted::Newest => return Step::Nothing,
                Within::Uncommitted => {
                    search.threshold_ms = Some(newest_before.max(place.seen_ms));
                    continue;
                }
                Within::Older => {}
            }
            let next = match is_thinned {
                true => self.journal.start_after(place.chunk),
                false => None,
            };
            match next.filter(|&next| next < next_mark) {
                Some(chunk) => {
                    search.place = Some(Place {
                        chunk,
                        from: log_start,
                        ..place
                    });
                }
                // Nobody needs to look into it for this time again.
                None => {
                    if let Some(partition) = self.topics.partition_mut(search.partition) {
                        partition.chunk_marks.lower(index, place.seen_ms);
                    }
                }
            }
        }
    }

    /// The first batch of a chunk that may have a record that is not older.
    fn look_into(
        &mut self,
        partition_id: u32,
        threshold_ms: i64,
        place: &mut Place,
        work: &mut usize,
    ) -> Within {
        let newest_ms = self.journal.newest_timestamp_of(place.chunk);
        if newest_ms < threshold_ms {
            place.seen_ms = place.seen_ms.max(newest_ms);
            return Within::Older;
        }
        let Some(partition) = self.topics.partition(partition_id) else {
            return Within::Older;
        };
        let Some(chunk) = self.cache.get(place.chunk) else {
            return Within::NotInMemory;
        };
        self.places.clear();
        let places = if place.chunk == self.journal.active_start() {
            self.journal
                .active_places(&partition.last, place.from, &mut self.places);
            &self.places[..]
        } else {
            let directory = chunk.directory.get();
            directory.map_or(&[][..], |directory| {
                directory.from_offset(partition_id, place.from)
            })
        };
        *work = work.saturating_sub(places.len());
        for batch in places {
            if batch.next_offset() > partition.high_watermark {
                return Within::Uncommitted;
            }
            if batch.timestamp_ms_max >= threshold_ms {
                let batch = *batch;
                return Within::Batch(chunk, batch);
            }
            place.seen_ms = place.seen_ms.max(batch.timestamp_ms_max);
        }
        Within::Older
    }
}

/// What is in a chunk.
enum Within {
    Batch(Arc<Chunk>, BatchPlace),
    NotInMemory,
    /// Nothing before a batch that is not committed.
    Uncommitted,
    Older,
}
