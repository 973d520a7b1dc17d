//! A server of feeds.
//!
//! ```text
//! connection     accepts clients, with or without TLS
//! service        the methods of Flight: what is asked for, and who may ask
//! confine        what a client's feed may name
//! admission      what there is to give
//! registry       who shares what
//! feed           a feed that runs; its lanes fill
//! backlog        the last batches of each lane, until its clients are done with them
//! stream         one client's batches, as the body of an answer
//! local          the same for a client of this machine, whose batches do not travel
//! memory         memory that such a client can map
//! status         what goes on, for people and programs
//! ```

mod admission;
mod backlog;
mod confine;
mod connection;
mod feed;
mod local;
mod memory;
mod registry;
mod service;
mod status;
mod stream;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use percolator::feed::FeedHandle;
use percolator::source::{IndexPlace, Opener};
use percolator_files::shown;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

pub use self::status::{ClientStatus, FeedStatus, Method, ServerStatus};

use self::admission::Admission;
use self::confine::DataRoot;
use self::connection::{Acceptor, Listener};
use self::memory::Regions;
use self::registry::{LOOK_EVERY, Registry};
use self::service::{Service, Tokens};
use crate::ticket::{Key, KeyError};

/// The memory of feeds, if nothing is set and the machine does not say how much it has.
const MEMORY_BYTES: u64 = 4 << 30;

/// How often a drain looks whether all clients have left.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// How long a server that is dropped waits until its addresses are free. It takes no time, unless the system
/// stands still.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// What a server gives to its clients, at most.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams at one time; 1,000 by default.
    pub clients: usize,
    /// Feeds at one time; 64 by default.
    pub feeds: usize,
    /// The memory of all feeds, by their budgets; by default half of the machine's.
    pub memory_bytes: u64,
    /// The worker threads of all feeds, which are divided evenly; by default one a processor. Each feed has
    /// one at least.
    pub threads: usize,
    /// What a client is sent a second, in bytes; as much as it takes by default.
    pub client_bytes_per_second: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        let memory = || {
            let text = std::fs::read_to_string("/proc/meminfo").ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(512)
        };
        Limits {
            clients: 1000,
            feeds: 64,
            memory_bytes: memory().unwrap_or(MEMORY_BYTES),
            threads: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            client_bytes_per_second: None,
        }
    }
}

/// Who the server is, and who its clients must be. All files are PEM.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, and those between it and the authority's.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients' certificates, which clients then must have.
    pub clients: Option<PathBuf>,
}

impl Tls {
    /// A server with this certificate and key, and any client.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Tls { certificate: certificate.into(), key: key.into(), clients: None }
    }

    /// Clients must have a certificate of one of these authorities.
    #[must_use]
    pub fn clients(self, authorities: impl Into<PathBuf>) -> Self {
        Tls { clients: Some(authorities.into()), ..self }
    }
}

/// Is told which feeds run, to publish their metrics. While it is told, no client joins a feed or leaves one,
/// so it must neither take long nor ask the server anything.
pub trait FeedObserver: Send + Sync + 'static {
    /// A feed runs.
    fn started(&self, name: &str, handle: &FeedHandle);

    /// The feed of this name has ended.
    fn ended(&self, name: &str);
}

/// How long who is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) patience: Duration,
    pub(crate) join_within: Duration,
}

/// Why a server does not start.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The folder cannot be served.
    #[error("cannot serve {}", shown::path(path))]
    Root {
        /// The folder.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// It is to listen nowhere.
    #[error("a server listens at an address or a Unix socket, and none was named")]
    Nowhere,
    /// Others than this machine could connect, and read what is sent.
    #[error(
        "{address} can be reached from other machines, and what is sent there is not encrypted: give the \
         server a certificate (--tls-certificate, --tls-key), or say that this is what you want (--insecure)"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
    },
    /// The address is not available.
    #[error("cannot listen at {address}; is another program there?")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// The socket cannot be made.
    #[error("cannot listen at the socket {}", shown::path(path))]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// Its key cannot be had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Its certificate, or its key, cannot be used.
    #[error("{}: {problem}", shown::path(path))]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A thread cannot be started.
    #[error("cannot start the server's threads")]
    Thread(#[source] io::Error),
}

