//! The requests that this log answers. Each handler reads its request straight from the frame and writes the response straight into one.
//!
//! Source for every message: the protocol guide (<https://kafka.apache.org/protocol.html>). The crate `kafka-protocol`, which the tests compare with,
//! is not used here because its decoders reserve memory for an array before they know that the frame is long enough for it: a
//! frame of twenty bytes could end the process.

pub mod commits;
pub mod configs;
pub mod error;
pub mod fetch;
pub mod groups;
pub mod metadata;
pub mod offsets;
pub mod produce;
pub mod sasl;
pub mod topics;

use std::time::Duration;

use crate::access::exchange::Exchange;
use crate::broker::Broker;
use crate::broker::topics::ConnectionId;
use crate::net::output::Response;
use crate::shared::Shared;
use crate::wire::{Malformed, Read, Reader, Writer};
use error::ErrorCode;

/// What becomes of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Its response, now.
    Answer(Vec<u8>),
    /// Its response, once the journal is durable up to this position.
    AnswerAfter(Vec<u8>, u64),
    /// Batches were stored.
    Produced {
        /// The response; None when the client wants none (`acks=0`).
        response: Option<Vec<u8>>,
        /// The position that must be durable before the response may go.
        position: u64,
        /// Bytes of the batches.
        bytes: usize,
    },
    /// Something is read, which may have to wait for data or for the disk.
    Read(Reading),
    /// The group coordinator answers, now or later.
    Group,
    /// Its response, now: the client has logged in.
    LoggedIn(Vec<u8>),
    /// Its response, if there is one, and then the connection ends: the client could not log in.
    Refused(Option<Vec<u8>>),
    /// There is no memory for its data until earlier data is written: handle it again later.
    NoMemory,
}

/// A request that reads, and may have to wait.
#[derive(Debug)]
pub enum Reading {
    /// Batches.
    Fetch(Box<fetch::FetchRequest>),
    /// Where times begin.
    Times(Box<offsets::TimeRequest>),
}

impl Reading {
    /// Bytes of memory that the request holds while it waits.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Fetch(request) => request.memory_bytes(),
            Self::Times(request) => request.memory_bytes(),
        }
    }

    /// How long the client is willing to wait for data; not how long the disk may take.
    pub fn wait_max(&self) -> Duration {
        match self {
            Self::Fetch(request) => request.wait_max(),
            Self::Times(_) => Duration::ZERO,
        }
    }

    /// The response, if there can be one now or (`expired`) no time is left to wait for data; otherwise the connection is woken when it is worth another look.
    pub fn answer(&mut self, shared: &Shared, connection: ConnectionId, expired: bool) -> Option<Response> {
        match self {
            Self::Fetch(request) => request.answer(shared, connection, expired),
            Self::Times(request) => request.answer(shared, connection).map(Response::plain),
        }
    }

    /// The connection waits no longer.
    pub fn forget_waiter(&self, broker: &mut Broker, connection: ConnectionId) {
        match self {
            Self::Fetch(request) => request.forget_waiter(broker, connection),
            Self::Times(_) => {}
        }
    }
}

/// An API: its key, the versions that are understood, and the first version with flexible encoding (KIP-482).
#[derive(Debug, Clone, Copy)]
pub struct Api {
    /// Key.
    pub key: i16,
    /// First version.
    pub min: i16,
    /// Last version.
    pub max: i16,
    /// First flexible version.
    pub flexible: i16,
}

const fn api(key: i16, min: i16, max: i16, flexible: i16) -> Api {
    Api {
        key,
        min,
        max,
        flexible,
    }
}

