//! The group coordinator: the classic protocol of join, sync, heartbeat and leave, and committed offsets.
//!
//! Source: the protocol guide (<https://kafka.apache.org/protocol.html>), KIP-62 (heartbeats), KIP-345 (static members), KIP-394 (a member id before the join).
//! A group is a state machine without I/O: calls take the time and return what is to be delivered to which connection.
//!
//! `messages`: what goes in and comes out; `group`: the state machine of one group; here: all groups, and which of them a request is for.

mod group;
mod messages;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub use group::{Group, Member, State};
pub use messages::{Delivery, Join, Joined, JoinedMember, Synced, Waiting};

use super::change::CommittedOffset;
use super::topics::ConnectionId;
use crate::api::error::ErrorCode;

/// Bytes of a group's name at most.
const GROUP_NAME_BYTES_MAX: usize = 1024;
/// Groups at most.
const GROUPS_MAX: usize = 10_000;
/// Members of one group at most.
const MEMBERS_MAX: usize = 1_000;
/// Bytes of subscriptions and assignments over all groups at most.
const MEMBER_BYTES_MAX: usize = 32 << 20;
/// Member ids over all groups that were given out and not used yet, at most.
const PROMISED_MAX: usize = 50_000;
/// Characters of a client's name for itself that become part of its member id.
const CLIENT_ID_CHARS_MAX: usize = 100;
/// Committed offsets over all groups at most.
const OFFSETS_MAX: usize = 1 << 20;
/// The session timeouts that a member may ask for.
const SESSION_MS: std::ops::RangeInclusive<i32> = 100..=1_800_000;

/// All groups.
#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<String, Group>,
    metadata_bytes: usize,
    ids_given: u64,
    id_prefix: String,
    /// No deadline is before this one, unless `deadline_is_stale`.
    deadline: Option<Instant>,
    deadline_is_stale: bool,
}

impl Groups {
    /// No groups; `id_prefix` makes member ids unique over restarts.
    pub fn new(id_prefix: String) -> Self {
        Self {
            groups: BTreeMap::new(),
            metadata_bytes: 0,
            ids_given: 0,
            id_prefix,
            deadline: None,
            deadline_is_stale: false,
        }
    }

    /// The group of that id.
    pub fn get(&self, group: &str) -> Option<&Group> {
        self.groups.get(group)
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// All groups, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Group)> {
        self.groups.iter()
    }

    /// Handles a join. The answer is among the deliveries, now or later.
    pub fn join(&mut self, join: Join<'_>, waiting: Waiting, now: Instant, out: &mut Vec<Delivery>) {
        self.deadline_is_stale = true;
        match self.admit(&join, now) {
            Err((error, member_id)) => out.push(Delivery::Join(waiting, Joined::failed(error, &member_id))),
            Ok(admitted) => self.admitted(join, admitted, waiting, now, out),
        }
    }

