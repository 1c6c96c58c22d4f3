//! One group: a state machine without I/O.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::messages::{Delivery, Joined, JoinedMember, Synced, Waiting};
use crate::api::error::ErrorCode;

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
    pub(super) protocols: Vec<(String, Vec<u8>)>,
    pub(super) session: Duration,
    pub(super) rebalance: Duration,
    pub(super) expires: Instant,
    pub(super) join: Option<Waiting>,
    pub(super) sync: Option<Waiting>,
}

impl Member {
    /// The member's subscription for an assignor.
    pub fn metadata(&self, protocol: &str) -> &[u8] {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map_or(&[], |(_, metadata)| metadata)
    }

    pub(super) fn bytes(&self) -> usize {
        self.assignment.len()
            + self.client_id.len()
            + self.instance_id.as_ref().map_or(0, String::len)
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
    pub(super) leader: Option<String>,
    /// Ids given out that have not joined yet, with their expiry.
    pub(super) promised: BTreeMap<String, Instant>,
    pub(super) rebalance_ends: Option<Instant>,
}

impl Group {
    pub(super) fn new() -> Self {
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
    pub(super) fn prepare(&mut self, now: Instant, out: &mut Vec<Delivery>) {
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

    pub(super) fn complete_if_all_joined(&mut self, now: Instant, out: &mut Vec<Delivery>) {
        if self.state == State::PreparingRebalance
            && self.members.values().all(|member| member.join.is_some())
        {
            self.complete(now, out);
        }
    }

    /// Ends the joining: whoever has not joined is out, the others get their generation.
    pub(super) fn complete(&mut self, now: Instant, out: &mut Vec<Delivery>) {
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

    pub(super) fn joined(&self, member_id: &str) -> Joined {
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

    pub(super) fn synced(&self, member: &Member) -> Synced {
        Synced {
            error: ErrorCode::None,
            protocol_type: Some(self.protocol_type.clone()),
            protocol: self.protocol.clone(),
            assignment: member.assignment.clone(),
        }
    }

    pub(super) fn remove(&mut self, member_id: &str, now: Instant, out: &mut Vec<Delivery>) -> bool {
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
    pub(super) fn check(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
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

    pub(super) fn member_of_instance(&self, instance_id: &str) -> Option<&str> {
        self.members
            .iter()
            .find(|(_, member)| member.instance_id.as_deref() == Some(instance_id))
            .map(|(id, _)| id.as_str())
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
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
    pub(super) fn is_idle(&self) -> bool {
        self.members.is_empty() && self.offsets.is_empty() && self.promised.is_empty()
    }
}

impl Group {
    /// A static member comes back under a new member id, and its old one is fenced. While everybody has an assignment it keeps its own, and the id that it had comes second.
    pub(super) fn admit_instance(
        &mut self,
        instance_id: &str,
        member_id: &str,
        fresh_id: String,
    ) -> Result<(String, Option<String>), (ErrorCode, String)> {
        let current = self.member_of_instance(instance_id).map(str::to_owned);
        match current {
            Some(current) if member_id.is_empty() => {
                let member = self.members.remove(&current);
                if self.state != State::Stable {
                    return Ok((fresh_id, None));
                }
                self.members
                    .extend(member.map(|member| (fresh_id.clone(), member)));
                if self.leader.as_ref() == Some(&current) {
                    self.leader = Some(fresh_id.clone());
                }
                Ok((fresh_id, Some(current)))
            }
            Some(current) if current != member_id => Err((ErrorCode::FencedInstanceId, member_id.to_owned())),
            Some(current) => Ok((current, None)),
            None if member_id.is_empty() => Ok((fresh_id, None)),
            None => Err((ErrorCode::UnknownMemberId, member_id.to_owned())),
        }
    }

    /// The leader's assignment ends a rebalance.
    pub(super) fn assign(&mut self, assignments: Vec<(String, Vec<u8>)>, out: &mut Vec<Delivery>) {
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
