//! The worker's sockets: how many connections there may be, and how they end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::{App, router};

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;
/// How long open connections may hold up the end.
const GRACE: Duration = Duration::from_secs(2);

struct Limited {
    listener: TcpListener,
    permits: Arc<Semaphore>,
}

/// A connection with its permit, which goes with it.
struct Permitted {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Listener for Limited {
    type Io = Permitted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Permitted, SocketAddr) {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        // Axum's own implementation waits and tries again when the process has no descriptors left.
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let permitted = Permitted {
            stream,
            _permit: permit,
        };
        (permitted, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Permitted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Permitted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Serves the API on a bound socket until `/v1/shutdown` is called. Blocks.
///
/// # Errors
/// The kernel's, when the socket cannot be served.
pub fn serve(listener: std::net::TcpListener, app: &Arc<App>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    listener.set_nonblocking(true)?;
    let result = runtime.block_on(async {
        let limited = Limited {
            listener: TcpListener::from_std(listener)?,
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        };
        let (began, ended) = tokio::sync::oneshot::channel();
        let (asked, routes) = (Arc::clone(app), router(Arc::clone(app)));
        let signal = async move {
            asked.shutdown_asked().await;
            // The receiver is gone only when serving ended by itself.
            let _ = began.send(());
        };
        let serving =
            tokio::spawn(async move { axum::serve(limited, routes).with_graceful_shutdown(signal).await });
        let _ = ended.await;
        match tokio::time::timeout(GRACE, serving).await {
            Ok(Ok(outcome)) => outcome,
            // A connection that does not end is cut.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    });
    runtime.shutdown_background();
    result
}
