//! What goes into a group and what comes out of it.

use crate::api::error::ErrorCode;
use crate::broker::topics::ConnectionId;

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
    pub(super) fn failed(error: ErrorCode) -> Self {
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
