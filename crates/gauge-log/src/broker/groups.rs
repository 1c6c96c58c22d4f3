//! The group coordinator: the classic protocol of join, sync, heartbeat and leave, and committed offsets.
//!
//! Source: the protocol guide (<https://kafka.apache.org/protocol.html>), KIP-62 (heartbeats), KIP-345 (static members), KIP-394 (a member id before the join).
//! A group is a state machine without I/O: calls take the time and return what is to be delivered to which connection.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::change::CommittedOffset;
use super::topics::ConnectionId;
use crate::api::error::ErrorCode;

/// Groups at most.
const GROUPS_MAX: usize = 10_000;
/// Members of one group at most.
const MEMBERS_MAX: usize = 1_000;
/// Bytes of subscriptions and assignments over all groups at most.
const MEMBER_BYTES_MAX: usize = 32 << 20;
/// Committed offsets over all groups at most.
const OFFSETS_MAX: usize = 1 << 20;
/// The session timeouts that a member may ask for.
const SESSION_MS: std::ops::RangeInclusive<i32> = 100..=1_800_000;

/// A request that is answered later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The connection that waits.
    pub connection: ConnectionId,
    /// Its request's correlation id.
    pub correlation_id: i32,
    /// Its request's version.
    pub version: i16,
}

/// A member as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    /// Member id.
    pub id: String,
    /// Static identity, if any.
    pub instance_id: Option<String>,
    /// Its subscription for the chosen protocol.
    pub metadata: Vec<u8>,
}

/// The answer to a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Outcome.
    pub error: ErrorCode,
    /// Generation of the group.
    pub generation: i32,
    /// Kind of group ("consumer").
    pub protocol_type: Option<String>,
    /// The assignor that was chosen.
    pub protocol: Option<String>,
    /// Member id of the leader.
    pub leader: String,
    /// The member's own id.
    pub member_id: String,
    /// All members, for the leader only.
    pub members: Vec<JoinedMember>,
}

impl Joined {
    /// A join that failed.
    pub fn failed(error: ErrorCode, member_id: &str) -> Self {
        Self {
            error,
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: String::new(),
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }
}

/// The answer to a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// Outcome.
    pub error: ErrorCode,
    /// Kind of group.
    pub protocol_type: Option<String>,
    /// The assignor that was chosen.
    pub protocol: Option<String>,
    /// The member's assignment.
    pub assignment: Vec<u8>,
}

impl Synced {
    fn failed(error: ErrorCode) -> Self {
        Self {
            error,
            protocol_type: None,
            protocol: None,
            assignment: Vec::new(),
        }
    }
}

/// An answer for a connection that waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// To a join.
    Join(Waiting, Joined),
    /// To a sync.
    Sync(Waiting, Synced),
}

/// A join request.
#[derive(Debug, Clone)]
pub struct Join<'a> {
    /// Group.
    pub group: &'a str,
    /// Member id; empty for a new member.
    pub member_id: &'a str,
    /// Static identity.
    pub instance_id: Option<&'a str>,
    /// Client id of the connection, for member ids and descriptions.
    pub client_id: &'a str,
    /// Session timeout, ms.
    pub session_timeout_ms: i32,
    /// Time to rejoin in a rebalance, ms.
    pub rebalance_timeout_ms: i32,
    /// Kind of group.
    pub protocol_type: &'a str,
    /// Assignors with subscriptions, the preferred one first.
    pub protocols: Vec<(String, Vec<u8>)>,
    /// Whether a new member must come back with its id (from version 4 on, KIP-394).
    pub id_required: bool,
}

/// Where a group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No members.
    Empty,
    /// Waiting for members to join again.
    PreparingRebalance,
    /// Waiting for the leader's assignment.
    CompletingRebalance,
    /// Every member has its assignment.
    Stable,
}

impl State {
    /// The name that Kafka's tools show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// A member of a group.
#[derive(Debug)]
pub struct Member {
    /// Static identity.
    pub instance_id: Option<String>,
    /// Client id.
    pub client_id: String,
    /// Assignment, as the leader made it.
    pub assignment: Vec<u8>,
    protocols: Vec<(String, Vec<u8>)>,
    session: Duration,
    rebalance: Duration,
    expires: Instant,
    join: Option<Waiting>,
    sync: Option<Waiting>,
}

impl Member {
    /// The member's subscription for an assignor.
    pub fn metadata(&self, protocol: &str) -> &[u8] {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map_or(&[], |(_, metadata)| metadata)
    }

