//! `gauge worker`: the command line of the load worker.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use gauge_client::Protocol;

use crate::access::{self, Access};
use crate::api::App;
use crate::server::{self, Language};

/// Exit status when the input was wrong.
const INPUT_WRONG: u8 = 2;
/// Exit status when the worker itself failed.
const FAILED: u8 = 3;

/// Drives load on behalf of a lab that talks to it over HTTP (docs/worker-api.md).
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    listening: Listening,
    /// Speak the worker protocol of the OpenMessaging Benchmark, so that one of its leaders can drive this worker (docs/omb-worker.md)
    #[arg(long)]
    omb: bool,
    /// With --omb: allow addresses that other machines can reach. Its leaders bring neither token nor encryption: anyone who reaches the port can drive load
    #[arg(long, requires = "omb")]
    insecure: bool,
    /// Make a token, a key and a certificate in this directory, print the certificate's fingerprint, and end
    #[arg(long, value_name = "DIR", exclusive = true)]
    make_identity: Option<PathBuf>,
    /// For tests of the comparison of clocks: show this worker's clock ahead by so many milliseconds and gaining so many millionths
    #[arg(long, value_name = "MS,PPM", hide = true, value_parser = skew, allow_hyphen_values = true)]
    skew_clock: Option<(i64, i64)>,
}

/// Where requests are accepted, and from whom.
#[derive(Clone, Debug, clap::Args)]
pub struct Listening {
    /// Address to accept requests on; port 0 takes a free one, which the line "ready ADDRESS:PORT" on standard output names
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// End when this process has ended
    #[arg(long, value_name = "PID")]
    parent_pid: Option<u32>,
    /// File with the token that every request must carry; needed beyond loopback
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// PEM file with the certificate of the API; needed beyond loopback
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

/// Milliseconds and millionths as nanoseconds and billionths.
fn skew(text: &str) -> Result<(i64, i64), String> {
    let parsed = text.split_once(',').and_then(|(offset_ms, drift_ppm)| {
        let offset_ms: f64 = offset_ms.parse().ok()?;
        let drift_ppm: f64 = drift_ppm.parse().ok()?;
        let is_sane = offset_ms.abs() <= 1e9 && drift_ppm.abs() <= 1e4;
        is_sane.then_some(((offset_ms * 1e6) as i64, (drift_ppm * 1e3) as i64))
    });
    parsed.ok_or_else(|| "expected milliseconds and millionths, for instance 50,100".to_owned())
}

/// Runs the worker until it is told to end.
pub fn run(args: Args) -> ExitCode {
    if let Some(directory) = &args.make_identity {
        return match access::make_identity(directory) {
            Ok(fingerprint) => {
                println!("{fingerprint}");
                ExitCode::SUCCESS
            }
            Err(message) => complain("worker", INPUT_WRONG, &message),
        };
    }
    if let Some((offset_ns, drift_ppb)) = args.skew_clock {
        gauge_load::clock::skew(offset_ns, drift_ppb);
    }
    let language = if args.omb { Language::Omb } else { Language::Own };
    let door = Door {
        name: "worker",
        listening: &args.listening,
        is_open: args.insecure,
        protocols: gauge_client::protocols(),
    };
    door.serve(move |listener, app, access| server::serve(listener, app, access, language))
}

fn complain(name: &str, status: u8, message: &str) -> ExitCode {
    eprintln!("gauge {name}: {message}");
    ExitCode::from(status)
}

/// A program that answers requests until it is told to end.
pub(crate) struct Door<'a> {
    pub name: &'static str,
    pub listening: &'a Listening,
    /// Whether anybody may come in from other machines.
    pub is_open: bool,
    pub protocols: Vec<Arc<dyn Protocol>>,
}

impl Door<'_> {
    /// Opens it; `serve` answers until the end.
    pub fn serve(
        self,
        serve: impl FnOnce(TcpListener, &Arc<App>, Access) -> std::io::Result<()>,
    ) -> ExitCode {
        let name = self.name;
        match self.open() {
            Ok((listener, app, access)) => match serve(listener, &app, access) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => complain(name, FAILED, &format!("the API could not be served: {error}")),
            },
            Err((status, message)) => complain(name, status, &message),
        }
    }

    fn open(self) -> Result<(TcpListener, Arc<App>, Access), (u8, String)> {
        let (name, listening) = (self.name, self.listening);
        let input = |message: String| (INPUT_WRONG, message);
        let access = access(listening).map_err(input)?;
        let address = address(&listening.listen, access.is_guarded() || self.is_open).map_err(input)?;
        let parent = gauge_process::watch_parent(listening.parent_pid).map_err(input)?;
        let failed = |error: std::io::Error| (FAILED, format!("the {name} could not be started: {error}"));
        let signals = gauge_process::take_signals().map_err(failed)?;
        let listener = TcpListener::bind(address).map_err(|error| {
            input(format!(
                "--listen {}: {error}; expected a free port, or port 0 to have one chosen",
                listening.listen
            ))
        })?;
        let bound = listener.local_addr().map_err(failed)?;
        let app = App::new(self.protocols);
        let stopped = Arc::clone(&app);
        gauge_process::end_on(name, signals, parent, move || stopped.abort_blocking()).map_err(failed)?;
        let mut out = std::io::stdout();
        // A parent that does not read the lines has the address from elsewhere.
        if let Some(fingerprint) = access.fingerprint() {
            let _ = writeln!(out, "certificate {fingerprint}");
        }
        let _ = writeln!(out, "ready {bound}").and_then(|()| out.flush());
        Ok((listener, app, access))
    }
}

fn access(args: &Listening) -> Result<Access, String> {
    let mut access = Access::open();
    if let Some(file) = &args.token_file {
        access = access.with_token(file)?;
    }
    if let (Some(certificate), Some(key)) = (&args.certificate, &args.key) {
        access = access.with_certificate(certificate, key)?;
    }
    Ok(access)
}

/// The address to listen on, which must be this machine's own unless requests need a token and are encrypted.
fn address(listen: &str, is_guarded: bool) -> Result<SocketAddr, String> {
    let addresses: Vec<SocketAddr> = listen
        .to_socket_addrs()
        .map_err(|error| {
            format!("--listen {listen}: {error}; expected ADDRESS:PORT, for instance 127.0.0.1:0")
        })?
        .collect();
    match addresses.first() {
        Some(address) if is_guarded || addresses.iter().all(|address| address.ip().is_loopback()) => {
            Ok(*address)
        }
        _ => Err(format!(
            "--listen {listen}: whoever reaches it can have load driven or the machine looked at, so without a token and encryption it binds to loopback only; expected for instance 127.0.0.1:0, or --token-file, --certificate and --key (--make-identity DIR makes all three)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_listened_on() {
        assert!(address("127.0.0.1:0", false).is_ok() && address("[::1]:7", false).is_ok());
        for open in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
            assert!(address(open, false).is_err_and(|message| message.contains("loopback")));
            assert!(address(open, true).is_ok());
        }
        assert!(address("nonsense", true).is_err_and(|message| message.contains("expected ADDRESS:PORT")));
    }
}
