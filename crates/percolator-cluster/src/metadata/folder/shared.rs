//! What all who have a folder open in this process share: its files, and the environment on them.

use std::path::Path;
use std::process;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::book::{View, Writer};
use super::boot::BootId;
use super::environment::{Environment, Reserve, grow};
use super::fault::Fault;
use super::files::Files;
use super::turn::{Deadline, Turn, Work};
use crate::clock::Clock;

/// Every folder that is open in this process. The mutex is held while an environment is closed for good, and
/// whoever opens one has found its folder here: so there is never more than one on a file.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// An open folder.
#[derive(Debug)]
pub(super) struct Shared {
    files: Files,
    /// The process that opened them. Locks are not inherited as they should be by one that it forks.
    process: u32,
    /// It is opened by the first turn, and again after a fault.
    environment: Mutex<Option<Environment>>,
}

/// A share of an open folder.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    /// `Some` until the drop.
    shared: Option<Arc<Shared>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut open = OPEN.lock();
        self.shared = None;
        open.retain(|folder| folder.strong_count() > 0);
    }
}

/// Who asks for something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) clock: &'a dyn Clock,
    pub(super) boot: BootId,
    pub(super) deadline: Deadline,
    /// How long the file may become.
    pub(super) bytes_max: u64,
    /// Whether it may use the file's reserve.
    pub(super) reserve: Reserve,
}

impl Handle {
    /// Opens a folder, or finds it open.
    pub(super) fn open(folder: &Path, boot: BootId, deadline: Deadline) -> Result<Self, Fault> {
        let files = Files::open(folder, boot, deadline)?;
        let mut open = OPEN.lock();
        let process = process::id();
        let is_same = |shared: &Arc<Shared>| shared.files.id == files.id && shared.process == process;
        if let Some(shared) = open.iter().filter_map(Weak::upgrade).find(is_same) {
            return Ok(Handle { shared: Some(shared) });
        }
        let shared = Arc::new(Shared { files, process, environment: Mutex::new(None) });
        open.push(Arc::downgrade(&shared));
        Ok(Handle { shared: Some(shared) })
    }

    fn shared(&self) -> &Shared {
        self.shared.as_deref().expect("it is taken only by the drop")
    }

    /// Looks at the records. `None` if leases may be over, which only [`write`](Self::write) can end.
    pub(super) fn read<T>(
        &self,
        caller: &Caller<'_>,
        work: impl FnOnce(&View<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mut session = self.shared().begin(Work::Read, caller)?;
        let found = session.environment(Reserve::Kept).and_then(|environment| {
            let transaction = environment.environment.begin_ro_txn()?;
            let view = View::reading(&transaction, environment.database)?;
            if view.is_due(caller.boot, caller.clock.now()) {
                return Ok(None);
            }
            work(&view).map(Some)
        });
        session.ended(found)
    }

    /// Ends the leases that are over, and changes records. `work` may be called again, from the same start.
    pub(super) fn write<T>(
        &self,
        caller: &Caller<'_>,
        mut work: impl FnMut(&mut Writer<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut session = self.shared().begin(Work::Write, caller)?;
        let mut reserve = Reserve::Kept;
        loop {
            let changed = session.environment(reserve).and_then(|environment| {
                let transaction = environment.environment.begin_rw_txn()?;
                let mut writer = Writer::begin(transaction, environment.database, caller.clock.now())?;
                let result = work(&mut writer)?;
                writer.commit()?;
                Ok(result)
            });
            match changed {
                Err(Fault::Engine(lmdb::Error::MapFull)) if reserve != caller.reserve => {
                    reserve = caller.reserve;
                }
                Err(Fault::Engine(lmdb::Error::MapFull)) => {
                    session.file_bytes = grow(&session.files.data, session.file_bytes, caller.bytes_max)?;
                }
                changed => return session.ended(changed),
            }
        }
    }
}

impl Shared {
    fn begin(&self, work: Work, caller: &Caller<'_>) -> Result<Session<'_>, Fault> {
        let (deadline, found) = (caller.deadline, process::id());
        if found != self.process {
            let opened = self.process;
            return Err(Fault::Denied(format!(
                "the process {opened} opened it and then forked this one, {found}, which must open it anew"
            )));
        }
        // Threads of one process share its locks on files, so they take turns here first.
        let Some(environment) = self.environment.try_lock_for(deadline.left()) else {
            return Err(deadline.passed());
        };
        let turn = Turn::take(&self.files.data, &self.files.line, work, deadline)?;
        let file_bytes = self.files.bytes()?;
        Ok(Session { _turn: turn, files: &self.files, environment, file_bytes })
    }
}

/// A turn with the environment.
struct Session<'a> {
    /// Declared, hence dropped, before the right of this thread.
    _turn: Turn<'a>,
    files: &'a Files,
    environment: MutexGuard<'a, Option<Environment>>,
    file_bytes: u64,
}

impl Session<'_> {
    /// The environment, which maps the file as it is now.
    fn environment(&mut self, reserve: Reserve) -> Result<&Environment, Fault> {
        let mut environment = match self.environment.take() {
            Some(open) => open,
            None => Environment::open(&self.files.path, &self.files.data, self.file_bytes)?,
        };
        environment.fit(self.file_bytes, reserve)?;
        Ok(self.environment.insert(environment))
    }

    /// Ends the turn. After a fault the environment is opened anew, and verified, by whoever comes next.
    fn ended<T>(mut self, result: Result<T, Fault>) -> Result<T, Fault> {
        if result.as_ref().is_err_and(Fault::is_of_the_environment) {
            *self.environment = None;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;

    fn caller(clock: &ManualClock) -> Caller<'_> {
        let deadline = Deadline::after(Duration::from_secs(60));
        Caller { clock, boot: BootId(1), deadline, bytes_max: 2 << 20, reserve: Reserve::Used }
    }

    #[test]
    fn a_handle_that_a_fork_inherited_is_refused() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let caller = caller(&clock);
        let files = Files::open(folder.path(), caller.boot, caller.deadline).unwrap();
        // As it is in the child.
        let shared = Shared { files, process: process::id() + 1, environment: Mutex::new(None) };
        let handle = Handle { shared: Some(Arc::new(shared)) };
        let found = handle.read(&caller, |_| Ok(())).unwrap_err().at("the folder /x", "read records");
        assert!(found.to_string().contains("must open it anew"), "{found}");
        // Which it can.
        let opened = Handle::open(folder.path(), caller.boot, caller.deadline).unwrap();
        assert_eq!(opened.read(&caller, |_| Ok(1)).unwrap(), Some(1));
        assert!(handle.write(&caller, |_| Ok(())).is_err());
    }

    /// Whatever failed: the next turn has an environment that was verified anew.
    #[test]
    fn after_a_fault_the_environment_is_opened_anew() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let caller = caller(&clock);
        let handle = Handle::open(folder.path(), caller.boot, caller.deadline).unwrap();
        let is_open = || handle.shared().environment.lock().is_some();
        assert!(!is_open());
        handle.read(&caller, |_| Ok(())).unwrap();
        assert!(is_open());
        let failed = handle.write(&caller, |writer| {
            writer.grant(Duration::MAX)?;
            Err::<(), _>(Fault::Engine(lmdb::Error::Panic))
        });
        assert!(failed.is_err() && !is_open());
        assert_eq!(handle.write(&caller, |writer| writer.grant(Duration::MAX)).unwrap().0, 1);
        assert!(is_open());
    }
}