    /// Decides under which member id a join goes on, and which one a static member had before; the error comes with the id to answer with.
    fn admit(
        &mut self,
        join: &Join<'_>,
        now: Instant,
    ) -> Result<(String, Option<String>), (ErrorCode, String)> {
        let refused = |error| Err((error, join.member_id.to_owned()));
        if !(1..=GROUP_NAME_BYTES_MAX).contains(&join.group.len()) {
            return refused(ErrorCode::InvalidGroupId);
        }
        if !SESSION_MS.contains(&join.session_timeout_ms) {
            return refused(ErrorCode::InvalidSessionTimeout);
        }
        if join.protocols.is_empty() || join.protocol_type.is_empty() {
            return refused(ErrorCode::InconsistentGroupProtocol);
        }
        let bytes = self.member_bytes();
        let is_new_group = !self.groups.contains_key(join.group);
        let promised: usize = self.groups.values().map(|group| group.promised.len()).sum();
        if bytes > MEMBER_BYTES_MAX
            || promised >= PROMISED_MAX
            || (is_new_group && self.groups.len() == GROUPS_MAX)
        {
            return refused(ErrorCode::GroupMaxSizeReached);
        }
        self.ids_given += 1;
        let named: String = join.client_id.chars().take(CLIENT_ID_CHARS_MAX).collect();
        let fresh_id = format!("{named}-{}-{}", self.id_prefix, self.ids_given);
        let group = self
            .groups
            .entry(join.group.to_owned())
            .or_insert_with(Group::new);
        if !group.members.is_empty() && group.protocol_type != join.protocol_type {
            return refused(ErrorCode::InconsistentGroupProtocol);
        }
        let others = group.members.iter().filter(|(id, _)| *id != join.member_id);
        let knows = |member: &Member, name: &str| member.protocols.iter().any(|(known, _)| known == name);
        let others: Vec<&Member> = others.map(|(_, member)| member).collect();
        if !join
            .protocols
            .iter()
            .any(|(name, _)| others.iter().all(|member| knows(member, name)))
        {
            return refused(ErrorCode::InconsistentGroupProtocol);
        }
        if let Some(instance_id) = join.instance_id {
            return group.admit_instance(instance_id, join.member_id, fresh_id);
        }
        if join.member_id.is_empty() {
            if group.members.len() + group.promised.len() >= MEMBERS_MAX {
                return refused(ErrorCode::GroupMaxSizeReached);
            }
            if join.id_required {
                let session = Duration::from_millis(join.session_timeout_ms as u64);
                group.promised.insert(fresh_id.clone(), now + session);
                return Err((ErrorCode::MemberIdRequired, fresh_id));
            }
            return Ok((fresh_id, None));
        }
        if group.members.contains_key(join.member_id) || group.promised.remove(join.member_id).is_some() {
            return Ok((join.member_id.to_owned(), None));
        }
        refused(ErrorCode::UnknownMemberId)
    }

    fn admitted(
        &mut self,
        join: Join<'_>,
        (id, former_id): (String, Option<String>),
        waiting: Waiting,
        now: Instant,
        out: &mut Vec<Delivery>,
    ) {
        let Some(group) = self.groups.get_mut(join.group) else {
            return;
        };
        let session = Duration::from_millis(join.session_timeout_ms as u64);
        let leads = group.leader.as_deref() == Some(&id);
        let unchanged = group
            .members
            .get(&id)
            .is_some_and(|member| member.protocols == join.protocols);
        let settled = match group.state {
            // A member that lost its answer asks again; nothing has changed for the others.
            State::CompletingRebalance => unchanged,
            // A static member that comes back changes nothing for the others (KIP-345).
            State::Stable => unchanged && (!leads || former_id.is_some()),
            State::Empty | State::PreparingRebalance => false,
        };
        if settled {
            let mut joined = group.joined(&id);
            if let (true, Some(former_id)) = (leads, former_id) {
                // There is nothing to be assigned: it must not think that it leads.
                joined.leader = former_id;
                joined.members.clear();
            }
            if let Some(member) = group.members.get_mut(&id) {
                member.expires = now + session;
            }
            out.push(Delivery::Join(waiting, joined));
            return;
        }
        group.protocol_type = join.protocol_type.to_owned();
        let rebalance_ms = join
            .rebalance_timeout_ms
            .clamp(0, *SESSION_MS.end())
            .max(join.session_timeout_ms.min(1000));
        let member = Member {
            instance_id: join.instance_id.map(str::to_owned),
            client_id: join.client_id.to_owned(),
            assignment: Vec::new(),
            protocols: join.protocols,
            session,
            rebalance: Duration::from_millis(rebalance_ms as u64),
            expires: now + session,
            join: Some(waiting),
            sync: None,
        };
        group.members.insert(id, member);
        if group.state == State::PreparingRebalance {
            group.complete_if_all_joined(now, out);
        } else {
            group.prepare(now, out);
        }
    }

    /// Bytes of subscriptions and assignments over all groups.
    fn member_bytes(&self) -> usize {
        let members = self.groups.values().flat_map(|group| group.members.values());
        members.map(Member::bytes).sum()
    }

