//! The part of a producer that listens: places of streams, publishers, confirmations, and what follows the loss of a connection.

use std::rc::Rc;

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};

use super::super::batch::Batch;
use super::super::codec::{Malformed, Reader};
use super::super::session::error as amqp_error;
use super::locator::Found;
use super::producer::{Link, PUBLISHERS_MAX, Producer, State};
use super::publish;
use super::session::Session;
use super::wire::{self, Frame, code, error, key};
use crate::shared::{Shared, producer_token};
use crate::stream::{Lost, Peer};
use crate::{ClientError, Ready};

impl Producer {
    /// Streams were found: connects to their leaders.
    pub(super) fn place(
        &mut self,
        found: &mut Vec<Found>,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        let is_gone = |(_, place): &Found| matches!(place, Err(code::STREAM_DOES_NOT_EXIST));
        if shared.is_prepared && found.len() == self.partitions.len() && found.iter().all(is_gone) {
            let stream = &self.partitions[0].stream;
            return Err(ClientError::system(format!(
                "producer {}: there is no stream {stream:?} any more, nor another one of its topic",
                self.id
            )));
        }
        for (at, place) in found.drain(..) {
            match place {
                Ok(place) => {
                    if let Err(lost) = self.settle_down(at, place.leader, shared, now_ns) {
                        shared.trouble = Some(format!("producer {}: {lost}", self.id));
                        observer.error(lost.kind());
                        self.locator.pause_until(now_ns);
                        self.leave(at);
                    }
                }
                Err(response) => {
                    let (kind, words) = wire::meaning(response);
                    let stream = &self.partitions[at].stream;
                    shared.trouble = Some(format!("producer {}: stream {stream:?}: {words}", self.id));
                    if shared.is_prepared {
                        observer.error(kind);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives a partition a publisher on a connection to its leader.
    fn settle_down(&mut self, at: usize, leader: Peer, shared: &mut Shared, now_ns: i64) -> Result<(), Lost> {
        let has_room = |link: &Link, _: &Session| !link.is_declared && link.partitions.len() < PUBLISHERS_MAX;
        let number = match self.links.find(&leader, has_room) {
            Some(number) => number,
            None => {
                let number = self.links.vacant();
                let token = producer_token(self.index, number);
                let session = Session::connect(&leader, &shared.poller, token, now_ns)?;
                self.links.put(number, leader, Link::default(), session);
                number
            }
        };
        if let Some((link, _)) = self.links.get_mut(number) {
            let partition = &mut self.partitions[at];
            partition.publisher = link.partitions.len() as u8;
            partition.state = State::Declaring(number);
            link.partitions.push(at as u32);
        }
        Ok(())
    }

    /// A connection's socket is ready.
    pub(super) fn advance(
        &mut self,
        at: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Lost> {
        let now_ns = monotonic_ns();
        let Some((_, session)) = self.links.get_mut(at) else {
            return Ok(());
        };
        session.advance(ready, &shared.poller, now_ns)?;
        if ready.writable {
            self.write(at, shared, observer)?;
        }
        let mut may_have_more = ready.readable;
        while may_have_more {
            let Some((_, session)) = self.links.get_mut(at) else {
                return Ok(());
            };
            let read = session.read(now_ns);
            let acked_ns = monotonic_ns();
            self.settled.clear(self.id);
            let mut touched = Vec::new();
            let handled = self.take_frames(at, &mut touched, shared, observer, acked_ns);
            // What was confirmed before the connection broke is confirmed.
            if !self.settled.is_empty() {
                self.backoff.works();
                self.settle(at, &touched, shared, observer, acked_ns);
            }
            handled?;
            may_have_more = read?;
        }
        Ok(())
    }

    fn take_frames(
        &mut self,
        at: usize,
        touched: &mut Vec<u32>,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Lost> {
        let options = Rc::clone(&self.options);
        // What a server refuses ends the connection. Confirmations behind it count all the same: they are read, and what they confirm is stored.
        let mut refused = None;
        // The link is put aside, so that its bytes can be read while the producer is changed.
        while let Some((link, session)) = self.links.get_mut(at) {
            let Some(frame) = session.next(&options, now_ns)? else {
                break;
            };
            let fields = session.fields(frame);
            match frame.key {
                key::PUBLISH_CONFIRM | key::PUBLISH_ERROR => {
                    let mut reader = Reader::new(fields);
                    let publisher = reader.u8()?;
                    let Some(&partition) = link.partitions.get(usize::from(publisher)) else {
                        return Err(Malformed("it confirms for a publisher that was not declared").into());
                    };
                    if touched.last() != Some(&partition) {
                        touched.push(partition);
                    }
                    let partition = &mut self.partitions[partition as usize];
                    let settled = &mut self.settled;
                    if frame.key == key::PUBLISH_CONFIRM {
                        confirm(&mut reader, |serial| {
                            let is_sent = serial < partition.sent_serial;
                            if is_sent {
                                partition.unconfirmed.settle(serial, true, settled);
                            }
                            is_sent
                        })?;
                    } else {
                        let handled = refuse(&mut reader, |serial| {
                            partition.unconfirmed.settle(serial, false, settled);
                        });
                        put_off(handled, &mut refused)?;
                    }
                }
                _ => {
                    let handled = self.on_answer(at, frame, shared, observer, now_ns);
                    put_off(handled, &mut refused)?;
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    fn on_answer(
        &mut self,
        at: usize,
        frame: Frame,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Lost> {
        let Some((link, session)) = self.links.get_mut(at) else {
            return Ok(());
        };
        let mut reader = Reader::new(session.fields(frame));
        match frame.key {
            key::DECLARE_PUBLISHER => {
                let (publisher, response) = wire::outcome(&mut reader)?;
                if response != code::OK {
                    let (kind, words) = wire::meaning(response);
                    return Err(Lost::Refused(kind, format!("it accepts no publisher: {words}")));
                }
                let partition = usize::try_from(publisher)
                    .ok()
                    .and_then(|publisher| link.partitions.get(publisher));
                let Some(&partition) = partition else {
                    return Err(Malformed("it answers what was not asked").into());
                };
                link.declaring = link.declaring.saturating_sub(1);
                link.progress_ns = now_ns;
                self.partitions[partition as usize].state = State::Open(at);
                self.pend(partition as usize);
                self.held.has_room = true;
                Ok(())
            }
            // The server has dropped the publishers of this stream: it moves, or it was deleted.
            key::METADATA_UPDATE => {
                let (response, stream) = (reader.u16()?, wire::text(&mut reader)?);
                let (kind, words) = wire::meaning(response);
                let is_ours = link
                    .partitions
                    .iter()
                    .any(|partition| self.partitions[*partition as usize].stream == stream);
                match is_ours {
                    true => Err(Lost::Refused(kind, format!("stream {stream:?}: {words}"))),
                    false => Ok(()),
                }
            }
            _ => {
                // A command of a later version of the protocol.
                shared.trouble = Some(format!("an unexpected command {}", frame.key));
                observer.error(crate::stream::kind::MALFORMED_ANSWER);
                Ok(())
            }
        }
    }

    /// A connection is gone: its partitions are looked for again, and everything without a confirmation goes back to their queues.
    pub(super) fn lose(
        &mut self,
        at: usize,
        lost: &Lost,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        let Some((link, session)) = self.links.remove(at) else {
            return Ok(());
        };
        let fault = format!("producer {}: {lost}", self.id);
        self.backoff.pause(now_ns);
        self.locator.pause_until(self.backoff.retry_at_ns());
        for batch in session.into_unwritten() {
            self.partitions[batch.partition as usize].written.push_back(batch);
        }
        let mut is_nothing_sent = true;
        for partition in link.partitions {
            let partition = partition as usize;
            self.leave(partition);
            while let Some(batch) = self.partitions[partition].written.pop_back() {
                is_nothing_sent &= !self.requeue(partition, batch, lost, observer);
            }
        }
        if is_nothing_sent {
            observer.error(lost.kind());
        }
        shared.trouble = Some(fault.clone());
        match lost {
            Lost::Refused(amqp_error::ACCESS_REFUSED | error::FRAME_TOO_LARGE, _) => {
                Err(ClientError::system(fault))
            }
            _ => Ok(()),
        }
    }

    /// Puts a batch that was sent to the front of its queue, with what has no confirmation. Returns whether that is anything.
    fn requeue(&mut self, at: usize, mut batch: Box<Batch>, lost: &Lost, observer: &mut Observer) -> bool {
        let partition = &mut self.partitions[at];
        if !publish::compact(&mut batch, |serial| {
            partition.unconfirmed.is_waiting(serial) || mutants::is(Mutant::RabbitmqStreamConfirmedAgain)
        }) {
            self.spares.close(batch);
            return false;
        }
        observer.retried(lost.kind());
        self.held.queued_bytes += batch.len();
        match mutants::is(Mutant::RabbitmqStreamRetryAtTheEnd) {
            true => partition.queue.push_back(batch),
            false => partition.queue.push_front(batch),
        }
        true
    }
}

/// A refusal is put off until everything was read that is there; what else ends a connection does so at once.
fn put_off(handled: Result<(), Lost>, refused: &mut Option<Lost>) -> Result<(), Lost> {
    match handled {
        Err(lost @ Lost::Refused(..)) if !mutants::is(Mutant::RabbitmqStreamRefusalEndsReading) => {
            refused.get_or_insert(lost);
            Ok(())
        }
        handled => handled,
    }
}

/// Reads the publishing numbers of a confirmation; `settle` gets serial numbers and says whether they were ever sent.
#[inline]
fn confirm(reader: &mut Reader<'_>, mut settle: impl FnMut(u64) -> bool) -> Result<(), Malformed> {
    for _ in 0..wire::count(reader)? {
        let serial = reader.u64()?.checked_sub(publish::number_of(0));
        if !serial.is_some_and(&mut settle) {
            return Err(Malformed("it confirms what was not sent"));
        }
    }
    Ok(())
}

/// Reads what the server would not take. What another place of the stream may take ends the connection instead, and is sent again.
fn refuse(reader: &mut Reader<'_>, mut settle: impl FnMut(u64)) -> Result<(), Lost> {
    for _ in 0..wire::count(reader)? {
        let (number, response) = (reader.u64()?, reader.u16()?);
        match wire::meaning(response) {
            (kind @ (error::STREAM_NOT_AVAILABLE | error::STREAM_DOES_NOT_EXIST), words) => {
                return Err(Lost::Refused(kind, words.to_owned()));
            }
            _ => {
                if let Some(serial) = number.checked_sub(publish::number_of(0)) {
                    settle(serial);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::codec::Put;
    use super::*;

    #[test]
    fn confirmations_name_messages_that_were_sent() {
        let mut bytes = Vec::new();
        bytes.put_u32(2);
        bytes.put_u64(1);
        bytes.put_u64(5);
        let mut serials = Vec::new();
        confirm(&mut Reader::new(&bytes), |serial| {
            serials.push(serial);
            true
        })
        .unwrap();
        assert_eq!(serials, [0, 4]);
        assert!(confirm(&mut Reader::new(&bytes), |serial| serial < 4).is_err());
        bytes[11] = 0;
        assert!(confirm(&mut Reader::new(&bytes), |_| true).is_err());
    }

    #[test]
    fn what_can_be_sent_again_is_not_refused() {
        let refused = |response: u16| {
            let mut bytes = Vec::new();
            bytes.put_u32(1);
            bytes.put_u64(3);
            bytes.put_u16(response);
            let mut serials = Vec::new();
            let result = refuse(&mut Reader::new(&bytes), |serial| serials.push(serial));
            (result.is_ok(), serials)
        };
        assert_eq!(refused(code::INTERNAL_ERROR), (true, vec![2]));
        assert_eq!(refused(code::STREAM_NOT_AVAILABLE), (false, vec![]));
    }
}
