//! The class `Server`.

use std::io;
use std::net::ToSocketAddrs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use percolator_files::shown;
use percolator_formats::feed::Formats;
use percolator_serve::{Limits, ServeError, ServerBuilder, Tls};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;
use crate::options::{Keywords, duration, json};
use crate::process::OfProcess;
use crate::running::{Close, TURN, closed_at_exit, without_interpreter};

/// Where a server listens if nothing is said: at a port that the system chooses, for this machine.
const LISTEN: &str = "127.0.0.1:0";

struct SharedServer(OfProcess<ServerEnd>);

/// `None` once it was closed.
struct ServerEnd(Mutex<Option<percolator_serve::Server>>);

impl ServerEnd {
    fn close(&self) {
        let server = self.0.lock().take();
        drop(server);
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        without_interpreter(|| self.close());
    }
}

impl Close for SharedServer {
    fn close(&self) {
        if self.0.is_here() {
            self.0.get_anywhere().close();
        }
    }
}

/// A server of feeds, on threads of this process: clients may ask for what lies below the folder `root`, and
/// for nothing else. `percolator serve` is the same as a program of its own.
///
/// It listens at `listen` ("HOST:PORT"), by default at a port of 127.0.0.1 that the system chooses, or at the
/// Unix socket `unix` alone. Tickets are signed with the key in the file `key`, which is made if it is not
/// there; without one they are of no use to another server. Clients need `token` (one, or one of several), if
/// it is set, or a certificate of one of the `client_authorities`. Addresses that other machines reach need a
/// `certificate` and its `private_key`, or `insecure=True`. `memory_limit` (in bytes) and `threads` are for
/// all feeds together, `window` is how many batches a client may have and not acknowledge, and `patience` and
/// `join_within` are how many seconds a client may do nothing, and how many the first batch waits for
/// clients.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Server {
    shared: Arc<SharedServer>,
    /// The addresses for clients.
    #[pyo3(get)]
    addresses: Vec<String>,
}

/// A number that is not 0.
fn counted(keywords: &mut Keywords<'_>, name: &'static str) -> PyResult<Option<NonZeroUsize>> {
    let Some(number) = keywords.take(name)? else { return Ok(None) };
    let number =
        NonZeroUsize::new(number).ok_or_else(|| errors::value(format!("{name}=0: give 1 or more")))?;
    Ok(Some(number))
}

/// A time in seconds.
fn time(keywords: &mut Keywords<'_>, name: &'static str) -> PyResult<Option<Duration>> {
    let Some(seconds) = keywords.take::<f64>(name)? else { return Ok(None) };
    Ok(Some(duration(name, seconds)?.unwrap_or(Duration::MAX)))
}

fn tls(keywords: &mut Keywords<'_>) -> PyResult<Option<Tls>> {
    let certificate: Option<PathBuf> = keywords.take("certificate")?;
    let key: Option<PathBuf> = keywords.take("private_key")?;
    let clients: Option<PathBuf> = keywords.take("client_authorities")?;
    match (certificate, key, clients) {
        (Some(certificate), Some(key), None) => Ok(Some(Tls::new(certificate, key))),
        (Some(certificate), Some(key), Some(clients)) => {
            Ok(Some(Tls::new(certificate, key).clients(clients)))
        }
        (None, None, None) => Ok(None),
        _ => {
            let message = "certificate and private_key belong together, and client_authorities needs both";
            Err(errors::config(keywords.py(), message))
        }
    }
}

/// Sets what the keywords say, but where the server listens.
fn configured(mut builder: ServerBuilder, keywords: &mut Keywords<'_>) -> PyResult<ServerBuilder> {
    for token in keywords.several::<String>("token")? {
        builder = builder.token(token);
    }
    if let Some(key) = keywords.take::<PathBuf>("key")? {
        builder = builder.key_file(key);
    }
    if let Some(window) = counted(keywords, "window")? {
        builder = builder.window(window);
    }
    if let Some(patience) = time(keywords, "patience")? {
        builder = builder.patience(patience);
    }
    if let Some(within) = time(keywords, "join_within")? {
        builder = builder.join_within(within);
    }
    let mut limits = Limits::default();
    if let Some(bytes) = keywords.take("memory_limit")? {
        limits.memory_bytes = bytes;
    }
    if let Some(threads) = counted(keywords, "threads")? {
        limits.threads = threads.get();
    }
    Ok(builder.limits(limits).insecure(keywords.take("insecure")?.unwrap_or(false)))
}