/// Describes a server: see [`Server::builder`].
#[must_use = "a server runs when it is started"]
pub struct ServerBuilder {
    root: PathBuf,
    addresses: Vec<SocketAddr>,
    sockets: Vec<PathBuf>,
    key: Option<PathBuf>,
    tokens: Vec<String>,
    tls: Option<Tls>,
    is_insecure: bool,
    limits: Limits,
    timing: Timing,
    window: NonZeroUsize,
    index: IndexPlace,
    opener: Option<Arc<dyn Opener>>,
    observer: Option<Box<dyn FeedObserver>>,
}

impl fmt::Debug for ServerBuilder {
    /// Without the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("root", &self.root)
            .field("addresses", &self.addresses)
            .field("sockets", &self.sockets)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl ServerBuilder {
    /// Listens at this address, for one more. With port 0, the system chooses one.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Listens at a Unix socket, for one more. Whoever may open its path is a client.
    pub fn listen_unix(mut self, path: impl Into<PathBuf>) -> Self {
        self.sockets.push(path.into());
        self
    }

    /// Signs tickets with the key in this file, which is made if it is not there. Without one, tickets are of
    /// no use after the server has ended.
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key = Some(path.into());
        self
    }

    /// Wants this token of clients, or another one that is given.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.tokens.push(token.into());
        self
    }

    /// Encrypts what is sent over TCP.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether addresses that other machines can reach may go without TLS.
    pub fn insecure(mut self, is_insecure: bool) -> Self {
        self.is_insecure = is_insecure;
        self
    }

    /// Limits what clients get.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a client may neither take nor acknowledge a batch that is there for it; 60 s by default.
    /// After that, it is no longer waited for.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.timing.patience = patience;
        self
    }

    /// How long the clients that share a feed are waited for at its start; 60 s by default.
    pub fn join_within(mut self, time: Duration) -> Self {
        self.timing.join_within = time;
        self
    }

    /// How many batches a client holds at most before it acknowledges them, and how far apart clients in step
    /// may be; 4 by default.
    pub fn window(mut self, batches: NonZeroUsize) -> Self {
        self.window = batches;
        self
    }

    /// Where the indexes of databases are kept; in memory by default, since a server writes nothing.
    pub fn index(mut self, place: IndexPlace) -> Self {
        self.index = place;
        self
    }

    /// Opens data of other libraries, which feeds may then name: `percolator-formats` has an opener. Without
    /// one, such feeds are refused.
    pub fn opener(mut self, opener: impl Opener + 'static) -> Self {
        self.opener = Some(Arc::new(opener));
        self
    }

    /// Tells this which feeds run.
    pub fn observer(mut self, observer: impl FeedObserver) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Starts the server, on threads of its own.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if it cannot listen, or has no folder to serve.
    pub fn start(self) -> Result<Server, ServeError> {
        let root = DataRoot::new(&self.root, self.opener.clone())
            .map_err(|error| ServeError::Root { path: self.root.clone(), error })?;
        if self.addresses.is_empty() && self.sockets.is_empty() {
            return Err(ServeError::Nowhere);
        }
        let is_open = |address: &&SocketAddr| !address.ip().is_loopback();
        if let (None, false, Some(&address)) =
            (&self.tls, self.is_insecure, self.addresses.iter().find(is_open))
        {
            return Err(ServeError::Insecure { address });
        }
        let acceptor = self.tls.as_ref().map(Acceptor::of).transpose()?;
        let key = self.key.as_deref().map_or_else(Key::new, Key::open)?;
        let tokens = Tokens::new(&self.tokens).map_err(|_| KeyError::Random)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.limits.threads.clamp(1, 4))
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(ServeError::Thread)?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in self.addresses {
            let failed = |error| ServeError::Bind { address, error };
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            listeners.push(Listener::Tcp(listener, acceptor.clone()));
        }
        let mut sockets = Vec::new();
        for path in self.sockets {
            let listener =
                bind_socket(&path).map_err(|error| ServeError::Socket { path: path.clone(), error })?;
            listeners.push(Listener::Unix(listener));
            sockets.push(SocketFile(path));
        }
        let clients = self.limits.clients;
        let registry = Arc::new(Registry::new(
            root,
            self.index,
            Admission::new(self.limits),
            key,
            Regions::new(!sockets.is_empty()),
            self.timing,
            self.window.get(),
            self.observer,
            runtime.handle().clone(),
        ));
        let service = Arc::new(Service { registry: registry.clone(), tokens });
        let accepting = Accepting::start(&runtime, listeners, &service, clients);
        let watched = registry.clone();
        runtime.spawn(async move {
            let mut ticks = tokio::time::interval(LOOK_EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                watched.look(Instant::now());
            }
        });
        Ok(Server { addresses, registry, accepting, runtime: Some(runtime), sockets })
    }
}

