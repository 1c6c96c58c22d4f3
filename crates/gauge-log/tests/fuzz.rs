//! The protocol under rubbish: random bytes, mutated requests, connections that stop. Bounded, seeded, an ordinary test.
//!
//! `GAUGE_LOG_FUZZ_SECONDS` makes it run longer, `GAUGE_LOG_FUZZ_SEED` repeats a run.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something unexpected happens"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::*;
use gauge_log::api::APIS;
use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

/// The topic of the client that behaves.
const KEPT: &str = "kept-by-a-client-that-behaves";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Whole requests of many kinds, as a starting point for mutations.
fn seeds(client: &mut Client) -> Vec<Vec<u8>> {
    let values = [Bytes::from_static(b"a value"), Bytes::from_static(b"another")];
    let mut frames = Vec::new();
    for version in 3..=12 {
        frames.push(client.frame(&produce_request("t", 0, batch(&values, None)), version));
    }
    for version in 4..=12 {
        frames.push(client.frame(&fetch_request("t", 0, 0, 0), version));
    }
    let protocol = join_group_request::JoinGroupRequestProtocol::default().with_name(name("range"));
    let join = JoinGroupRequest::default()
        .with_group_id(GroupId(name("g")))
        .with_session_timeout_ms(6000)
        .with_protocol_type(name("consumer"))
        .with_protocols(vec![protocol]);
    let topic = create_topics_request::CreatableTopic::default()
        .with_name(topic_name("u"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    for version in 0..=9 {
        frames.push(client.frame(&join, version));
        frames.push(client.frame(&MetadataRequest::default().with_topics(Some(vec![])), version));
        frames.push(client.frame(&ApiVersionsRequest::default(), version.min(4)));
        frames.push(client.frame(
            &HeartbeatRequest::default().with_group_id(GroupId(name("g"))),
            version.min(4),
        ));
        frames.push(client.frame(
            &CreateTopicsRequest::default().with_topics(vec![topic.clone()]),
            version.clamp(2, 7),
        ));
        frames.push(client.frame(
            &DescribeGroupsRequest::default().with_groups(vec![GroupId(name("g"))]),
            version.min(5),
        ));
        frames.push(client.frame(
            &OffsetFetchRequest::default().with_group_id(GroupId(StrBytes::default())),
            version.clamp(1, 7),
        ));
        frames.push(client.frame(&ListOffsetsRequest::default(), version.clamp(1, 7)));
        frames.push(client.frame(
            &InitProducerIdRequest::default().with_transactional_id(None),
            version.min(4),
        ));
    }
    frames
}

fn mutate(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    let mut frame = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(frame.len());
        match random.below(7) {
            0 => frame[at] ^= 1 << random.below(8),
            1 => frame[at] = random.next() as u8,
            2 => frame.truncate(at.max(5)),
            3 => frame
                .splice(at..at, (0..random.below(20)).map(|_| 0xff))
                .for_each(drop),
            4 => {
                let extreme = [0x7fff_ffffu32, 0xffff_ffff, 0x8000_0000, 0, 0x00ff_ffff][random.below(5)];
                let end = (at + 4).min(frame.len());
                frame[at..end].copy_from_slice(&extreme.to_be_bytes()[..end - at]);
            }
            5 => {
                let api = APIS[random.below(APIS.len())];
                frame[4..6].copy_from_slice(&api.key.to_be_bytes());
            }
            _ => frame[6..8].copy_from_slice(&(random.below(16) as i16).to_be_bytes()),
        }
        if frame.len() < 9 {
            frame.resize(9, 0);
        }
    }
    // Mostly with a length that fits, so that the request is looked at.
    if random.below(10) > 0 {
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
    }
    frame
}

fn drain(stream: &mut TcpStream) {
    let mut sink = [0u8; 65_536];
    let _ = stream.set_read_timeout(Some(Duration::from_millis(2)));
    while matches!(stream.read(&mut sink), Ok(count) if count > 0) {}
}

#[test]
fn rubbish_neither_stops_nor_blocks_nor_bloats_the_log() {
    let directory = Directory::new("fuzz");
    let running = serve(settings(&directory.0, Durability::Async));
    let mut good = Client::connect(running.address);
    good.create_topic("t", 2);
    // A request that is mutated into another kind may delete the topics that it knows; this one's name it cannot hit upon.
    good.create_topic(KEPT, 1);
    let seed = number("GAUGE_LOG_FUZZ_SEED", 7);
    let mut random = Random(seed);
    let seeds = seeds(&mut good);
    let ends = Instant::now() + Duration::from_secs(number("GAUGE_LOG_FUZZ_SECONDS", 5));
    let mut frames = 0u64;
    let mut produced = 0;
    while Instant::now() < ends {
        let mut stream = TcpStream::connect(running.address).unwrap();
        for _ in 0..1 + random.below(8) {
            let frame = if random.below(8) == 0 {
                (0..random.below(300)).map(|_| random.next() as u8).collect()
            } else {
                let chosen = random.below(seeds.len());
                mutate(&mut random, &seeds[chosen])
            };
            frames += 1;
            if stream.write_all(&frame).is_err() {
                break;
            }
        }
        if random.below(4) == 0 {
            drain(&mut stream);
        }
        if random.below(50) == 0 {
            // Whoever behaves is served all the same.
            let (error, _) = good.produce(KEPT, 0, batch(&[Bytes::from_static(b"good")], None));
            assert_eq!(error, 0, "seed {seed}, frame {frames}");
            produced += 1;
        }
    }
    assert!(!running.shared.is_stopping(), "seed {seed}: the log stopped");
    let found = good
        .read_all(KEPT, 0, 0)
        .into_iter()
        .filter(|(_, value)| &value[..] == b"good")
        .count();
    assert_eq!(found, produced, "seed {seed}");
    assert!(running.shared.metrics.malformed.get() > 0);
    println!("{frames} frames");
    drop(good);
    stop(running);
}

#[test]
fn a_frame_that_claims_much_and_brings_little_takes_little_memory() {
    let directory = Directory::new("claims");
    let running = serve(settings(&directory.0, Durability::Async));
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(running.address).unwrap();
        stream.write_all(&(15u32 << 20).to_be_bytes()).unwrap();
        stream.write_all(&[0; 100]).unwrap();
        held.push(stream);
    }
    let mut good = Client::connect(running.address);
    good.create_topic("t", 1);
    let input_bytes = running
        .shared
        .input_bytes
        .load(std::sync::atomic::Ordering::Relaxed);
    assert!(
        input_bytes < 1 << 20,
        "{input_bytes} bytes for 200 beginnings of requests"
    );
    let mut huge = TcpStream::connect(running.address).unwrap();
    huge.write_all(&(17u32 << 20).to_be_bytes()).unwrap();
    assert_eq!(
        huge.read(&mut [0; 8]).unwrap(),
        0,
        "a request above the limit is not waited for"
    );
    stop(running);
}

