//! How etcd is reached.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percolator_files::caller::words;
use percolator_files::shown;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::metadata::KEY_BYTES_MAX;

/// How long a request may take if nothing else is said.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest deadline.
const DEADLINE_MAX: Duration = Duration::from_secs(3600);
const ENDPOINTS_MAX: usize = 64;
/// The most bytes of a file with certificates or a key.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// How often a connection with requests under way is asked whether it is still there. etcd closes connections
/// that ask more often than every five seconds.
const PING_EVERY: Duration = Duration::from_secs(10);
/// How long that may take.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// How etcd is reached, and under which keys the records are.
///
/// ```
/// use std::time::Duration;
///
/// use percolator_cluster::etcd::EtcdOptions;
///
/// let options = EtcdOptions::new(["https://etcd-0:2379", "https://etcd-1:2379"])
///     .prefix("/jobs/digits/")
///     .user("trainer", "secret")
///     .root_certificates("/etc/etcd/ca.pem")
///     .deadline(Duration::from_secs(3));
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct EtcdOptions {
    pub(crate) endpoints: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) deadline: Duration,
    pub(super) user: Option<(String, Password)>,
    allows_open_password: bool,
    root_certificates: Option<PathBuf>,
    client_certificate: Option<(PathBuf, PathBuf)>,
}

/// Shows nothing of itself.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Password(pub(super) String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl EtcdOptions {
    /// Asks these endpoints, `http://HOST:PORT` or `https://HOST:PORT`, all of one cluster: the first of them
    /// until it fails, then the next one.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        EtcdOptions {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: String::new(),
            deadline: DEADLINE,
            user: None,
            allows_open_password: false,
            root_certificates: None,
            client_certificate: None,
        }
    }

    /// Puts this before each key, as it is. Records under other keys are neither seen nor changed. If there
    /// is more than one job, it should end with a `/`, or one job's prefix may begin with another's.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Lets a request take this long, 5 s if it is not said. If there are several endpoints, it is divided
    /// among those that are asked.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Logs in with this name and password. Over `http://`, they can be read on the way: it is refused, but
    /// for this machine itself, unless it is [allowed](Self::allow_open_password).
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), Password(password.into())));
        self
    }

    /// Lets the name and the password go to other machines over `http://`, where everybody on the way can
    /// read them.
    pub fn allow_open_password(mut self) -> Self {
        self.allows_open_password = true;
        self
    }

    /// Trusts the certificates of this PEM file, and no others. Without it, `https://` trusts those that the
    /// system trusts.
    pub fn root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.root_certificates = Some(file.into());
        self
    }

    /// Shows this certificate (with those that it is signed by) and proves it with this key, both PEM files.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Says where the records are, for messages.
    pub(crate) fn place(&self) -> String {
        let endpoints: Vec<_> =
            self.endpoints.iter().map(|endpoint| shown::message(endpoint).to_string()).collect();
        format!("etcd at {}", endpoints.join(", "))
    }

    /// Checks them, reads the files, and returns where to connect to. Errors say what to do.
    pub(crate) fn targets(&self) -> Result<Vec<Endpoint>, String> {
        if self.endpoints.is_empty() || self.endpoints.len() > ENDPOINTS_MAX {
            let count = self.endpoints.len();
            return Err(format!("there are {count} endpoints, and 1 to {ENDPOINTS_MAX} are allowed"));
        }
        if self.deadline.is_zero() || self.deadline > DEADLINE_MAX {
            return Err(format!(
                "the deadline is {:?}, and more than 0 s to {DEADLINE_MAX:?} is allowed",
                self.deadline
            ));
        }
        if self.prefix.len() > KEY_BYTES_MAX || self.prefix.contains('\0') {
            let bytes = self.prefix.len();
            return Err(format!(
                "the prefix has {bytes} bytes, and at most {KEY_BYTES_MAX} are allowed, none of them zero"
            ));
        }
        if self.user.as_ref().is_some_and(|(name, _)| name.is_empty()) {
            return Err("the user's name is empty".to_owned());
        }
        let is_secret = self.user.is_some() && !self.allows_open_password;
        let is_tls_set = self.root_certificates.is_some() || self.client_certificate.is_some();
        let tls = self.tls()?;
        self.endpoints
            .iter()
            .map(|endpoint| {
                target(endpoint, &tls, is_tls_set, is_secret)
                    .map_err(|message| format!("the endpoint {}: {message}", shown::message(endpoint)))
            })
            .collect()
    }

    fn tls(&self) -> Result<ClientTlsConfig, String> {
        let mut tls = ClientTlsConfig::new();
        tls = match &self.root_certificates {
            Some(file) => tls.ca_certificate(Certificate::from_pem(pem(file, "CERTIFICATE")?)),
            None => tls.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.client_certificate {
            tls =
                tls.identity(Identity::from_pem(pem(certificate, "CERTIFICATE")?, pem(key, "PRIVATE KEY")?));
        }
        Ok(tls)
    }
}

/// Reads a file that must hold something of this kind.
fn pem(file: &Path, kind: &str) -> Result<Vec<u8>, String> {
    let shown = shown::path(file);
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {shown}: {error}"))?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(format!("{shown} has more than the {PEM_BYTES_MAX} bytes that are allowed"));
    }
    // A key may be an "EC PRIVATE KEY" or the like.
    let ending = format!("{kind}-----");
    let is_there = bytes.windows(ending.len()).any(|window| window == ending.as_bytes());
    if !is_there {
        return Err(format!("{shown} has no {kind} in PEM format"));
    }
    Ok(bytes)
}

