//! A connection to one broker whose calls wait, for questions outside of any lane.

use gauge_load::clock::monotonic_ns;

use super::Access;
use super::connection::ANSWER_BYTES_MAX;
use super::errors::Code;
use super::messages::{self, ApiVersions};
use super::sasl::Conversation;
use super::wire::{self, Api, Malformed, begin_request, finish_request};
use crate::transport::{Blocking, Lost, Peer};

/// An answer takes this long at most, unless the caller's deadline comes first.
const ANSWER_TIMEOUT_NS: i64 = 30_000_000_000;

/// A blocking connection to one broker.
pub(super) struct Caller {
    transport: Blocking,
    peer: Peer,
    client_id: String,
    correlation: i32,
}

impl Caller {
    /// Connects, and logs in where that is asked for.
    pub fn connect(peer: &Peer, access: &Access, within_ns: i64) -> Result<Caller, Lost> {
        let deadline_ns = monotonic_ns() + within_ns;
        let mut caller = Caller {
            transport: Blocking::connect(peer, deadline_ns)?,
            peer: peer.clone(),
            client_id: access.client_id.clone(),
            correlation: 0,
        };
        if let Some(credentials) = &access.credentials {
            let mut conversation = Conversation::new(credentials);
            let mut next = Some(conversation.begin());
            while let Some((api, body)) = next {
                let answer = caller.exchange(api, deadline_ns, |out| out.extend_from_slice(&body))?;
                next = conversation.answered(&answer)?;
            }
        }
        Ok(caller)
    }

    /// Connects as `connect` does and asks for the API versions, in version 3 of that API and in version 0 where that is not known.
    /// The answer may take as long again as connecting.
    pub fn greeted(peer: &Peer, access: &Access, within_ns: i64) -> Result<(Caller, ApiVersions), Lost> {
        match Caller::ask_versions(peer, access, within_ns, wire::API_VERSIONS) {
            // A server that dislikes version 3 either answers so or closes the connection.
            Err(Lost::Closed(_) | Lost::Malformed(_)) => {
                Caller::ask_versions(peer, access, within_ns, wire::API_VERSIONS_OLD)
            }
            reached => reached,
        }
    }

    fn ask_versions(
        peer: &Peer,
        access: &Access,
        within_ns: i64,
        api: Api,
    ) -> Result<(Caller, ApiVersions), Lost> {
        let mut caller = Caller::connect(peer, access, within_ns)?;
        let body = caller.exchange(api, monotonic_ns() + within_ns, |out| {
            if api.version >= wire::API_VERSIONS.version {
                messages::put_api_versions(out);
            }
        })?;
        let versions = messages::read_api_versions(&body, api.version)?;
        match Code(versions.code) {
            code if code.is_none() => Ok((caller, versions)),
            code => Err(Lost::Malformed(format!(
                "it answers {} with {}",
                api.name,
                code.name()
            ))),
        }
    }

    /// The server on the other side.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Sends a request and waits for its answer's body. The error is for people.
    pub fn call(
        &mut self,
        api: Api,
        deadline_ns: i64,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>, String> {
        self.exchange(api, deadline_ns, body).map_err(|lost| match lost {
            Lost::Timeout => format!("{} did not answer {} in time", self.peer, api.name),
            lost => format!("{}, asked for {}: {lost}", self.peer, api.name),
        })
    }

    /// Sends a request and waits for its answer's body.
    pub fn exchange(
        &mut self,
        api: Api,
        deadline_ns: i64,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>, Lost> {
        self.correlation += 1;
        let mut request = Vec::new();
        begin_request(&mut request, api, self.correlation, &self.client_id);
        body(&mut request);
        finish_request(&mut request, 0);
        let deadline_ns = deadline_ns.min(monotonic_ns() + ANSWER_TIMEOUT_NS);
        self.transport.write_all(&request, deadline_ns)?;
        let mut head = [0u8; 8];
        self.transport.read_exact(&mut head, deadline_ns)?;
        let [l0, l1, l2, l3, c0, c1, c2, c3] = head;
        let length = usize::try_from(i32::from_be_bytes([l0, l1, l2, l3])).unwrap_or(0);
        if !(4..=ANSWER_BYTES_MAX).contains(&length) {
            return Err(Malformed("its length is below 4 bytes or above 128 MiB").into());
        }
        if i32::from_be_bytes([c0, c1, c2, c3]) != self.correlation {
            return Err(Malformed("it answers another request").into());
        }
        // Grows with what arrives, not with what is announced.
        let mut answer = Vec::new();
        while answer.len() < length - 4 {
            let from = answer.len();
            answer.resize((length - 4).min(from + (64 << 10)), 0);
            self.transport.read_exact(&mut answer[from..], deadline_ns)?;
        }
        Ok(answer)
    }
}
