//! The HTTP API of docs/worker-api.md: routes, and what each asks of whom.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use gauge_client::{Admin, Endpoint, Protocol};
use gauge_load::audit::PRODUCERS_MAX;
use gauge_load::clock::{monotonic_ns, shown_ns, unix_ns, unshown_ns};
use gauge_load::{Ahead, Clocks};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore};

use crate::books;
use crate::check;
use crate::clock_probe::ClockProbe;
use crate::error::{ApiError, Code};
use crate::handle::{self, Ask, Begin, Handle, LiveLanes, Status};
use crate::plan;
use crate::request;
use crate::scheduling;
use crate::trial;

/// Administration calls at once: each takes a thread.
const ADMIN_CALLS_MAX: usize = 4;
/// Lanes that may live at once, those of trials that were given up included.
const LIVE_LANES_MAX: usize = 512;
/// Most intervals of one answer.
const INTERVALS_MAX: usize = 1000;
/// How often a waiting `finish` renews the lease for its caller.
const RENEWAL: Duration = Duration::from_millis(50);

/// What all requests share.
pub struct App {
    protocols: Vec<Arc<dyn Protocol>>,
    trial: Mutex<Option<Arc<Handle>>>,
    /// Held while a trial is created or deleted, so that there is never a second one.
    changing: AsyncMutex<()>,
    next_id: AtomicU64,
    live_lanes: LiveLanes,
    admin_calls: Arc<Semaphore>,
    /// Held by what `think` runs.
    thinking: Arc<Semaphore>,
    shutdown: Notify,
    /// Where the API listens, once it does.
    pub(crate) address: OnceLock<IpAddr>,
    clock: Mutex<Option<ClockProbe>>,
}

type Shared = State<Arc<App>>;
type Answer<T> = Result<Json<T>, ApiError>;

impl App {
    /// An app that speaks these protocols.
    pub fn new(protocols: Vec<Arc<dyn Protocol>>) -> Arc<App> {
        Arc::new(App {
            protocols,
            trial: Mutex::new(None),
            changing: AsyncMutex::new(()),
            next_id: AtomicU64::new(1),
            live_lanes: LiveLanes::default(),
            admin_calls: Arc::new(Semaphore::new(ADMIN_CALLS_MAX)),
            thinking: Arc::new(Semaphore::new(1)),
            shutdown: Notify::new(),
            address: OnceLock::new(),
            clock: Mutex::new(None),
        })
    }

    fn trial(&self) -> Option<Arc<Handle>> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trial(&self, handle: Option<Arc<Handle>>) {
        *self.trial.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }

    /// Drops a trial, unless another has taken its place.
    fn forget(&self, old: &Arc<Handle>) {
        let mut trial = self.trial.lock().unwrap_or_else(PoisonError::into_inner);
        if trial.as_ref().is_some_and(|now| Arc::ptr_eq(now, old)) {
            *trial = None;
        }
    }

    fn find(&self, id: &str) -> Result<Arc<Handle>, ApiError> {
        match self.trial() {
            Some(handle) if id == "current" || handle.id == id => Ok(handle),
            Some(handle) => Err(ApiError::not_found(format!(
                "there is no trial '{id}': the current one is '{}'",
                handle.id
            ))),
            None => Err(ApiError::not_found(format!(
                "there is no trial '{id}': none was created"
            ))),
        }
    }

    fn protocol(&self, name: &str) -> Result<Arc<dyn Protocol>, ApiError> {
        let known: Vec<&str> = self.protocols.iter().map(|protocol| protocol.name()).collect();
        self.protocols
            .iter()
            .find(|protocol| protocol.name() == name)
            .cloned()
            .ok_or_else(|| {
                ApiError::field(
                    "system.protocol",
                    format!(
                        "'{name}' is not spoken by this worker: expected one of {}",
                        known.join(", ")
                    ),
                )
            })
    }

    /// Stops the load of the current trial, if there is one; to be called from a thread of its own.
    pub(crate) fn abort_blocking(&self) {
        if let Some(handle) = self.trial()
            && let Ok(answer) = handle.begin(Ask::Abort)
        {
            // Whatever the answer is, the process is about to end.
            let _ = answer.blocking_recv();
        }
    }

