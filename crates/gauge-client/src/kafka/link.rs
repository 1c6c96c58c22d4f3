//! A producer's or consumer's place for a connection to one broker: made when it is needed, made again after a pause when it is lost.

use super::cluster::Cluster;
use super::connection::{Cargo, Connection, Lost, Request};
use super::errors::kind;
use crate::Poller;
use crate::stream::Backoff;

/// Number of a link that stands for "no leader known".
pub(crate) const NO_LINK: u32 = u32::MAX;

/// A place for a connection to one broker.
#[derive(Debug)]
pub(crate) struct Link<C> {
    pub broker: i32,
    pub connection: Option<Connection<C>>,
    /// Partitions that this broker leads for the owner; without any, no connection is kept up.
    pub members: usize,
    token: u64,
    backoff: Backoff,
}

impl<C: Cargo> Link<C> {
    pub fn new(broker: i32, token: u64) -> Link<C> {
        Link {
            broker,
            connection: None,
            members: 0,
            token,
            backoff: Backoff::default(),
        }
    }

    pub fn is_open(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_open)
    }

    /// Begins to connect when there is no connection, a use for one, and no pause.
    pub fn ensure(
        &mut self,
        cluster: &Cluster,
        poller: &Poller,
        input_bytes: usize,
        now_ns: i64,
    ) -> Result<(), Lost> {
        if self.connection.is_some() || self.members == 0 || !self.backoff.is_over(now_ns) {
            return Ok(());
        }
        match cluster.peer(self.broker) {
            Some(peer) => {
                self.connection = Some(Connection::connect(
                    peer,
                    cluster.access.login(),
                    poller,
                    self.token,
                    input_bytes,
                    now_ns,
                )?);
            }
            None => self.backoff.pause(now_ns),
        }
        Ok(())
    }

    /// An answer came: the next loss begins with the short pause.
    pub fn works(&mut self) {
        self.backoff.works();
    }

    /// Ends the connection and returns what had no answer, in order.
    pub fn lose(&mut self, now_ns: i64) -> impl Iterator<Item = Request<C>> + use<C> {
        self.backoff.pause(now_ns);
        let requests = self.connection.take().map(Connection::into_requests);
        requests.into_iter().flatten()
    }

    /// When something is to be done without an event.
    pub fn deadline_ns(&self) -> i64 {
        match &self.connection {
            Some(connection) => connection.deadline_ns(),
            None if self.members > 0 => self.backoff.retry_at_ns(),
            None => i64::MAX,
        }
    }
}

/// Whether the end of a connection is worth counting: an idle one that the server closed is not.
pub(crate) fn is_noteworthy(lost: &Lost, in_flight: usize) -> bool {
    !(lost.kind() == kind::CONNECTION_LOST && in_flight == 0)
}
