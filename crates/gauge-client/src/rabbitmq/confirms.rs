//! The part of a producer that listens: the channel's opening, confirmations, messages that come back, and what follows the loss of the
//! connection.

use std::rc::Rc;

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};
use gauge_load::stamp::{self, Checked};

use super::batch::Batch;
use super::codec::{self, Frame, Malformed, Put, Reader, kind, method, method_frame};
use super::producer::{CHANNEL, Producer};
use super::session::{Session, error};
use crate::shared::{Shared, producer_token};
use crate::stream::{InputBytes, Lost};
use crate::{Acks, ClientError, Ready};

/// Confirmations are short; a message that comes back is not.
const INPUT: InputBytes = InputBytes {
    first: 16 << 10,
    max: 512 << 10,
};
/// A longer message is not collected when it comes back: its stamp is at its beginning.
const RETURNED_BYTES_MAX: usize = 16 << 20;

/// A message that is coming back: the content that follows basic.return.
#[derive(Debug, Default)]
pub(super) struct Returning {
    expected_bytes: Option<usize>,
    body: Vec<u8>,
}

impl Producer {
    pub(super) fn connect(&mut self, shared: &mut Shared, now_ns: i64) -> Result<(), Lost> {
        let server = &shared.servers[(self.id as usize + self.attempts) % shared.servers.len()];
        self.attempts += 1;
        let token = producer_token(self.index, 0);
        self.session = Some(Session::connect(server, &shared.poller, token, INPUT, now_ns)?);
        Ok(())
    }

    /// Opens the channel once the connection is open.
    pub(super) fn open_channel(&mut self, now_ns: i64) {
        let Some(session) = &mut self.session else { return };
        if !session.is_ready() || self.is_channel_asked {
            return;
        }
        let mut bytes = method_frame(CHANNEL, method::CHANNEL_OPEN, |arguments| {
            arguments.put_short_string("")
        });
        if self.acks != Acks::None {
            codec::put_method(&mut bytes, CHANNEL, method::CONFIRM_SELECT, |arguments| {
                arguments.put_u8(0);
            });
        }
        session.push_control(bytes, now_ns);
        self.body_bytes_max = session.body_bytes_max();
        self.is_channel_asked = true;
    }