    /// Handles a sync. The answer is among the deliveries, now or later.
    #[expect(clippy::too_many_arguments, reason = "the fields of one request")]
    pub fn sync(
        &mut self,
        group: &str,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        assignments: Vec<(String, Vec<u8>)>,
        waiting: Waiting,
        out: &mut Vec<Delivery>,
    ) {
        self.deadline_is_stale = true;
        let assigned: usize = assignments.iter().map(|(_, assignment)| assignment.len()).sum();
        if assigned > 0 && self.member_bytes() + assigned > MEMBER_BYTES_MAX {
            out.push(Delivery::Sync(
                waiting,
                Synced::failed(ErrorCode::GroupMaxSizeReached),
            ));
            return;
        }
        let Some(group) = self.groups.get_mut(group) else {
            out.push(Delivery::Sync(
                waiting,
                Synced::failed(ErrorCode::UnknownMemberId),
            ));
            return;
        };
        if let Err(error) = group.check(member_id, instance_id, generation) {
            out.push(Delivery::Sync(waiting, Synced::failed(error)));
            return;
        }
        match group.state {
            State::Empty => out.push(Delivery::Sync(
                waiting,
                Synced::failed(ErrorCode::UnknownMemberId),
            )),
            State::PreparingRebalance => {
                out.push(Delivery::Sync(
                    waiting,
                    Synced::failed(ErrorCode::RebalanceInProgress),
                ));
            }
            State::Stable => out.push(Delivery::Sync(waiting, group.synced(&group.members[member_id]))),
            State::CompletingRebalance => {
                let member = group.members.get_mut(member_id).expect("checked above");
                member.sync = Some(waiting);
                if group.leader.as_deref() == Some(member_id) {
                    group.assign(assignments, out);
                }
            }
        }
    }

    /// Handles a heartbeat.
    pub fn heartbeat(
        &mut self,
        group: &str,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        now: Instant,
    ) -> ErrorCode {
        let Some(group) = self.groups.get_mut(group) else {
            return ErrorCode::UnknownMemberId;
        };
        if let Err(error) = group.check(member_id, instance_id, generation) {
            return error;
        }
        let member = group.members.get_mut(member_id).expect("checked above");
        member.expires = now + member.session;
        if group.state == State::PreparingRebalance {
            ErrorCode::RebalanceInProgress
        } else {
            ErrorCode::None
        }
    }

    /// Removes a member, by its id or its static identity.
    pub fn leave(
        &mut self,
        group: &str,
        member_id: &str,
        instance_id: Option<&str>,
        now: Instant,
        out: &mut Vec<Delivery>,
    ) -> ErrorCode {
        self.deadline_is_stale = true;
        let Some(group) = self.groups.get_mut(group) else {
            return ErrorCode::UnknownMemberId;
        };
        let id = match instance_id.and_then(|instance_id| group.member_of_instance(instance_id)) {
            Some(current) if !member_id.is_empty() && current != member_id => {
                return ErrorCode::FencedInstanceId;
            }
            Some(current) => current.to_owned(),
            None => member_id.to_owned(),
        };
        if group.remove(&id, now, out) || group.promised.remove(&id).is_some() {
            ErrorCode::None
        } else {
            ErrorCode::UnknownMemberId
        }
    }

    /// Whether a commit of offsets is allowed. A negative generation with no member id is a consumer that assigns itself.
    pub fn may_commit(
        &mut self,
        group: &str,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        now: Instant,
    ) -> Result<(), ErrorCode> {
        if group.len() > GROUP_NAME_BYTES_MAX {
            return Err(ErrorCode::InvalidGroupId);
        }
        if self
            .groups
            .values()
            .map(|group| group.offsets.len())
            .sum::<usize>()
            > OFFSETS_MAX
        {
            return Err(ErrorCode::PolicyViolation);
        }
        let Some(group) = self.groups.get_mut(group) else {
            let too_many = self.groups.len() >= GROUPS_MAX;
            return match (generation < 0, too_many) {
                (true, false) => Ok(()),
                (true, true) => Err(ErrorCode::GroupMaxSizeReached),
                (false, _) => Err(ErrorCode::IllegalGeneration),
            };
        };
        if generation < 0 && group.members.is_empty() {
            return Ok(());
        }
        group.check(member_id, instance_id, generation)?;
        let member = group.members.get_mut(member_id).expect("checked above");
        member.expires = now + member.session;
        Ok(())
    }

