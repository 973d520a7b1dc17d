//! What the server has to give: clients, feeds and memory are counted before anything is started.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Limits;
use crate::grpc::{Code, Status};

/// What is given out.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    clients: usize,
    feeds: usize,
    memory: u64,
}

/// A feed's share of memory, which comes back when it is dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    admission: Arc<Admission>,
    pub(super) memory: u64,
}

/// A client's place, which comes back when it is dropped.
#[derive(Debug)]
pub(super) struct ClientPlace(Arc<Admission>);

impl Admission {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Admission { limits, given: Mutex::default() })
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The memory that feeds have, and that which is left for others.
    pub(super) fn memory(&self) -> (u64, u64) {
        let given = self.given.lock().memory;
        (given, self.limits.memory_bytes.saturating_sub(given))
    }

    /// Admits a feed of this many bytes.
    pub(super) fn feed(self: &Arc<Self>, memory: u64) -> Result<Admitted, Status> {
        let mut given = self.given.lock();
        if given.feeds >= self.limits.feeds {
            let feeds = self.limits.feeds;
            return Err(exhausted(format!(
                "{feeds} feeds run here, and no more may: wait until one has ended"
            )));
        }
        let free = self.limits.memory_bytes.saturating_sub(given.memory);
        if memory > free {
            return Err(self.too_much(memory, free));
        }
        given.feeds += 1;
        given.memory += memory;
        Ok(Admitted { admission: self.clone(), memory })
    }

    /// A feed that needs more memory than there is.
    pub(super) fn too_much(&self, needed: u64, free: u64) -> Status {
        exhausted(format!(
            "this feed needs {needed} bytes of memory, and of the {} that feeds may have here {free} are \
             free: ask for smaller batches or a smaller prefetch, or wait until another feed has ended",
            self.limits.memory_bytes
        ))
    }

    /// Admits a client.
    pub(super) fn client(self: &Arc<Self>) -> Result<ClientPlace, Status> {
        let mut given = self.given.lock();
        if given.clients >= self.limits.clients {
            let clients = self.limits.clients;
            return Err(exhausted(format!(
                "{clients} clients are here, and no more may be: try again later"
            )));
        }
        given.clients += 1;
        Ok(ClientPlace(self.clone()))
    }
}

fn exhausted(message: String) -> Status {
    Status::new(Code::ResourceExhausted, message)
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut given = self.admission.given.lock();
        given.feeds -= 1;
        given.memory -= self.memory;
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        self.0.given.lock().clients -= 1;
    }
}