    fn bytes(&self) -> usize {
        self.assignment.len()
            + self
                .protocols
                .iter()
                .map(|(name, metadata)| name.len() + metadata.len())
                .sum::<usize>()
    }
}

/// A group.
#[derive(Debug)]
pub struct Group {
    /// Where it stands.
    pub state: State,
    /// Generation, counted up with every rebalance.
    pub generation: i32,
    /// Kind of group; empty before the first member.
    pub protocol_type: String,
    /// The assignor that was chosen.
    pub protocol: Option<String>,
    /// Members by id.
    pub members: BTreeMap<String, Member>,
    /// Committed offsets by topic and partition.
    pub offsets: BTreeMap<(String, i32), (i64, String)>,
    leader: Option<String>,
    /// Ids given out that have not joined yet, with their expiry.
    promised: BTreeMap<String, Instant>,
    rebalance_ends: Option<Instant>,
}

impl Group {
    fn new() -> Self {
        Self {
            state: State::Empty,
            generation: 0,
            protocol_type: String::new(),
            protocol: None,
            members: BTreeMap::new(),
            offsets: BTreeMap::new(),
            leader: None,
            promised: BTreeMap::new(),
            rebalance_ends: None,
        }
    }

    /// Begins a rebalance: members that wait for an assignment are told to join again.
    fn prepare(&mut self, now: Instant, out: &mut Vec<Delivery>) {
        for member in self.members.values_mut() {
            member.assignment = Vec::new();
            if let Some(waiting) = member.sync.take() {
                out.push(Delivery::Sync(
                    waiting,
                    Synced::failed(ErrorCode::RebalanceInProgress),
                ));
            }
        }
        self.state = State::PreparingRebalance;
        let longest = self
            .members
            .values()
            .map(|member| member.rebalance)
            .max()
            .unwrap_or_default();
        self.rebalance_ends = Some(now + longest);
        self.complete_if_all_joined(now, out);
    }

    fn complete_if_all_joined(&mut self, now: Instant, out: &mut Vec<Delivery>) {
        if self.state == State::PreparingRebalance
            && self.members.values().all(|member| member.join.is_some())
        {
            self.complete(now, out);
        }
    }

    /// Ends the joining: whoever has not joined is out, the others get their generation.
    fn complete(&mut self, now: Instant, out: &mut Vec<Delivery>) {
        self.members.retain(|_, member| member.join.is_some());
        self.rebalance_ends = None;
        self.generation = self.generation.wrapping_add(1).max(1);
        if self.members.is_empty() {
            self.state = State::Empty;
            self.protocol = None;
            self.leader = None;
            return;
        }
        self.state = State::CompletingRebalance;
        self.protocol = self.vote();
        if !self
            .leader
            .as_ref()
            .is_some_and(|leader| self.members.contains_key(leader))
        {
            self.leader = self.members.keys().next().cloned();
        }
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let joined = self.joined(&id);
            let member = self.members.get_mut(&id).expect("the id was just listed");
            member.expires = now + member.session;
            if let Some(waiting) = member.join.take() {
                out.push(Delivery::Join(waiting, joined));
            }
        }
    }

    /// The assignor that all members know and most prefer.
    fn vote(&self) -> Option<String> {
        let common = |name: &str| {
            self.members
                .values()
                .all(|member| member.protocols.iter().any(|(known, _)| known == name))
        };
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| common(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes
            .into_iter()
            .max_by_key(|&(_, count)| count)
            .map(|(name, _)| name.to_owned())
    }

    fn joined(&self, member_id: &str) -> Joined {
        let leads = self.leader.as_deref() == Some(member_id);
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let describe = |(id, member): (&String, &Member)| JoinedMember {
            id: id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol).to_vec(),
        };
        Joined {
            error: ErrorCode::None,
            generation: self.generation,
            protocol_type: Some(self.protocol_type.clone()),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            member_id: member_id.to_owned(),
            members: if leads {
                self.members.iter().map(describe).collect()
            } else {
                Vec::new()
            },
        }
    }

    fn synced(&self, member: &Member) -> Synced {
        Synced {
            error: ErrorCode::None,
            protocol_type: Some(self.protocol_type.clone()),
            protocol: self.protocol.clone(),
            assignment: member.assignment.clone(),
        }
    }

    fn remove(&mut self, member_id: &str, now: Instant, out: &mut Vec<Delivery>) -> bool {
        let Some(member) = self.members.remove(member_id) else {
            return false;
        };
        let error = ErrorCode::UnknownMemberId;
        out.extend(
            member
                .join
                .map(|waiting| Delivery::Join(waiting, Joined::failed(error, member_id))),
        );
        out.extend(
            member
                .sync
                .map(|waiting| Delivery::Sync(waiting, Synced::failed(error))),
        );
        match self.state {
            State::Stable | State::CompletingRebalance => self.prepare(now, out),
            State::PreparingRebalance => self.complete_if_all_joined(now, out),
            State::Empty => {}
        }
        true
    }

    /// Whether a member may act in a generation.
    fn check(&self, member_id: &str, instance_id: Option<&str>, generation: i32) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id
            && let Some(current) = self.member_of_instance(instance_id)
            && current != member_id
        {
            return Err(ErrorCode::FencedInstanceId);
        }
        if !self.members.contains_key(member_id) {
            return Err(ErrorCode::UnknownMemberId);
        }
        if generation != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        Ok(())
    }

    fn member_of_instance(&self, instance_id: &str) -> Option<&str> {
        self.members
            .iter()
            .find(|(_, member)| member.instance_id.as_deref() == Some(instance_id))
            .map(|(id, _)| id.as_str())
    }

    fn next_deadline(&self) -> Option<Instant> {
        let members = self
            .members
            .values()
            .filter(|member| member.join.is_none())
            .map(|member| member.expires);
        members
            .chain(self.rebalance_ends)
            .chain(self.promised.values().copied())
            .min()
    }

    /// Whether nothing is left worth keeping.
    fn is_idle(&self) -> bool {
        self.members.is_empty() && self.offsets.is_empty() && self.promised.is_empty()
    }
}