/// Starts a server that listens there as well.
fn started(builder: ServerBuilder, listen: Option<&str>) -> Result<percolator_serve::Server, Unstarted> {
    let Some(listen) = listen else { return builder.start().map_err(Unstarted::Server) };
    let mut addresses = listen.to_socket_addrs().map_err(Unstarted::Address)?;
    let builder = match addresses.next() {
        Some(address) => builder.listen(address),
        None => builder,
    };
    builder.start().map_err(Unstarted::Server)
}

/// Why a server was not started.
enum Unstarted {
    Address(io::Error),
    Server(ServeError),
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (root, listen=None, **options))]
    fn new(
        py: Python<'_>,
        root: PathBuf,
        listen: Option<&str>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut keywords = Keywords::of(py, options)?;
        // The path of a socket is part of its address.
        let unix = keywords.take::<PathBuf>("unix")?.map(std::path::absolute).transpose()?;
        let tls = tls(&mut keywords)?;
        let scheme = if tls.is_some() { "grpc+tls" } else { "grpc" };
        let mut builder = configured(percolator_serve::Server::builder(root).opener(Formats), &mut keywords)?;
        keywords.finish("Server")?;
        if let Some(tls) = tls {
            builder = builder.tls(tls);
        }
        if let Some(path) = &unix {
            builder = builder.listen_unix(path);
        }
        let listen = listen.or(if unix.is_none() { Some(LISTEN) } else { None });
        let server = py.detach(|| started(builder, listen)).map_err(|error| match error {
            Unstarted::Address(error) => {
                let listen = listen.unwrap_or_default();
                errors::config(py, &format!("listen={listen:?}: {error}: give \"HOST:PORT\""))
            }
            Unstarted::Server(error) => errors::serve(py, &error),
        })?;
        let addresses = server.addresses().iter().map(|address| format!("{scheme}://{address}"));
        let socket = unix.map(|path| format!("grpc+unix://{}", path.to_string_lossy()));
        let addresses = addresses.chain(socket).collect();
        let shared = Arc::new(SharedServer(OfProcess::new(ServerEnd(Mutex::new(Some(server))))));
        closed_at_exit(&shared);
        Ok(Server { shared, addresses })
    }

    /// The address for clients, as `DataLoader(server=...)` takes it; the first, if there are several.
    #[getter]
    fn address(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// What it does at the moment: its feeds, their clients, memory and threads.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let end = self.shared.0.get(py)?;
        let status = py.detach(|| end.0.lock().as_ref().map(percolator_serve::Server::status));
        json::spec_to(py, &status.ok_or_else(|| errors::closed(py, "the server is closed"))?)
    }

    /// Ends it. Its clients get so many seconds (`drain`) to take their leave, with tickets to go on with at
    /// another server; it takes no new ones meanwhile.
    #[pyo3(signature = (drain=0.0))]
    fn close(&self, py: Python<'_>, drain: f64) -> PyResult<()> {
        let end = self.shared.0.get(py)?;
        let within = duration("drain", drain)?.unwrap_or(Duration::MAX);
        let until = Instant::now().checked_add(within);
        let left = || until.map_or(TURN, |until| until.saturating_duration_since(Instant::now()));
        while !left().is_zero() {
            let turn = left().min(TURN);
            let have_left = py.detach(|| end.0.lock().as_ref().is_none_or(|server| server.drain(turn)));
            py.check_signals()?;
            if have_left {
                break;
            }
        }
        py.detach(|| end.close());
        Ok(())
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        let end = self.shared.0.get(py)?;
        Ok(py.detach(|| end.0.lock().is_none()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py, 0.0)
    }

    fn __reduce_ex__(&self, _protocol: i32) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a server has threads, and is not pickled: send its address, which is what clients need",
        ))
    }

    fn __repr__(&self) -> String {
        format!("Server({})", shown::line(&self.addresses.join(", ")))
    }
}
