//! Once its pools are filled, the producing client allocates nothing: neither per message nor per batch.

#![allow(clippy::unwrap_used, reason = "a test ends when something is not as it says")]

mod scripted;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use gauge_client::kafka::Kafka;
use gauge_client::{Keys, LaneClient, LaneSpec, Protocol};
use gauge_load::clock::monotonic_ns;
use gauge_load::{Arrival, Emitter, EmitterSpec, Observer, PayloadPool, ScheduleSpec};
use scripted::{Server, specs};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more, and is not the one that is looked at.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn run(client: &mut dyn LaneClient, observer: &mut Observer, emitter: &mut Emitter, messages: u64) {
    let until = emitter.sequence() + messages;
    while emitter.sequence() < until || client.waiting_msgs() > 0 {
        if emitter.sequence() < until {
            client.offer(0, emitter, observer, monotonic_ns());
        }
        client.drive(observer, monotonic_ns()).unwrap();
        client.wait(monotonic_ns() + 1_000_000);
    }
}

#[test]
fn producing_allocates_nothing_once_the_pools_are_filled() {
    let server = Server::start(4);
    let spec = LaneSpec {
        closed_loop: true,
        idempotence: true,
        ..specs::spec(4, Keys::RoundRobin, 100, specs::batches(16 << 10, 8 << 20))
    };
    let endpoint = specs::endpoint(server.address);
    let mut observer = Observer::new(1, true, &[0], 0, 4);
    let mut client = Kafka.lane(&endpoint, spec).unwrap();
    client
        .prepare(&mut observer, monotonic_ns() + 10_000_000_000)
        .unwrap();
    let mut emitter = Emitter::new(&EmitterSpec {
        run: 1,
        producer: 0,
        schedule: ScheduleSpec {
            arrival: Arrival::Closed,
            rate_msgs_s: 0.0,
            ramp: None,
            stagger: 0.0,
            stop_ns: None,
            seed: 1,
        },
        pool: Arc::new(PayloadPool::generate(100, 1.0, 4, 1)),
        key_count: 0,
        changes: Vec::new(),
        skew: None,
    });
    let start_ns = monotonic_ns();
    observer.start(start_ns);
    emitter.start(start_ns);
    // Each time about 250 batches of 150 messages. How many are under way at once depends on the server's speed, and a pool that has to
    // grow by one more batch allocates a few times: so the quietest time counts.
    let fewest = (0..6)
        .map(|_| {
            let before = ALLOCATIONS.get();
            run(client.as_mut(), &mut observer, &mut emitter, 40_000);
            ALLOCATIONS.get() - before
        })
        .min();
    assert!(
        fewest.is_some_and(|allocations| allocations < 20),
        "{fewest:?} allocations for 40,000 messages"
    );
    client.abandon(&mut observer);
}
