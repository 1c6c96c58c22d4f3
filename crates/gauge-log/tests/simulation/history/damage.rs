//! What a device loses that had been promised.

use std::sync::Arc;
use std::time::Instant;

use gauge_log::start::assemble;
use gauge_log::storage::disk::Disk;
use gauge_log::storage::segment::base_of;

use super::{History, Step, Stop, events, wrong};
use crate::model;

impl History {
    /// Something that had been promised is lost on the device: what is left must be right, and what is lost must be said.
    pub(super) fn damage(&mut self) -> Step {
        self.disk.plan(None, None);
        for _ in 0..self.rng.usize(..40) {
            self.step()?;
        }
        while self.doing.commit.is_some() || self.shared().broker().journal.has_pending() {
            self.commit()?;
        }
        let last_end = self.shared().broker().journal.last_end();
        let first_base = self.shared().broker().journal.segments[0].base;
        self.end(true);
        self.begin(true)?;
        self.end(false);
        let names = self.disk.names();
        let mut names: Vec<String> = names
            .into_iter()
            .filter(|name| {
                let is_log = base_of(name, "log").is_some();
                let is_other = base_of(name, "index").is_some() || base_of(name, "state").is_some();
                is_log || is_other
            })
            .collect();
        names.sort();
        let logs: Vec<String> = names
            .iter()
            .filter(|name| name.ends_with(".log"))
            .cloned()
            .collect();
        let others: Vec<String> = names
            .iter()
            .filter(|name| !name.ends_with(".log"))
            .cloned()
            .collect();
        let name = match self.rng.u32(..8) {
            0 if !others.is_empty() => others[self.rng.usize(..others.len())].clone(),
            _ => logs[self.rng.usize(..logs.len())].clone(),
        };
        let base = base_of(&name, "log");
        let bytes = self.disk.content(&name).unwrap_or_default();
        let used = match base {
            Some(base) => (last_end.saturating_sub(base) as usize).min(bytes.len()),
            None => bytes.len(),
        };
        if used == 0 || last_end <= first_base {
            return Ok(());
        }
        let at = self.rng.usize(..used);
        let (from, lost) = match self.rng.u32(..4) {
            0 => (at, vec![bytes[at] ^ (1 << self.rng.u32(..8))]),
            1 => {
                let from = at / 512 * 512;
                (from, vec![0; 512.min(bytes.len() - from)])
            }
            _ => {
                let from = at / 4096 * 4096;
                (from, vec![0; 4096.min(bytes.len() - from)])
            }
        };
        if bytes[from..from + lost.len()] == lost[..] {
            return Ok(());
        }
        self.disk.corrupt(&name, from as u64, &lost);
        self.marks.note("damage");
        let range = base.map(|base| (base + from as u64, base + (from + lost.len()) as u64));
        self.judge_damage(&name, range, last_end)
    }

    fn judge_damage(&mut self, name: &str, range: Option<(u64, u64)>, last_end: u64) -> Step {
        self.disk.begin(None, None);
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let begun = assemble(
            self.settings.clone(),
            disk,
            events(),
            self.settings.listen,
            Instant::now(),
        );
        let shared = match begun {
            Ok(shared) => shared,
            // Whatever is named may be the reason; nothing but what is damaged may be named.
            Err(text) if range.is_some() && (text.contains(name) || text.contains("ends at byte")) => {
                self.marks.note("damage refused");
                return Ok(());
            }
            Err(text) if text.contains("no usable state") && name.ends_with(".state") => return Ok(()),
            Err(text) => {
                return wrong(format!(
                    "{name} is damaged at {range:?}, and the log says: {text}"
                ));
            }
        };
        let seen = model::look(&shared).map_err(Stop::Wrong)?;
        let Some((from, to)) = range else {
            self.marks.note("shortcut damaged");
            return self.now.compare(&seen).map_err(|difference| {
                Stop::Wrong(format!("{name} is only a shortcut, and without it: {difference}"))
            });
        };
        // What the last commit held cannot be told from a commit that was torn.
        let last_commit = self
            .boundaries
            .range(..last_end)
            .next_back()
            .copied()
            .unwrap_or(0);
        let is_said = shared.metrics.damaged.get() > 0;
        if from >= last_commit || to > last_commit && from >= last_commit.saturating_sub(4096) {
            self.marks.note("last commit damaged");
            return Ok(());
        }
        let end = shared.broker().journal.last_end();
        if end < last_commit {
            return wrong(format!(
                "bytes {from} to {to} of the journal were lost, and all of it from {end} to {last_end} was cut"
            ));
        }
        for (topic, (id, partitions)) in &seen.topics {
            for (index, seen) in partitions.iter().enumerate() {
                let Some(model) = self.now.partition(&(*id, index)) else {
                    return wrong(format!("{topic}-{index} should not be there"));
                };
                for batch in &model.batches {
                    let is_seen = seen.batches.contains(&(batch.base, batch.records, batch.number));
                    let is_hit = batch.range.0 < to && batch.range.1 > from;
                    let is_due = batch.base + batch.records > seen.start;
                    if is_due && !is_seen && !is_hit {
                        return wrong(format!(
                            "bytes {from} to {to} of the journal were lost, and with them offset {} of {topic}-{index}, which was elsewhere ({:?})",
                            batch.base, batch.range
                        ));
                    }
                    if is_due && !is_seen && !is_said {
                        return wrong(format!(
                            "bytes {from} to {to} of the journal were lost, with offset {} of {topic}-{index}, and nobody was told",
                            batch.base
                        ));
                    }
                }
                if seen.end != model.next {
                    return wrong(format!(
                        "{topic}-{index} ends at {} and should at {}",
                        seen.end, model.next
                    ));
                }
            }
        }
        let there: Vec<&String> = seen.topics.keys().collect();
        let wanted: Vec<&String> = self.now.topics.keys().collect();
        if there != wanted || seen.offsets != self.now.offsets {
            return wrong(format!(
                "bytes {from} to {to} of the journal were lost, and the log begins without saying that topics or offsets are"
            ));
        }
        self.marks.note("damage survived");
        Ok(())
    }
}
