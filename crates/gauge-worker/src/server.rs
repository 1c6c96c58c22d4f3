//! The worker's sockets: who may speak, and how connections end.
//!
//! Who gets a seat is the business of `seats`. Every wait has an end: for the handshake, for a request's head and body, and for a client
//! that does not read its answer.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Sleep, sleep, timeout};

use crate::access::Access;
use crate::api::{self, App};
use crate::body;
use crate::browser;
use crate::omb;
use crate::seats::{Seat, Seats};

/// How long a TLS handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// How long the head of a request may take, the wait for the next request of a connection included.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may leave an answer unread.
const READ_WITHIN: Duration = Duration::from_secs(20);
/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long open connections may hold up the end.
const GRACE: Duration = Duration::from_secs(2);
/// Pause after an accept that failed, for instance because the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What all connections share.
struct Door {
    access: Access,
    language: Language,
    listens: IpAddr,
    seats: Seats,
    routes: TowerToHyperService<Router>,
    closing: watch::Receiver<bool>,
}

impl Door {
    /// The answer to a request that is not let in.
    fn refusal(&self, request: &hyper::Request<Incoming>, seat: &Seat) -> Option<Response> {
        if !self.access.allows(request.headers()) {
            return Some(refuse(StatusCode::UNAUTHORIZED.into_response()));
        }
        if !self.access.wants_token()
            && let Err(error) = browser::check(request, self.listens, self.language)
        {
            return Some(refuse(error.into_response()));
        }
        (!seat.welcome()).then(|| refuse(StatusCode::SERVICE_UNAVAILABLE.into_response()))
    }
}

/// Accepts connections until it is dropped. `alive` is held by every connection.
async fn accept(listener: TcpListener, door: Arc<Door>, alive: mpsc::Sender<()>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let seat = Arc::new(door.seats.take());
        let (door, alive) = (Arc::clone(&door), alive.clone());
        tokio::spawn(async move {
            let mut evicted = pin!(seat.evicted());
            let mut talk = pin!(talk(stream, &door, &seat));
            poll_fn(|context| match evicted.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => talk.as_mut().poll(context),
            })
            .await;
            drop(alive);
        });
    }
}

/// One connection, from the handshake to its end.
async fn talk(stream: TcpStream, door: &Arc<Door>, seat: &Arc<Seat>) {
    // A small answer must not wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    match door.access.tls() {
        None => answer(stream, door, seat).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await {
                answer(stream, door, seat).await;
            }
        }
    }
}

/// Answers the requests of a connection.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: S, door: &Arc<Door>, seat: &Arc<Seat>) {
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let refusal = door.refusal(&request, seat);
        let (routes, seat) = (door.routes.clone(), Arc::clone(seat));
        async move {
            let request = match refusal {
                Some(refusal) => return Ok::<Response, Infallible>(refusal),
                None => match body::receive(request).await {
                    Ok(request) => request,
                    Err(error) => return Ok(error.into_response()),
                },
            };
            let working = seat.work();
            let response = routes.call(request).await;
            drop(working);
            response
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Impatient::new(stream)), service);
    let mut connection = pin!(connection);
    let mut closing = door.closing.clone();
    let mut closed = pin!(closing.wait_for(|is_closing| *is_closing));
    let mut is_told = false;
    poll_fn(|context| {
        if !is_told && closed.as_mut().poll(context).is_ready() {
            is_told = true;
            connection.as_mut().graceful_shutdown();
        }
        // However it ended, there is nobody to tell.
        connection.as_mut().poll(context).map(drop)
    })
    .await;
}

/// A refusal, with which the connection ends.
fn refuse(mut response: Response) -> Response {
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A stream that gives up when the other side does not read.
struct Impatient<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    fn new(stream: S) -> Impatient<S> {
        Impatient {
            stream,
            stalled: None,
        }
    }

    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(READ_WITHIN)));
        stalled
            .as_mut()
            .poll(context)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// What a worker answers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// docs/worker-api.md.
    Own,
    /// The worker protocol of the OpenMessaging Benchmark: docs/omb-worker.md.
    Omb,
}

/// Serves the API on a bound socket until `/v1/shutdown` is called. Blocks.
///
/// # Errors
/// The kernel's, when the socket cannot be served.
pub fn serve(
    listener: std::net::TcpListener,
    app: &Arc<App>,
    access: Access,
    language: Language,
) -> io::Result<()> {
    let routes = match language {
        Language::Own => api::router(Arc::clone(app)),
        Language::Omb => omb::router(Arc::clone(app)),
    };
    serve_routes(listener, app, access, language, routes)
}

/// As `serve`, with other routes.
pub(crate) fn serve_routes(
    listener: std::net::TcpListener,
    app: &Arc<App>,
    access: Access,
    language: Language,
    routes: Router,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    listener.set_nonblocking(true)?;
    let listens = listener.local_addr()?.ip();
    // Set once: a worker has one socket.
    let _ = app.address.set(listens);
    let result = runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let (close, closing) = watch::channel(false);
        let (alive, mut ended) = mpsc::channel(1);
        let door = Arc::new(Door {
            access,
            language,
            listens,
            seats: Seats::default(),
            routes: TowerToHyperService::new(routes),
            closing,
        });
        let accepting = tokio::spawn(accept(listener, door, alive));
        app.shutdown_asked().await;
        accepting.abort();
        let _ = close.send(true);
        // Nobody sends: the channel closes with the last connection. One that does not end is cut.
        let _ = timeout(GRACE, ended.recv()).await;
        Ok(())
    });
    runtime.shutdown_background();
    result
}