    /// Resolves when somebody asked for the end of the process.
    pub(crate) async fn shutdown_asked(&self) {
        self.shutdown.notified().await;
    }
}

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    let routes = Router::new()
        .route("/v1/info", get(info))
        .route("/v1/admin/create-topics", post(create_topics))
        .route("/v1/admin/delete-topics", post(delete_topics))
        .route("/v1/admin/describe", post(describe))
        .route("/v1/trials", post(create_trial))
        .route("/v1/trials/{id}", get(status).delete(delete_trial))
        .route("/v1/trials/{id}/start", post(start))
        .route("/v1/trials/{id}/rate", post(rate))
        .route("/v1/trials/{id}/phases", post(phases))
        .route("/v1/trials/{id}/clocks", post(clocks))
        .route("/v1/trials/{id}/stop", post(stop))
        .route("/v1/trials/{id}/subscriptions/{name}/pause", post(pause))
        .route("/v1/trials/{id}/subscriptions/{name}/resume", post(resume))
        .route("/v1/trials/{id}/intervals", get(intervals))
        .route("/v1/trials/{id}/counters", get(counters))
        .route("/v1/trials/{id}/lease", post(lease))
        .route("/v1/trials/{id}/finish", post(finish))
        .route("/v1/trials/{id}/abort", post(abort))
        .route("/v1/clock", get(clock_samples).post(probe_clocks))
        .route("/v1/judge", post(judge))
        .route("/v1/shutdown", post(shutdown))
        .fallback(async || ApiError::not_found("there is no such path: see docs/worker-api.md"))
        .with_state(app);
    guarded(routes)
}

/// Routes whose errors are all of one kind; their bodies were read by `body`.
pub(crate) fn guarded(routes: Router) -> Router {
    routes
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn(guard))
}

/// Turns panics and errors of the framework into errors of the API.
async fn guard(request: Request, next: Next) -> Response {
    let mut future = Box::pin(next.run(request));
    let response = std::future::poll_fn(|context| {
        std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))).unwrap_or_else(|_| {
            let fault = "a fault of the worker, see its standard error; it goes on";
            Poll::Ready(ApiError::internal(fault).into_response())
        })
    })
    .await;
    let is_json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == "application/json");
    match response.status() {
        status if is_json || !(status.is_client_error() || status.is_server_error()) => response,
        StatusCode::METHOD_NOT_ALLOWED => {
            let error = ApiError::bad_request("the path does not know this method: see docs/worker-api.md");
            (StatusCode::METHOD_NOT_ALLOWED, error.into_response().into_body()).into_response()
        }
        status => {
            let reason = status.canonical_reason().unwrap_or("an error");
            let error = ApiError::bad_request(format!("the request could not be read: {reason}"));
            (
                status,
                [(header::CONTENT_TYPE, "application/json")],
                error.into_response().into_body(),
            )
                .into_response()
        }
    }
}

/// A body, read as docs/worker-api.md has it.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, ApiError> {
        // `body` has read it and compared its length.
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
        request::parse(&bytes).map(Body)
    }
}

pub(crate) async fn info(State(app): Shared) -> Json<Value> {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let protocols: Vec<&str> = app.protocols.iter().map(|protocol| protocol.name()).collect();
    Json(json!({
        "api": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "hostname": hostname.trim(),
        "pid": std::process::id(),
        "cores": scheduling::cores().len(),
        "protocols": protocols,
        "monotonic_ns": shown_ns(monotonic_ns()),
        "unix_ns": unix_ns(),
    }))
}

/// Runs a blocking call on a system, of which there are a few at once.
pub(crate) async fn administer<T: Send + 'static>(
    app: &App,
    system: &request::System,
    timeout_s: f64,
    call: impl FnOnce(&mut dyn Admin, i64) -> Result<T, gauge_client::ClientError> + Send + 'static,
) -> Result<T, ApiError> {
    let protocol = app.protocol(&system.protocol)?;
    let endpoint: Endpoint = check::endpoint(system)?;
    let timeout_ns = check::ns(check::within("timeout_s", timeout_s, 0.1, 600.0, "seconds")?);
    let Ok(permit) = Arc::clone(&app.admin_calls).try_acquire_owned() else {
        return Err(ApiError::conflict(format!(
            "{ADMIN_CALLS_MAX} administration calls are running already: try again"
        )));
    };
    let blocking = move || {
        let mut admin = protocol.admin(&endpoint)?;
        let outcome = call(&mut *admin, monotonic_ns() + timeout_ns);
        drop(permit);
        outcome
    };
    match tokio::task::spawn_blocking(blocking).await {
        Ok(outcome) => outcome.map_err(ApiError::from),
        Err(_) => Err(ApiError::internal(
            "the client panicked: a fault of the worker, see its standard error",
        )),
    }
}