/// A server of feeds, on threads of its own. Dropping it ends all streams at once, and frees its addresses;
/// [`drain`](Self::drain) lets clients go on elsewhere.
pub struct Server {
    addresses: Vec<SocketAddr>,
    registry: Arc<Registry>,
    accepting: Accepting,
    /// `Some` until the drop.
    runtime: Option<Runtime>,
    sockets: Vec<SocketFile>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Server {
    /// Describes a server of the data below a folder.
    ///
    /// ```no_run
    /// use percolator_serve::Server;
    ///
    /// let server = Server::builder("/data").listen(([127, 0, 0, 1], 4433).into()).start()?;
    /// println!("listening at {:?}", server.addresses());
    /// # Ok::<(), percolator_serve::ServeError>(())
    /// ```
    pub fn builder(root: impl Into<PathBuf>) -> ServerBuilder {
        let minute = Duration::from_secs(60);
        ServerBuilder {
            root: root.into(),
            addresses: Vec::new(),
            sockets: Vec::new(),
            key: None,
            tokens: Vec::new(),
            tls: None,
            is_insecure: false,
            limits: Limits::default(),
            timing: Timing { patience: minute, join_within: minute },
            window: NonZeroUsize::MIN.saturating_add(3),
            index: IndexPlace::Memory,
            opener: None,
            observer: None,
        }
    }

    /// Returns the addresses that it listens at, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns what it does at the moment.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
        self.registry.status()
    }

    /// Takes no new clients, and ends the streams of those who are there, after the batch that is under way:
    /// each goes on elsewhere with its ticket. Waits until all have left, but no longer than this. Returns
    /// whether they have.
    pub fn drain(&self, within: Duration) -> bool {
        self.registry.drain();
        let end = Instant::now().checked_add(within);
        while self.registry.has_clients() {
            if end.is_some_and(|end| Instant::now() >= end) {
                return false;
            }
            thread::sleep(DRAIN_LOOK);
        }
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.registry.end();
        // While somebody listens there: afterwards, the path may be another server's.
        self.sockets.clear();
        // Another server may be started at its addresses at once.
        self.accepting.end();
        if let Some(runtime) = self.runtime.take() {
            // A feed that is being opened may be waiting for a disk.
            runtime.shutdown_background();
        }
    }
}

/// The tasks that listen at the server's addresses.
struct Accepting {
    tasks: Vec<AbortHandle>,
    /// Disconnects when none of them listens any more.
    closed: Mutex<Receiver<Infallible>>,
}

impl Accepting {
    fn start(runtime: &Runtime, listeners: Vec<Listener>, service: &Arc<Service>, clients: usize) -> Self {
        let (listening, closed) = channel::<Infallible>();
        let task = |listener| {
            let (service, listening) = (service.clone(), listening.clone());
            let task = runtime.spawn(async move {
                connection::accept(listener, service, clients).await;
                drop(listening);
            });
            task.abort_handle()
        };
        Accepting { tasks: listeners.into_iter().map(task).collect(), closed: Mutex::new(closed) }
    }

    fn end(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        let _ = self.closed.get_mut().recv_timeout(CLOSE_TIME);
    }
}

/// The path of a socket, which goes with the server.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens at a socket. One that a server left behind is replaced; one that somebody listens at is not.
fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            // Any other failure says nothing about who listens: it may be somebody of another account.
            let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if !is_socket || !UnixStream::connect(path).is_err_and(is_refused) {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}
