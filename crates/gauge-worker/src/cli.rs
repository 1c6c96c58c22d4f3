//! `gauge worker`: the command line of the load worker.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;

use crate::api::App;
use crate::server;

/// Exit status when the input was wrong.
const INPUT_WRONG: u8 = 2;
/// Exit status when the worker itself failed.
const FAILED: u8 = 3;

/// Drives load on behalf of a lab that talks to it over HTTP (docs/worker-api.md).
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address to accept requests on; port 0 takes a free one, which the line "ready ADDRESS:PORT" on standard output names
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// End when this process has ended
    #[arg(long, value_name = "PID")]
    parent_pid: Option<u32>,
}

/// Runs the worker until it is told to end.
pub fn run(args: Args) -> ExitCode {
    match start(&args) {
        Ok((listener, app)) => match server::serve(listener, &app) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(FAILED, &format!("the API could not be served: {error}")),
        },
        Err((status, message)) => complain(status, &message),
    }
}

fn complain(status: u8, message: &str) -> ExitCode {
    eprintln!("gauge worker: {message}");
    ExitCode::from(status)
}

fn start(args: &Args) -> Result<(TcpListener, Arc<App>), (u8, String)> {
    let input = |message: String| (INPUT_WRONG, message);
    let address = loopback(&args.listen).map_err(input)?;
    let parent = args
        .parent_pid
        .map(|pid| {
            gauge_process::watch_process(pid).map_err(|error| {
                (
                    INPUT_WRONG,
                    format!("--parent-pid {pid}: the process cannot be watched: {error}"),
                )
            })
        })
        .transpose()?;
    let failed = |error: std::io::Error| (FAILED, format!("the worker could not be started: {error}"));
    let signals = gauge_process::take_signals().map_err(failed)?;
    let listener = TcpListener::bind(address).map_err(|error| {
        input(format!(
            "--listen {}: {error}; expected a free port, or port 0 to have one chosen",
            args.listen
        ))
    })?;
    let bound = listener.local_addr().map_err(failed)?;
    let app = App::new(gauge_client::protocols());
    let stopped = Arc::clone(&app);
    gauge_process::end_on("worker", signals, parent, move || stopped.abort_blocking()).map_err(failed)?;
    let mut out = std::io::stdout();
    // A parent that does not read the line has the address from elsewhere.
    let _ = writeln!(out, "ready {bound}").and_then(|()| out.flush());
    Ok((listener, app))
}

/// The address, which must be this machine's own: the API has no authentication.
fn loopback(listen: &str) -> Result<SocketAddr, String> {
    let addresses: Vec<SocketAddr> = listen
        .to_socket_addrs()
        .map_err(|error| {
            format!("--listen {listen}: {error}; expected ADDRESS:PORT, for instance 127.0.0.1:0")
        })?
        .collect();
    match addresses.first() {
        Some(address) if addresses.iter().all(|address| address.ip().is_loopback()) => Ok(*address),
        _ => Err(format!(
            "--listen {listen}: the worker drives load for whoever can reach it, and its API has no authentication and no encryption, so it binds to loopback only; expected for instance 127.0.0.1:0"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_listened_on() {
        assert!(loopback("127.0.0.1:0").is_ok() && loopback("[::1]:7").is_ok());
        for wrong in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
            assert!(loopback(wrong).is_err_and(|message| message.contains("loopback")));
        }
        assert!(loopback("nonsense").is_err_and(|message| message.contains("expected ADDRESS:PORT")));
    }
}
