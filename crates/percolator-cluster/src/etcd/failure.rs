//! What can go wrong on the way to etcd, and what that says about whether a request was executed.

use std::error::Error;
use std::fmt;
use std::io;
use std::iter::successors;
use std::time::Duration;

use percolator_files::shown;
use tonic::{Code, ConnectError, Status};

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No endpoint answered until the deadline, or one failed that may have taken what is not to be done
    /// twice.
    NoAnswer { attempts: Attempts, waited: Duration },
    /// The cluster answered with an error.
    Answer { code: Code, message: String },
    /// The endpoint is not who it should be, or does not take us for who we are.
    Denied { message: String },
    /// The endpoint is not of a cluster that can be used, or answers with what cannot be understood.
    Foreign { message: String },
}

/// What became of one attempt.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The request was certainly not taken. Another endpoint, or this one in a while, may take it.
    NotTaken(String),
    /// The request may have been taken. `is_lost`: nothing is to be expected of the connection.
    Uncertain { message: String, is_lost: bool },
    /// The request was not taken, since the token is no longer valid.
    Token(String),
    /// It ends here.
    Final(Failure),
}

/// What each endpoint did when it was last tried.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Vec<(String, String)>);

impl Attempts {
    pub(super) fn note(&mut self, endpoint: &str, message: String) {
        match self.0.iter_mut().find(|(known, _)| known == endpoint) {
            Some((_, last)) => *last = message,
            None => self.0.push((endpoint.to_owned(), message)),
        }
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(|(endpoint, message)| format!("{endpoint}: {message}")).collect();
        f.write_str(&all.join("; "))
    }
}

impl Error for Attempts {}

impl Trouble {
    /// What an error says about its request.
    pub(super) fn of(status: &Status) -> Self {
        if let Some(cause) = status.source() {
            return Self::of_transport(cause);
        }
        // What etcd says has no cause here.
        let message = shown::message(status.message()).to_string();
        let says = |part: &str| status.message().contains(part);
        match status.code() {
            _ if says("invalid auth token") || says("revision of auth store is old") => Self::Token(message),
            _ if says("revision in header is old") => Self::Token(message),
            // It was checked before the request was.
            Code::Unavailable if says("etcdserver: no leader") || says("not supported for learner") => {
                Self::NotTaken(message)
            }
            Code::ResourceExhausted if says("too many requests") => Self::NotTaken(message),
            _ if says("raft proposal dropped") => Self::NotTaken(message),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Aborted => {
                Self::Uncertain { message, is_lost: false }
            }
            code => Self::Final(Failure::Answer { code, message }),
        }
    }

    /// What an error of the connection says about the request that it was made for, or that went over it.
    pub(super) fn of_transport(error: &(dyn Error + 'static)) -> Self {
        let mut message = with_causes(error);
        if let Some(tls) = find(error, &|cause| cause.downcast_ref::<rustls::Error>().cloned()) {
            let hint = match tls {
                rustls::Error::InvalidMessage(_) => "; if it does not speak TLS, say http://",
                rustls::Error::InvalidCertificate(_) => "; check the root certificates and the host's name",
                _ => "",
            };
            return Self::Final(Failure::Denied { message: format!("{tls}{hint}") });
        }
        // Of an error after the handshake, only the text is passed on.
        if message.contains("received fatal alert") {
            message.push_str("; check the client certificate");
            return Self::Final(Failure::Denied { message });
        }
        match find(error, &|cause| cause.is::<ConnectError>().then_some(())) {
            Some(()) => Self::NotTaken(message),
            None => Self::Uncertain { message, is_lost: true },
        }
    }
}

/// Finds the first of an error and its causes for which `look` has something.
fn find<T>(error: &(dyn Error + 'static), look: &dyn Fn(&(dyn Error + 'static)) -> Option<T>) -> Option<T> {
    let mut causes = successors(Some(error), |&error| {
        // An I/O error skips the error that it wraps.
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    });
    causes.find_map(look)
}

/// An error with its causes, each of them once.
pub(super) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = successors(Some(error), |&error| error.source());
    let mut all: Vec<_> = causes.map(|error| shown::message(&error.to_string()).to_string()).collect();
    // tonic wraps some errors in others that say the same.
    all.dedup();
    // tonic's own layer says no more than this.
    all.retain(|message| message != "transport error");
    all.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_says_decides_whether_a_request_was_taken() {
        let of = |code, message: &str| format!("{:?}", Trouble::of(&Status::new(code, message)));
        assert!(of(Code::Unavailable, "etcdserver: no leader").starts_with("NotTaken"));
        assert!(of(Code::ResourceExhausted, "etcdserver: too many requests").starts_with("NotTaken"));
        assert!(of(Code::Unknown, "raft proposal dropped").starts_with("NotTaken"));
        assert!(of(Code::Unavailable, "etcdserver: request timed out").starts_with("Uncertain"));
        assert!(of(Code::Unavailable, "etcdserver: leader changed").starts_with("Uncertain"));
        assert!(of(Code::Unauthenticated, "etcdserver: invalid auth token").starts_with("Token"));
        assert!(of(Code::Unknown, "auth: revision in header is old").starts_with("Token"));
        let old = "etcdserver: revision of auth store is old";
        assert!(of(Code::InvalidArgument, old).starts_with("Token"));
        let learner = "etcdserver: rpc not supported for learner";
        assert!(of(Code::Unavailable, learner).starts_with("NotTaken"));
        assert!(
            of(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded").starts_with("Final")
        );
    }

    #[test]
    fn the_cause_is_found_behind_an_io_error() {
        let refused = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let error = ConnectError(Box::new(io::Error::new(io::ErrorKind::InvalidData, refused)));
        let Trouble::Final(Failure::Denied { message }) = Trouble::of_transport(&error) else { panic!() };
        assert!(message.contains("UnknownIssuer") && message.contains("root certificates"), "{message}");
        let error = ConnectError(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)));
        assert!(matches!(Trouble::of_transport(&error), Trouble::NotTaken(_)));
        let error = io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(matches!(Trouble::of_transport(&error), Trouble::Uncertain { is_lost: true, .. }));
    }

    #[test]
    fn each_endpoint_is_named_once() {
        let mut attempts = Attempts::default();
        attempts.note("http://a:1", "refused".to_owned());
        attempts.note("http://b:1", "refused".to_owned());
        attempts.note("http://a:1", "no answer".to_owned());
        assert_eq!(attempts.to_string(), "http://a:1: no answer; http://b:1: refused");
    }
}
