//! Requests with a deadline, over several endpoints.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Code, Status};
use tracing::{debug, warn};

use super::endpoint::{Connection, Endpoint, check_version, within};
use super::failure::{Attempts, Failure, Trouble};
use super::options::EtcdOptions;
use super::proto::{AuthenticateRequest, StatusRequest};
use super::runtime::{Lost, Runtime};
use super::session::{Answer, Session, Token};

/// The pause after all endpoints have failed.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether a request may be made again if it may have been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It does no harm twice.
    Allowed,
    /// It may be taken once.
    Forbidden,
}

/// A client of one cluster.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    runtime: Runtime,
}

#[derive(Debug)]
struct Shared {
    endpoints: Vec<Endpoint>,
    /// Which of them is asked, modulo their number.
    current: AtomicUsize,
    deadline: Duration,
    user: Option<(String, Password)>,
    login: Mutex<Login>,
    /// The cluster that was asked first.
    cluster: OnceLock<u64>,
}

/// Shows nothing of itself.
struct Password(String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

/// Whether the cluster knows who asks.
#[derive(Clone, Debug)]
enum Login {
    /// It has not been told.
    Due,
    /// It gave this.
    Token(Token),
    /// It does not ask.
    NotNeeded,
}

impl Client {
    /// Returns a client, which is not connected yet.
    pub(crate) fn new(options: &EtcdOptions, targets: Vec<tonic::transport::Endpoint>) -> io::Result<Self> {
        let names = options.endpoints.iter().cloned();
        let shared = Shared {
            endpoints: names.zip(targets).map(|(name, target)| Endpoint::new(name, target)).collect(),
            current: AtomicUsize::new(0),
            deadline: options.deadline,
            user: options.user.clone().map(|(name, word)| (name, Password(word))),
            login: Mutex::new(Login::Due),
            cluster: OnceLock::new(),
        };
        Ok(Client { shared: Arc::new(shared), runtime: Runtime::start()? })
    }

    /// Connects to an endpoint, logs in, and checks the version.
    pub(crate) fn connect(&self) -> Result<(), Failure> {
        self.call(|calls| async move { calls.connect().await })
    }

    /// Makes one request. `make` is called for each attempt.
    pub(crate) fn request<T, W, F>(&self, repeat: Repeat, make: W) -> Result<T, Failure>
    where
        T: Answer,
        W: Fn(Session) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, Status>> + Send,
    {
        self.call(move |calls| async move { calls.request(repeat, make).await })
    }

    /// Does work that makes several requests. Each has a deadline; the work must end by itself.
    pub(crate) fn call<T, W, F>(&self, work: W) -> Result<T, Failure>
    where
        T: Send + 'static,
        W: FnOnce(Calls) -> F,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let work = work(Calls(self.shared.clone()));
        self.runtime.wait_for(work).map_err(|lost| {
            let message = lost.to_string();
            match lost {
                Lost::Dropped => Failure::Foreign { message },
                Lost::Forked { .. } => Failure::Denied { message },
            }
        })?
    }
}

/// Makes requests on the client's thread.
#[derive(Clone, Debug)]
pub(crate) struct Calls(Arc<Shared>);

impl Calls {
    async fn connect(&self) -> Result<(), Failure> {
        let ready = |_: Session| std::future::ready(Ok(None));
        self.0.until_deadline::<Option<NoAnswer>, _, _>(Repeat::Allowed, ready).await.map(drop)
    }

    /// Makes one request.
    pub(crate) async fn request<T, W, F>(&self, repeat: Repeat, make: W) -> Result<T, Failure>
    where
        T: Answer,
        W: Fn(Session) -> F + Send + Sync,
        F: Future<Output = Result<T, Status>> + Send,
    {
        self.0.until_deadline(repeat, make).await
    }
}

/// Asks for nothing but a connection.
enum NoAnswer {}

impl Answer for Option<NoAnswer> {
    fn header(&self) -> Option<&super::proto::ResponseHeader> {
        None
    }
}

