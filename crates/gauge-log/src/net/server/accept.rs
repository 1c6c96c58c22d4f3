//! Connections come and go.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Server;
use super::memory::leave_turn;
use crate::access::exchange::Exchange;
use crate::broker::Broker;
use crate::net::connection::{Connection, Parked};
use crate::net::transport::Transport;
use crate::shared::lock;

impl Server<'_> {
    pub(super) fn accept(&mut self) {
        for _ in 0..64 {
            let Some(listener) = &self.listener else { return };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    self.turn_away();
                    return;
                }
                Err(_) => return,
            };
            let socket = OwnedFd::from(stream);
            let thread = self.next_thread;
            self.next_thread = (thread + 1) % self.shared.settings.threads;
            if thread == self.index {
                self.admit(socket);
            } else {
                let mailbox = &self.shared.mailboxes[usize::from(thread)];
                lock(&mailbox.mail).accepted.push(socket);
                mailbox.wake.signal();
            }
        }
    }

    /// There are no descriptors left: closes the connection that waits for longest. Left waiting, it would keep this thread awake for nothing.
    fn turn_away(&mut self) {
        self.reserve = None;
        if let Some(listener) = &self.listener {
            drop(listener.accept());
        }
        self.reserve = File::open("/dev/null").ok();
        self.shared.metrics.evicted.add(1);
    }

    pub(super) fn admit(&mut self, socket: OwnedFd) {
        let number = self.next_number;
        self.next_number += 1;
        let one: libc::c_int = 1;
        let size = size_of_val(&one) as libc::socklen_t;
        let descriptor = socket.as_raw_fd();
        // SAFETY: plain system calls on a descriptor that `socket` owns; the option lives during the call.
        unsafe {
            libc::setsockopt(
                descriptor,
                libc::IPPROTO_TCP,
                libc::TCP_NODELAY,
                (&raw const one).cast(),
                size,
            );
            libc::fcntl(
                descriptor,
                libc::F_SETFL,
                libc::fcntl(descriptor, libc::F_GETFL) | libc::O_NONBLOCK,
            );
        }
        let access = &self.shared.settings.access;
        let Ok(transport) = Transport::new(access.tls.as_ref()) else {
            return;
        };
        if self.poll.add_connection(descriptor, number).is_err() {
            return;
        }
        let now = Instant::now();
        let mut connection = Connection::new(socket, transport, number, now);
        connection.exchange = access.users.is_some().then(Exchange::default);
        connection.is_stranger = access.is_guarded();
        self.connections.insert(number, connection);
        self.shared.metrics.connections.add(1);
        if access.is_guarded() {
            self.seat_stranger(number, now);
        }
    }

    pub(super) fn close(&mut self, number: u64) {
        let Some(mut connection) = self.connections.remove(&number) else {
            return;
        };
        connection.transport.end(connection.socket.as_raw_fd());
        if connection.is_stranger {
            self.strangers.remove(number);
        }
        self.shared.metrics.connections.add(-1);
        // Or no large request would ever be received again.
        leave_turn(self.shared, self.index, number);
        self.shared
            .input_bytes
            .fetch_sub(connection.input_charged, Ordering::Relaxed);
        self.shared
            .output_bytes
            .fetch_sub(connection.unread_bytes, Ordering::Relaxed);
        let id = self.id(number);
        {
            let mut broker = self.shared.broker();
            let Broker { topics, sessions, .. } = &mut *broker;
            sessions.end(topics, id);
        }
        match connection.parked {
            Some(Parked::Read { request, deadline }) => {
                self.deadlines.remove(&(deadline, number));
                let bytes = request.memory_bytes();
                self.shared.parked_bytes.fetch_sub(bytes, Ordering::Relaxed);
                request.forget_waiter(&mut self.shared.broker(), id);
            }
            Some(Parked::Limit { until }) => {
                self.deadlines.remove(&(until, number));
            }
            Some(Parked::Group) => self.shared.broker().groups.connection_closed(id),
            Some(Parked::Memory) | None => {}
        }
    }
}
