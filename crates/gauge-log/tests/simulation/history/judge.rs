//! What has to hold once a process has begun: what was asked up to some point is there, and no less than what was acknowledged.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use gauge_log::storage::segment::Durability;

use super::{History, Step, Stop, wrong};
use crate::model::{self, Op, Place, Seen};

impl History {
    /// Whether what is there is what was asked up to some point, and no less than what was acknowledged.
    pub(super) fn judge(&mut self) -> Step {
        let seen = model::look(self.shared()).map_err(Stop::Wrong)?;
        if self.shared().metrics.damaged.get() > 0 {
            return wrong("damage is reported, and there is none".to_owned());
        }
        let is_async = self.durability == Durability::Async;
        let must = match is_async && self.has_lost_power {
            true => self.durable,
            false => self.acknowledged,
        };
        let mut state = self.floor.clone();
        let mut differences = Vec::new();
        let mut kept = None;
        for count in 0..=self.log.len() {
            if count > 0 {
                state.apply(&self.log[count - 1].op);
            }
            if count < must {
                continue;
            }
            match state.compare(&seen) {
                Ok(()) => {
                    kept = Some(count);
                    break;
                }
                Err(difference) => differences.push(difference),
            }
        }
        let Some(kept) = kept else {
            differences.dedup();
            return wrong(format!(
                "what is there is not what was asked up to any point from {must} of {} on: {}",
                self.log.len(),
                differences.join("; or ")
            ));
        };
        if kept < self.log.len() {
            self.marks.note("torn tail cut");
        }
        for issued in self.log.drain(kept..) {
            if let Op::Create { internal, .. } | Op::AddPartitions { internal, .. } = &issued.op {
                self.internal_ids.retain(|id| !internal.contains(id));
            }
            if let Op::ProducerId { id } = &issued.op {
                self.producer_ids.remove(id);
            }
        }
        self.acknowledged = kept;
        // Recovery has synced what it shows, where that was promised.
        self.durable = if is_async { self.durable.min(kept) } else { kept };
        for issued in self.log.drain(..self.durable) {
            self.floor.apply(&issued.op);
        }
        self.acknowledged -= self.durable;
        self.durable = 0;
        self.promised = state.clone();
        self.now = state;
        let is_forgiven = is_async && self.has_lost_power;
        self.judge_starts(&seen, is_forgiven)?;
        let tail = self.shared().committed.load(Ordering::Relaxed);
        self.boundaries.insert(tail);
        self.has_lost_power = false;
        for _ in 0..3 {
            if let Some((name, index)) = self.choose_partition() {
                self.find_time(&name, index)?;
            }
        }
        self.resend_some()
    }

    fn judge_starts(&mut self, seen: &Seen, is_forgiven: bool) -> Step {
        // A partition whose making was lost may be made again.
        let all = seen.topics.values();
        let there: BTreeSet<Place> = all
            .flat_map(|(id, partitions)| (0..partitions.len()).map(|index| (*id, index)))
            .collect();
        self.starts_seen.retain(|place, _| there.contains(place));
        for (name, (id, partitions)) in &seen.topics {
            for (index, partition) in partitions.iter().enumerate() {
                let place = (*id, index);
                let before = self.starts_seen.get(&place).copied().unwrap_or(0);
                let asked = self.starts_asked.get(&place).copied().unwrap_or(0);
                if partition.start < before && !is_forgiven {
                    return wrong(format!(
                        "{name}-{index} began at {before}, and begins at {} now",
                        partition.start
                    ));
                }
                if partition.start > asked {
                    return wrong(format!(
                        "{name}-{index} begins at {}, and nobody wanted more than {asked}",
                        partition.start
                    ));
                }
                self.starts_seen.insert(place, partition.start);
            }
        }
        Ok(())
    }
}
