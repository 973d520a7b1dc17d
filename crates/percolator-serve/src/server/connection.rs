//! Clients' connections: TCP and Unix sockets, with or without TLS, HTTP/2 for gRPC and HTTP/1 for probes.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ServerConfig, WebPkiClientVerifier};

use super::service::{Peer, Service};
use super::{ServeError, Tls, local};

/// How long a client may take to agree on TLS.
const TLS_TIME: Duration = Duration::from_secs(10);

/// How often a client that sends nothing is asked whether it is there, and how long it may take to answer: a
/// machine that is busy answers late.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_TIME: Duration = Duration::from_secs(10);

/// How long a client may take to ask for something after it has connected, with a token if one is wanted.
const FIRST_CALL_TIME: Duration = Duration::from_secs(10);

/// The largest frame. Large frames cost less: HTTP/2's own 16 KiB take twice the processor's time.
const FRAME_BYTES: u32 = 1 << 20;

/// Connections beside those of clients: probes, and clients that come.
const MORE_CONNECTIONS: usize = 64;

/// The most calls of a connection at one time.
const CALLS: u32 = 256;

/// How long to wait after a connection could not be accepted: there may be no file descriptor left.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

pub(super) enum Listener {
    Tcp(std::net::TcpListener, Option<Acceptor>),
    Unix(std::os::unix::net::UnixListener),
}

/// Agrees on TLS with clients.
#[derive(Clone)]
pub(super) struct Acceptor(TlsAcceptor);

impl Acceptor {
    pub(super) fn of(tls: &Tls) -> Result<Self, ServeError> {
        let failed = |path: &std::path::Path, problem: &dyn std::fmt::Display| ServeError::Tls {
            path: path.to_owned(),
            problem: problem.to_string(),
        };
        let certificates = certificates(&tls.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| failed(&tls.key, &error))?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&tls.certificate, &error))?;
        let builder = match &tls.clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in self::certificates(path)? {
                    roots.add(authority).map_err(|error| failed(path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|error| failed(path, &error))?)
            }
        };
        let mut config =
            builder.with_single_cert(certificates, key).map_err(|error| failed(&tls.certificate, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Acceptor(Arc::new(config).into()))
    }
}

fn certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let failed = |problem: String| ServeError::Tls { path: path.to_owned(), problem };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
    if found.is_empty() {
        return Err(failed("it has no certificate".to_owned()));
    }
    Ok(found)
}

/// Accepts clients for as long as the server runs.
pub(super) async fn accept(listener: Listener, service: Arc<Service>, clients: usize) {
    let places =
        Arc::new(Semaphore::new(clients.saturating_add(MORE_CONNECTIONS).min(Semaphore::MAX_PERMITS)));
    let failed = |error: io::Error| tracing::error!(%error, "nobody can connect to the server");
    match listener {
        Listener::Tcp(listener, acceptor) => {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return failed(error),
            };
            loop {
                let Ok(place) = places.clone().acquire_owned().await else { return };
                let Some((stream, address)) = accepted(listener.accept().await).await else { continue };
                // Small messages, acknowledgements among them, go at once.
                let _ = stream.set_nodelay(true);
                let (service, acceptor, peer) = (service.clone(), acceptor.clone(), address.to_string());
                tokio::spawn(async move {
                    let _place = place;
                    let Some(Acceptor(acceptor)) = acceptor else {
                        return serve(stream, peer, service).await;
                    };
                    match tokio::time::timeout(TLS_TIME, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => serve(stream, peer, service).await,
                        Ok(Err(error)) => tracing::debug!(%peer, %error, "a client did not agree on TLS"),
                        Err(_) => tracing::debug!(%peer, "a client took too long to agree on TLS"),
                    }
                });
            }
        }
        Listener::Unix(listener) => {
            let listener = match tokio::net::UnixListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return failed(error),
            };
            // Clients at a socket have no addresses, and are told apart by numbers.
            let mut number = 0_u64;
            loop {
                let Ok(place) = places.clone().acquire_owned().await else { return };
                let Some((stream, _)) = accepted(listener.accept().await).await else { continue };
                number += 1;
                let (service, name) = (service.clone(), format!("unix:{number}"));
                tokio::spawn(async move {
                    let _place = place;
                    match tokio::time::timeout(TLS_TIME, local::is_local(&stream)).await {
                        Ok(Ok(true)) => {
                            let peer = Peer { name, is_known: Arc::default(), hang_up: Arc::default() };
                            local::serve(stream, service, peer).await;
                        }
                        Ok(Ok(false)) => serve(stream, name, service).await,
                        Ok(Err(_)) | Err(_) => tracing::debug!("a local client said nothing"),
                    }
                });
            }
        }
    }
}

/// A connection, if there is one. Otherwise, some time passes.
async fn accepted<T>(accepted: io::Result<T>) -> Option<T> {
    match accepted {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(AFTER_FAILURE).await;
            None
        }
    }
}

/// Answers a client's requests until either hangs up.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    name: String,
    service: Arc<Service>,
) {
    let hang_up = Arc::new(Notify::new());
    let is_known = Arc::new(AtomicBool::new(false));
    let peer = Peer { name: name.clone(), is_known: is_known.clone(), hang_up: hang_up.clone() };
    let answer = service_fn(move |request| service.clone().answer(request, peer.clone()));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(FIRST_CALL_TIME);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(CALLS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIME);
    let connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
    let hung_up = pin!(async {
        let asked_in_time = async {
            tokio::time::sleep(FIRST_CALL_TIME).await;
            if is_known.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        if let Either::Left(_) = select(pin!(hang_up.notified()), pin!(asked_in_time)).await {
            tracing::warn!(
                peer = %name,
                "hung up on a client that takes nothing, and does not notice that it is no longer waited for"
            );
        }
    });
    match select(connection, hung_up).await {
        Either::Left((Err(error), _)) => tracing::debug!(peer = %name, %error, "a connection ended"),
        Either::Left((Ok(()), _)) | Either::Right(_) => {}
    }
}