    /// A socket is ready.
    pub(super) fn advance(
        &mut self,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Lost> {
        let now_ns = monotonic_ns();
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        session.advance(ready, &shared.poller, now_ns)?;
        if ready.writable {
            self.write(shared, observer)?;
        }
        if !ready.readable {
            return Ok(());
        }
        loop {
            // The session is put aside, so that its bytes can be read while the producer is changed.
            let Some(mut session) = self.session.take() else {
                return Ok(());
            };
            let was_blocked = session.is_blocked();
            let read = session.read(now_ns);
            let acked_ns = monotonic_ns();
            self.settled.clear(self.id);
            let handled = self.take_frames(&mut session, acked_ns);
            if was_blocked && !session.is_blocked() {
                // What was written meanwhile is only read now.
                self.progress_ns = acked_ns;
            }
            self.session = Some(session);
            // What was confirmed before the connection broke is confirmed.
            if !self.settled.is_empty() {
                self.settle(shared, observer, acked_ns);
            }
            handled?;
            if !read? {
                return Ok(());
            }
        }
    }

    fn take_frames(&mut self, session: &mut Session, now_ns: i64) -> Result<(), Lost> {
        let options = Rc::clone(&self.options);
        while let Some(frame) = session.next(&options, now_ns)? {
            let payload = session.payload(frame);
            match frame.kind {
                kind::METHOD => {
                    if let Some(answer) = self.on_method(payload)? {
                        session.push_control(answer, now_ns);
                    }
                }
                kind::HEADER | kind::BODY => self.on_returned(frame, payload)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A method of the channel. Returns what is to be answered.
    #[inline]
    fn on_method(&mut self, payload: &[u8]) -> Result<Option<Vec<u8>>, Lost> {
        let mut reader = Reader::new(payload);
        match reader.method()? {
            method::BASIC_ACK => {
                let (tag, is_multiple) = (reader.u64()?, reader.u8()? & 1 == 1);
                self.confirm(tag, is_multiple, true)?;
            }
            method::BASIC_NACK => {
                let (tag, is_multiple) = (reader.u64()?, reader.u8()? & 1 == 1);
                self.confirm(tag, is_multiple, false)?;
            }
            method::CHANNEL_OPEN_OK => {
                if self.acks == Acks::None {
                    self.channel_opened();
                }
            }
            method::CONFIRM_SELECT_OK => self.channel_opened(),
            method::BASIC_RETURN => self.returning = Returning::default(),
            // RabbitMQ never asks a client to stop with channel.flow, but an answer is owed.
            method::CHANNEL_FLOW => {
                let active = reader.u8()?;
                return Ok(Some(method_frame(
                    CHANNEL,
                    method::CHANNEL_FLOW_OK,
                    |arguments| {
                        arguments.put_u8(active);
                    },
                )));
            }
            method::CHANNEL_CLOSE => {
                let closing = codec::read_closing(&mut reader)?;
                return Err(Lost::Refused(error::of(closing.code), closing.words));
            }
            _ => return Err(Malformed("an unexpected method on a producer's channel").into()),
        }
        Ok(None)
    }

    fn channel_opened(&mut self) {
        self.is_channel_open = true;
        // Delivery tags of a channel begin with 1, for the first of the messages that were not given up while it was opened.
        if !mutants::is(Mutant::RabbitmqTagsGoOn) || self.attempts == 1 {
            self.tag_base = self.unconfirmed.first().wrapping_sub(1);
        }
        self.sent_serial = self.unconfirmed.first();
        self.backoff.works();
    }

    #[inline]
    fn confirm(&mut self, tag: u64, is_multiple: bool, is_acked: bool) -> Result<(), Malformed> {
        let (serial, settled) = (self.tag_base.wrapping_add(tag), &mut self.settled);
        // Tag 0 with the multiple flag stands for everything (AMQP 0-9-1, basic.ack).
        let serial = match tag {
            0 if is_multiple => self.sent_serial.wrapping_sub(1),
            _ => serial,
        };
        if serial >= self.sent_serial {
            return Err(Malformed("it confirms what was not sent"));
        }
        let is_acked = is_acked || mutants::is(Mutant::RabbitmqRefusalCountsAsAck);
        match is_multiple && !mutants::is(Mutant::RabbitmqMultipleIsOne) {
            true => self.unconfirmed.settle_up_to(serial, is_acked, settled),
            false => self.unconfirmed.settle(serial, is_acked, settled),
        }
        Ok(())
    }

    /// Header or body of a message that comes back.
    fn on_returned(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Malformed> {
        let returning = &mut self.returning;
        if frame.kind == kind::HEADER {
            let mut reader = Reader::new(payload);
            reader.u32()?;
            let bytes = usize::try_from(reader.u64()?).unwrap_or(usize::MAX);
            if bytes > RETURNED_BYTES_MAX {
                return Err(Malformed(
                    "a message comes back that is longer than any that was sent",
                ));
            }
            returning.expected_bytes = Some(bytes);
        } else {
            returning.body.extend_from_slice(payload);
        }
        if returning
            .expected_bytes
            .is_some_and(|bytes| returning.body.len() >= bytes)
        {
            let sequence = match stamp::check(&returning.body) {
                Checked::Whole(stamp) if stamp.producer == self.id => Some(stamp.sequence),
                Checked::Whole(_) => return Ok(()),
                Checked::Misrouted | Checked::Corrupted | Checked::Foreign => None,
            };
            // Whoever waits for nothing has sent a message when it is written, whether it comes back before the rest of its batch is written or after.
            if self.acks != Acks::None && !mutants::is(Mutant::RabbitmqReturnIgnored) {
                self.unconfirmed.mark_returned(sequence);
            }
            *returning = Returning::default();
        }
        Ok(())
    }

    /// The connection is gone: everything without a confirmation goes back to the queue.
    pub(super) fn lose(
        &mut self,
        lost: &Lost,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        let fault = format!("producer {}: {lost}", self.id);
        let is_fatal = match lost {
            Lost::Refused(error::ACCESS_REFUSED, _) => true,
            // The exchange is gone: there is no topic any more.
            Lost::Refused(error::NOT_FOUND, words) => words.contains("no exchange"),
            Lost::Refused(error::NOT_ALLOWED, _) => !shared.is_prepared,
            _ => false,
        };
        self.backoff.pause(now_ns);
        (self.is_channel_asked, self.is_channel_open) = (false, false);
        self.returning = Returning::default();
        let mut sent: Vec<Box<Batch>> = self.written.drain(..).collect();
        sent.extend(self.session.take().into_iter().flat_map(Session::into_unwritten));
        if sent.is_empty() {
            observer.error(lost.kind());
        }
        for batch in &mut sent {
            let (first, messages) = (batch.first_serial, batch.messages);
            let (bytes, messages) = self.unconfirmed.compact(batch.bytes_mut(), first, messages);
            batch.shorten(bytes);
            batch.messages = messages;
        }
        self.unconfirmed.forget_done();
        for batch in sent.into_iter().rev() {
            if batch.messages == 0 {
                self.spares.close(batch);
                continue;
            }
            observer.retried(lost.kind());
            self.held.queued_bytes += batch.len();
            self.queue.push_front(batch);
        }
        // What had its end between others has left gaps, which close.
        let mut serial = self.unconfirmed.first();
        for batch in self.queue.iter_mut().chain(&mut self.open) {
            batch.first_serial = serial;
            serial += u64::from(batch.messages);
        }
        assert_eq!(
            serial,
            self.unconfirmed.next(),
            "every message without an end is in a batch"
        );
        if !mutants::is(Mutant::RabbitmqWindowKept) {
            self.in_flight_bytes = 0;
        }
        shared.trouble = Some(fault.clone());
        match is_fatal {
            true => Err(ClientError::system(fault)),
            false => Ok(()),
        }
    }
}
