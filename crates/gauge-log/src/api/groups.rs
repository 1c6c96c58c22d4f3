//! The requests of groups and their members; the rules are in `broker::groups`.

use std::cell::RefCell;
use std::time::Instant;

use super::error::ErrorCode;
use super::metadata::NODE_ID;
use super::{Outcome, Request, api_of, begin, finish};
use crate::broker::change::Change;
use crate::broker::groups::{Delivery, Group, Join, Joined, State, Synced, Waiting};
use crate::broker::topics::ConnectionId;
use crate::shared::Shared;
use crate::wire::{Read, Reader, check_names};

const JOIN: i16 = 11;
const SYNC: i16 = 14;

thread_local! {
    /// What a handler made for waiting connections; `deliver` sends it once the handler's own connection is marked as waiting.
    static DELIVERIES: RefCell<Vec<Delivery>> = const { RefCell::new(Vec::new()) };
}

/// The member that asks, and of which generation it thinks it is.
pub(super) struct Asking<'a> {
    pub(super) group: &'a str,
    pub(super) generation: i32,
    pub(super) member_id: &'a str,
    pub(super) instance_id: Option<&'a str>,
}

impl<'a> Asking<'a> {
    /// Reads it; `may_be_static`: whether the version knows instances.
    pub(super) fn read(body: &mut Reader<'a>, may_be_static: bool) -> Read<Asking<'a>> {
        Ok(Asking {
            group: body.string()?,
            generation: body.i32()?,
            member_id: body.string()?,
            instance_id: if may_be_static {
                body.nullable_string()?
            } else {
                None
            },
        })
    }
}

fn waiting(request: &Request<'_>) -> Waiting {
    Waiting {
        connection: request.connection,
        correlation_id: request.correlation_id,
        version: request.version,
    }
}

fn keep(deliveries: Vec<Delivery>) {
    DELIVERIES.with_borrow_mut(|kept| kept.extend(deliveries));
}

/// Sends what the last handler on this thread made for connections that wait.
pub fn deliver(shared: &Shared, _handled: ConnectionId) {
    for delivery in DELIVERIES.take() {
        match delivery {
            Delivery::Join(waiting, joined) => {
                shared.deliver(waiting.connection, respond_join(waiting, joined))
            }
            Delivery::Sync(waiting, synced) => {
                shared.deliver(waiting.connection, respond_sync(waiting, synced))
            }
        }
    }
}

/// Lets time pass for the groups.
pub fn tick(shared: &Shared, now: Instant) {
    let mut deliveries = Vec::new();
    {
        let mut broker = shared.broker();
        if broker
            .groups
            .next_deadline(now)
            .is_none_or(|deadline| deadline > now)
        {
            return;
        }
        broker.groups.tick(now, &mut deliveries);
    }
    keep(deliveries);
    deliver(shared, ConnectionId { thread: 0, number: 0 });
}

/// Says that this broker coordinates everything.
pub fn find_coordinator(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let key = if version <= 3 { body.string()? } else { "" };
    let kind = if version >= 1 { body.i8()? } else { 0 };
    let mut keys = vec![key];
    if version >= 4 {
        keys = (0..body.array(1)?)
            .map(|_| body.string())
            .collect::<Read<Vec<_>>>()?;
    }
    // Kind 1 is a transaction coordinator, which this log does not have.
    let error = if kind == 0 {
        ErrorCode::None
    } else {
        ErrorCode::TransactionalIdAuthorizationFailed
    };
    let message = (kind != 0).then_some("transactions are not supported");
    let (host, port) = &request.shared.advertised;
    let mut out = request.respond();
    if version >= 1 {
        out.i32(0);
    }
    if version >= 4 {
        out.array(keys.len());
        for key in keys {
            out.string(key);
            out.i32(NODE_ID);
            out.string(host);
            out.i32(i32::from(*port));
            out.i16(error as i16);
            out.nullable_string(message);
            out.tags();
        }
    } else {
        out.i16(error as i16);
        if version >= 1 {
            out.nullable_string(message);
        }
        out.i32(NODE_ID);
        out.string(host);
        out.i32(i32::from(*port));
    }
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

/// A member joins, or joins again.
pub fn join(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let waiting = waiting(&request);
    let body = &mut request.body;
    let group = body.string()?;
    let session_timeout_ms = body.i32()?;
    let rebalance_timeout_ms = if version >= 1 {
        body.i32()?
    } else {
        session_timeout_ms
    };
    let member_id = body.string()?;
    let instance_id = if version >= 5 {
        body.nullable_string()?
    } else {
        None
    };
    let protocol_type = body.string()?;
    let protocols = (0..body.array(2)?)
        .map(|_| {
            let protocol = (body.string()?.to_owned(), body.bytes()?.to_vec());
            body.tags()?;
            Ok(protocol)
        })
        .collect::<Read<Vec<_>>>()?;
    let join = Join {
        group,
        member_id,
        instance_id,
        client_id: request.client_id,
        session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type,
        protocols,
        id_required: version >= 4,
    };
    let mut deliveries = Vec::new();
    request
        .shared
        .broker()
        .groups
        .join(join, waiting, Instant::now(), &mut deliveries);
    keep(deliveries);
    Ok(Outcome::Group)
}

fn respond_join(waiting: Waiting, joined: Joined) -> Vec<u8> {
    let version = waiting.version;
    let mut out = begin(api_of(JOIN), version, waiting.correlation_id);
    if version >= 2 {
        out.i32(0);
    }
    out.i16(joined.error as i16);
    out.i32(joined.generation);
    if version >= 7 {
        out.nullable_string(joined.protocol_type.as_deref());
        out.nullable_string(joined.protocol.as_deref());
    } else {
        out.string(joined.protocol.as_deref().unwrap_or_default());
    }
    out.string(&joined.leader);
    if version >= 9 {
        out.bool(false);
    }
    out.string(&joined.member_id);
    out.array(joined.members.len());
    for member in &joined.members {
        out.string(&member.id);
        if version >= 5 {
            out.nullable_string(member.instance_id.as_deref());
        }
        out.bytes(&member.metadata);
        out.tags();
    }
    out.tags();
    finish(out, 0)
}

/// A member asks for its assignment; the leader brings everyone's.
pub fn sync(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let waiting = waiting(&request);
    let body = &mut request.body;
    let Asking {
        group,
        generation,
        member_id,
        instance_id,
    } = Asking::read(body, version >= 3)?;
    if version >= 5 {
        body.nullable_string()?;
        body.nullable_string()?;
    }
    let assignments = (0..body.array(2)?)
        .map(|_| {
            let assignment = (body.string()?.to_owned(), body.bytes()?.to_vec());
            body.tags()?;
            Ok(assignment)
        })
        .collect::<Read<Vec<_>>>()?;
    let mut deliveries = Vec::new();
    let mut broker = request.shared.broker();
    broker.groups.sync(
        group,
        member_id,
        instance_id,
        generation,
        assignments,
        waiting,
        &mut deliveries,
    );
    drop(broker);
    keep(deliveries);
    Ok(Outcome::Group)
}

fn respond_sync(waiting: Waiting, synced: Synced) -> Vec<u8> {
    let version = waiting.version;
    let mut out = begin(api_of(SYNC), version, waiting.correlation_id);
    if version >= 1 {
        out.i32(0);
    }
    out.i16(synced.error as i16);
    if version >= 5 {
        out.nullable_string(synced.protocol_type.as_deref());
        out.nullable_string(synced.protocol.as_deref());
    }
    out.bytes(&synced.assignment);
    out.tags();
    finish(out, 0)
}

/// A member is alive.
pub fn heartbeat(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let Asking {
        group,
        generation,
        member_id,
        instance_id,
    } = Asking::read(body, version >= 3)?;
    let mut broker = request.shared.broker();
    let error = broker
        .groups
        .heartbeat(group, member_id, instance_id, generation, Instant::now());
    drop(broker);
    let mut out = request.respond();
    if version >= 1 {
        out.i32(0);
    }
    out.i16(error as i16);
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

/// Members leave.
pub fn leave(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let group = body.string()?;
    let mut leaving: Vec<(&str, Option<&str>)> = Vec::new();
    if version <= 2 {
        leaving.push((body.string()?, None));
    } else {
        for _ in 0..body.array(4)? {
            let member_id = body.string()?;
            let instance_id = body.nullable_string()?;
            if version >= 5 {
                body.nullable_string()?;
            }
            body.tags()?;
            leaving.push((member_id, instance_id));
        }
    }
    let mut deliveries = Vec::new();
    let mut broker = request.shared.broker();
    let now = Instant::now();
    let errors: Vec<ErrorCode> = leaving
        .iter()
        .map(|(member_id, instance_id)| {
            broker
                .groups
                .leave(group, member_id, *instance_id, now, &mut deliveries)
        })
        .collect();
    drop(broker);
    keep(deliveries);
    deliver(request.shared, request.connection);
    let mut out = request.respond();
    if version >= 1 {
        out.i32(0);
    }
    if version <= 2 {
        out.i16(errors.first().copied().unwrap_or(ErrorCode::None) as i16);
    } else {
        out.i16(ErrorCode::None as i16);
        out.array(leaving.len());
        for ((member_id, instance_id), error) in leaving.iter().zip(errors) {
            out.string(member_id);
            out.nullable_string(*instance_id);
            out.i16(error as i16);
            out.tags();
        }
    }
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

/// Lists groups.
pub fn list(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let mut filter = |from: i16| -> Read<Vec<String>> {
        let count = if version >= from { body.array(1)? } else { 0 };
        (0..count)
            .map(|_| Ok(body.string()?.to_ascii_lowercase()))
            .collect()
    };
    let states = filter(4)?;
    let types = filter(5)?;
    let broker = request.shared.broker();
    let listed: Vec<(&String, &Group)> = broker
        .groups
        .iter()
        .filter(|(_, group)| states.is_empty() || states.contains(&group.state.name().to_ascii_lowercase()))
        .filter(|_| types.is_empty() || types.iter().any(|kind| kind == "classic"))
        .collect();
    let mut out = request.respond();
    if version >= 1 {
        out.i32(0);
    }
    out.i16(ErrorCode::None as i16);
    out.array(listed.len());
    for (name, group) in listed {
        out.string(name);
        out.string(&group.protocol_type);
        if version >= 4 {
            out.string(group.state.name());
        }
        if version >= 5 {
            out.string("classic");
        }
        out.tags();
    }
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

/// Describes groups and their members.
pub fn describe(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let count = request.body.array(2)?;
    check_names(count, request.shared.broker().groups.len())?;
    let names = (0..count)
        .map(|_| request.body.string())
        .collect::<Read<Vec<_>>>()?;
    let broker = request.shared.broker();
    let mut out = request.respond();
    if version >= 1 {
        out.i32(0);
    }
    out.array(names.len());
    for name in names {
        let group = broker.groups.get(name);
        let protocol = group
            .and_then(|group| group.protocol.as_deref())
            .unwrap_or_default();
        out.i16(ErrorCode::None as i16);
        out.string(name);
        // A group that is not there is "Dead" up to version 5 of the response.
        out.string(group.map_or("Dead", |group| group.state.name()));
        out.string(group.map_or("", |group| group.protocol_type.as_str()));
        out.string(protocol);
        out.array(group.map_or(0, |group| group.members.len()));
        for (id, member) in group.iter().flat_map(|group| &group.members) {
            let settled = group.is_some_and(|group| group.state == State::Stable);
            out.string(id);
            if version >= 4 {
                out.nullable_string(member.instance_id.as_deref());
            }
            out.string(&member.client_id);
            out.string("/127.0.0.1");
            out.bytes(member.metadata(protocol));
            out.bytes(if settled { &member.assignment } else { &[] });
            out.tags();
        }
        if version >= 3 {
            out.i32(i32::MIN);
        }
        out.tags();
        out.check_budget()?;
    }
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

/// Deletes groups that have no members.
pub fn delete(mut request: Request<'_>) -> Read<Outcome> {
    let names = (0..request.body.array(2)?)
        .map(|_| request.body.string())
        .collect::<Read<Vec<_>>>()?;
    let mut broker = request.shared.broker();
    let mut position = 0;
    let bytes = names.iter().map(|name: &&str| name.len()).sum();
    if broker.reserve_changes(bytes, names.len())?.is_err() {
        return Ok(Outcome::NoMemory);
    }
    let mut out = request.respond();
    out.i32(0);
    out.array(names.len());
    for name in names {
        let error = broker.groups.may_delete(name);
        if error == ErrorCode::None {
            let group = name.to_owned();
            position = broker.change_reserved(Change::GroupDeleted { group }).0;
        }
        out.string(name);
        out.i16(error as i16);
        out.tags();
    }
    out.tags();
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}

/// Members of the newer group protocol (KIP-848) are told that there is none here: without an answer some clients would ask for ever.
pub fn refuse_newer_protocol(request: Request<'_>) -> Read<Outcome> {
    let mut out = request.respond();
    out.i32(0);
    out.i16(ErrorCode::UnsupportedVersion as i16);
    out.nullable_string(Some(
        "gauge log has groups of the classic protocol only: set group.protocol=classic",
    ));
    out.nullable_string(None);
    out.i32(-1);
    out.i32(0);
    // No assignment: a structure that may be missing begins with a byte that says so.
    out.i8(-1);
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}