/// Where to connect to, and how.
fn target(
    endpoint: &str,
    tls: &ClientTlsConfig,
    is_tls_set: bool,
    is_secret: bool,
) -> Result<Endpoint, String> {
    const FORM: &str = "http://HOST:PORT or https://HOST:PORT is allowed";
    let uri: Uri = endpoint.parse().map_err(|error| format!("{error}; {FORM}"))?;
    let is_https = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(format!("it does not say http:// or https://; {FORM}")),
    };
    let is_bare = matches!(uri.path_and_query().map(|path| path.as_str()), None | Some("" | "/"));
    let authority = uri.authority().ok_or_else(|| FORM.to_owned())?;
    if !is_bare || authority.as_str().contains('@') || authority.host().is_empty() {
        return Err(FORM.to_owned());
    }
    if authority.port_u16().is_none() {
        return Err(format!("it has no port; etcd's own is 2379; {FORM}"));
    }
    if is_tls_set && !is_https {
        return Err("certificates are given, but are not used over http://: say https://".to_owned());
    }
    // An IPv6 address stands in brackets.
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let is_here = host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    if is_secret && !is_https && !is_here {
        return Err(format!(
            "a password is given, and everybody on the way can read it over http://: say https://, or allow \
             it with {}",
            words("allow_open_password", "--etcd-open-password", "allow_open_password")
        ));
    }
    let target = Endpoint::from(uri.clone())
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .tcp_nodelay(true);
    if !is_https {
        return Ok(target);
    }
    target.tls_config(tls.clone().domain_name(host)).map_err(|error| super::failure::with_causes(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &EtcdOptions, due: &str) {
        let message = options.targets().unwrap_err();
        assert!(message.contains(due), "{message}");
    }

    #[test]
    fn options_that_cannot_be_met_are_refused() {
        let one = || EtcdOptions::new(["http://127.0.0.1:2379"]);
        assert_eq!(one().targets().unwrap().len(), 1);
        refused(&EtcdOptions::new([""; 0]), "there are 0 endpoints");
        refused(&EtcdOptions::new(["127.0.0.1:2379"]), "127.0.0.1:2379: it does not say http://");
        refused(&EtcdOptions::new(["ftp://127.0.0.1:2379"]), "does not say http://");
        refused(&EtcdOptions::new(["http://127.0.0.1"]), "no port; etcd's own is 2379");
        refused(&EtcdOptions::new(["http://127.0.0.1:2379/v3"]), "http://HOST:PORT");
        refused(&EtcdOptions::new(["http://me:word@127.0.0.1:2379"]), "http://HOST:PORT");
        refused(&EtcdOptions::new(["http://:2379"]), "HOST:PORT");
        refused(&EtcdOptions::new(["http://a b:2379"]), "HOST:PORT");
        refused(&EtcdOptions::new(["http://127.0.0.1:99999"]), "HOST:PORT");
        refused(&EtcdOptions::new(vec!["http://127.0.0.1:2379"; 65]), "1 to 64");
        refused(&one().deadline(Duration::ZERO), "the deadline is 0ns");
        refused(&one().deadline(Duration::MAX), "3600s is allowed");
        refused(&one().prefix("a\0"), "none of them zero");
        refused(&one().prefix("a".repeat(481)), "at most 480");
        refused(&one().user("", "word"), "name is empty");
        refused(&one().root_certificates("/nowhere/ca.pem"), "cannot read /nowhere/ca.pem");
        refused(&one().root_certificates("/dev/zero"), "more than the 4194304 bytes");
        refused(&one().root_certificates("/dev/null"), "no CERTIFICATE in PEM format");
    }

    #[test]
    fn certificates_that_are_not_used_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        refused(&EtcdOptions::new(["http://127.0.0.1:2379"]).root_certificates(&file), "say https://");
        let https = EtcdOptions::new(["https://127.0.0.1:2379"]);
        refused(&https.clone().client_certificate(&file, &file), "no PRIVATE KEY");
    }

    #[test]
    fn a_password_that_others_can_read_is_refused() {
        let to = |endpoint: &str| EtcdOptions::new([endpoint]).user("me", "word");
        for far in [
            "http://etcd-0:2379",
            "http://10.0.0.7:2379",
            "http://[2001:db8::1]:2379",
            "http://localhost.example:2379",
        ] {
            refused(&to(far), "say https://");
            assert_eq!(to(far).allow_open_password().targets().unwrap().len(), 1);
            assert!(EtcdOptions::new([far]).targets().is_ok());
        }
        for near in
            ["http://127.0.0.1:2379", "http://127.8.0.1:2379", "http://localhost:2379", "http://[::1]:2379"]
        {
            assert_eq!(to(near).targets().unwrap().len(), 1, "{near}");
        }
        assert_eq!(to("https://etcd-0:2379").targets().unwrap().len(), 1);
        // One of several is enough.
        refused(&EtcdOptions::new(["https://a:2379", "http://b:2379"]).user("me", "word"), "http://b:2379");
    }

    #[test]
    fn a_password_is_not_shown() {
        let options = EtcdOptions::new(["http://127.0.0.1:2379"]).user("me", "secret");
        let shown = format!("{options:?}");
        assert!(shown.contains("\"me\"") && !shown.contains("secret"), "{shown}");
    }
}
