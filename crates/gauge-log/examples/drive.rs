//! A load driver for quick comparisons of the log with a Kafka broker on one machine: `drive HOST:PORT TOPIC SECONDS MODE ...`.
//!
//! - `paced RATE RECORD_BYTES PARTITIONS`: an open loop; every millisecond one request with what is due, spread over partitions in turn. Latency runs from the intended time of each
//!   record to its acknowledgement.
//! - `max RECORD_BYTES PARTITIONS BATCH_BYTES IN_FLIGHT`: a closed loop for throughput.
//! - `fill RECORD_BYTES PARTITIONS BATCH_RECORDS MB`: a closed loop that leaves a backlog; each request has one batch for each of up to 16 partitions. `SECONDS` is not used.
//! - `create PARTITIONS [NAME=VALUE ...]`: creates the topic with these settings. `SECONDS` is not used.
//! - `read PARTITIONS`: reads everything from the beginning and reports the rate.
//!
//! The topic must be there, except for `create`. One connection, one thread for sending and one for receiving. Records are valid record batches made once and sent again and again.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

/// A record batch of `count` records with `value_bytes` zero bytes each (format 2, uncompressed).
fn batch(count: usize, value_bytes: usize) -> Vec<u8> {
    let mut records = Vec::new();
    for index in 0..count {
        let mut body = vec![0u8];
        varint(&mut body, 0);
        varint(&mut body, index as i64);
        varint(&mut body, -1);
        varint(&mut body, value_bytes as i64);
        body.resize(body.len() + value_bytes, 0);
        varint(&mut body, 0);
        varint(&mut records, body.len() as i64);
        records.extend(body);
    }
    let mut out = vec![0u8; 61];
    out[8..12].copy_from_slice(&((49 + records.len()) as i32).to_be_bytes());
    out[16] = 2;
    out[23..27].copy_from_slice(&(count as i32 - 1).to_be_bytes());
    // A broker may delete what looks old.
    let now_ms = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |age| age.as_millis() as i64);
    out[27..35].copy_from_slice(&now_ms.to_be_bytes());
    out[35..43].copy_from_slice(&now_ms.to_be_bytes());
    out[43..57].fill(0xff);
    out[57..61].copy_from_slice(&(count as i32).to_be_bytes());
    out.extend(records);
    let crc = gauge_load::crc::crc32c(&out[21..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    out
}

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)) as u64;
    while zigzag >= 0x80 {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

fn header(key: i16, version: i16) -> Vec<u8> {
    let mut out = vec![0u8; 4];
    out.extend(key.to_be_bytes());
    out.extend(version.to_be_bytes());
    out.extend(0i32.to_be_bytes());
    out.extend(5i16.to_be_bytes());
    out.extend(b"drive");
    out
}

fn finish(mut frame: Vec<u8>) -> Vec<u8> {
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// A Produce request (version 7) with the given batches by partition.
fn produce(topic: &str, batches: &[(i32, &[u8])]) -> Vec<u8> {
    let mut out = header(0, 7);
    out.extend((-1i16).to_be_bytes());
    out.extend((-1i16).to_be_bytes());
    out.extend(30_000i32.to_be_bytes());
    out.extend(1i32.to_be_bytes());
    out.extend((topic.len() as i16).to_be_bytes());
    out.extend(topic.as_bytes());
    out.extend((batches.len() as i32).to_be_bytes());
    for (partition, batch) in batches {
        out.extend(partition.to_be_bytes());
        out.extend((batch.len() as i32).to_be_bytes());
        out.extend(*batch);
    }
    finish(out)
}

/// A Fetch request (version 4).
fn fetch(topic: &str, offsets: &[i64]) -> Vec<u8> {
    let mut out = header(1, 4);
    out.extend((-1i32).to_be_bytes());
    out.extend(200i32.to_be_bytes());
    out.extend(1i32.to_be_bytes());
    out.extend((8i32 << 20).to_be_bytes());
    out.push(0);
    out.extend(1i32.to_be_bytes());
    out.extend((topic.len() as i16).to_be_bytes());
    out.extend(topic.as_bytes());
    out.extend((offsets.len() as i32).to_be_bytes());
    for (partition, offset) in offsets.iter().enumerate() {
        out.extend((partition as i32).to_be_bytes());
        out.extend(offset.to_be_bytes());
        out.extend((1i32 << 20).to_be_bytes());
    }
    finish(out)
}

fn read_frame(stream: &mut TcpStream, frame: &mut Vec<u8>) -> std::io::Result<()> {
    let mut length = [0u8; 4];
    stream.read_exact(&mut length)?;
    frame.resize(u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(frame)
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Fails on the first partition with an error in a Produce response.
fn check_produced(frame: &[u8], topic: &str) {
    let mut at = 4 + 4 + 2 + topic.len();
    let count = i32_at(frame, at);
    at += 4;
    for _ in 0..count {
        let error = i16::from_be_bytes([frame[at + 4], frame[at + 5]]);
        assert_eq!(error, 0, "the broker answered with error {error}");
        at += 4 + 2 + 8 + 8 + 8;
    }
}

fn percentile(sorted: &[u32], share: f64) -> f64 {
    let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(f64::NAN, |&us| f64::from(us) / 1000.0)
}

fn report(mut latencies_us: Vec<u32>, elapsed: Duration, record_bytes: usize) {
    latencies_us.sort_unstable();
    let rate = latencies_us.len() as f64 / elapsed.as_secs_f64();
    println!(
        "{rate:.0} msgs/s {:.1} MB/s | publish_ms p50 {:.3} p95 {:.3} p99 {:.3} p99.9 {:.3} max {:.3}",
        rate * record_bytes as f64 / 1e6,
        percentile(&latencies_us, 0.5),
        percentile(&latencies_us, 0.95),
        percentile(&latencies_us, 0.99),
        percentile(&latencies_us, 0.999),
        percentile(&latencies_us, 1.0)
    );
}

fn paced(
    mut stream: TcpStream,
    topic: String,
    seconds: f64,
    rate: f64,
    record_bytes: usize,
    partitions: i32,
) {
    let mut reader = stream.try_clone().expect("a socket can be cloned");
    let (sender, receiver) = mpsc::channel::<(Instant, u64, u64)>();
    let started = Instant::now();
    let warm_up = 2.0;
    let name = topic.clone();
    let acknowledgements = std::thread::spawn(move || {
        let mut latencies_us = Vec::new();
        let mut frame = Vec::new();
        while let Ok((begin, from, to)) = receiver.recv() {
            read_frame(&mut reader, &mut frame).expect("the broker answers");
            check_produced(&frame, &name);
            let now = begin.elapsed();
            for index in from..to {
                let intended = Duration::from_secs_f64(index as f64 / rate);
                if intended.as_secs_f64() > warm_up {
                    latencies_us.push((now.saturating_sub(intended)).as_micros() as u32);
                }
            }
        }
        latencies_us
    });
    let mut sent = 0u64;
    let mut partition = 0;
    let mut tick = started;
    while started.elapsed().as_secs_f64() < seconds + warm_up {
        tick += Duration::from_millis(1);
        std::thread::sleep(tick.saturating_duration_since(Instant::now()));
        let due = (started.elapsed().as_secs_f64() * rate) as u64;
        let count = (due - sent) as usize;
        if count == 0 {
            continue;
        }
        // Spread over up to 16 partitions, as a client with round-robin batches does.
        let parts = 16.min(count).min(partitions as usize);
        let sizes: Vec<usize> = (0..parts)
            .map(|part| count / parts + usize::from(part < count % parts))
            .collect();
        let made: Vec<Vec<u8>> = sizes.iter().map(|&size| batch(size, record_bytes)).collect();
        let batches: Vec<(i32, &[u8])> = made
            .iter()
            .map(|batch| {
                partition = (partition + 1) % partitions;
                (partition, &batch[..])
            })
            .collect();
        stream
            .write_all(&produce(&topic, &batches))
            .expect("the broker reads");
        sender.send((started, sent, due)).expect("the receiver runs");
        sent = due;
    }
    drop(sender);
    report(
        acknowledgements.join().expect("the receiver ends"),
        Duration::from_secs_f64(seconds),
        record_bytes,
    );
}

fn max(
    mut stream: TcpStream,
    topic: &str,
    seconds: f64,
    record_bytes: usize,
    partitions: i32,
    batch_bytes: usize,
    in_flight: usize,
) {
    let count = (batch_bytes / (record_bytes + 10)).max(1);
    let one = batch(count, record_bytes);
    let requests: Vec<Vec<u8>> = (0..partitions)
        .map(|partition| produce(topic, &[(partition, &one)]))
        .collect();
    let mut sent_at = VecDeque::new();
    let mut frame = Vec::new();
    let started = Instant::now();
    let (mut next, mut records) = (0, 0);
    let mut latencies_us = Vec::new();
    while started.elapsed().as_secs_f64() < seconds {
        while sent_at.len() < in_flight {
            stream
                .write_all(&requests[next % requests.len()])
                .expect("the broker reads");
            sent_at.push_back(Instant::now());
            next += 1;
        }
        read_frame(&mut stream, &mut frame).expect("the broker answers");
        check_produced(&frame, topic);
        let sent = sent_at.pop_front().expect("one is in flight");
        latencies_us.push(sent.elapsed().as_micros() as u32);
        records += count;
    }
    let elapsed = started.elapsed().as_secs_f64();
    latencies_us.sort_unstable();
    println!(
        "{:.0} msgs/s {:.1} MB/s | service_ms p50 {:.2} p99 {:.2}",
        records as f64 / elapsed,
        (records * record_bytes) as f64 / 1e6 / elapsed,
        percentile(&latencies_us, 0.5),
        percentile(&latencies_us, 0.99)
    );
}

/// Leaves `mb` MB of batches with `batch_records` records each.
fn fill(
    mut stream: TcpStream,
    topic: &str,
    record_bytes: usize,
    partitions: usize,
    batch_records: usize,
    mb: f64,
) {
    let one = batch(batch_records, record_bytes);
    let requests: Vec<(Vec<u8>, usize)> = (0..partitions)
        .step_by(16)
        .map(|first| {
            let parts: Vec<(i32, &[u8])> = (first..partitions.min(first + 16))
                .map(|partition| (partition as i32, &one[..]))
                .collect();
            (produce(topic, &parts), parts.len() * one.len())
        })
        .collect();
    let mut frame = Vec::new();
    let started = Instant::now();
    let (mut bytes, mut in_flight, mut next) = (0, 0, 0);
    while (bytes as f64) < mb * 1e6 || in_flight > 0 {
        while in_flight < 16 && (bytes as f64) < mb * 1e6 {
            let (request, size) = &requests[next % requests.len()];
            stream.write_all(request).expect("the broker reads");
            bytes += size;
            next += 1;
            in_flight += 1;
        }
        read_frame(&mut stream, &mut frame).expect("the broker answers");
        check_produced(&frame, topic);
        in_flight -= 1;
    }
    let elapsed = started.elapsed().as_secs_f64();
    println!(
        "{:.1} MB in {elapsed:.2} s: {:.1} MB/s",
        bytes as f64 / 1e6,
        bytes as f64 / 1e6 / elapsed
    );
}

/// Creates a topic with one replica (CreateTopics, version 2).
fn create(mut stream: TcpStream, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut out = header(19, 2);
    let string = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as i16).to_be_bytes());
        out.extend(text.as_bytes());
    };
    out.extend(1i32.to_be_bytes());
    string(&mut out, topic);
    out.extend(partitions.to_be_bytes());
    out.extend(1i16.to_be_bytes());
    out.extend(0i32.to_be_bytes());
    out.extend((settings.len() as i32).to_be_bytes());
    for (name, value) in settings {
        string(&mut out, name);
        string(&mut out, value);
    }
    out.extend(120_000i32.to_be_bytes());
    out.push(0);
    stream.write_all(&finish(out)).expect("the broker reads");
    let mut frame = Vec::new();
    read_frame(&mut stream, &mut frame).expect("the broker answers");
    let at = 4 + 4 + 4 + 2 + topic.len();
    let error = i16::from_be_bytes([frame[at], frame[at + 1]]);
    assert_eq!(error, 0, "the broker answered with error {error}");
    println!("created");
}

fn read(mut stream: TcpStream, topic: &str, partitions: usize, slow_after: f64) {
    let mut offsets = vec![0i64; partitions];
    let mut frame = Vec::new();
    let started = Instant::now();
    let (mut bytes, mut records) = (0u64, 0u64);
    let mut last = Instant::now();
    loop {
        stream
            .write_all(&fetch(topic, &offsets))
            .expect("the broker reads");
        read_frame(&mut stream, &mut frame).expect("the broker answers");
        let mut at = 4 + 4 + 4 + 2 + topic.len();
        let count = i32_at(&frame, at);
        at += 4;
        let mut behind = false;
        for _ in 0..count {
            let partition = i32_at(&frame, at) as usize;
            let high_watermark = i64_at(&frame, at + 6);
            at += 4 + 2 + 8 + 8;
            at += 4 + 16 * i32_at(&frame, at).max(0) as usize;
            let length = i32_at(&frame, at).max(0) as usize;
            at += 4;
            let (mut from, end) = (at, at + length);
            while from + 61 <= end {
                let size = 12 + i32_at(&frame, from + 8) as usize;
                if from + size > end {
                    break;
                }
                let next = i64_at(&frame, from) + i64::from(i32_at(&frame, from + 23)) + 1;
                records += (next - offsets[partition]) as u64;
                offsets[partition] = next;
                bytes += size as u64;
                from += size;
            }
            behind |= high_watermark - offsets[partition] > 1000;
            at = end;
        }
        if last.elapsed().as_secs_f64() > slow_after || !behind {
            break;
        }
        last = Instant::now();
    }
    let elapsed = started.elapsed().as_secs_f64();
    println!(
        "{records} records, {:.1} MB in {elapsed:.2} s: {:.0} msgs/s {:.1} MB/s",
        bytes as f64 / 1e6,
        records as f64 / elapsed,
        bytes as f64 / 1e6 / elapsed
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| -> f64 {
        arguments
            .get(index)
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| {
                panic!("argument {index} should be a number; see the first lines of this file")
            })
    };
    let text = |index: usize| {
        arguments
            .get(index)
            .cloned()
            .unwrap_or_else(|| panic!("argument {index} is missing; see the first lines of this file"))
    };
    let stream = TcpStream::connect(text(0)).expect("the broker listens");
    stream.set_nodelay(true).expect("an option of every socket");
    let (topic, seconds) = (text(1), number(2));
    match text(3).as_str() {
        "paced" => paced(
            stream,
            topic,
            seconds,
            number(4),
            number(5) as usize,
            number(6) as i32,
        ),
        "max" => max(
            stream,
            &topic,
            seconds,
            number(4) as usize,
            number(5) as i32,
            number(6) as usize,
            number(7) as usize,
        ),
        "fill" => fill(
            stream,
            &topic,
            number(4) as usize,
            number(5) as usize,
            number(6) as usize,
            number(7),
        ),
        "create" => {
            let settings: Vec<(&str, &str)> = arguments[5..]
                .iter()
                .filter_map(|setting| setting.split_once('='))
                .collect();
            create(stream, &topic, number(4) as i32, &settings);
        }
        "read" => read(stream, &topic, number(4) as usize, 10.0),
        mode => panic!("unknown mode {mode}; see the first lines of this file"),
    }
}