/// Everything that is understood once a client may ask. Topic ids in Produce (13) and Fetch (13) are left out: names say the same, and every client falls back.
pub const APIS: [Api; 28] = [
    api(0, 3, 12, 9),        // Produce
    api(1, 4, 12, 12),       // Fetch
    api(2, 1, 7, 6),         // ListOffsets
    api(3, 0, 12, 9),        // Metadata
    api(8, 2, 8, 8),         // OffsetCommit
    api(9, 1, 8, 6),         // OffsetFetch
    api(10, 0, 4, 3),        // FindCoordinator
    api(11, 0, 9, 6),        // JoinGroup
    api(12, 0, 4, 4),        // Heartbeat
    api(13, 0, 5, 4),        // LeaveGroup
    api(14, 0, 5, 4),        // SyncGroup
    api(15, 0, 5, 5),        // DescribeGroups
    api(16, 0, 5, 3),        // ListGroups
    api(18, 0, 4, 3),        // ApiVersions
    api(19, 2, 7, 5),        // CreateTopics
    api(20, 1, 6, 4),        // DeleteTopics
    api(21, 0, 2, 2),        // DeleteRecords
    api(22, 0, 4, 2),        // InitProducerId
    api(23, 2, 4, 4),        // OffsetForLeaderEpoch
    api(32, 1, 4, 4),        // DescribeConfigs
    api(33, 0, 2, 2),        // AlterConfigs
    api(35, 1, 4, 2),        // DescribeLogDirs
    api(37, 0, 3, 2),        // CreatePartitions
    api(42, 0, 2, 2),        // DeleteGroups
    api(44, 0, 1, 1),        // IncrementalAlterConfigs
    api(47, 0, 0, i16::MAX), // OffsetDelete
    api(60, 0, 1, 0),        // DescribeCluster
    api(68, 0, 1, 0),        // ConsumerGroupHeartbeat
];

/// What is understood besides where there are users.
pub const SASL_APIS: [Api; 2] = [
    api(SASL_HANDSHAKE, 0, 1, i16::MAX), // SaslHandshake
    api(SASL_AUTHENTICATE, 0, 2, 2),     // SaslAuthenticate
];

const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const SASL_AUTHENTICATE: i16 = 36;

/// What this log understands.
fn offered(shared: &Shared) -> impl Iterator<Item = &'static Api> {
    let (always, login): (&'static [Api], &'static [Api]) = (&APIS, &SASL_APIS);
    let login = if shared.settings.access.users.is_some() {
        login
    } else {
        &[]
    };
    always.iter().chain(login)
}

/// One request and the way to its response.
#[derive(Debug)]
pub struct Request<'a> {
    /// The server.
    pub shared: &'a Shared,
    /// Whose request it is.
    pub connection: ConnectionId,
    /// The client's name for itself.
    pub client_id: &'a str,
    /// API.
    pub api: Api,
    /// Version.
    pub version: i16,
    /// The client's number for the request.
    pub correlation_id: i32,
    /// What is left of the frame.
    pub body: Reader<'a>,
}

impl Request<'_> {
    /// A response frame with its header; `finish` completes it.
    pub fn respond(&self) -> Writer {
        begin(self.api, self.version, self.correlation_id)
    }
}

/// A response frame with its header.
pub fn begin(api: Api, version: i16, correlation_id: i32) -> Writer {
    let flexible = version >= api.flexible;
    let mut writer = Writer::new(flexible);
    writer.i32(0);
    writer.i32(correlation_id);
    // The header of an ApiVersions response is never flexible, so that a client can read it before it knows versions.
    if api.key != API_VERSIONS {
        writer.tags();
    }
    writer
}

/// Completes a frame: fills in its length (`added_bytes` are sent with it but are not part of it).
pub fn finish(mut writer: Writer, added_bytes: usize) -> Vec<u8> {
    let length = writer.len() - 4 + added_bytes;
    writer.patch_i32(0, length as i32);
    writer.into_bytes()
}

/// The API with a key, for requests that are answered later.
pub fn api_of(key: i16) -> Api {
    *APIS
        .iter()
        .find(|api| api.key == key)
        .expect("only keys of the table are asked for")
}

/// Handles one request frame (without its length field).
pub fn handle(shared: &Shared, connection: ConnectionId, frame: &[u8]) -> Read<Outcome> {
    match open(shared, connection, frame)? {
        Opened::Request(request) => dispatch(request),
        Opened::Answered(response) => Ok(Outcome::Answer(response)),
    }
}

