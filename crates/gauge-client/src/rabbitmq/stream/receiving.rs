//! The part of a consumer that listens: chunks, and answers about subscriptions.

use std::rc::Rc;

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;

use super::super::codec::{Malformed, Reader};
use super::chunk::Chunk;
use super::consumer::{Consumer, END_BIT, End, State, put_unsubscribe};
use super::message;
use super::wire::{self, Frame, code, error, key};
use crate::Ready;
use crate::shared::Shared;
use crate::stream::Lost;

impl Consumer {
    /// A connection's socket is ready. Returns whether there is more to read than there was time for.
    pub(super) fn advance(
        &mut self,
        at: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, Lost> {
        let now_ns = monotonic_ns();
        let Some((_, session)) = self.links.get_mut(at) else {
            return Ok(false);
        };
        session.advance(ready, &shared.poller, now_ns)?;
        if ready.writable {
            self.write(at, shared, now_ns)?;
        }
        if !ready.readable {
            return Ok(false);
        }
        loop {
            let Some((_, session)) = self.links.get_mut(at) else {
                return Ok(false);
            };
            let read = session.read(now_ns);
            let received_ns = monotonic_ns();
            let was_ready = session.is_ready();
            let handled = self.take_frames(at, observer, received_ns);
            self.is_stirred |= !was_ready;
            if std::mem::take(&mut self.has_messages) {
                self.backoff.works();
                observer.fetched(self.subscription);
                self.give_credits(at);
                self.write(at, shared, received_ns)?;
            }
            handled?;
            if !read? {
                return Ok(false);
            }
            if monotonic_ns() >= until_ns {
                return Ok(true);
            }
        }
    }

    fn take_frames(&mut self, at: usize, observer: &mut Observer, received_ns: i64) -> Result<(), Lost> {
        let options = Rc::clone(&self.options);
        while let Some((link, session)) = self.links.get_mut(at) {
            let Some(frame) = session.next(&options, received_ns)? else {
                return Ok(());
            };
            if frame.key != key::DELIVER {
                self.on_answer(at, frame, observer)?;
                continue;
            }
            let (number, bytes) = session
                .fields(frame)
                .split_first()
                .ok_or(Malformed("an empty delivery"))?;
            let chunk = Chunk::read(bytes)?;
            let Some(&at) = link.positions.get(usize::from(number & !END_BIT)) else {
                return Err(Malformed("it delivers what was not subscribed to").into());
            };
            let position = &mut self.positions[at as usize];
            if number & END_BIT != 0 {
                self.is_stirred = true;
                position.end = End::At(chunk.end_offset());
                put_unsubscribe(&mut link.outgoing, *number);
                continue;
            }
            if !chunk.is_whole() {
                // The next chunk is a matter of its own; of this one nothing can be believed, its length and offsets were.
                let wanted = position.next.unwrap_or(0).max(chunk.first_offset);
                observer.error(error::CHUNK_CORRUPTED);
                observer.corrupted(
                    self.subscription,
                    chunk.end_offset().saturating_sub(wanted).max(1),
                );
                position.next = Some(position.next.unwrap_or(0).max(chunk.end_offset()));
                position.owed += 1;
                self.has_messages = true;
                continue;
            }
            // A subscription begins with the chunk that holds its offset, not with the offset.
            let (wanted, slot, subscription) = (position.next.unwrap_or(0), position.slot, self.subscription);
            chunk.messages(|offset, bytes| {
                if offset >= wanted {
                    observer.received(subscription, slot, message::body(bytes), received_ns);
                }
            })?;
            position.next = Some(wanted.max(chunk.end_offset()));
            position.owed += 1;
            self.has_messages = true;
        }
        Ok(())
    }

    fn on_answer(&mut self, at: usize, frame: Frame, observer: &mut Observer) -> Result<(), Lost> {
        let Some((link, session)) = self.links.get_mut(at) else {
            return Ok(());
        };
        let mut reader = Reader::new(session.fields(frame));
        match frame.key {
            key::SUBSCRIBE => {
                let (number, response) = wire::outcome(&mut reader)?;
                let number = number as u8;
                let Some(&position) = link.positions.get(usize::from(number & !END_BIT)) else {
                    return Err(Malformed("it answers what was not asked").into());
                };
                let position = &mut self.positions[position as usize];
                if response != code::OK {
                    let (kind, words) = wire::meaning(response);
                    let words = format!("stream {:?}: {words}", position.stream);
                    return Err(Lost::Refused(kind, words));
                }
                if number & END_BIT == 0 {
                    position.state = State::Reading(at);
                    position.has_begun = true;
                } else if let End::Asked(at_ns) = position.end {
                    position.end = End::Awaited(at_ns);
                }
            }
            // The server has dropped the subscriptions to this stream: it moves, or it was deleted.
            key::METADATA_UPDATE => {
                let (response, stream) = (reader.u16()?, wire::text(&mut reader)?);
                let is_ours = link
                    .positions
                    .iter()
                    .any(|position| self.positions[*position as usize].stream == stream);
                if is_ours {
                    let (kind, words) = wire::meaning(response);
                    return Err(Lost::Refused(kind, format!("stream {stream:?}: {words}")));
                }
            }
            // Only a credit that went wrong is answered, for instance one for a subscription that has just been dropped.
            key::UNSUBSCRIBE | key::CREDIT => {}
            _ => observer.error(crate::stream::kind::MALFORMED_ANSWER),
        }
        Ok(())
    }
}
