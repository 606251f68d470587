//! The HTTP server: a thread, a bounded number of connections, and one function that answers.
//!
//! # Why
//! The page and the metrics are read by few, and must not cost the host what its disks are for; nor must a reader that
//! hangs keep others out for good.
//!
//! # How it works
//! One thread runs everything (tokio's current-thread runtime, hyper for HTTP/1.1). Each connection has a task; there
//! are at most [`CONNECTIONS_MAX`], further ones wait in the kernel's queue. A request line and headers must come
//! within [`HEAD_TIME`], a connection ends after [`CONNECTION_TIME`] (browsers make another). Bodies of requests are
//! never read. Answers are made from what the sampling thread left ([`super::sampling`]); nothing here touches a disk.
//!
//! # Limits
//! No TLS and no passwords: beyond loopback put a proxy before it.
//!
//! # Example
//! `curl http://127.0.0.1:9650/metrics`.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, oneshot, watch};

use super::document;
use super::guard::Guard;
use super::sampling::{Shared, Statistics};
use crate::screen;

/// The most connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// In which the head of a request must come.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// After which a connection ends.
const CONNECTION_TIME: Duration = Duration::from_secs(600);
/// In which open connections may end when the server does.
const END_TIME: Duration = Duration::from_secs(2);
/// The most bytes of a head.
const HEAD_BYTES: usize = 16 << 10;
/// How long to wait where the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Serves until `end` is told.
pub(super) fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    guard: Guard,
    end: oneshot::Receiver<()>,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (ending, is_ending) = watch::channel(false);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let accepting = accept(listener, Arc::clone(&room), shared, Arc::new(guard), is_ending);
        tokio::select! {
            () = accepting => {}
            _ = end => {}
        }
        // Open connections finish what they are at.
        let _ = ending.send(true);
        let _ = tokio::time::timeout(END_TIME, room.acquire_many(CONNECTIONS_MAX as u32)).await;
        Ok(())
    })
}

async fn accept(
    listener: tokio::net::TcpListener,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
    guard: Arc<Guard>,
    is_ending: watch::Receiver<bool>,
) {
    let mut has_told = false;
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, guard, is_ending) = (Arc::clone(&shared), Arc::clone(&guard), is_ending.clone());
                tokio::spawn(async move {
                    connection(TokioIo::new(stream), shared, guard, is_ending).await;
                    drop(place);
                });
            }
            Err(error) => {
                // A client that went away, or no more descriptors: the next may be better.
                if !std::mem::replace(&mut has_told, true) {
                    screen::warning(&format!("a connection could not be accepted: {error}"));
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TokioIo<tokio::net::TcpStream>,
    shared: Arc<Shared>,
    guard: Arc<Guard>,
    mut is_ending: watch::Receiver<bool>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &shared, &guard);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_BYTES);
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service));
    tokio::select! {
        // What went wrong with a connection concerns its client only.
        _ = connection.as_mut() => return,
        _ = is_ending.wait_for(|is_ending| *is_ending) => {}
        () = tokio::time::sleep(CONNECTION_TIME) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(HEAD_TIME, connection).await;
}

/// Answers a request: from memory, or with what the first to ask after a look has made; nothing waits.
fn answer(request: &Request<Incoming>, shared: &Shared, guard: &Guard) -> Response<Full<Bytes>> {
    let fixed = |text: &'static str| Bytes::from_static(text.as_bytes());
    let shown = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let (status, content_type, body) = match guard.check(request) {
        Err((status, sentence)) => (status, TEXT, Bytes::from(sentence + "\n")),
        Ok(()) => match request.uri().path() {
            "/" => (StatusCode::OK, HTML, Bytes::from(document::whole(shared))),
            "/fragment" => (StatusCode::OK, HTML, shown(&shared.fragment())),
            "/app.js" => (StatusCode::OK, "text/javascript; charset=utf-8", fixed(document::SCRIPT)),
            "/style.css" => (StatusCode::OK, "text/css; charset=utf-8", Bytes::from(document::style())),
            "/icon.svg" => (StatusCode::OK, "image/svg+xml", fixed(document::ICON)),
            "/metrics" => (StatusCode::OK, plimsoll::metrics::CONTENT_TYPE, shown(&shared.metrics())),
            "/api/stat" => {
                let Statistics { is_there, json } = shared.statistics();
                let status = if is_there { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                (status, "application/json", shown(&json))
            }
            _ => (StatusCode::NOT_FOUND, TEXT, fixed("there is /, /metrics and /api/stat\n")),
        },
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        // The body that came with it is not read.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Nothing is kept, nothing is loaded from elsewhere, and no other page may look in.
const HEADERS: [(header::HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-store"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