/// All groups.
#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<String, Group>,
    ids_given: u64,
    id_prefix: String,
}

impl Groups {
    /// No groups; `id_prefix` makes member ids unique over restarts.
    pub fn new(id_prefix: String) -> Self {
        Self {
            groups: BTreeMap::new(),
            ids_given: 0,
            id_prefix,
        }
    }

    /// The group of that id.
    pub fn get(&self, group: &str) -> Option<&Group> {
        self.groups.get(group)
    }

    /// All groups, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Group)> {
        self.groups.iter()
    }

    /// Handles a join. The answer is among the deliveries, now or later.
    pub fn join(&mut self, join: Join<'_>, waiting: Waiting, now: Instant, out: &mut Vec<Delivery>) {
        match self.admit(&join, now) {
            Err((error, member_id)) => out.push(Delivery::Join(waiting, Joined::failed(error, &member_id))),
            Ok(member_id) => self.admitted(join, member_id, waiting, now, out),
        }
    }

    /// Decides under which member id a join goes on; the error comes with the id to answer with.
    fn admit(&mut self, join: &Join<'_>, now: Instant) -> Result<String, (ErrorCode, String)> {
        let refused = |error| Err((error, join.member_id.to_owned()));
        if join.group.is_empty() {
            return refused(ErrorCode::InvalidGroupId);
        }
        if !SESSION_MS.contains(&join.session_timeout_ms) {
            return refused(ErrorCode::InvalidSessionTimeout);
        }
        if join.protocols.is_empty() || join.protocol_type.is_empty() {
            return refused(ErrorCode::InconsistentGroupProtocol);
        }
        let bytes: usize = self
            .groups
            .values()
            .flat_map(|group| group.members.values())
            .map(Member::bytes)
            .sum();
        let is_new_group = !self.groups.contains_key(join.group);
        if bytes > MEMBER_BYTES_MAX || (is_new_group && self.groups.len() == GROUPS_MAX) {
            return refused(ErrorCode::GroupMaxSizeReached);
        }
        self.ids_given += 1;
        let fresh_id = format!("{}-{}-{}", join.client_id, self.id_prefix, self.ids_given);
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
            return Ok(fresh_id);
        }
        if group.members.contains_key(join.member_id) || group.promised.remove(join.member_id).is_some() {
            return Ok(join.member_id.to_owned());
        }
        refused(ErrorCode::UnknownMemberId)
    }

    fn admitted(
        &mut self,
        join: Join<'_>,
        id: String,
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
            State::Stable => unchanged && !leads,
            State::Empty | State::PreparingRebalance => false,
        };
        if settled {
            out.push(Delivery::Join(waiting, group.joined(&id)));
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
            group.offsets.insert(
                (committed.topic, committed.partition),
                (committed.offset, committed.metadata),
            );
        }
    }

    /// Forgets the offsets of a topic that was deleted.
    pub fn forget_topic(&mut self, topic: &str) {
        for group in self.groups.values_mut() {
            group.offsets.retain(|(name, _), _| name != topic);
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
        self.groups.remove(group);
    }

    /// When `tick` is due next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.groups.values().filter_map(Group::next_deadline).min()
    }

    /// Removes members that are silent for too long and ends rebalances that take too long.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Delivery>) {
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

impl Group {
    /// A static member comes back under a new member id, and its old one is fenced.
    fn admit_instance(
        &mut self,
        instance_id: &str,
        member_id: &str,
        fresh_id: String,
    ) -> Result<String, (ErrorCode, String)> {
        let current = self.member_of_instance(instance_id).map(str::to_owned);
        match current {
            Some(current) if member_id.is_empty() => {
                self.members.remove(&current);
                Ok(fresh_id)
            }
            Some(current) if current != member_id => Err((ErrorCode::FencedInstanceId, member_id.to_owned())),
            Some(current) => Ok(current),
            None if member_id.is_empty() => Ok(fresh_id),
            None => Err((ErrorCode::UnknownMemberId, member_id.to_owned())),
        }
    }

    /// The leader's assignment ends a rebalance.
    fn assign(&mut self, assignments: Vec<(String, Vec<u8>)>, out: &mut Vec<Delivery>) {
        for (id, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = assignment;
            }
        }
        self.state = State::Stable;
        let waiting: Vec<(String, Waiting)> = self
            .members
            .iter_mut()
            .filter_map(|(id, member)| Some((id.clone(), member.sync.take()?)))
            .collect();
        for (id, waiting) in waiting {
            out.push(Delivery::Sync(waiting, self.synced(&self.members[&id])));
        }
    }
}