/// Handles one request frame of a client that has not logged in.
pub fn handle_stranger(
    shared: &Shared,
    connection: ConnectionId,
    exchange: &mut Exchange,
    frame: &[u8],
) -> Read<Outcome> {
    let Some(users) = &shared.settings.access.users else {
        return Err(Malformed("a login where there are no users"));
    };
    if exchange.is_bare {
        return sasl::bare(exchange, users, frame);
    }
    let request = match open(shared, connection, frame)? {
        Opened::Request(request) => request,
        Opened::Answered(response) => return Ok(Outcome::Answer(response)),
    };
    match request.api.key {
        API_VERSIONS => dispatch(request),
        SASL_HANDSHAKE => sasl::handshake(request, Some(exchange)),
        SASL_AUTHENTICATE => sasl::authenticate(request, Some(exchange), users),
        _ => Err(Malformed("a request before the login")),
    }
}

/// A frame whose header was read.
enum Opened<'a> {
    Request(Request<'a>),
    /// There is nothing to do for it but to send this.
    Answered(Vec<u8>),
}

fn open<'a>(shared: &'a Shared, connection: ConnectionId, frame: &'a [u8]) -> Read<Opened<'a>> {
    let mut body = Reader::of_request(frame);
    let key = body.i16()?;
    let version = body.i16()?;
    let correlation_id = body.i32()?;
    let Some(&api) = offered(shared).find(|api| api.key == key) else {
        return Err(Malformed("an API that is not offered"));
    };
    if version < api.min || version > api.max {
        return match key {
            // KIP-511: whoever asks for versions in a version that is not known gets them in version 0.
            API_VERSIONS => Ok(Opened::Answered(versions(
                shared,
                api,
                0,
                correlation_id,
                ErrorCode::UnsupportedVersion,
            ))),
            _ => Err(Malformed("a version that is not offered")),
        };
    }
    let client_id = body.nullable_string()?.unwrap_or_default();
    body.set_flexible(version >= api.flexible);
    body.tags()?;
    Ok(Opened::Request(Request {
        shared,
        connection,
        client_id,
        api,
        version,
        correlation_id,
        body,
    }))
}

fn dispatch(request: Request<'_>) -> Read<Outcome> {
    match request.api.key {
        0 => produce::produce(request),
        1 => fetch::fetch(request),
        2 => offsets::list_offsets(request),
        3 => metadata::metadata(request),
        8 => commits::commit(request),
        9 => commits::fetch(request),
        10 => groups::find_coordinator(request),
        11 => groups::join(request),
        12 => groups::heartbeat(request),
        13 => groups::leave(request),
        14 => groups::sync(request),
        15 => groups::describe(request),
        16 => groups::list(request),
        API_VERSIONS => {
            let Request {
                shared,
                api,
                version,
                correlation_id,
                ..
            } = request;
            Ok(Outcome::Answer(versions(
                shared,
                api,
                version,
                correlation_id,
                ErrorCode::None,
            )))
        }
        SASL_HANDSHAKE => sasl::handshake(request, None),
        19 => topics::create(request),
        20 => topics::delete(request),
        21 => offsets::delete_records(request),
        22 => produce::init_producer_id(request),
        23 => offsets::offset_for_leader_epoch(request),
        32 => configs::describe(request),
        33 => configs::alter(request),
        35 => metadata::describe_log_dirs(request),
        SASL_AUTHENTICATE => match &request.shared.settings.access.users {
            Some(users) => sasl::authenticate(request, None, users),
            None => Err(Malformed("an API that is not offered")),
        },
        37 => topics::create_partitions(request),
        42 => groups::delete(request),
        44 => configs::alter_incrementally(request),
        47 => commits::delete(request),
        60 => metadata::describe_cluster(request),
        68 => groups::refuse_newer_protocol(request),
        _ => Err(Malformed("an API that is not offered")),
    }
}

fn versions(shared: &Shared, api: Api, version: i16, correlation_id: i32, error: ErrorCode) -> Vec<u8> {
    let mut out = begin(api, version, correlation_id);
    out.i16(error as i16);
    out.array(offered(shared).count());
    for api in offered(shared) {
        out.i16(api.key);
        out.i16(api.min);
        out.i16(api.max);
        out.tags();
    }
    if version >= 1 {
        out.i32(0);
    }
    out.tags();
    finish(out, 0)
}