    /// Stores committed offsets.
    pub fn store_offsets(&mut self, group: &str, offsets: Vec<CommittedOffset>) {
        let group = self.groups.entry(group.to_owned()).or_insert_with(Group::new);
        for committed in offsets {
            self.metadata_bytes += committed.metadata.len();
            let before = group.offsets.insert(
                (committed.topic, committed.partition),
                (committed.offset, committed.metadata),
            );
            self.metadata_bytes -= before.map_or(0, |(_, metadata)| metadata.len());
        }
    }

    /// Bytes that clients have attached to committed offsets, over all groups.
    pub fn metadata_bytes(&self) -> usize {
        self.metadata_bytes
    }

    /// Forgets committed offsets of a group, by topic and partition index.
    pub fn forget_offsets(&mut self, group: &str, partitions: Vec<(String, i32)>) {
        let Some(group) = self.groups.get_mut(group) else {
            return;
        };
        for partition in partitions {
            let gone = group.offsets.remove(&partition);
            self.metadata_bytes -= gone.map_or(0, |(_, metadata)| metadata.len());
        }
    }

    /// Forgets the offsets of a topic that was deleted.
    pub fn forget_topic(&mut self, topic: &str) {
        for group in self.groups.values_mut() {
            group.offsets.retain(|(name, _), (_, metadata)| {
                let is_gone = name == topic;
                self.metadata_bytes -= if is_gone { metadata.len() } else { 0 };
                !is_gone
            });
        }
    }

    /// Whether a group may be deleted.
    pub fn may_delete(&self, group: &str) -> ErrorCode {
        match self.groups.get(group) {
            None => ErrorCode::GroupIdNotFound,
            Some(group) if !group.members.is_empty() => ErrorCode::NonEmptyGroup,
            Some(_) => ErrorCode::None,
        }
    }

    /// Deletes a group with its offsets.
    pub fn delete(&mut self, group: &str) {
        let offsets = self.groups.remove(group).map(|group| group.offsets);
        let gone = offsets.iter().flat_map(|offsets| offsets.values());
        self.metadata_bytes -= gone.map(|(_, metadata)| metadata.len()).sum::<usize>();
    }

