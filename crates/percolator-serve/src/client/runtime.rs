//! The thread on which a client's connections live.

use std::convert::Infallible;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// How long connections may take to say what they have to say, after their client was dropped.
const GRACE: Duration = Duration::from_secs(1);

/// A runtime of one thread. Whoever waits for what happens on it does so outside, and may be on any thread,
/// also on one of another runtime.
///
/// Dropping it waits until its connections are closed, for at most [`GRACE`]: what was acknowledged just
/// before is sent. It is never dropped on its own thread, because no task of it holds it.
#[derive(Debug)]
pub(crate) struct ClientRuntime {
    handle: Handle,
    /// What each task of a connection holds a copy of.
    alive: Option<mpsc::Sender<Infallible>>,
    /// The thread ends after this is dropped.
    is_open: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts the tasks of connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionTasks(mpsc::WeakSender<Infallible>);

impl ClientRuntime {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, mut all_gone) = mpsc::channel::<Infallible>(1);
        let (is_open, closed) = oneshot::channel::<Infallible>();
        let run = move || {
            runtime.block_on(async {
                let _ = closed.await;
                let _ = tokio::time::timeout(GRACE, all_gone.recv()).await;
            });
            // A look-up of a host's name may still be waiting, on a thread of its own.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("feed-client".to_owned()).spawn(run)?;
        Ok(ClientRuntime { handle, alive: Some(alive), is_open: Some(is_open), thread: Some(thread) })
    }

    pub(crate) fn tasks(&self) -> ConnectionTasks {
        let alive = self.alive.as_ref().expect("it is there until the runtime is dropped");
        ConnectionTasks(alive.downgrade())
    }

    /// Starts a task, which ends at once when it is aborted.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.handle.spawn(task).abort_handle()
    }

    /// Starts a task that ends by itself. The client's end waits for it, as for connections.
    pub(crate) fn spawn_awaited(&self, task: impl Future<Output = ()> + Send + 'static) {
        let alive = self.alive.clone();
        self.handle.spawn(async move {
            task.await;
            drop(alive);
        });
    }

    /// Does something, and waits for it.
    pub(crate) fn wait<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        let (done, outcome) = std::sync::mpsc::sync_channel(1);
        self.handle.spawn(async move {
            let _ = done.send(task.await);
        });
        outcome.recv().expect("the runtime runs each task to its end")
    }
}

impl Drop for ClientRuntime {
    fn drop(&mut self) {
        self.alive = None;
        self.is_open = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for ConnectionTasks {
    fn execute(&self, task: F) {
        let alive = self.0.upgrade();
        tokio::spawn(async move {
            task.await;
            drop(alive);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::rt::Executor;
    use std::sync::mpsc;

    #[test]
    fn tasks_of_connections_are_waited_for() {
        let runtime = ClientRuntime::start().unwrap();
        let tasks = runtime.tasks();
        let (said, heard) = mpsc::channel();
        let (begin, begun) = oneshot::channel::<()>();
        runtime.wait(async move {
            tasks.execute(async move {
                let _ = begun.await;
                tokio::task::yield_now().await;
                said.send("done").unwrap();
            });
        });
        begin.send(()).unwrap();
        drop(runtime);
        assert_eq!(heard.try_recv(), Ok("done"));
    }

    #[test]
    fn it_may_be_used_within_another_runtime() {
        let other = Builder::new_current_thread().build().unwrap();
        other.block_on(async {
            let runtime = ClientRuntime::start().unwrap();
            assert_eq!(runtime.wait(async { 7 }), 7);
        });
    }
}
