//! One endpoint of a cluster, and the connection to it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tonic::transport::{self, Channel};

use super::failure::{Failure, Trouble};

/// The oldest version: it is the first that compares leases in transactions.
const VERSION_MIN: (u64, u64) = (3, 3);

/// An endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// As the options have it.
    pub(super) name: String,
    target: transport::Endpoint,
    connected: Mutex<Option<Arc<Connection>>>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    /// The version of what answers has been seen.
    pub(super) is_checked: AtomicBool,
}

impl Endpoint {
    pub(super) fn new(name: String, target: transport::Endpoint) -> Self {
        Endpoint { name, target, connected: Mutex::new(None) }
    }

    /// Returns the connection, or makes one.
    pub(super) async fn connect(&self, until: Instant) -> Result<Arc<Connection>, Trouble> {
        let start = Instant::now();
        let slow = |_| Trouble::NotTaken(format!("no connection {}", within(start)));
        timeout_at(until, async {
            // Others that want it wait for the one that makes it, each no longer than it may.
            let mut connected = self.connected.lock().await;
            if let Some(connection) = &*connected {
                return Ok(connection.clone());
            }
            match self.target.connect().await {
                Ok(channel) => {
                    let connection = Connection { channel, is_checked: AtomicBool::new(false) };
                    Ok(connected.insert(Arc::new(connection)).clone())
                }
                // Nothing was asked for yet, whatever the error says.
                Err(error) => Err(match Trouble::of_transport(&error) {
                    Trouble::Uncertain { message, .. } | Trouble::NotTaken(message) => {
                        Trouble::NotTaken(self.with_hint(message))
                    }
                    trouble => trouble,
                }),
            }
        })
        .await
        .map_err(slow)?
    }

    /// One that does not speak TLS hangs up when it is spoken to.
    fn with_hint(&self, message: String) -> String {
        let has_hung_up = !["tcp connect error", "dns error"].iter().any(|early| message.contains(early));
        if has_hung_up && self.name.starts_with("https:") {
            return format!("{message} (if it does not speak TLS, say http://)");
        }
        message
    }

    /// Forgets a connection on which nothing more is expected. One that came after it stays.
    pub(super) async fn forget(&self, lost: &Arc<Connection>) {
        self.connected.lock().await.take_if(|connection| Arc::ptr_eq(connection, lost));
    }
}

/// How long something has taken, for messages.
pub(super) fn within(start: Instant) -> String {
    format!("within {:.1?}", Duration::from_millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(0)))
}

/// Checks that a version, such as `3.4.23`, can be used.
pub(super) fn check_version(version: &str) -> Result<(), Failure> {
    let (major_min, minor_min) = VERSION_MIN;
    let mut parts = version.split(['.', '-', '+']).map(str::parse::<u64>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if major == major_min && minor >= minor_min => Ok(()),
        _ => Err(Failure::Foreign {
            message: format!(
                "it says that its version is {version:?}; version {major_min}.{minor_min} or a newer one of \
                 {major_min} is needed"
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_3_3_on_are_used() {
        for version in ["3.3.0", "3.4.23", "3.5.0-rc.1", "3.6.1+git", "3.10"] {
            assert!(check_version(version).is_ok(), "{version}");
        }
        for version in ["3.2.32", "2.3.8", "4.0.0", "", "3", "3.", "three", "3.x", "-3.4"] {
            let Err(Failure::Foreign { message }) = check_version(version) else { panic!("{version}") };
            assert!(message.contains(version) && message.contains("version 3.3 or a newer one"), "{message}");
        }
    }
}