async fn create_topics(State(app): Shared, Body(body): Body<request::CreateTopics>) -> Answer<Value> {
    make_topics(&app, &body).await?;
    let names: Vec<&String> = body.topics.iter().map(|topic| &topic.name).collect();
    Ok(Json(json!({ "created": names })))
}

/// Creates topics, and waits until they can be used.
pub(crate) async fn make_topics(app: &App, wanted: &request::CreateTopics) -> Result<(), ApiError> {
    let topics = check::new_topics(&wanted.topics)?;
    administer(
        app,
        &wanted.system,
        wanted.timeout_s,
        move |admin, deadline_ns| admin.create_topics(&topics, deadline_ns),
    )
    .await
}

async fn delete_topics(State(app): Shared, Body(body): Body<request::NamedTopics>) -> Answer<Value> {
    check::topic_names(&body.topics, 1)?;
    let topics = body.topics.clone();
    let missing = administer(&app, &body.system, body.timeout_s, move |admin, deadline_ns| {
        admin.delete_topics(&topics, deadline_ns)
    })
    .await?;
    let deleted: Vec<&String> = body
        .topics
        .iter()
        .filter(|topic| !missing.contains(topic))
        .collect();
    Ok(Json(json!({"deleted": deleted, "missing": missing})))
}

async fn describe(State(app): Shared, Body(body): Body<request::NamedTopics>) -> Answer<Value> {
    check::topic_names(&body.topics, 0)?;
    let topics = body.topics;
    administer(&app, &body.system, body.timeout_s, move |admin, deadline_ns| {
        admin.describe(&topics, deadline_ns)
    })
    .await
    .map(Json)
}

/// Forgets the trial that was there, which must be over.
async fn forget_old(app: &Arc<App>) -> Result<(), ApiError> {
    let Some(old) = app.trial() else { return Ok(()) };
    let id = old.id.clone();
    let app = Arc::clone(app);
    // In a task of its own: when the caller hangs up half-way, the trial must not stay behind without its supervisor.
    let forgetting = tokio::spawn(async move {
        match old.ask(Ask::Forget).await {
            Err(error) if error.code == Code::Conflict => false,
            // Forgotten, or its supervisor died: it is in nobody's way.
            Ok(()) | Err(_) => {
                app.forget(&old);
                true
            }
        }
    });
    match forgetting.await {
        Ok(false) => Err(ApiError::conflict(format!(
            "trial '{id}' is not over: finish, abort or delete it first"
        ))),
        Ok(true) | Err(_) => Ok(()),
    }
}

async fn create_trial(State(app): Shared, body: Bytes) -> Result<(StatusCode, Json<Status>), ApiError> {
    let handle = begin_trial(&app, move || request::parse(&body)).await?;
    Ok((StatusCode::CREATED, Json(handle.ask(Ask::Status).await?)))
}

/// Runs what may take long beside the event loop, one call at a time, so that the others are answered meanwhile.
async fn think<T: Send + 'static>(
    app: &App,
    call: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let permit = Arc::clone(&app.thinking)
        .acquire_owned()
        .await
        .map_err(|_| ApiError::internal("the worker ends"))?;
    // The permit goes along: when the caller hangs up, the thread is still at work.
    let thought = tokio::task::spawn_blocking(move || {
        let outcome = call();
        drop(permit);
        outcome
    });
    thought
        .await
        .map_err(|_| ApiError::internal("a fault of the worker, see its standard error; it goes on"))?
}

/// Creates a trial in the place of one that is over.
pub(crate) async fn begin_trial(
    app: &Arc<App>,
    read: impl FnOnce() -> Result<request::Trial, ApiError> + Send + 'static,
) -> Result<Arc<Handle>, ApiError> {
    let (name, plan) = think(app, move || {
        let body = read()?;
        let plan = plan::plan(&body, scheduling::cores().len())?;
        Ok((body.system.protocol, plan))
    })
    .await?;
    let protocol = app.protocol(&name)?;
    let _changing = app.changing.lock().await;
    forget_old(app).await?;
    if app.live_lanes.count() + plan.lanes.len() > LIVE_LANES_MAX {
        return Err(ApiError::conflict(
            "lanes of earlier trials still wait for a system that does not answer: try again later",
        ));
    }
    let id = app.next_id.fetch_add(1, Ordering::Relaxed);
    let handle = Arc::new(trial::create(id, plan, &protocol, &app.live_lanes)?);
    app.set_trial(Some(Arc::clone(&handle)));
    Ok(handle)
}

async fn delete_trial(State(app): Shared, Path(id): Path<String>) -> Answer<Value> {
    Ok(Json(json!({ "deleted": end_trial(&app, &id).await? })))
}

