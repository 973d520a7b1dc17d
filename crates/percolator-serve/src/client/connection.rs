//! Connections to a server: TCP and Unix sockets, with or without TLS.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderValue;
use http::uri::Authority;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, SignatureScheme};

use super::call::CallBody;
use super::error::ClientError;
use super::receive::Malformed;
use super::runtime::ConnectionTasks;
use crate::grpc::{Code, Status};

/// How long a connection may take, and TLS on it.
const DIAL_TIME: Duration = Duration::from_secs(10);

/// How often a server is asked whether it is there, and how long it may take to answer.
const PING: Duration = Duration::from_secs(10);

/// The largest frame. Large frames cost less: HTTP/2's own 16 KiB take twice the processor's time.
const FRAME_BYTES: u32 = 1 << 20;

/// The most bytes under way. With less, distance limits the rate; with more, they pile up.
const WINDOW_BYTES: u32 = 16 << 20;

/// What a token has before it, as the value of a header.
const BEARER: &str = "Bearer ";

/// Makes a client's connections. Each call has one of its own, because on one connection a stream that nobody
/// reads keeps the others from coming.
pub(crate) struct Dialer {
    /// What the server's score is made of: its place in the list that the client was given, or its address.
    pub(crate) name: String,
    pub(crate) url: String,
    place: Place,
    /// What requests name as their host.
    pub(crate) authority: Authority,
    tls: Option<(ClientConfig, ServerName<'static>)>,
    has_identity: bool,
    pub(crate) token: Option<HeaderValue>,
    tasks: ConnectionTasks,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
    /// A Unix socket at which calls are made over Flight, and lanes are taken in the server's memory.
    Shared(PathBuf),
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialer").field(&self.url).finish()
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) sender: SendRequest<CallBody>,
    no_identity: Arc<NoIdentity>,
}

/// What a client shows who has no certificate. It remembers whether it was asked for one: servers say it only
/// later, and not always so that the client hears it.
#[derive(Debug, Default)]
struct NoIdentity {
    was_asked: AtomicBool,
}

impl ResolvesClientCert for NoIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.was_asked.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Bytes both ways.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl Dialer {
    pub(crate) fn new(
        name: String,
        url: String,
        token: Option<&str>,
        authorities: Option<&Path>,
        identity: Option<(&Path, &Path)>,
        tasks: ConnectionTasks,
    ) -> Result<Self, ClientError> {
        let address = |what| ClientError::Address { url: url.clone(), what };
        let certificates = |what| ClientError::Certificates { url: url.clone(), what };
        let (place, authority, has_tls) = parsed(&url).map_err(address)?;
        let tls = match (&place, has_tls, authorities) {
            (Place::Tcp(host, _), true, Some(authorities)) => {
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|_| address("its host is one that no certificate can name"))?;
                Some((tls_config(authorities, identity)?, name))
            }
            (_, true, _) => {
                return Err(certificates(
                    "has TLS: name who signed its certificate, a PEM file, by `authorities`",
                ));
            }
            (_, false, None) if identity.is_none() => None,
            (_, false, _) => {
                return Err(certificates("has no TLS, and certificates were named: grpc+tls:// has it"));
            }
        };
        let token = token.map(|token| HeaderValue::from_str(&format!("{BEARER}{token}"))).transpose();
        let mut token = token.map_err(|_| ClientError::TokenCharacters)?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        Ok(Dialer { name, url, place, authority, tls, has_identity: identity.is_some(), token, tasks })
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The socket of a server that shares its memory.
    pub(crate) fn shared(&self) -> Option<&Path> {
        match &self.place {
            Place::Shared(path) => Some(path),
            Place::Tcp(..) | Place::Unix(_) => None,
        }
    }

    /// The token itself.
    pub(crate) fn token_text(&self) -> Option<&str> {
        self.token.as_ref()?.to_str().ok()?.strip_prefix(BEARER)
    }

    /// Connects.
    pub(crate) async fn dial(self: &Arc<Self>) -> Result<Link, ClientError> {
        let no_identity: Arc<NoIdentity> = Arc::default();
        let socket = match tokio::time::timeout(DIAL_TIME, self.socket(&no_identity)).await {
            Ok(socket) => socket?,
            Err(_) => return Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        };
        let mut builder = Builder::new(self.tasks.clone());
        builder
            .timer(TokioTimer::new())
            .max_frame_size(FRAME_BYTES)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        let begun = builder.handshake(TokioIo::new(socket)).await;
        let (sender, connection) = begun.map_err(|error| self.unanswered(&no_identity, error))?;
        hyper::rt::Executor::execute(&self.tasks, async {
            // Whose call it is gets the error.
            let _ = connection.await;
        });
        Ok(Link { dialer: self.clone(), sender, no_identity })
    }

    async fn socket(&self, no_identity: &Arc<NoIdentity>) -> Result<Box<dyn Socket>, ClientError> {
        let socket: Box<dyn Socket> = match &self.place {
            Place::Unix(path) | Place::Shared(path) => {
                Box::new(UnixStream::connect(path).await.map_err(|error| self.unreachable(error))?)
            }
            Place::Tcp(host, port) => {
                let socket = TcpStream::connect((&**host, *port)).await;
                let socket = socket.map_err(|error| self.unreachable(error))?;
                // Acknowledgements are short, and go at once.
                socket.set_nodelay(true).map_err(|error| self.unreachable(error))?;
                Box::new(socket)
            }
        };
        let Some((config, name)) = &self.tls else { return Ok(socket) };
        let mut config = config.clone();
        if !self.has_identity {
            config.client_auth_cert_resolver = no_identity.clone();
        }
        match TlsConnector::from(Arc::new(config)).connect(name.clone(), socket).await {
            Ok(socket) => Ok(Box::new(socket)),
            Err(error) if no_identity.was_asked.load(Ordering::Relaxed) => {
                Err(ClientError::NoCertificate { url: self.url.clone(), error: error.into() })
            }
            Err(error) if error.get_ref().is_some_and(|error| error.is::<rustls::Error>()) => {
                Err(ClientError::Tls { url: self.url.clone(), error })
            }
            Err(error) => Err(self.unreachable(error)),
        }
    }

