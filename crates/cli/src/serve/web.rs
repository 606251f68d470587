//! The HTTP server: a thread, a bounded number of connections, and one function that answers.
//!
//! # Why
//! Clients are few, and must cost the host little. A client that hangs must not lock others out.
//!
//! # How it works
//! One thread runs everything (tokio's current-thread runtime, hyper for HTTP/1.1). Each connection has a task; their
//! number is bounded, and a new one ends an old one rather than wait for it ([`super::connections`]). A request line
//! and headers must arrive within [`HEAD_TIME`]; a connection ends after [`CONNECTION_TIME`] (browsers open another).
//! Request bodies are never read. Answers come from the results of the sampling thread ([`super::sampling`]); none
//! reads a disk.
//!
//! # Limits
//! No TLS and no passwords: beyond loopback put a proxy in front.
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
use hyper_util::rt::TokioTimer;
use tokio::sync::{oneshot, watch};

use super::connections::{Connections, Watched};
use super::document;
use super::guard::Guard;
use super::sampling::{Shared, Statistics};
use crate::screen;

/// Time within which the head of a request must arrive.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Time after which a connection ends.
const CONNECTION_TIME: Duration = Duration::from_secs(600);
/// Time that open connections have to end when the server does.
const END_TIME: Duration = Duration::from_secs(2);
const HEAD_BYTES: usize = 16 << 10;
/// Pause before the next accept if the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Serves until `end` is signalled.
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
        let mut connections = Connections::default();
        tokio::select! {
            () = accept(listener, &mut connections, shared, Arc::new(guard), is_ending) => {}
            _ = end => {}
        }
        // Let open connections finish their answers.
        let _ = ending.send(true);
        let _ = tokio::time::timeout(END_TIME, connections.ended()).await;
        Ok(())
    })
}

async fn accept(
    listener: tokio::net::TcpListener,
    connections: &mut Connections,
    shared: Arc<Shared>,
    guard: Arc<Guard>,
    is_ending: watch::Receiver<bool>,
) {
    let mut has_told = false;
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let (shared, guard, is_ending) = (Arc::clone(&shared), Arc::clone(&guard), is_ending.clone());
                let serve = |stream| connection(stream, shared, guard, is_ending);
                connections.open(stream, client.ip(), serve).await;
            }
            Err(error) => {
                // A client that disconnected, or no more descriptors: the next accept may succeed.
                if !std::mem::replace(&mut has_told, true) {
                    screen::warning(&format!("a connection could not be accepted: {error}"));
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: Watched, shared: Arc<Shared>, guard: Arc<Guard>, mut is_ending: watch::Receiver<bool>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &shared, &guard);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_BYTES);
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service));
    tokio::select! {
        // Errors of a connection concern only its client.
        _ = connection.as_mut() => return,
        _ = is_ending.wait_for(|is_ending| *is_ending) => {}
        () = tokio::time::sleep(CONNECTION_TIME) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(HEAD_TIME, connection).await;
}

/// Answers a request from memory, without waiting. The first client after a reading renders its answer.
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
        // The body of the request is not read, so close the connection.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }

    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Headers of every answer: nothing is cached, nothing is loaded from elsewhere, and no other page may embed it.
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
