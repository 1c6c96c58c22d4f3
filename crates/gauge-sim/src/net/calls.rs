//! The wires as clients call them: what they connect to, read, write and wait for.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

use gauge_client::world::{Network, PollerId, SocketId};
use gauge_client::{Interest, Ready};
use gauge_load::clock::simulated;

use super::{END_NS, Event, PORT, Sim, Socket, Stage, Told};
use crate::marks::Mark;
use crate::system::System;
use crate::truth::Seen;

/// Looks at the sockets between which nothing happens and nobody sleeps: whoever makes more of them runs in circles.
const CIRCLES_MAX: u32 = 2_000;
/// Looks at the sockets in all: a trial here needs some ten thousand.
const LOOKS_MAX: u64 = 1_500_000;

impl<S: System> Network for Sim<S> {
    fn poller(&self) -> PollerId {
        let mut world = self.world.borrow_mut();
        world.woken.push(false);
        world.woken.len() as u64 - 1
    }

    fn connect(&self, to: SocketAddr) -> io::Result<SocketId> {
        let mut world = self.world.borrow_mut();
        let node = usize::from(to.port() - PORT);
        let at = world.sockets.len();
        let (is_down, is_silent) = (
            !world.nodes[node].is_up,
            world.nodes[node].silent_until_ns > world.now_ns(),
        );
        let began_ns = world.now_ns();
        world.sockets.push(Socket {
            node,
            stage: Stage::Connecting,
            poller: u64::MAX,
            token: 0,
            interest: Interest::Read,
            up: Vec::new(),
            up_come: 0,
            up_taken: 0,
            up_free_ns: 0,
            down: Vec::new(),
            down_come: 0,
            down_taken: 0,
            down_free_ns: 0,
            ends: VecDeque::new(),
            taken_in_all: 0,
            pushed_in_all: 0,
            come_in_all: 0,
            comings: VecDeque::new(),
            empty_ns: began_ns,
            up_seen: 0,
            is_silent,
            up_pieces: 0,
            began_ns,
            handed: Vec::new(),
            has_left: false,
            held: VecDeque::new(),
            is_greeted: false,
            own: S::Socket::default(),
        });
        if !is_silent {
            let delay_ns = 2 * world.scenario.delay_ns;
            world.after(delay_ns, Event::Connected(at, is_down));
        }
        Ok(at as SocketId)
    }

