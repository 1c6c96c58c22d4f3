//! Do messages go to the partitions that they are meant for, with the keys that they were to have?

use std::collections::HashMap;

use super::{Case, Told};
use crate::truth::MessageKey;

/// Without keys messages go round the partitions: one by one, or batch by batch.
pub(super) fn places(case: &Case<'_>, unacked: usize, told: &mut Told) {
    // What nobody acknowledges may not have come anywhere when the world ends.
    if !case.is_calm || unacked > 0 || case.scenario.acks == 0 {
        return;
    }
    for (producer, (keys, _, slots)) in case.scenario.sources().enumerate() {
        let mut counts = vec![0; slots.len()];
        // Where each subscription has a copy of its own, one of them tells.
        let first = case
            .truth
            .batches
            .iter()
            .filter(|batch| batch.reader.is_none_or(|reader| reader == 0));
        for batch in first.filter(|batch| slots.contains(&batch.slot)) {
            let own = batch
                .messages
                .iter()
                .filter(|message| message.producer == producer as u32);
            counts[batch.slot - slots.start] += own.count();
        }
        let (most, least) = counts
            .iter()
            .max()
            .zip(counts.iter().min())
            .map_or((0, 0), |(most, least)| (*most, *least));
        let is_even = match keys {
            "round_robin" => most - least <= 1,
            // So many are more than a round of full batches.
            "none" => least > 0 || counts.iter().sum::<usize>() <= slots.len() * case.scenario.batch_msgs(),
            _ => true,
        };
        if !is_even {
            told.say(|| format!("producer {producer} ({keys}) has sent to its partitions: {counts:?}"));
        }
    }
}

/// Keys are those that were asked for, and all messages of one go to one partition.
pub(super) fn keys(case: &Case<'_>, told: &mut Told) {
    let sources: Vec<_> = case.scenario.sources().collect();
    let mut slots: HashMap<(usize, u64), usize> = HashMap::new();
    for batch in &case.truth.batches {
        for message in &batch.messages {
            let Some((kind, key_count, own)) = sources.get(message.producer as usize) else {
                continue;
            };
            let in_turn = message.sequence % (*key_count).max(1);
            let (is_so, number) = match (*kind, message.key) {
                ("keyed", MessageKey::Untold) => (true, Some(in_turn)),
                ("keyed", MessageKey::Number(number)) => (u64::from(number) == in_turn, Some(in_turn)),
                ("zipf", MessageKey::Untold) => (true, None),
                ("zipf", MessageKey::Number(number)) => {
                    (u64::from(number) < *key_count, Some(u64::from(number)))
                }
                ("keyed" | "zipf", _) => (false, None),
                (_, key) => (matches!(key, MessageKey::Untold | MessageKey::Absent), None),
            };
            if !is_so {
                told.say(|| {
                    format!("{message:?} has another key than was asked for ({kind}, {key_count} keys)")
                });
                return;
            }
            let Some(number) = number else { continue };
            let slot = *slots.entry((own.start, number)).or_insert(batch.slot);
            if slot != batch.slot {
                told.say(|| {
                    format!(
                        "messages with key {number} went to slots {slot} and {}",
                        batch.slot
                    )
                });
                return;
            }
        }
    }
}