    /// When `tick` is due next, or some time before that. Heartbeats only move deadlines back, so that groups are gone through only after something else, and when the time has come.
    pub fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        if self.deadline_is_stale || self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = self.groups.values().filter_map(Group::next_deadline).min();
            self.deadline_is_stale = false;
        }
        self.deadline
    }

    /// Removes members that are silent for too long and ends rebalances that take too long.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Delivery>) {
        self.deadline_is_stale = true;
        for group in self.groups.values_mut() {
            group.promised.retain(|_, expires| *expires > now);
            let silent = |member: &Member| member.join.is_none() && member.expires <= now;
            let gone: Vec<String> = group
                .members
                .iter()
                .filter(|(_, member)| silent(member))
                .map(|(id, _)| id.clone())
                .collect();
            for id in gone {
                group.remove(&id, now, out);
            }
            if group.rebalance_ends.is_some_and(|ends| ends <= now) {
                group.complete(now, out);
            }
        }
        self.groups.retain(|_, group| !group.is_idle());
    }

    /// A connection is gone: a join or sync that waited on it is waited for no longer. The member itself stays until its session expires.
    pub fn connection_closed(&mut self, connection: ConnectionId) {
        self.deadline_is_stale = true;
        for member in self
            .groups
            .values_mut()
            .flat_map(|group| group.members.values_mut())
        {
            if member
                .join
                .is_some_and(|waiting| waiting.connection == connection)
            {
                member.join = None;
            }
            if member
                .sync
                .is_some_and(|waiting| waiting.connection == connection)
            {
                member.sync = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: Waiting = Waiting {
        connection: ConnectionId { thread: 0, number: 1 },
        correlation_id: 1,
        version: 7,
    };

    fn join<'a>(member_id: &'a str, instance_id: &'a str) -> Join<'a> {
        Join {
            group: "g",
            member_id,
            instance_id: Some(instance_id),
            client_id: "c",
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 10_000,
            protocol_type: "consumer",
            protocols: vec![("range".to_owned(), vec![1])],
            id_required: true,
        }
    }

    fn joined(deliveries: &[Delivery]) -> Vec<Joined> {
        let of = |delivery: &Delivery| match delivery {
            Delivery::Join(_, joined) => Some(joined.clone()),
            Delivery::Sync(..) => None,
        };
        deliveries.iter().filter_map(of).collect()
    }

    #[test]
    fn assignments_are_bounded_over_all_groups() {
        let mut groups = Groups::new("p".to_owned());
        let now = Instant::now();
        let mut refused = 0;
        for number in 0..5 {
            let group = format!("g{number}");
            let mut out = Vec::new();
            let join = Join {
                group: &group,
                ..join("", "one")
            };
            groups.join(join, WAITING, now, &mut out);
            let id = joined(&out)[0].member_id.clone();
            out.clear();
            let assignments = vec![(id.clone(), vec![1; 15 << 20])];
            groups.sync(&group, &id, None, 1, assignments, WAITING, &mut out);
            let Delivery::Sync(_, synced) = &out[0] else {
                panic!("a sync is answered by a sync");
            };
            refused += usize::from(synced.error == ErrorCode::GroupMaxSizeReached);
        }
        assert_eq!(refused, 3);
    }

    #[test]
    fn a_group_whose_name_is_very_long_is_refused() {
        let mut groups = Groups::new("p".to_owned());
        let (now, long) = (Instant::now(), "g".repeat(1025));
        let mut out = Vec::new();
        let join = Join {
            group: &long,
            ..join("", "one")
        };
        groups.join(join, WAITING, now, &mut out);
        assert_eq!(joined(&out)[0].error, ErrorCode::InvalidGroupId);
        let committing = groups.may_commit(&long, "", None, -1, now);
        assert_eq!(committing, Err(ErrorCode::InvalidGroupId));
        assert!(groups.get(&long).is_none());
    }

    #[test]
    fn what_is_attached_to_offsets_is_counted_over_all_groups() {
        let mut groups = Groups::new("p".to_owned());
        let attached = |topic: &str, bytes: usize| CommittedOffset {
            topic: topic.to_owned(),
            partition: 0,
            offset: 1,
            metadata: "x".repeat(bytes),
        };
        groups.store_offsets("g", vec![attached("a", 100), attached("b", 10)]);
        groups.store_offsets("h", vec![attached("a", 1000)]);
        groups.store_offsets("g", vec![attached("a", 50)]);
        assert_eq!(groups.metadata_bytes(), 1060);
        groups.forget_topic("a");
        assert_eq!(groups.metadata_bytes(), 10);
        groups.delete("g");
        assert_eq!(groups.metadata_bytes(), 0);
    }

    #[test]
    fn a_static_member_that_comes_back_gets_its_assignment_without_a_rebalance() {
        for returning in ["one", "two"] {
            let mut groups = Groups::new("p".to_owned());
            let now = Instant::now();
            let mut out = Vec::new();
            groups.join(join("", "one"), WAITING, now, &mut out);
            groups.join(join("", "two"), WAITING, now, &mut out);
            let first = joined(&out)[0].member_id.clone();
            groups.join(join(&first, "one"), WAITING, now, &mut out);
            let generation = groups.get("g").unwrap().generation;
            let group = groups.get("g").unwrap();
            let leader = group.leader.clone().unwrap();
            let assignments: Vec<(String, Vec<u8>)> = group
                .members
                .iter()
                .map(|(id, member)| (id.clone(), member.instance_id.clone().unwrap().into_bytes()))
                .collect();
            groups.sync("g", &leader, None, generation, assignments, WAITING, &mut out);
            assert_eq!(groups.get("g").unwrap().state, State::Stable);

            out.clear();
            groups.join(join("", returning), WAITING, now, &mut out);
            let back = joined(&out).remove(0);
            assert_eq!((back.error, back.generation), (ErrorCode::None, generation));
            assert_ne!(back.leader, back.member_id);
            out.clear();
            let id = back.member_id;
            groups.sync(
                "g",
                &id,
                Some(returning),
                generation,
                Vec::new(),
                WAITING,
                &mut out,
            );
            let Delivery::Sync(_, synced) = &out[0] else {
                panic!("a sync is answered by a sync");
            };
            assert_eq!(synced.assignment, returning.as_bytes());
        }
    }
}