/// Aborts a trial if need be and forgets it; its name.
pub(crate) async fn end_trial(app: &Arc<App>, id: &str) -> Result<String, ApiError> {
    let _changing = app.changing.lock().await;
    let handle = app.find(id)?;
    // It may be over already, or its supervisor may be gone: then there is nothing to abort.
    let _ = handle.ask(Ask::Abort).await;
    forget_old(app).await?;
    Ok(handle.id.clone())
}

async fn status(State(app): Shared, Path(id): Path<String>) -> Answer<Status> {
    Ok(Json(app.find(&id)?.ask(Ask::Status).await?))
}

async fn start(
    State(app): Shared,
    Path(id): Path<String>,
    Body(body): Body<request::StartTrial>,
) -> Answer<Status> {
    let handle = app.find(&id)?;
    let delay_ms = check::within("delay_ms", body.delay_ms as f64, 0.0, 60_000.0, "ms")?;
    let begin = body.at_ns.map_or(Begin::In(check::ns(delay_ms / 1e3)), |at_ns| {
        Begin::At(unshown_ns(at_ns))
    });
    Ok(Json(handle.ask(|reply| Ask::Start(begin, reply)).await?))
}

async fn rate(State(app): Shared, Path(id): Path<String>, Body(body): Body<request::Rate>) -> Answer<Status> {
    let handle = app.find(&id)?;
    let rate = check::within(
        "rate_msgs_s",
        body.rate_msgs_s,
        0.0,
        check::RATE_MSGS_S_MAX,
        "messages/s",
    )?;
    Ok(Json(handle.ask(|reply| Ask::Rate(rate, reply)).await?))
}

async fn phases(
    State(app): Shared,
    Path(id): Path<String>,
    Body(body): Body<request::Phase>,
) -> Answer<Value> {
    let handle = app.find(&id)?;
    if body.name.is_empty() || body.name.len() > 249 {
        return Err(ApiError::field("name", "expected a name of 1 to 249 bytes"));
    }
    let from_ns = offset("from_s", body.from_s)?;
    let phase = handle.ask(|reply| Ask::Phase(body.name, from_ns, reply)).await?;
    Ok(Json(handle::phase_out(&phase)))
}

async fn clocks(
    State(app): Shared,
    Path(id): Path<String>,
    Body(body): Body<request::Clocks>,
) -> Answer<Status> {
    let handle = app.find(&id)?;
    let mut foreign = Vec::new();
    for (at, clock) in body.clocks.iter().enumerate() {
        let path = format!("clocks[{at}].drift_ppb");
        // A clock that gains a hundredth is broken; beyond that the arithmetic would be in doubt, too.
        check::within(&path, clock.drift_ppb as f64, -1e7, 1e7, "nanoseconds per second")?;
        for &producer in &clock.producers {
            if producer as usize >= PRODUCERS_MAX {
                let path = format!("clocks[{at}].producers");
                return Err(ApiError::field(
                    path,
                    format!("expected numbers below {PRODUCERS_MAX}"),
                ));
            }
            let (at_ns, ahead_ns, drift_ppb) = (clock.at_ns, clock.ahead_ns, clock.drift_ppb);
            let ahead = Ahead {
                at_ns,
                ahead_ns,
                drift_ppb,
            };
            foreign.push((producer, ahead));
        }
    }
    let known = Arc::new(Clocks::new(foreign));
    Ok(Json(handle.ask(|reply| Ask::Clocks(known, reply)).await?))
}

async fn probe_clocks(State(app): Shared, Body(body): Body<request::ProbeClocks>) -> Answer<Value> {
    let address = app.address.get().copied();
    let address = address.ok_or_else(|| ApiError::internal("the worker has no address yet"))?;
    let mut probe = app.clock.lock().unwrap_or_else(PoisonError::into_inner);
    let running = match probe.as_ref() {
        Some(running) => running,
        None => {
            let started = ClockProbe::start(address)
                .map_err(|error| ApiError::internal(format!("no clock probe could be started: {error}")))?;
            probe.insert(started)
        }
    };
    running.aim(&body)?;
    Ok(Json(json!({"port": running.port()})))
}

async fn clock_samples(State(app): Shared, request: Request) -> Answer<Value> {
    let Query(query) = Query::<request::ClockQuery>::try_from_uri(request.uri())
        .map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    let probe = app.clock.lock().unwrap_or_else(PoisonError::into_inner);
    let (next, samples) = probe
        .as_ref()
        .map_or((0, Vec::new()), |probe| probe.since(query.since));
    Ok(Json(json!({"next": next, "samples": samples})))
}