    fn is_connected(&self, socket: SocketId) -> io::Result<bool> {
        match self.world.borrow().sockets[socket as usize].stage {
            Stage::Connecting => Ok(false),
            Stage::Open => Ok(true),
            Stage::Refused => Err(io::ErrorKind::ConnectionRefused.into()),
            Stage::Broken | Stage::Closed => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    fn read(&self, socket: SocketId, into: &mut [u8]) -> io::Result<usize> {
        let mut world = self.world.borrow_mut();
        let (turn_ns, now_ns) = (world.turn_ns, world.now_ns());
        let reading_ns = world.scenario.reading_ns;
        let at = socket as usize;
        let socket = &mut world.sockets[at];
        let empty_ns = socket.empty_ns;
        match socket.stage {
            Stage::Open => {}
            Stage::Broken | Stage::Refused => return Err(io::ErrorKind::ConnectionReset.into()),
            Stage::Connecting | Stage::Closed => return Err(io::ErrorKind::NotConnected.into()),
        }
        let bytes = into.len().min(socket.down_come - socket.down_taken);
        if bytes == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let from = socket.down_taken;
        into[..bytes].copy_from_slice(&socket.down[from..from + bytes]);
        socket.down_taken += bytes;
        socket.taken_in_all += bytes as u64;
        if socket.down_taken == socket.down.len() {
            socket.down.clear();
            (socket.down_come, socket.down_taken) = (0, 0);
        }
        let mut told = Vec::new();
        while let Some(&(end, _)) = socket.ends.front()
            && end <= socket.taken_in_all
        {
            while socket.comings.front().is_some_and(|(come, _)| *come < end) {
                socket.comings.pop_front();
            }
            let come_ns = socket.comings.front().map_or(i64::MAX, |(_, at_ns)| *at_ns);
            told.extend(socket.ends.pop_front().map(|(_, told)| (told, come_ns)));
        }
        for (told, come_ns) in told {
            // Whoever reads looks at the clock next.
            let seen = Seen {
                read_ns: now_ns + reading_ns,
                turn_ns,
                come_ns,
                empty_ns,
            };
            match told {
                Told::Nothing => {}
                Told::Acked(messages) => {
                    world.truth.acknowledged(&messages, seen);
                    S::answered(&mut world, at);
                }
                Told::AckedMaybeAgain(messages) => world.truth.first_acknowledged(&messages, seen),
                Told::Delivered(delivery) => world.truth.delivered(delivery, seen),
                Told::Own(what) => S::heard(&mut world, at, what),
            }
        }
        world.circles = 0;
        Ok(bytes)
    }

    fn write_vectored(&self, socket: SocketId, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        let at = socket as usize;
        match world.sockets[at].stage {
            Stage::Open => {}
            Stage::Broken | Stage::Refused => return Err(io::ErrorKind::BrokenPipe.into()),
            Stage::Connecting | Stage::Closed => return Err(io::ErrorKind::NotConnected.into()),
        }
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        let travelling = world.sockets[at].up.len() - world.sockets[at].up_come;
        let mut bytes = offered.min(world.scenario.room_bytes.saturating_sub(travelling));
        if bytes > 1 && world.rng.f64() < world.scenario.partial_writes {
            bytes = world.rng.usize(1..bytes);
        }
        if bytes < offered {
            world.marks.set(Mark::PartialWrite);
        }
        if bytes == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (now_ns, rate, delay_ns) = (world.now_ns(), world.scenario.bytes_s, world.scenario.delay_ns);
        let turn_ns = world.turn_ns;
        // A node may have taken the first messages of a piece that is not written whole yet.
        let must_be_seen = world.scenario.acks == 0;
        let socket = &mut world.sockets[at];
        if socket.up_taken == socket.up.len() && (!must_be_seen || socket.up_seen == socket.up.len()) {
            socket.up.clear();
            (socket.up_come, socket.up_taken) = (0, 0);
            (socket.up_seen, socket.up_pieces) = (0, 0);
            socket.handed.clear();
        }
        if !std::mem::replace(&mut socket.has_left, bytes < offered) {
            socket.handed.push((socket.up.len(), turn_ns));
        }
        let mut left = bytes;
        for slice in slices {
            let part = slice.len().min(left);
            socket.up.extend_from_slice(&slice[..part]);
            left -= part;
            if part == slice.len() {
                socket.up_pieces = socket.up.len();
            }
        }
        let gone_ns = socket.up_free_ns.max(now_ns) + (bytes as i64 * 1_000_000_000) / rate;
        socket.up_free_ns = gone_ns;
        let is_silent = socket.is_silent;
        if !is_silent {
            world.at(gone_ns + delay_ns, Event::Up(at, bytes));
        }
        if world.scenario.acks == 0 {
            S::wrote(world, at);
        }
        world.circles = 0;
        Ok(bytes)
    }

    fn close(&self, socket: SocketId) {
        let mut world = self.world.borrow_mut();
        let at = socket as usize;
        if world.sockets[at].stage == Stage::Open {
            if world.plan.is_calm() && !world.may_end() && S::is_in_use(&world, at) {
                let (node, lasted_ns) = (
                    world.sockets[at].node,
                    world.now_ns() - world.sockets[at].began_ns,
                );
                world.truth.offend(|| {
                    format!("a sound connection to node {node} was closed by the client after {lasted_ns} ns")
                });
            }
            S::over(&mut world, at, false);
        }
        let socket = &mut world.sockets[at];
        socket.stage = Stage::Closed;
        socket.poller = u64::MAX;
        socket.ends.clear();
        socket.down = Vec::new();
        socket.down_come = 0;
        socket.down_taken = 0;
    }

    fn watch(&self, poller: PollerId, socket: SocketId, token: u64, interest: Interest) {
        let mut world = self.world.borrow_mut();
        let socket = &mut world.sockets[socket as usize];
        (socket.poller, socket.token, socket.interest) = (poller, token, interest);
    }

    fn wait(&self, poller: PollerId, until_ns: i64, ready: &mut Vec<Ready>) {
        // What is due has happened, whoever sleeps.
        let began_ns = simulated::now_ns().unwrap_or(0);
        while self.step(i64::MIN) {}
        let mut has_slept = false;
        self.world.borrow_mut().looks += 1;
        loop {
            let mut world = self.world.borrow_mut();
            world.ready(poller, ready);
            let is_woken = std::mem::take(&mut world.woken[poller as usize]);
            let now_ns = world.now_ns();
            if let Some(why) = world.fatal.clone() {
                drop(world);
                self.give_up(why);
            }
            if world.looks > LOOKS_MAX {
                drop(world);
                self.give_up(format!(
                    "the trial does not end: the lane has looked {LOOKS_MAX} times at its sockets"
                ));
            }
            if now_ns > END_NS {
                drop(world);
                self.give_up("the trial does not end within ten minutes".to_owned());
            }
            if !ready.is_empty() || is_woken || now_ns >= until_ns {
                if has_slept || now_ns > began_ns || is_woken {
                    world.circles = 0;
                } else {
                    world.circles += 1;
                    if world.circles > CIRCLES_MAX {
                        drop(world);
                        self.give_up(format!("the lane runs in circles: it has looked {CIRCLES_MAX} times at its sockets, and nothing happened"));
                    }
                }
                if has_slept {
                    // A thread that slept comes late.
                    let late_ns = world.scenario.wake_ns;
                    let late_ns = world.draw(0, late_ns);
                    simulated::advance_to(now_ns + late_ns);
                }
                let slept_ns = world.now_ns() - began_ns;
                world.looked(poller, if has_slept { slept_ns } else { 0 }, ready);
                world.look_at_probes();
                return;
            }
            drop(world);
            has_slept = true;
            if !self.step(until_ns) {
                simulated::advance_to(until_ns);
            }
        }
    }

    fn wake(&self, poller: PollerId) {
        self.world.borrow_mut().woken[poller as usize] = true;
    }

    fn unique(&self) -> u64 {
        let mut world = self.world.borrow_mut();
        world.names += 1;
        world.names
    }
}
