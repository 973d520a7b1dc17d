//! An HTTP server for Prometheus: `GET /metrics`. Every answer has the current numbers.
//!
//! Why not the server of `metrics-exporter-prometheus`: counters of the crate `metrics` are integers, and a
//! time in seconds is not one. It would also answer with the last values of a sampler.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Notify, mpsc};

use super::Feeds;
use crate::render;

/// What clients may take of the server.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How many connections are served at one time. Others wait, and take no handle of the process.
    connections: usize,
    /// How long a client may take to send its request.
    request: Duration,
    /// How long a connection may last, from its first byte to its last. Each has one request: a client that
    /// keeps its connections to itself would hold a place between two requests.
    time: Duration,
}

/// Few, because the process may have few handles (file descriptors) left. The time is as long as Prometheus
/// waits for an answer, unless told otherwise; clients that say nothing are gone long before.
const LIMITS: Limits =
    Limits { connections: 4, request: Duration::from_secs(1), time: Duration::from_secs(10) };

/// How long to wait after a connection could not be accepted: there may be no file descriptor left.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// An address at which the metrics cannot be published.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address is not available.
    #[error("cannot publish metrics at {address}; is another program there? choose another address")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// The server's thread could not be started.
    #[error("cannot start the thread that publishes metrics")]
    Thread(#[source] io::Error),
}