impl Shared {
    async fn until_deadline<T, W, F>(&self, repeat: Repeat, make: W) -> Result<T, Failure>
    where
        T: Answer,
        W: Fn(Session) -> F + Send + Sync,
        F: Future<Output = Result<T, Status>> + Send,
    {
        let start = Instant::now();
        let end = start + self.deadline;
        let count = self.endpoints.len();
        let mut attempts = Attempts::default();
        let mut is_token_new = false;
        let mut tried = 0;
        loop {
            let number = self.current.load(Ordering::Relaxed);
            let endpoint = &self.endpoints[number % count];
            // One that does not answer leaves time for those that come after it.
            let now = Instant::now();
            let left = u32::try_from(count - tried % count).unwrap_or(1);
            let share = now + end.saturating_duration_since(now) / left;
            let until = if repeat == Repeat::Allowed { share } else { end };
            let (message, may_be_taken) = match self.attempt(endpoint, share, until, &make).await {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Final(failure)) => return Err(self.at(endpoint, failure)),
                Err(Trouble::Token(message)) => {
                    *self.login.lock().await = Login::Due;
                    if is_token_new || self.user.is_none() {
                        return Err(Failure::Answer { code: Code::Unauthenticated, message });
                    }
                    is_token_new = true;
                    continue;
                }
                Err(Trouble::NotTaken(message)) => (message, false),
                Err(Trouble::Uncertain { message, .. }) => (message, true),
            };
            debug!(endpoint = %endpoint.name, %message, "an endpoint of etcd failed");
            attempts.note(&endpoint.name, message);
            // Only if no other call has moved on yet.
            let next = number.wrapping_add(1);
            let _ = self.current.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
            tried += 1;
            if tried % count == 0 {
                sleep_until(end.min(Instant::now() + PAUSE)).await;
            }
            if Instant::now() >= end || (may_be_taken && repeat == Repeat::Forbidden) {
                return Err(Failure::NoAnswer { attempts, waited: start.elapsed() });
            }
        }
    }

    /// Connects until `share` has passed, and waits for an answer until `until`.
    async fn attempt<T, W, F>(
        &self,
        endpoint: &Endpoint,
        share: Instant,
        until: Instant,
        make: &W,
    ) -> Result<T, Trouble>
    where
        T: Answer,
        W: Fn(Session) -> F + Send + Sync,
        F: Future<Output = Result<T, Status>> + Send,
    {
        let connection = endpoint.connect(share).await?;
        let number = connection.number;
        let result = self.ask(endpoint, connection, share, until, make).await;
        if let Err(Trouble::Uncertain { is_lost: true, .. }) = result {
            endpoint.forget(number).await;
        }
        result
    }

    async fn ask<T, W, F>(
        &self,
        endpoint: &Endpoint,
        connection: Connection,
        share: Instant,
        until: Instant,
        make: &W,
    ) -> Result<T, Trouble>
    where
        T: Answer,
        W: Fn(Session) -> F + Send + Sync,
        F: Future<Output = Result<T, Status>> + Send,
    {
        let Connection { channel, number, is_checked } = connection;
        let start = Instant::now();
        let silent = || Trouble::Uncertain { message: format!("no answer {}", within(start)), is_lost: true };
        let mut session = Session { channel, token: None };
        // The request itself has not been made yet, whatever happens to these.
        let prepared = timeout_at(share, async {
            session.token = self.token(&session).await?;
            if !is_checked {
                self.check(&session).await?;
                endpoint.set_checked(number).await;
            }
            Ok(())
        });
        match prepared.await.unwrap_or_else(|_| Err(silent())) {
            Ok(()) => {}
            Err(Trouble::Uncertain { message, .. }) => {
                endpoint.forget(number).await;
                return Err(Trouble::NotTaken(message));
            }
            Err(trouble) => return Err(trouble),
        }
        let answer = timeout_at(until, make(session)).await.map_err(|_| silent())?;
        let answer = answer.map_err(|status| self.trouble(&status))?;
        self.check_cluster(&answer)?;
        Ok(answer)
    }

    fn trouble(&self, status: &Status) -> Trouble {
        // A cluster that did not ask who we are has begun to.
        if self.user.is_some() && status.message().contains("user name is empty") {
            return Trouble::Token(status.message().to_owned());
        }
        Trouble::of(status)
    }

    /// Returns what says who asks, and logs in first if it must.
    async fn token(&self, session: &Session) -> Result<Option<Token>, Trouble> {
        let Some((name, password)) = &self.user else { return Ok(None) };
        let mut login = self.login.lock().await;
        match &*login {
            Login::Token(token) => return Ok(Some(token.clone())),
            Login::NotNeeded => return Ok(None),
            Login::Due => {}
        }
        let request = AuthenticateRequest { name: name.clone(), password: password.0.clone() };
        match session.login().authenticate(session.request(request)).await {
            Ok(answer) => {
                let foreign = |_| Failure::Foreign { message: "its token cannot be sent back".to_owned() };
                let mut token: Token =
                    answer.into_inner().token.parse().map_err(foreign).map_err(Trouble::Final)?;
                // It is as good as the password.
                token.set_sensitive(true);
                *login = Login::Token(token.clone());
                Ok(Some(token))
            }
            Err(status) if status.message().contains("authentication is not enabled") => {
                warn!("a user and a password are given, but etcd asks nobody for them");
                *login = Login::NotNeeded;
                Ok(None)
            }
            Err(status) => Err(Trouble::of(&status)),
        }
    }

    /// Looks at the version and the cluster of what answers.
    async fn check(&self, session: &Session) -> Result<(), Trouble> {
        // Not with `session.request`: a member without a leader knows its version, too.
        let mut request = tonic::Request::new(StatusRequest {});
        if let Some(token) = &session.token {
            request.metadata_mut().insert("token", token.clone());
        }
        let answer = session.maintenance().status(request).await;
        let answer = answer.map_err(|status| self.trouble(&status))?.into_inner();
        check_version(&answer.version).map_err(Trouble::Final)?;
        self.check_cluster(&answer)
    }

    /// Revisions and leases of two clusters have nothing to do with each other.
    fn check_cluster(&self, answer: &impl Answer) -> Result<(), Trouble> {
        let Some(header) = answer.header() else { return Ok(()) };
        let first = *self.cluster.get_or_init(|| header.cluster_id);
        if first == header.cluster_id {
            return Ok(());
        }
        Err(Trouble::Final(Failure::Foreign {
            message: format!(
                "it belongs to the cluster {:x}, and the one asked first to {first:x}: give the endpoints of \
                 one cluster; if it was set up anew, start this process again",
                header.cluster_id
            ),
        }))
    }

    /// Says which of several endpoints a failure is about.
    fn at(&self, endpoint: &Endpoint, failure: Failure) -> Failure {
        let named = |message| match self.endpoints.len() {
            1 => message,
            _ => format!("{}: {message}", endpoint.name),
        };
        match failure {
            Failure::Denied { message } => Failure::Denied { message: named(message) },
            Failure::Foreign { message } => Failure::Foreign { message: named(message) },
            failure => failure,
        }
    }
}