#[test]
fn clients_that_send_without_end_and_clients_that_never_read_leave_room_for_others() {
    let directory = Directory::new("stalled");
    let running = serve(settings(&directory.0, Durability::Async));
    let mut good = Client::connect(running.address);
    good.create_topic("t", 1);
    let value = Bytes::from(vec![7u8; 900_000]);
    for _ in 0..100 {
        assert_eq!(
            good.produce("t", 0, batch(std::slice::from_ref(&value), None)).0,
            0
        );
    }
    let mut held = Vec::new();
    for _ in 0..100 {
        // Asks again and again and reads nothing.
        let mut client = Client::connect(running.address);
        for _ in 0..20 {
            client.send(&fetch_request("t", 0, 0, 0), 11).unwrap();
        }
        held.push(client);
        // Begins a large request and does not end it.
        let mut begun = Client::connect(running.address);
        begun.stream.set_nonblocking(true).unwrap();
        let _ = begun.stream.write(&(15u32 << 20).to_be_bytes());
        let _ = begun.stream.write(&vec![0; 1 << 20]);
        held.push(begun);
    }
    for _ in 0..20 {
        assert_eq!(
            good.produce("t", 0, batch(std::slice::from_ref(&value), None)).0,
            0
        );
    }
    assert_eq!(good.read_all("t", 0, 0).len(), 120);
    let shared = &running.shared;
    let input_bytes = shared.input_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let output_bytes = shared.output_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let chunk_bytes = shared.cache.memory_bytes();
    assert!(chunk_bytes <= shared.settings.chunks_max() << 22);
    assert!(
        input_bytes <= shared.settings.input_bytes_max() + (16 << 20) + 200 * (64 << 10),
        "{input_bytes} bytes"
    );
    assert!(
        output_bytes <= shared.settings.output_bytes_max(),
        "{output_bytes} bytes"
    );
    drop(held);
    stop(running);
}
