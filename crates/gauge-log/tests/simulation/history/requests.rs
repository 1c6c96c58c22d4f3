//! Requests that change topics, offsets and producer ids.

use super::{GROUPS, History, Step, TOPICS, wrong};
use crate::client::{self, Answer};
use crate::model::Op;

impl History {
    /// Whether a request was answered without error.
    fn check(answer: Answer, what: &str) -> Step {
        match answer.error {
            0 => Ok(()),
            _ => wrong(format!("{what} was answered {answer:?}")),
        }
    }

    fn take_internal(&mut self, internal: &[u32]) -> Step {
        for &id in internal {
            if !self.internal_ids.insert(id) {
                return wrong(format!("the partition id {id} is used again"));
            }
        }
        Ok(())
    }

    pub(super) fn create(&mut self) -> Step {
        let name = TOPICS[self.rng.usize(..TOPICS.len())];
        if self.now.topics.contains_key(name) {
            return Ok(());
        }
        let retention_ms = (self.rng.u32(..4) == 0).then(|| self.rng.i64(1000..10_000));
        let partitions = self.rng.i32(1..4);
        let Ok(answer) = client::create(self.shared(), name, partitions, retention_ms) else {
            return self.commit();
        };
        Self::check(answer, "creating a topic")?;
        let (id, internal) = {
            let broker = self.shared().broker();
            let topic = broker.topics.get(name).expect("it was just made");
            (topic.id, topic.partitions.clone())
        };
        self.take_internal(&internal)?;
        let name = name.to_owned();
        let op = Op::Create {
            name,
            id,
            internal,
            retention_ms,
        };
        self.issue(op, answer.position);
        Ok(())
    }

    pub(super) fn add_partitions(&mut self) -> Step {
        let Some((name, _)) = self.choose_partition() else {
            return Ok(());
        };
        let have = self.now.topics[&name].partitions.len();
        if have > 5 {
            return Ok(());
        }
        let Ok(answer) = client::add_partitions(self.shared(), &name, have as i32 + 1) else {
            return self.commit();
        };
        Self::check(answer, "adding a partition")?;
        let internal = {
            let broker = self.shared().broker();
            broker
                .topics
                .get(&name)
                .map_or(Vec::new(), |topic| topic.partitions[have..].to_vec())
        };
        self.take_internal(&internal)?;
        self.issue(Op::AddPartitions { name, internal }, answer.position);
        Ok(())
    }

    pub(super) fn configure(&mut self) -> Step {
        let Some((name, _)) = self.choose_partition() else {
            return Ok(());
        };
        let retention_ms = self.rng.bool().then(|| self.rng.i64(1000..10_000));
        let Ok(answer) = client::configure(self.shared(), &name, retention_ms) else {
            return self.commit();
        };
        Self::check(answer, "changing a setting")?;
        self.issue(Op::Configure { name, retention_ms }, answer.position);
        Ok(())
    }

    pub(super) fn delete(&mut self) -> Step {
        let Some((name, _)) = self.choose_partition() else {
            return Ok(());
        };
        // It comes back if the process dies before that is committed.
        self.note_starts_asked();
        let Ok(answer) = client::delete(self.shared(), &name) else {
            return self.commit();
        };
        Self::check(answer, "deleting a topic")?;
        self.issue(Op::Delete { name }, answer.position);
        Ok(())
    }

    pub(super) fn delete_records(&mut self) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        let place = (self.now.topics[&name].id, index);
        let end = self
            .promised
            .partition(&place)
            .map_or(0, |partition| partition.next);
        let start = self.rng.i64(0..=end);
        let Ok(answer) = client::delete_records(self.shared(), &name, index as i32, start) else {
            return self.commit();
        };
        Self::check(answer, "deleting records")?;
        let asked = self.starts_asked.entry(place).or_default();
        *asked = (*asked).max(start);
        // Where the partition begins later already, nothing is written.
        if answer.position > 0 {
            let op = Op::DeleteRecords {
                name,
                partition: index,
                start,
            };
            self.issue(op, answer.position);
        }
        Ok(())
    }

    pub(super) fn commit_offset(&mut self) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        let group = GROUPS[self.rng.usize(..GROUPS.len())];
        let offset = self.rng.i64(..1000);
        let Ok(answer) = client::commit_offset(self.shared(), group, &name, index as i32, offset) else {
            return self.commit();
        };
        Self::check(answer, "committing an offset")?;
        let op = Op::CommitOffset {
            group: group.to_owned(),
            name,
            partition: index as i32,
            offset,
        };
        self.issue(op, answer.position);
        Ok(())
    }

    pub(super) fn delete_offset(&mut self) -> Step {
        let known = self.now.offsets.len();
        let chosen = self.rng.usize(..known.max(1));
        let Some((group, name, partition)) = self.now.offsets.keys().nth(chosen).cloned() else {
            return Ok(());
        };
        let Ok(answer) = client::delete_offset(self.shared(), &group, &name, partition) else {
            return self.commit();
        };
        Self::check(answer, "deleting an offset")?;
        let op = Op::DeleteOffset {
            group,
            name,
            partition,
        };
        self.issue(op, answer.position);
        Ok(())
    }

    pub(super) fn delete_group(&mut self) -> Step {
        let group = GROUPS[self.rng.usize(..GROUPS.len())];
        if !self.now.offsets.keys().any(|(of, ..)| of == group) {
            return Ok(());
        }
        let Ok(answer) = client::delete_group(self.shared(), group) else {
            return self.commit();
        };
        Self::check(answer, "deleting a group")?;
        let group = group.to_owned();
        self.issue(Op::DeleteGroup { group }, answer.position);
        Ok(())
    }

    pub(super) fn take_producer_id(&mut self) -> Step {
        let Ok(answer) = client::producer_id(self.shared()) else {
            return self.commit();
        };
        Self::check(answer, "taking a producer id")?;
        let id = answer.number;
        if self.producer_ids.contains(&id) {
            return wrong(format!("the producer id {id} is given out again"));
        }
        self.producers.push(id);
        self.issue(Op::ProducerId { id }, answer.position);
        Ok(())
    }
}
