//! Commits of positions, in the name of a group of which the consumer is no member (generation -1).
//!
//! As in Kafka's own clients, commits travel on a connection of their own to the group's coordinator.

use gauge_load::Observer;

use super::cluster::Question;
use super::connection::{Cargo, Connection, Lost, Request};
use super::consumer::Position;
use super::errors::{Code, Remedy};
use super::link::{Link, is_noteworthy};
use super::messages;
use super::shared::Shared;
use super::wire::{self, Put, begin_request, finish_request};
use crate::Ready;

const INPUT_BYTES: usize = 4 << 10;
/// Pause before the coordinator is asked for again.
const FIND_PAUSE_NS: i64 = 100_000_000;

/// A commit has no cargo: what it commits is noted in the positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commit;

impl Cargo for Commit {}

/// Commits a consumer's positions from time to time.
pub(super) struct Committer {
    consumer: usize,
    group: String,
    interval_ns: i64,
    token: u64,
    next_ns: i64,
    coordinator: Option<Link<Commit>>,
    is_asked: bool,
}

impl Committer {
    pub fn new(consumer: usize, group: &str, interval_ns: i64, token: u64) -> Committer {
        Committer {
            consumer,
            group: group.to_owned(),
            interval_ns: interval_ns.max(1_000_000),
            token,
            next_ns: 0,
            coordinator: None,
            is_asked: false,
        }
    }

    pub fn deadline_ns(&self) -> i64 {
        match &self.coordinator {
            None if self.is_asked => i64::MAX,
            None => self.next_ns,
            Some(link) => {
                let is_idle =
                    |connection: &Connection<Commit>| connection.is_open() && connection.in_flight() == 0;
                let next_ns = if link.connection.as_ref().is_some_and(is_idle) {
                    self.next_ns
                } else {
                    i64::MAX
                };
                link.deadline_ns().min(next_ns)
            }
        }
    }

    /// Whether a commit of what has been read lies ahead or is under way.
    pub fn is_behind(positions: &[Position]) -> bool {
        positions
            .iter()
            .any(|position| position.done > position.committed)
    }

    /// The next `drive` commits, whatever the interval.
    pub fn hurry(&mut self) {
        self.next_ns = 0;
    }

    pub fn drive(
        &mut self,
        positions: &mut [Position],
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) {
        let is_due = now_ns >= self.next_ns;
        let Some(link) = &mut self.coordinator else {
            if is_due && !self.is_asked {
                self.is_asked = true;
                shared.own.cluster.ask(Question::Coordinator(self.consumer));
            }
            return;
        };
        let done = link
            .ensure(&shared.own.cluster, &shared.poller, INPUT_BYTES, now_ns)
            .and_then(|()| {
                link.connection
                    .as_ref()
                    .map_or(Ok(()), |connection| connection.check_deadline(now_ns))
            })
            .and_then(|()| match is_due {
                true => self.send(positions, shared, now_ns),
                false => Ok(()),
            });
        if let Err(lost) = done {
            self.lose(&lost, observer, now_ns);
        }
    }

    fn send(&mut self, positions: &mut [Position], shared: &mut Shared, now_ns: i64) -> Result<(), Lost> {
        let Some(connection) = self
            .coordinator
            .as_mut()
            .and_then(|link| link.connection.as_mut())
        else {
            return Ok(());
        };
        if !connection.is_open() || connection.in_flight() > 0 {
            return Ok(());
        }
        self.next_ns = now_ns + self.interval_ns;
        let mut moved: Vec<&mut Position> = positions
            .iter_mut()
            .filter(|position| position.done > position.committed)
            .collect();
        if moved.is_empty() {
            return Ok(());
        }
        for position in &mut moved {
            position.committing = position.done;
        }
        let correlation = connection.next_correlation();
        let mut head = shared.own.take_head();
        begin_request(&mut head, wire::OFFSET_COMMIT, correlation, &shared.own.client_id);
        messages::put_offset_commit_head(&mut head, &self.group);
        messages::put_by_topic(
            &mut head,
            &moved,
            |position| (position.topic, position.partition),
            |topic| shared.spec.topics[topic].name.clone(),
            |head, position| {
                head.put_i64(position.committing);
                // No metadata.
                head.put_string("");
            },
        );
        finish_request(&mut head, 0);
        connection.push(Request {
            correlation,
            bytes: head.len(),
            head,
            deadline_ns: now_ns.saturating_add(shared.spec.request_timeout_ns),
            has_answer: true,
            cargo: Commit,
        });
        connection.write(&shared.poller)
    }

    /// The cluster has named the coordinator, or said why not.
    pub fn found(&mut self, code: Code, broker: i32, observer: &mut Observer, now_ns: i64) {
        self.is_asked = false;
        if !code.is_none() {
            // The first commit of a cluster's life creates the topic of offsets: not available for a moment is no error then.
            if !matches!(code.remedy(), Remedy::Retry | Remedy::Relocate) {
                observer.error(code.name());
            }
            self.next_ns = now_ns + FIND_PAUSE_NS;
            return;
        }
        let mut link = Link::new(broker, self.token);
        link.members = 1;
        self.coordinator = Some(link);
    }

    fn lose(&mut self, lost: &Lost, observer: &mut Observer, now_ns: i64) {
        let Some(mut link) = self.coordinator.take() else {
            return;
        };
        if is_noteworthy(lost, link.lose(now_ns).count()) {
            observer.error(lost.kind());
        }
        self.next_ns = self.next_ns.max(now_ns + FIND_PAUSE_NS);
    }

    /// The poller says that the connection is ready.
    pub fn on_ready(
        &mut self,
        positions: &mut [Position],
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) {
        if let Err(lost) = self.advance(positions, ready, shared, observer, now_ns) {
            self.lose(&lost, observer, now_ns);
        }
    }

    fn advance(
        &mut self,
        positions: &mut [Position],
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Lost> {
        let Some(link) = &mut self.coordinator else {
            return Ok(());
        };
        let Some(connection) = &mut link.connection else {
            return Ok(());
        };
        connection.advance(ready, &shared.poller)?;
        if ready.writable {
            connection.write(&shared.poller)?;
        }
        if !ready.readable {
            return Ok(());
        }
        while connection.read()? {}
        let Some((request, body)) = connection.answer()? else {
            return Ok(());
        };
        let code = Code(messages::read_offset_commit(&connection.bytes()[body])?);
        shared.own.give_head(request.head);
        link.works();
        if code.is_none() {
            for position in positions {
                position.committed = position.committed.max(position.committing);
            }
            return Ok(());
        }
        observer.error(code.name());
        if code.remedy() == Remedy::Relocate {
            self.coordinator = None;
        }
        self.next_ns = now_ns + FIND_PAUSE_NS.max(self.interval_ns.min(1_000_000_000));
        Ok(())
    }
}