    pub(crate) fn unreachable(&self, error: io::Error) -> ClientError {
        ClientError::Connect { url: self.url.clone(), error }
    }

    fn unanswered(&self, no_identity: &NoIdentity, error: hyper::Error) -> ClientError {
        let (url, error) = (self.url.clone(), error.into());
        match no_identity.was_asked.load(Ordering::Relaxed) {
            true => ClientError::NoCertificate { url, error },
            false => ClientError::Unanswered { url, error },
        }
    }

    pub(crate) fn malformed(&self, Malformed(found): Malformed) -> ClientError {
        ClientError::Malformed { url: self.url.clone(), found }
    }

    pub(crate) fn cut_off(&self) -> ClientError {
        ClientError::CutOff { url: self.url.clone() }
    }

    pub(crate) fn broken(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Broken { url: self.url.clone(), error: error.into() }
    }

    pub(crate) fn unmapped(&self, error: io::Error) -> ClientError {
        ClientError::Unmapped { url: self.url.clone(), error }
    }

    pub(crate) fn refused(&self, status: Status) -> ClientError {
        let url = self.url.clone();
        match status.code {
            Code::Unauthenticated => ClientError::Token { url, message: status.message },
            _ => ClientError::Refused { url, status },
        }
    }
}

impl Link {
    /// Why there is no answer.
    pub(crate) fn unanswered(&self, error: hyper::Error) -> ClientError {
        self.dialer.unanswered(&self.no_identity, error)
    }
}

/// Refuses what is no address of a server.
#[cfg(feature = "fleet")]
pub(crate) fn check_address(url: &str) -> Result<(), ClientError> {
    parsed(url).map(drop).map_err(|what| ClientError::Address { url: url.to_owned(), what })
}

/// Where a server is, what requests name as their host, and whether it has TLS.
fn parsed(url: &str) -> Result<(Place, Authority, bool), &'static str> {
    let Some((scheme, rest)) = url.split_once("://") else { return Err("it has no scheme") };
    let local = || Authority::from_static("localhost");
    let has_tls = match scheme {
        "grpc" | "grpc+tcp" => false,
        "grpc+tls" => true,
        "grpc+unix" | "shared" if !rest.starts_with('/') => return Err("the path of a socket begins with /"),
        "grpc+unix" => return Ok((Place::Unix(rest.into()), local(), false)),
        "shared" => return Ok((Place::Shared(rest.into()), local(), false)),
        _ => return Err("its scheme is another"),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return Err("a user is named by a token, not in the address");
    }
    let authority: Authority = rest.parse().map_err(|_| "what follows the scheme is not HOST:PORT")?;
    let port = authority.port_u16().ok_or("it has no port")?;
    let host = authority.host();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err("it has no host");
    }
    Ok((Place::Tcp(host.to_owned(), port), authority, has_tls))
}

fn tls_config(authorities: &Path, identity: Option<(&Path, &Path)>) -> Result<ClientConfig, ClientError> {
    const AUTHORITIES: &str = "certificates of authorities";
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities, AUTHORITIES)? {
        roots.add(authority).map_err(|error| unusable(authorities, AUTHORITIES, error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has ciphers of each version")
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            const KEY: &str = "key of the client's certificate";
            let chain = certificates(certificate, "client's certificate")?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, KEY, error))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| unusable(key, KEY, error))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let read = CertificateDer::pem_file_iter(path).and_then(|found| found.collect::<Result<Vec<_>, _>>());
    let found = read.map_err(|error| unusable(path, what, error))?;
    match found.is_empty() {
        true => Err(unusable(path, what, rustls::pki_types::pem::Error::NoItemsFound)),
        false => Ok(found),
    }
}

fn unusable(
    path: &Path,
    what: &'static str,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ClientError {
    ClientError::Pem { what, path: path.to_owned(), error: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_flight() {
        let tcp = |host: &str| Place::Tcp(host.to_owned(), 8815);
        for (url, place, host, has_tls) in [
            ("grpc://localhost:8815", tcp("localhost"), "localhost:8815", false),
            ("grpc+tcp://10.0.0.1:8815/", tcp("10.0.0.1"), "10.0.0.1:8815", false),
            ("grpc+tls://[::1]:8815", tcp("::1"), "[::1]:8815", true),
            ("grpc+unix:///run/a b.sock", Place::Unix("/run/a b.sock".into()), "localhost", false),
            ("shared:///run/a b.sock", Place::Shared("/run/a b.sock".into()), "localhost", false),
        ] {
            assert_eq!(parsed(url), Ok((place, host.parse().unwrap(), has_tls)), "{url}");
        }
        for (url, what) in [
            ("localhost:8815", "it has no scheme"),
            ("http://localhost:8815", "its scheme is another"),
            ("grpc+unix://run/a.sock", "the path of a socket begins with /"),
            ("shared://run/a.sock", "the path of a socket begins with /"),
            ("grpc://localhost", "it has no port"),
            ("grpc://:8815", "it has no host"),
            ("grpc://a:b@localhost:8815", "a user is named by a token, not in the address"),
            ("grpc://local host:8815", "what follows the scheme is not HOST:PORT"),
            ("grpc://localhost:8815/feed", "what follows the scheme is not HOST:PORT"),
        ] {
            assert_eq!(parsed(url), Err(what), "{url}");
        }
    }
}