fn offset(field: &str, seconds: Option<f64>) -> Result<Option<i64>, ApiError> {
    seconds
        .map(|seconds| check::within(field, seconds, 0.0, check::DURATION_S_MAX, "seconds").map(check::ns))
        .transpose()
}

async fn stop(State(app): Shared, Path(id): Path<String>, Body(body): Body<request::Stop>) -> Answer<Status> {
    let handle = app.find(&id)?;
    let at_ns = offset("at_s", body.at_s)?;
    Ok(Json(handle.ask(|reply| Ask::Stop(at_ns, reply)).await?))
}

async fn pause(
    State(app): Shared,
    Path((id, name)): Path<(String, String)>,
    Body(_): Body<request::Nothing>,
) -> Answer<Status> {
    let handle = app.find(&id)?;
    Ok(Json(handle.ask(|reply| Ask::Pause(name, true, reply)).await?))
}

async fn resume(
    State(app): Shared,
    Path((id, name)): Path<(String, String)>,
    Body(_): Body<request::Nothing>,
) -> Answer<Status> {
    let handle = app.find(&id)?;
    Ok(Json(handle.ask(|reply| Ask::Pause(name, false, reply)).await?))
}

async fn intervals(
    State(app): Shared,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let handle = app.find(&id)?;
    let Query(query) =
        Query::<request::IntervalsQuery>::try_from_uri(request.uri()).map_err(|rejection| {
            ApiError::bad_request(format!(
                "the query could not be read: {}; expected for instance ?since=12&limit=100",
                rejection.body_text()
            ))
        })?;
    let limit = check::within(
        "limit",
        query.limit as f64,
        1.0,
        INTERVALS_MAX as f64,
        "intervals",
    )? as usize;
    let (complete, intervals) = handle
        .ask(|reply| Ask::Intervals(query.since, limit, reply))
        .await?;
    let next = intervals
        .last()
        .map_or(query.since.min(complete), |last| last.index() + 1);
    // Written as text at once: the sum of a distribution may be longer than a number of serde_json's own values.
    #[derive(serde::Serialize)]
    struct Out<'a> {
        next: u64,
        intervals: Vec<&'a crate::collector::Interval>,
    }
    let out = Out {
        next,
        intervals: intervals.iter().map(|interval| &**interval).collect(),
    };
    Ok(Json(out).into_response())
}

async fn counters(State(app): Shared, Path(id): Path<String>) -> Answer<crate::collector::CountersOut> {
    Ok(Json(app.find(&id)?.ask(Ask::Counters).await?))
}

async fn lease(
    State(app): Shared,
    Path(id): Path<String>,
    Body(_): Body<request::Nothing>,
) -> Answer<Status> {
    Ok(Json(app.find(&id)?.ask(Ask::Lease).await?))
}

async fn finish(
    State(app): Shared,
    Path(id): Path<String>,
    Body(body): Body<request::Finish>,
) -> Answer<Value> {
    let handle = app.find(&id)?;
    let drain_ns = check::ns(check::within("drain_s", body.drain_s, 0.0, 86_400.0, "seconds")?);
    let quiet_ns = check::ns(check::within("quiet_s", body.quiet_s, 0.01, 86_400.0, "seconds")?);
    let mut answer = handle.begin(|reply| Ask::Finish(drain_ns, quiet_ns, reply))?;
    loop {
        match tokio::time::timeout(RENEWAL, &mut answer).await {
            Ok(Ok(result)) => return Ok(Json((*result?).clone())),
            Ok(Err(_)) => return Err(handle.gone()),
            // The caller still waits; when it hangs up, this future ends and the lease runs out.
            Err(_) => drop(handle.ask(Ask::Lease).await),
        }
    }
}

/// Judges the books of several workers. Touches no trial.
async fn judge(State(app): Shared, body: Bytes) -> Answer<Value> {
    think(&app, move || books::judge(request::parse(&body)?))
        .await
        .map(Json)
}

async fn abort(
    State(app): Shared,
    Path(id): Path<String>,
    Body(_): Body<request::Nothing>,
) -> Answer<Status> {
    Ok(Json(app.find(&id)?.ask(Ask::Abort).await?))
}

async fn shutdown(State(app): Shared, Body(_): Body<request::Nothing>) -> Json<Value> {
    if let Some(handle) = app.trial() {
        // The process is about to end, whatever the trial says.
        let _ = handle.ask(Ask::Abort).await;
    }
    app.shutdown.notify_one();
    Json(json!({"state": "shutting down"}))
}