/// A server of the metrics of some feeds, on a thread of its own. Dropping it ends the server.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    stop: Arc<Notify>,
    /// `Some` until the drop.
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Publishes the feeds at `http://ADDRESS/metrics`, those that are added later as well. With port 0, the
    /// system chooses one.
    ///
    /// No password is required: an address other than the loopback's shows the numbers to the network. Each
    /// connection is for one request, which must come within 1 s, and may last 10 s. 4 are served at one
    /// time. Their file descriptors are reserved from the start, so that clients take none that a feed needs.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] if the address is in use or not this machine's, there are no file descriptors, or
    /// there can be no thread.
    pub fn serve(address: SocketAddr, feeds: &Feeds) -> Result<Self, EndpointError> {
        Self::serve_within(LIMITS, address, feeds)
    }

    fn serve_within(limits: Limits, address: SocketAddr, feeds: &Feeds) -> Result<Self, EndpointError> {
        let refused = |error| EndpointError::Bind { address, error };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let reserve = (0..limits.connections).map(|_| reserved(&listener)).collect::<io::Result<Vec<_>>>();
        let reserve = reserve.map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(EndpointError::Thread)?;
        let (stop, feeds) = (Arc::new(Notify::new()), feeds.clone());
        let stopped = stop.clone();
        let serve = move || {
            // It runs while this thread waits, and is dropped with the runtime.
            runtime.spawn(accept(listener, reserve, feeds, limits));
            runtime.block_on(stopped.notified());
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(serve);
        let thread = thread.map_err(EndpointError::Thread)?;
        Ok(Endpoint { address: bound, stop, thread: Some(thread) })
    }

    /// Returns the address, with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    /// The join is short: no answer waits for anything but its client, and those under way are dropped.
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A file descriptor to close when a client comes: the client's takes its place.
fn reserved(listener: &impl AsFd) -> io::Result<OwnedFd> {
    listener.as_fd().try_clone_to_owned()
}

/// Serves clients. The file descriptors of the listener, of the reserve and of the clients are as many at any
/// time: whatever clients do, they take none that another part of the process needs.
async fn accept(listener: TcpListener, reserve: Vec<OwnedFd>, feeds: Feeds, limits: Limits) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => Arc::new(listener),
        Err(error) => return tracing::error!(%error, "the metrics are not published"),
    };
    // One place for each connection, with what is reserved for it.
    let (leave, mut places) = mpsc::unbounded_channel();
    for place in reserve {
        let _ = leave.send(place);
    }
    // This function has a sender, so the channel is never closed.
    while let Some(place) = places.recv().await {
        let mut place = Some(place);
        let accepted = poll_fn(|context| {
            // Polled at first, and whenever a client is there.
            drop(place.take());
            let accepted = listener.poll_accept(context);
            if accepted.is_pending() {
                // If another thread was faster, it has one more than it would have had.
                place = reserved(&listener).ok();
            }
            accepted
        });
        let accepted = accepted.await;
        let (leave, listener, feeds) = (leave.clone(), listener.clone(), feeds.clone());
        tokio::spawn(async move {
            match accepted {
                Ok((stream, _)) => serve(stream, feeds, limits).await,
                Err(error) => {
                    tracing::warn!(%error, "a connection for metrics could not be accepted");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
            // Without what is reserved for it, the place stays empty.
            loop {
                match reserved(&listener) {
                    Ok(place) => break drop(leave.send(place)),
                    Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
                }
            }
        });
    }
}

/// Answers one request.
async fn serve(stream: tokio::net::TcpStream, feeds: Feeds, limits: Limits) {
    let answer = service_fn(move |request| {
        let feeds = feeds.clone();
        async move { Ok::<_, Infallible>(answer(&request, &feeds)) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // A client that leaves, is slow, or sends something other than HTTP does not affect others.
    match tokio::time::timeout(limits.time, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics ended"),
        Err(_) => tracing::debug!(limit = ?limits.time, "a connection for metrics took too long"),
    }
}

fn answer(request: &Request<Incoming>, feeds: &Feeds) -> Response<Full<Bytes>> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let (status, kind, text) = match request.uri().path() {
        _ if !is_read => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "the metrics can only be read\n".into())
        }
        "/metrics" => (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", render(&feeds.numbers())),
        "/" => (StatusCode::OK, "text/plain", "percolator: the metrics are at /metrics\n".into()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "the metrics are at /metrics\n".into()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    if !is_read {
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use percolator::source::FnSource;
    use percolator::{Feed, RawBytes};

    use super::*;

    const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    /// Reads until the server closes the connection, which it may do with a reset.
    fn rest(mut stream: TcpStream) -> Vec<u8> {
        let (mut read, mut piece) = (Vec::new(), [0; 1 << 16]);
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            read.extend(&piece[..count]);
        }
        read
    }

    #[test]
    fn slow_clients_keep_nobody_waiting_for_ever() {
        let source = FnSource::new("slow", 10, |_, value| {
            value.push(0);
            Ok(())
        });
        let feed = Feed::builder().source(source).decoder(RawBytes::fixed()).build().unwrap();
        let feeds = Feeds::new();
        // Together far more than the buffers of a connection have room for.
        for number in 0..3000 {
            feeds.put(number.to_string(), feed.handle());
        }
        // Long enough for an answer that is read, on any machine. What is given up takes all of it.
        let time = Duration::from_secs(10);
        let limits = Limits { connections: 4, request: time, time };
        let endpoint = Endpoint::serve_within(limits, "127.0.0.1:0".parse().unwrap(), &feeds).unwrap();
        // All places are taken: by clients that say nothing, one that stops in the middle, and one that does
        // not read its answer.
        let connect = |said: &str| {
            let mut stream = TcpStream::connect(endpoint.address()).unwrap();
            stream.write_all(said.as_bytes()).unwrap();
            stream
        };
        let silent = [connect(""), connect(""), connect("GET /met")];
        let deaf = connect(REQUEST);
        let served = rest(connect(REQUEST));
        assert!(served.starts_with(b"HTTP/1.1 200") && served.ends_with(b"\n"), "whoever comes is served");
        for stream in silent {
            assert!(!rest(stream).starts_with(b"HTTP/1.1 200"));
        }
        assert!(rest(deaf).len() < served.len(), "an answer that nobody reads is given up");
    }

    /// The file descriptors of this process that are the listener of a port, or reserved beside it.
    #[cfg(target_os = "linux")]
    fn handles(port: u16) -> usize {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        // 127.0.0.1, listening.
        let listens = |line: &&str| line.contains(&format!(" 0100007F:{port:04X} 00000000:0000 0A "));
        let line = table.lines().find(listens).expect("the endpoint listens");
        let socket = format!("socket:[{}]", line.split_whitespace().nth(9).unwrap());
        let links = std::fs::read_dir("/proc/self/fd").unwrap().map(|link| link.unwrap().path());
        links.filter(|link| std::fs::read_link(link).is_ok_and(|to| to.as_os_str() == &*socket)).count()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn silent_clients_take_no_handles_but_those_reserved_for_them() {
        let time = Duration::from_secs(3600);
        let limits = Limits { connections: 3, request: time, time };
        let endpoint = Endpoint::serve_within(limits, "127.0.0.1:0".parse().unwrap(), &Feeds::new()).unwrap();
        let port = endpoint.address().port();
        let until = |count: usize| {
            let start = std::time::Instant::now();
            while handles(port) != count {
                assert!(start.elapsed() < Duration::from_secs(60), "{} and not {count}", handles(port));
                std::thread::yield_now();
            }
        };
        assert_eq!(handles(port), 1 + 3, "the listener, and one for each client");
        let silent: Vec<_> = (0..10).map(|_| TcpStream::connect(endpoint.address()).unwrap()).collect();
        until(1);
        drop(silent);
        until(1 + 3);
        let mut stream = TcpStream::connect(endpoint.address()).unwrap();
        stream.write_all(REQUEST.as_bytes()).unwrap();
        assert!(rest(stream).starts_with(b"HTTP/1.1 200"));
    }

    #[test]
    fn a_client_that_says_nothing_is_soon_gone() {
        let (request, time) = (Duration::from_millis(20), Duration::from_secs(3600));
        let limits = Limits { connections: 1, request, time };
        let endpoint = Endpoint::serve_within(limits, "127.0.0.1:0".parse().unwrap(), &Feeds::new()).unwrap();
        for _ in 0..3 {
            let silent = TcpStream::connect(endpoint.address()).unwrap();
            assert!(!rest(silent).starts_with(b"HTTP/1.1 200"));
        }
    }
}
