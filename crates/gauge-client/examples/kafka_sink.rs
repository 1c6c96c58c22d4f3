//! A server that speaks just enough of Kafka's protocol to be produced to, and throws everything away: what one core of the client
//! can drive, without a broker's cost in the figure.
//!
//! Every topic exists with `--partitions` partitions. Records are not even copied out of the kernel (recv with MSG_TRUNC).
//!
//! ```text
//! cargo run --release -p gauge-client --example kafka_sink -- --port 19092 --pin 1 &
//! cargo run --release -p gauge-client --example kafka_bench -- --bootstrap 127.0.0.1:19092 --mode produce --topic any \
//!     --batch-bytes 1048576 --pin 0
//! ```

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

use clap::Parser;

#[derive(Clone, Debug, Parser)]
#[command(about = "Takes Kafka's Produce requests and throws them away")]
struct Arguments {
    #[arg(long, default_value_t = 19092)]
    port: u16,
    #[arg(long, default_value_t = 16)]
    partitions: i32,
    /// Pin the server to this CPU.
    #[arg(long)]
    pin: Option<usize>,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    if let Some(cpu) = arguments.pin {
        // SAFETY: the set is plain memory that lives for the call; zero means the calling thread, whose children inherit it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
    let listener = TcpListener::bind(("127.0.0.1", arguments.port))?;
    println!("ready 127.0.0.1:{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let (stream, arguments) = (stream?, arguments.clone());
        thread::spawn(move || {
            // The end of a connection is the end of its thread; there is nobody to tell.
            let _ = serve(stream, &arguments);
        });
    }
    Ok(())
}

/// Reads the rest of one request, counting what is left of it.
struct Body<'a> {
    stream: &'a TcpStream,
    left: usize,
}

impl Body<'_> {
    fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        if count > self.left || count > 1 << 20 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes)?;
        self.left -= count;
        Ok(bytes)
    }

    fn i16(&mut self) -> io::Result<i16> {
        let bytes = self.bytes(2)?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn i32(&mut self) -> io::Result<i32> {
        let bytes = self.bytes(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn string(&mut self) -> io::Result<Vec<u8>> {
        let length = self.i16()?.max(0);
        self.bytes(length as usize)
    }

    /// Drops bytes without copying them.
    fn discard(&mut self, mut count: usize) -> io::Result<()> {
        if count > self.left {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.left -= count;
        while count > 0 {
            // SAFETY: with MSG_TRUNC a TCP socket throws the bytes away and writes to no buffer (tcp(7)).
            let dropped = unsafe {
                libc::recv(
                    self.stream.as_raw_fd(),
                    std::ptr::null_mut(),
                    count,
                    libc::MSG_TRUNC,
                )
            };
            match usize::try_from(dropped) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(dropped) => count -= dropped,
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as i16).to_be_bytes());
    out.extend_from_slice(text);
}

fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn serve(mut stream: TcpStream, arguments: &Arguments) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let port = stream.local_addr()?.port();
    loop {
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let mut body = Body {
            stream: &stream,
            left: usize::try_from(i32::from_be_bytes(head)).unwrap_or(0),
        };
        let (key, version, correlation) = (body.i16()?, body.i16()?, body.i32()?);
        body.string()?;
        let mut out = vec![0; 4];
        put_i32(&mut out, correlation);
        let has_answer = match key {
            0 => produce(&mut body, &mut out)?,
            3 => metadata(&mut body, &mut out, arguments.partitions, i32::from(port))?,
            18 => api_versions(version, &mut out),
            19 => create_topics(&mut body, &mut out)?,
            22 => {
                // No throttling, no error, producer 1, epoch 0.
                out.extend_from_slice(&[0; 6]);
                out.extend_from_slice(&1i64.to_be_bytes());
                out.extend_from_slice(&[0; 2]);
                true
            }
            _ => return Ok(()),
        };
        let left = body.left;
        body.discard(left)?;
        if has_answer {
            let length = (out.len() - 4) as i32;
            out[..4].copy_from_slice(&length.to_be_bytes());
            stream.write_all(&out)?;
        }
    }
}

fn produce(body: &mut Body<'_>, out: &mut Vec<u8>) -> io::Result<bool> {
    body.string()?;
    let acks = body.i16()?;
    body.i32()?;
    let topics = body.i32()?;
    put_i32(out, topics);
    for _ in 0..topics {
        put_string(out, &body.string()?);
        let partitions = body.i32()?;
        put_i32(out, partitions);
        for _ in 0..partitions {
            put_i32(out, body.i32()?);
            let records = body.i32()?;
            body.discard(usize::try_from(records).unwrap_or(0))?;
            // No error; base offset, append time and start of the log are of no interest.
            out.extend_from_slice(&[0; 26]);
        }
    }
    put_i32(out, 0);
    Ok(acks != 0)
}

fn metadata(body: &mut Body<'_>, out: &mut Vec<u8>, partitions: i32, port: i32) -> io::Result<bool> {
    let mut topics = Vec::new();
    for _ in 0..body.i32()?.max(0) {
        topics.push(body.string()?);
    }
    put_i32(out, 0);
    // One broker, number 1, without a rack.
    put_i32(out, 1);
    put_i32(out, 1);
    put_string(out, b"127.0.0.1");
    put_i32(out, port);
    out.extend_from_slice(&(-1i16).to_be_bytes());
    put_string(out, b"sink");
    put_i32(out, 1);
    put_i32(out, topics.len() as i32);
    for topic in topics {
        out.extend_from_slice(&[0; 2]);
        put_string(out, &topic);
        out.push(0);
        put_i32(out, partitions);
        for partition in 0..partitions {
            out.extend_from_slice(&[0; 2]);
            // Partition, leader, epoch, one replica, one in sync, none offline.
            for value in [partition, 1, 0, 1, 1, 1, 1, 0] {
                put_i32(out, value);
            }
        }
    }
    Ok(true)
}

fn api_versions(version: i16, out: &mut Vec<u8>) -> bool {
    if version > 0 {
        // Only version 0 is spoken here.
        out.extend_from_slice(&35i16.to_be_bytes());
    } else {
        out.extend_from_slice(&[0; 2]);
    }
    let apis: [(i16, i16); 7] = [(0, 7), (1, 11), (3, 7), (18, 0), (19, 4), (20, 3), (22, 1)];
    put_i32(out, apis.len() as i32);
    for (key, version) in apis {
        for value in [key, version, version] {
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
    true
}

/// Every topic exists already.
fn create_topics(body: &mut Body<'_>, out: &mut Vec<u8>) -> io::Result<bool> {
    let topics = body.i32()?;
    put_i32(out, 0);
    put_i32(out, topics.min(1));
    if topics > 0 {
        put_string(out, &body.string()?);
        out.extend_from_slice(&36i16.to_be_bytes());
        out.extend_from_slice(&(-1i16).to_be_bytes());
    }
    Ok(true)
}
