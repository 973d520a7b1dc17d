//! Requests with a deadline, over several endpoints.

use std::future::ready;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::codegen::BoxFuture;
use tonic::{Code, Status};
use tracing::{debug, warn};

use super::endpoint::{Connection, Endpoint, check_version, within};
use super::failure::{Attempts, Failure, Trouble};
use super::options::{EtcdOptions, Password};
use super::rpc::{Answer, AuthenticateRequest, StatusRequest, Unary};
use super::runtime::Runtime;
use super::session::{Session, Token};

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
    calls: Arc<Calls>,
    runtime: Runtime,
}

/// Makes requests, on the client's thread.
#[derive(Debug)]
pub(crate) struct Calls {
    endpoints: Vec<Endpoint>,
    /// Which of them is asked, modulo their number.
    current: AtomicUsize,
    deadline: Duration,
    user: Option<(String, Password)>,
    login: Mutex<Login>,
    /// The cluster that was asked first.
    cluster: OnceLock<u64>,
}

/// What makes an attempt at a request.
type Attempt<'a, T> = &'a (dyn Fn(Session) -> BoxFuture<T, Status> + Sync);

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
        let calls = Calls {
            endpoints: names.zip(targets).map(|(name, target)| Endpoint::new(name, target)).collect(),
            current: AtomicUsize::new(0),
            deadline: options.deadline,
            user: options.user.clone(),
            login: Mutex::new(Login::Due),
            cluster: OnceLock::new(),
        };
        Ok(Client { calls: Arc::new(calls), runtime: Runtime::start()? })
    }

    /// Connects to an endpoint, logs in, and checks the version.
    pub(crate) fn connect(&self) -> Result<(), Failure> {
        let nothing = |_| -> BoxFuture<(), Status> { Box::pin(ready(Ok(()))) };
        self.call(move |calls| async move { calls.request(Repeat::Allowed, &nothing).await })
    }

    /// Asks one question.
    pub(crate) fn ask<Q: Unary>(&self, repeat: Repeat, question: Q) -> Result<Q::Answer, Failure> {
        self.call(move |calls| async move { calls.ask(repeat, &question).await })
    }

    /// Does work that makes several requests. Each has a deadline; the work must end by itself.
    pub(crate) fn call<T, W, F>(&self, work: W) -> Result<T, Failure>
    where
        T: Send + 'static,
        W: FnOnce(Arc<Calls>) -> F,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        self.runtime.wait_for(work(self.calls.clone()))?
    }
}

impl Calls {
    /// Asks one question, of one endpoint after the other.
    pub(crate) async fn ask<Q: Unary>(&self, repeat: Repeat, question: &Q) -> Result<Q::Answer, Failure> {
        let make = |session: Session| -> BoxFuture<Q::Answer, Status> {
            let question = question.clone();
            Box::pin(async move { session.ask(question).await })
        };
        self.request(repeat, &make).await
    }

    /// Makes one request. `make` is called for each attempt.
    pub(crate) async fn request<T: Answer>(
        &self,
        repeat: Repeat,
        make: Attempt<'_, T>,
    ) -> Result<T, Failure> {
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
            let (message, may_be_taken) = match self.attempt(endpoint, share, until, make).await {
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
    async fn attempt<T: Answer>(
        &self,
        endpoint: &Endpoint,
        share: Instant,
        until: Instant,
        make: Attempt<'_, T>,
    ) -> Result<T, Trouble> {
        let connection = endpoint.connect(share).await?;
        let result = self.attempt_on(endpoint, &connection, share, until, make).await;
        if let Err(Trouble::Uncertain { is_lost: true, .. }) = result {
            endpoint.forget(&connection).await;
        }
        result
    }

    async fn attempt_on<T: Answer>(
        &self,
        endpoint: &Endpoint,
        connection: &Arc<Connection>,
        share: Instant,
        until: Instant,
        make: Attempt<'_, T>,
    ) -> Result<T, Trouble> {
        let start = Instant::now();
        let silent = || Trouble::Uncertain { message: format!("no answer {}", within(start)), is_lost: true };
        let mut session = Session { channel: connection.channel.clone(), token: None };
        // The request itself has not been made yet, whatever happens to these.
        let prepared = timeout_at(share, async {
            session.token = self.token(&session).await?;
            if !connection.is_checked.load(Ordering::Relaxed) {
                self.check(&session).await?;
                connection.is_checked.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        match prepared.await.unwrap_or_else(|_| Err(silent())) {
            Ok(()) => {}
            Err(Trouble::Uncertain { message, .. }) => {
                endpoint.forget(connection).await;
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
        match session.ask(request).await {
            Ok(answer) => {
                let foreign = |_| Failure::Foreign { message: "its token cannot be sent back".to_owned() };
                let mut token: Token = answer.token.parse().map_err(foreign).map_err(Trouble::Final)?;
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
        // A member without a leader knows its version, too.
        let answer = session.ask_any_member(StatusRequest {}).await;
        let answer = answer.map_err(|status| self.trouble(&status))?;
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
    fn at(&self, endpoint: &Endpoint, mut failure: Failure) -> Failure {
        if let Failure::Denied { message } | Failure::Foreign { message } = &mut failure
            && self.endpoints.len() > 1
        {
            *message = format!("{}: {message}", endpoint.name);
        }
        failure
    }
}
