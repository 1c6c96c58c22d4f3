//! What the producers and consumers of a lane have in common, and whose a socket is.

use crate::stream::{Peer, resolve};
use crate::tls::Tls;
use crate::{ClientError, Endpoint, LaneSpec, Poller};

/// What the producers and consumers of a lane have in common. `own` is what only one protocol has.
pub(crate) struct Shared<O = ()> {
    pub spec: LaneSpec,
    pub poller: Poller,
    bootstrap: Vec<String>,
    /// The servers that were named, resolved by `prepare`.
    pub servers: Vec<Peer>,
    /// How the servers are spoken to, if in TLS: those that were named and those that answers name.
    pub tls: Option<Tls>,
    /// Bytes that wait or travel, over all producers.
    pub buffered_bytes: usize,
    /// The lane is connected: from now on what is missing may come back.
    pub is_prepared: bool,
    /// The lane ends: nothing is begun any more.
    pub is_closing: bool,
    /// The last thing that went wrong, for the message of a `prepare` that does not succeed.
    pub trouble: Option<String>,
    pub own: O,
}

impl<O> Shared<O> {
    pub fn new(endpoint: &Endpoint, spec: LaneSpec, own: O) -> Result<Shared<O>, ClientError> {
        let poller = Poller::new()
            .map_err(|error| ClientError::system(format!("cannot make an epoll instance: {error}")))?;
        Ok(Shared {
            spec,
            poller,
            bootstrap: endpoint.bootstrap.clone(),
            servers: Vec::new(),
            tls: endpoint.security.tls.clone(),
            buffered_bytes: 0,
            is_prepared: false,
            is_closing: false,
            trouble: None,
            own,
        })
    }

    /// Looks the named servers up; blocks.
    pub fn resolve(&mut self) -> Result<(), ClientError> {
        let mut errors = Vec::new();
        for server in &self.bootstrap {
            match resolve(server, self.tls.as_ref()) {
                Ok(peers) => self.servers.extend(peers.into_iter().next()),
                Err(error) => errors.push(error),
            }
        }
        if self.servers.is_empty() {
            return Err(ClientError::system(errors.join("; ")));
        }
        Ok(())
    }
}

/// Which of a lane's ready sockets is whose: even tokens are producers', odd ones consumers'; above, the owner's own number.
pub(crate) fn producer_token(index: usize, link: usize) -> u64 {
    (link as u64) << 32 | (index as u64) << 1
}

/// As `producer_token`.
pub(crate) fn consumer_token(index: usize, link: usize) -> u64 {
    producer_token(index, link) | 1
}

/// The number of the consumer whose socket has this token; None: it is not a consumer's.
pub fn consumer_of(token: u64) -> Option<usize> {
    (token & 1 == 1).then_some(index_of(token))
}

/// The index of a token's owner.
pub(crate) fn index_of(token: u64) -> usize {
    (token as u32 >> 1) as usize
}

/// The index of nobody: sockets of the lane itself.
pub(crate) const NOBODY: usize = i32::MAX as usize;

/// As `producer_token`, of a socket that is no producer's and no consumer's.
pub(crate) fn own_token(link: usize) -> u64 {
    producer_token(NOBODY, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_tell_their_owner() {
        for (index, link) in [(0, 0), (1, 0), (70_000, 3), (NOBODY, 0)] {
            let token = producer_token(index, link);
            assert_eq!(index_of(token), index);
            assert_eq!((token >> 32) as usize, link);
            assert_eq!(consumer_of(token), None);
            assert_eq!(consumer_of(consumer_token(index, link)), Some(index));
            assert_eq!(consumer_token(index, link), token | 1);
        }
        assert_eq!(own_token(2), producer_token(NOBODY, 2));
    }
}
