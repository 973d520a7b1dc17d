//! When a process must end: a signal asks for it, or something has failed permanently.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Whether to end. Clones are about the same end.
#[derive(Clone)]
pub(crate) struct Stop {
    is_set: watch::Sender<bool>,
    /// What has failed first.
    failure: Arc<Mutex<Option<anyhow::Error>>>,
}

impl Stop {
    pub(crate) fn new() -> Self {
        Stop { is_set: watch::Sender::new(false), failure: Arc::default() }
    }

    /// Ends at SIGTERM, as Kubernetes asks for it, or SIGINT. Call it in a runtime.
    pub(crate) fn on_signals() -> anyhow::Result<Self> {
        let stop = Stop::new();
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let mut signal = signal(kind).context("cannot catch signals")?;
            let set = stop.clone();
            tokio::spawn(async move {
                if signal.recv().await.is_some() {
                    set.set();
                }
            });
        }
        Ok(stop)
    }

    pub(crate) fn set(&self) {
        self.is_set.send_replace(true);
    }

    /// Ends because of an error.
    pub(crate) fn fail(&self, error: anyhow::Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.set();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.is_set.borrow()
    }

    /// Waits until the process is to end.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut seen = self.is_set.subscribe();
        async move {
            // There is a sender as long as anybody can ask.
            let _ = seen.wait_for(|is_set| *is_set).await;
        }
    }

    /// The error that it ended with, if it did.
    pub(crate) fn result(&self) -> anyhow::Result<()> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}
