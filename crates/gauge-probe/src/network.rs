//! Loopback TCP: what the kernel's network stack gives when no wire is in the way, which is the road of every trial on one machine.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::ProbeError;
use crate::report::{Network, RoundTripUs, rounded};
use crate::samples::Samples;

const CHUNK_BYTES: usize = 256 << 10;
const MESSAGE_BYTES: usize = 100;
/// Round trips before the first that counts: they pay for waking the connection up.
const WARM_UP_ROUND_TRIPS: usize = 200;
/// Far beyond any pause of a living machine: reaching it ends the probe with an error in place of a hang.
const STALL_LIMIT: Duration = Duration::from_secs(10);

/// Measures bandwidth for one duration and round trips for the other, at most `round_trips_max` of them.
pub fn measure(
    bandwidth: Duration,
    round_trip: Duration,
    round_trips_max: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<Network, ProbeError> {
    progress("loopback bandwidth");
    let loopback_mb_s = bandwidth_mb_s(bandwidth)
        .map_err(|error| ProbeError::from_machine("send over loopback TCP", &error))?;
    progress("loopback round trip");
    let mut samples = Samples::with_limit(round_trips_max)
        .map_err(|_| ProbeError::Machine("the probe could not get memory for its samples".into()))?;
    round_trips(round_trip, &mut samples)
        .map_err(|error| ProbeError::from_machine("exchange messages over loopback TCP", &error))?;
    Ok(Network {
        loopback_mb_s,
        round_trip_us: RoundTripUs::of(&mut samples),
    })
}

/// Two ends of one connection on 127.0.0.1, on a port that the kernel picks.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, peer) = listener.accept()?;
    if peer != client.local_addr()? {
        return Err(io::Error::other(
            "another process connected to the probe's port; try again",
        ));
    }
    for end in [&client, &server] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(STALL_LIMIT))?;
        end.set_write_timeout(Some(STALL_LIMIT))?;
    }
    Ok((client, server))
}

fn bandwidth_mb_s(duration: Duration) -> io::Result<f64> {
    let (mut sender, mut receiver) = connection()?;
    let start = Instant::now();
    let sending = thread::Builder::new()
        .name("loopback".into())
        .spawn(move || -> io::Result<()> {
            let chunk = vec![0x5au8; CHUNK_BYTES];
            while start.elapsed() < duration {
                sender.write_all(&chunk)?;
            }
            sender.shutdown(Shutdown::Write)
        })?;
    let mut chunk = vec![0u8; CHUNK_BYTES];
    let mut received_bytes = 0u64;
    loop {
        match receiver.read(&mut chunk)? {
            0 => break,
            count => received_bytes += count as u64,
        }
    }
    let elapsed = start.elapsed();
    sending
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(rounded(
        received_bytes as f64 / 1e6 / elapsed.as_secs_f64().max(1e-9),
        1,
    ))
}

fn round_trips(duration: Duration, samples: &mut Samples) -> io::Result<()> {
    let (mut client, server) = connection()?;
    let echoing = thread::Builder::new()
        .name("echo".into())
        .spawn(move || echo(server))?;
    let mut message = [0x5au8; MESSAGE_BYTES];
    for _ in 0..WARM_UP_ROUND_TRIPS {
        client.write_all(&message)?;
        client.read_exact(&mut message)?;
    }
    let start = Instant::now();
    while start.elapsed() < duration && !samples.is_full() {
        let sent_ns = clock::monotonic_ns();
        client.write_all(&message)?;
        client.read_exact(&mut message)?;
        samples.record(clock::monotonic_ns() - sent_ns);
    }
    drop(client);
    echoing
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sends back what comes until the other end closes.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0u8; MESSAGE_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_a_bandwidth_and_a_round_trip() {
        let mut steps = Vec::new();
        let network = measure(
            Duration::from_millis(20),
            Duration::from_millis(20),
            100,
            &mut |step| steps.push(step.to_string()),
        )
        .unwrap();
        assert!(network.loopback_mb_s > 1.0, "{network:?}");
        assert!((1..=100).contains(&network.round_trip_us.count), "{network:?}");
        assert!(network.round_trip_us.p50 > 0.0 && network.round_trip_us.p50 <= network.round_trip_us.max);
        assert_eq!(steps, ["loopback bandwidth", "loopback round trip"]);
    }
}
