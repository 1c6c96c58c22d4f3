//! What a log is asked to do, and what it does by itself: commits, segments, states, deletions.

use std::io;
use std::sync::atomic::Ordering;

use gauge_log::commit::Commit;
use gauge_log::maintain::{self, Checkpoint, Deletion};
use gauge_log::prepare::Preparation;
use gauge_log::storage::segment::Durability;

use super::{History, Issued, PAYLOAD_BYTES_MAX, Step, Stop, wrong};
use crate::model::Op;

impl History {
    pub(super) fn step(&mut self) -> Step {
        match self.rng.u32(..100) {
            0..38 => self.produce(None),
            38..62 => self.commit(),
            62..70 => self.prepare(),
            70..76 => self.checkpoint(),
            76..81 => self.retain(),
            81..82 => self.expire(),
            82..86 => self.consume(),
            86..88 => self.list(),
            88..91 => self.create(),
            91 if self.rng.bool() => self.configure(),
            91 => self.add_partitions(),
            92..94 => self.delete(),
            94..96 => self.delete_records(),
            96..98 => self.commit_offset(),
            98 if self.rng.bool() => self.delete_offset(),
            98 => self.delete_group(),
            _ => self.take_producer_id(),
        }
    }

    fn settle<T>(&self, done: io::Result<T>, what: &str) -> Result<T, Stop> {
        match done {
            Ok(done) => Ok(done),
            Err(_) if self.disk.was_planned() => Err(Stop::Died),
            Err(error) => wrong(format!(
                "{what} failed, and nothing was wrong with the disk: {error}"
            )),
        }
    }

    pub(super) fn issue(&mut self, op: Op, position: u64) {
        self.now.apply(&op);
        self.log.push(Issued { op, position });
    }

    pub(super) fn choose_partition(&mut self) -> Option<(String, usize)> {
        let total: usize = self.now.topics.values().map(|topic| topic.partitions.len()).sum();
        let mut chosen = self.rng.usize(..total.max(1));
        for (name, topic) in &self.now.topics {
            if chosen < topic.partitions.len() {
                return Some((name.clone(), chosen));
            }
            chosen -= topic.partitions.len();
        }
        None
    }

    /// Begins a commit or ends it; between the two others may append.
    pub(super) fn commit(&mut self) -> Step {
        let commit = match self.doing.commit.take() {
            Some(commit) => Some(commit),
            None => {
                let begun = Commit::begin(self.shared());
                self.settle(begun, "beginning a commit")?
            }
        };
        let Some(commit) = commit else {
            return Ok(());
        };
        if self.rng.u32(..3) == 0 {
            self.doing.commit = Some(commit);
            for _ in 0..self.rng.usize(..4) {
                // Not again from within a commit: there is only one at a time.
                if self.produce_while_committing()? {
                    break;
                }
            }
            return Ok(());
        }
        let finished = commit.finish(self.shared(), None);
        // Also of one that failed: what is shown as committed is acknowledged.
        self.note_acknowledged();
        if finished.is_err() && !self.disk.is_dead() {
            self.go_on_after_failure()?;
        }
        self.settle(finished, "a commit")
    }

    fn produce_while_committing(&mut self) -> Result<bool, Stop> {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(true);
        };
        // Room for it there is only with luck; a second commit must not begin.
        let room = self.shared().broker().journal.reserve(PAYLOAD_BYTES_MAX + 200, 1);
        if room.is_err() {
            return Ok(true);
        }
        self.marks.note("appended during a commit");
        self.produce_to(&name, index, None)?;
        Ok(false)
    }

    /// Between a failure and the end of the process other threads go on.
    fn go_on_after_failure(&mut self) -> Step {
        self.marks.note("commit failed");
        for _ in 0..3 {
            self.produce_while_committing()?;
            if let Ok(Some(commit)) = Commit::begin(self.shared())
                && commit.finish(self.shared(), None).is_ok()
            {
                self.note_acknowledged();
            }
        }
        Ok(())
    }

    fn note_acknowledged(&mut self) {
        let committed = self.shared().committed.load(Ordering::Relaxed);
        self.boundaries.insert(committed);
        while let Some(issued) = self.log.get(self.acknowledged)
            && issued.position <= committed
        {
            self.promised.apply(&issued.op);
            if let Op::ProducerId { id } = issued.op {
                self.producer_ids.insert(id);
            }
            self.acknowledged += 1;
        }
        if self.durability == Durability::Fsync {
            self.durable = self.acknowledged;
        }
    }

    fn prepare(&mut self) -> Step {
        if self.doing.preparation.is_none() {
            if !self.shared().broker().journal.wants_segment() {
                return Ok(());
            }
            let begun = Preparation::begin(self.shared());
            self.doing.preparation = Some(self.settle(begun, "making a segment")?);
        }
        for _ in 0..self.rng.usize(1..6) {
            let Some(mut preparation) = self.doing.preparation.take() else {
                return Ok(());
            };
            let stepped = preparation.step(self.shared());
            if self.settle(stepped, "writing zeroes")? {
                self.doing.preparation = Some(preparation);
            } else {
                self.shared().broker().journal.offer_segment(preparation.segment);
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Step {
        if self.doing.checkpoint.is_none() {
            if !self
                .shared()
                .broker()
                .journal
                .rolled
                .swap(false, Ordering::AcqRel)
            {
                return Ok(());
            }
            self.marks.note("segment begun");
            self.doing.checkpoint = Some(Checkpoint::begin(self.shared()));
        }
        let committed = self.shared().committed.load(Ordering::Relaxed);
        let Some(checkpoint) = self
            .doing
            .checkpoint
            .take_if(|checkpoint| checkpoint.position <= committed)
        else {
            return Ok(());
        };
        let position = checkpoint.position;
        let finished = checkpoint.finish(self.shared());
        self.settle(finished, "writing a state")?;
        self.marks.note("state written");
        let durable = self.log.iter().take_while(|issued| issued.position <= position);
        self.durable = self.durable.max(durable.count());
        Ok(())
    }

    fn retain(&mut self) -> Step {
        if self.doing.deletion.is_none() {
            let begun = Deletion::begin(self.shared());
            self.doing.deletion = self.settle(begun, "looking for old segments")?;
        }
        let committed = self.shared().committed.load(Ordering::Relaxed);
        let Some(deletion) = self
            .doing
            .deletion
            .take_if(|deletion| deletion.position <= committed)
        else {
            return Ok(());
        };
        let finished = deletion.finish(self.shared());
        self.settle(finished, "deleting a segment")?;
        self.marks.note("segment deleted");
        Ok(())
    }

    fn expire(&mut self) -> Step {
        self.clock_ms += self.rng.i64(0..4000);
        maintain::expire_topics(self.shared(), self.clock_ms);
        Ok(())
    }
}
