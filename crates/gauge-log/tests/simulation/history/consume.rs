//! Consumers: what they may read, where partitions begin, and which offset has a time.

use super::{History, Step, Stop, wrong};
use crate::client;
use crate::model;

impl History {
    pub(super) fn consume(&mut self) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        let place = (self.now.topics[&name].id, index);
        let (internal, start, end) = {
            let broker = self.shared().broker();
            let internal = broker.topics.partition_id(&name, index as i32);
            let partition = internal.and_then(|internal| broker.topics.partition(internal));
            match (internal, partition) {
                (Some(internal), Some(partition)) => {
                    (internal, partition.log_start, partition.high_watermark)
                }
                _ => return wrong(format!("{name}-{index} is gone")),
            }
        };
        let promised = self.promised.partition(&place);
        let promised_end = promised.map_or(0, |partition| partition.next);
        if end != promised_end {
            return wrong(format!(
                "readers of {name}-{index} may read to {end}, and {promised_end} is acknowledged"
            ));
        }
        if start >= end {
            return Ok(());
        }
        let from = self.rng.i64(start..end);
        let found = match model::read(self.shared(), internal, &place, from) {
            Err(_) if self.disk.was_planned() => return Err(Stop::Died),
            found => found.map_err(Stop::Wrong)?,
        };
        let wanted: Vec<_> = promised.map_or(Vec::new(), |partition| partition.from(from).collect());
        if found != wanted {
            return wrong(format!(
                "{name}-{index} from {from}: {wanted:?} should be there, and {found:?} are"
            ));
        }
        self.marks.note("consumed");
        Ok(())
    }

    pub(super) fn list(&mut self) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        let place = (self.now.topics[&name].id, index);
        let Ok(answer) = client::list_offset(self.shared(), &name, index as i32, -2) else {
            return Ok(());
        };
        let before = self.starts_seen.get(&place).copied().unwrap_or(0);
        if answer.error != 0 || answer.number < before {
            return wrong(format!("{name}-{index} began at {before}, and now: {answer:?}"));
        }
        self.starts_seen.insert(place, answer.number);
        self.find_time(&name, index)
    }

    /// Looks for a time of some record, for one near it, or for the newest record.
    pub(super) fn find_time(&mut self, name: &str, index: usize) -> Step {
        let place = (self.now.topics[name].id, index);
        let Some(partition) = self.promised.partition(&place).cloned() else {
            return Ok(());
        };
        let known = partition.batches.len();
        let wanted = match self.rng.u32(..4) {
            0 => -3,
            _ if known == 0 => self.clock_ms,
            _ => partition.batches[self.rng.usize(..known)].timestamp_ms + self.rng.i64(-1..2),
        };
        let start = {
            let broker = self.shared().broker();
            let internal = broker.topics.partition_id(name, index as i32);
            let partition = internal.and_then(|internal| broker.topics.partition(internal));
            partition.map_or(0, |partition| partition.log_start)
        };
        let due = partition.find_time(start, partition.next, wanted);
        let found = match client::find_time(self.shared(), name, index as i32, wanted) {
            Err(_) if self.disk.was_planned() => return Err(Stop::Died),
            found => found.map_err(Stop::Wrong)?,
        };
        if found != due {
            return wrong(format!(
                "time {wanted} in {name}-{index}, which begins at {start}: (timestamp, offset) {due:?} is right, and {found:?} is answered"
            ));
        }
        self.marks.note(match found {
            (-1, -1) => "no such time",
            _ => "time found",
        });
        Ok(())
    }
}
